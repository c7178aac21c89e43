"""The endpoints of Nimbus as one table, from which the routes, the OpenAPI document and docs/http-api.md are made.

Must not know: how a request arrives, the work of the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic

import msgspec
from msgspec import Struct

from nimbus.http import backups, dead_letters, handlers
from nimbus.http.auth import NIMBUS, OPERATOR, SUPERVISOR
from nimbus.http.handlers import ApiCall, Body, Query, Services
from nimbus.submission.parse import BODY_LIMIT, S, read, read_submission
from nimbus.submission.restoration import read_restoration
from squall.api import answers, cluster_answers, letters, requests, versions
from squall.api import backups as backup_structs
from squall.exact_structs import build_type_info

API: Final = "/api/v1"
#: The limit of a request other than a submission, in bytes of JSON.
SMALL: Final = 1024 * 1024

OPERATORS: Final = frozenset((OPERATOR,))
DAEMONS: Final = frozenset((OPERATOR, SUPERVISOR, NIMBUS))
SUPERVISORS: Final = frozenset((SUPERVISOR,))
ANYBODY: Final[frozenset[str]] = frozenset()


class JsonBody(msgspec.Struct, Generic[Body], frozen=True):
    """The JSON body of an endpoint's requests. `read` converts it for the handler, or raises `BadRequest`."""

    shape: type[Struct]
    read: Callable[[object], Body]


def _fields(shape: type[S]) -> JsonBody[S]:
    """Return the description of a body that may be missing, since no field is required."""
    return JsonBody(shape, lambda body: read(shape, {} if body is None else body))


class Endpoint(msgspec.Struct, Generic[Query, Body], frozen=True):
    """One method of one path. If `handler` is None, `app.py` answers, because the endpoint streams its data or needs no thread.

    answers: status -> the struct of the JSON, or a description of a body that is not JSON. notes: status -> a remark on the
    status. leads: "always": only the leader answers, other Nimbuses redirect to the leader; "reports": the same if the body has
    reports; "": any Nimbus answers. errors: the error statuses besides 401, 500 and 503.
    """

    method: str
    path: str
    handler: Callable[[Services, ApiCall[Query, Body]], tuple[int, Struct]] | None
    summary: str
    answers: Mapping[int, type[Struct] | str]
    who: frozenset[str] = OPERATORS
    leads: str = ""
    query: type[Query] | None = None
    body: JsonBody[Body] | None = None
    body_limit: int = SMALL
    errors: tuple[int, ...] = ()
    notes: Mapping[int, str] = msgspec.field(default_factory=dict)
    media_type: str = "application/json"
    group: str = "Topologies"
    #: Whether a POST changes nothing, so that it is not recorded as a change.
    reads: bool = False
    #: The endpoint's name in `app.py`, if it has no handler.
    name: str = ""

    @property
    def id(self) -> str:
        """The endpoint's unique name."""
        return self.name if self.handler is None else self.handler.__name__


AnyEndpoint = Endpoint[Any, Any]

DEAD_LETTERS: Final = "Dead letters"
BACKUPS: Final = "Backups"
_RESTORATION: Final = JsonBody(backup_structs.RestoreRequest, read_restoration)
_LETTER_IDS: Final = JsonBody(letters.LetterIdsRequest, lambda body: read(letters.LetterIdsRequest, body))

TABLE: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        "GET", f"{API}/cluster", handlers.cluster, "The cluster in a few numbers",
        {200: cluster_answers.ClusterAnswer}, group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/nimbuses", handlers.nimbuses, "The Nimbuses, and who has the operators' token",
        {200: cluster_answers.NimbusesAnswer}, group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/supervisors", handlers.supervisors, "The supervisors and their workers",
        {200: cluster_answers.SupervisorsAnswer}, group="The cluster",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/drain", handlers.drain, "Move all work off a supervisor, and give it no new work",
        {202: cluster_answers.DrainAnswer}, leads="always", errors=(404,), group="The cluster",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/undrain", handlers.undrain, "Allow work on a supervisor again",
        {202: cluster_answers.DrainAnswer}, leads="always", errors=(404,), group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/configuration", handlers.configuration, "The settings of the Nimbus that answers, without secrets",
        {200: cluster_answers.ConfigurationAnswer}, group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/topologies", handlers.topologies, "All topologies", {200: answers.TopologiesAnswer},
    ),
    Endpoint(
        "POST", f"{API}/topologies", handlers.submit, "Submit a topology",
        {201: answers.SubmittedAnswer, 200: answers.SubmittedAnswer}, leads="always",
        body=JsonBody(requests.SubmitRequest, read_submission), body_limit=BODY_LIMIT, errors=(400, 409, 413, 422),
        notes={200: "if the submission was already accepted: nothing is done again"},
    ),
    Endpoint(
        "POST", f"{API}/checks", handlers.check_submission,
        "Check a submission as a submission is checked, without its files, and change nothing",
        {200: answers.SubmittedAnswer}, leads="always", reads=True,
        body=JsonBody(requests.SubmitRequest, read_submission), body_limit=BODY_LIMIT, errors=(400, 409, 413, 422),
        notes={200: "what a submission would be answered, with an empty `id`"},
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}", handlers.topology, "State, counters and workers of a topology",
        {200: answers.TopologyAnswer}, errors=(404,),
    ),
    Endpoint(
        "DELETE", f"{API}/topologies/{{name}}", handlers.kill, "Kill a topology: it drains, then its name is free",
        {202: answers.StateAnswer}, leads="always", query=requests.KillQuery, errors=(400, 404, 409, 422),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/activate", handlers.activate, "Activate the spouts",
        {202: answers.StateAnswer}, leads="always", body=_fields(requests.NoFields), errors=(400, 404, 409),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/deactivate", handlers.deactivate, "Deactivate the spouts",
        {202: answers.StateAnswer}, leads="always", body=_fields(requests.NoFields), errors=(400, 404, 409),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/rebalance", handlers.rebalance,
        "Let the pending tuples of a topology finish, then place all its tasks again",
        {202: answers.StateAnswer}, leads="always", body=_fields(requests.RebalanceRequest), errors=(400, 404, 409, 422),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/rollback", handlers.rollback,
        "Replace the present version of a topology by an earlier version, which is submitted again",
        {201: answers.SubmittedAnswer, 200: answers.SubmittedAnswer, 202: answers.SubmittedAnswer}, leads="always",
        body=JsonBody(requests.RollbackRequest, lambda body: read(requests.RollbackRequest, body)),
        errors=(400, 404, 409, 422),
        notes={
            200: "if it was already accepted: nothing is done again",
            202: "if the present version is on trial: it is rolled back, and the previous version returns",
        },
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/components/{{component}}", handlers.component, "One component",
        {200: answers.ComponentAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/errors", handlers.errors, "The latest errors of the user's code, the oldest first",
        {200: answers.ErrorsAnswer}, query=requests.ErrorsQuery, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/previous", handlers.previous,
        "The errors, counters and workers of the version that ended last, also after a kill",
        {200: answers.PreviousAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/history", handlers.history,
        "The present version of a topology, the version that waits to replace it, and the earlier versions that are kept",
        {200: versions.HistoryAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/workers", handlers.workers,
        "The workers of a topology, or those that it had when it ended", {200: answers.WorkersAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/configuration", handlers.topology_configuration,
        "The merged configuration of a topology, without secrets", {200: answers.ConfigurationsAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/counters", handlers.counters, "The counters of the components and of each worker",
        {200: answers.CountersAnswer}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/workers/{{worker}}/log", handlers.log,
        "A piece of a worker's log, fetched from its supervisor; of a version that has ended with `version`",
        {200: answers.LogAnswer}, query=requests.LogQuery, errors=(400, 404),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/workers/{{worker}}/stacks", handlers.stacks,
        "Where the threads and the running calls of a worker are; asked through its supervisor, for up to three seconds",
        {200: answers.StacksAnswer}, errors=(404,),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/workers/{{worker}}/state", handlers.live_state,
        "What the running tasks of a worker have for a key of a component; asked through its supervisor, for four seconds",
        {200: answers.LiveStateAnswer},
        body=JsonBody(requests.LiveStateRequest, lambda body: read(requests.LiveStateRequest, body)), reads=True,
        errors=(400, 404),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/dead-letters", dead_letters.letter_hosts,
        "The hosts that may hold dead letters of a topology, which may be gone", {200: letters.LetterHostsAnswer},
        group=DEAD_LETTERS,
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/dead-letters/{{supervisor}}", dead_letters.dead_letters,
        "Dead letters on one host, a page of about a megabyte", {200: letters.LetterPage}, query=letters.LetterQuery,
        errors=(400, 404, 409), group=DEAD_LETTERS,
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/dead-letters/{{supervisor}}/resend", dead_letters.resend_letters,
        "Send dead letters of one host again", {200: letters.ResentAnswer}, body=_LETTER_IDS, errors=(400, 404, 409),
        group=DEAD_LETTERS,
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/dead-letters/{{supervisor}}/drop", dead_letters.drop_letters,
        "Remove dead letters of one host", {200: letters.DroppedAnswer}, body=_LETTER_IDS, errors=(400, 404, 409),
        group=DEAD_LETTERS,
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/backup", backups.backup,
        "All lasting records of a topology, with the secrets in its settings", {200: backup_structs.TopologyBackup},
        leads="always", errors=(404, 409), group=BACKUPS,
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/bundles/{{id}}", backups.bundle,
        "The description and the pickles of a version of a topology", {200: backup_structs.BundleAnswer},
        leads="always", errors=(404,), group=BACKUPS,
    ),
    Endpoint(
        "POST", f"{API}/restores", backups.restore, "Restore a topology from a backup, with all its versions",
        {201: backup_structs.RestoredAnswer, 200: backup_structs.RestoredAnswer}, leads="always", body=_RESTORATION,
        body_limit=BODY_LIMIT, errors=(400, 409, 413, 422), group=BACKUPS,
        notes={200: "if it was already restored by this request: nothing is done again"},
    ),
    Endpoint(
        "POST", f"{API}/restore-checks", backups.check_restore,
        "Check what `POST /restores` checks, as far as its files are there, and change nothing",
        {200: backup_structs.RestoredAnswer}, leads="always", body=_RESTORATION, body_limit=BODY_LIMIT, reads=True,
        errors=(400, 409, 413, 422), group=BACKUPS,
    ),
    Endpoint(
        "PUT", f"{API}/files/{{sha256}}", None, "Send a file of a topology; the body is its bytes",
        {201: cluster_answers.FileAnswer, 200: cluster_answers.FileAnswer}, leads="always", errors=(400, 413),
        notes={200: "if the file was already there"}, group="Files", name="put_file",
    ),
    Endpoint(
        "GET", f"{API}/files/{{sha256}}", None, "The bytes of a file", {200: "the bytes of the file"}, who=DAEMONS,
        errors=(400, 404), media_type="application/octet-stream", group="Files", name="get_file",
    ),
    Endpoint(
        "HEAD", f"{API}/files/{{sha256}}", None, "Whether a file is there", {200: "the file is there; the body is empty"},
        who=DAEMONS, leads="always", errors=(400, 404), group="Files", name="has_file",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/reports", handlers.reports,
        "Reports and counters of a supervisor's workers; also the supervisor's heartbeat", {200: cluster_answers.ReportsAnswer},
        who=SUPERVISORS, leads="reports",
        body=JsonBody(requests.ReportsRequest, lambda body: read(requests.ReportsRequest, body)),
        body_limit=BODY_LIMIT, errors=(400, 413), group="For daemons",
    ),
    Endpoint(
        "GET", f"{API}/openapi.json", None, "This API as an OpenAPI document",
        {200: cluster_answers.OpenApiAnswer}, who=ANYBODY, group="For machines", name="openapi",
    ),
    Endpoint(
        "GET", "/health", None, "Whether this Nimbus can work: 200, or 503 while the store cannot be reached",
        {200: cluster_answers.HealthAnswer, 503: cluster_answers.HealthAnswer}, who=ANYBODY,
        notes={503: "when it is `unavailable`"}, group="For machines", name="health",
    ),
    Endpoint(
        "GET", "/metrics", None, "Topologies, workers and counters for Prometheus", {200: "the text format of Prometheus"},
        media_type="text/plain; version=0.0.4", group="For machines", name="metrics",
    ),
)  # fmt: skip


# Several threads answer requests, so msgspec's type information is built here, in one thread.
build_type_info(
    *(
        kind
        for module in (answers, backup_structs, letters, requests, versions)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Struct)
    )
)
