"""Everything that can be asked of a Nimbus, as one table: the routes, the OpenAPI document and docs/http-api.md come from it.

Must not know: how a request arrives, what the handlers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nimbus.http import answers, handlers
from nimbus.http.answers import Answer
from nimbus.http.desk import Call, Desk
from nimbus.http.gate import NIMBUS, OPERATOR, SUPERVISOR
from nimbus.submission import BODY_LIMIT
from topology_api.values import MAX_SECONDS

API: Final = "/api/v1"
#: Bytes of JSON in a request that is no submission.
SMALL: Final = 1024 * 1024

Handler = Callable[[Desk, Call], "tuple[int, Any]"]

OPERATORS: Final = frozenset((OPERATOR,))
DAEMONS: Final = frozenset((OPERATOR, SUPERVISOR, NIMBUS))
SUPERVISORS: Final = frozenset((SUPERVISOR,))
ANYBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Parameter:
    """A value in a query, or a field of a body. `kind`: "text", "whole number", "number", "true or false", "object", "list"."""

    name: str
    kind: str
    text: str
    default: object = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    required: bool = False


@dataclass(frozen=True)
class Endpoint:
    """One thing that can be asked. `handler` None: `app.py` has it, because it streams or asks for no thread.

    leads: "always": only the leader does it, others redirect there. "reports": only when reports are among it. "": anyone.
    answers: by status. errors: the statuses that it has besides 401, 500 and 503.
    """

    method: str
    path: str
    handler: Handler | None
    summary: str
    answers: Mapping[int, Answer]
    who: frozenset[str] = OPERATORS
    leads: str = ""
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] | None = None
    body_limit: int = SMALL
    errors: tuple[int, ...] = ()
    media_type: str = "application/json"
    group: str = "Topologies"
    #: What `app.py` calls it, where it has no handler.
    name: str = ""

    @property
    def id(self) -> str:
        """One word for it, that no other one has."""
        return self.name if self.handler is None else self.handler.__name__


_WAIT: Final = Parameter(
    "wait_secs",
    "number",
    "Seconds that it may drain at most. Default: its message timeout.",
    least=0,
    most=MAX_SECONDS,
)

TABLE: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        "GET", f"{API}/cluster", handlers.cluster, "The cluster in a few numbers",
        {200: answers.CLUSTER},
        group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/supervisors", handlers.supervisors, "The supervisors and their workers",
        {200: answers.SUPERVISORS},
        group="The cluster",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/drain", handlers.drain, "Move all work away from a supervisor, place none there",
        {202: answers.DRAINED}, leads="always", errors=(404,), group="The cluster",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/undrain", handlers.undrain, "Let a supervisor have work again",
        {202: answers.DRAINED}, leads="always", errors=(404,), group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/configuration", handlers.configuration, "The settings of the Nimbus that answers, without secrets",
        {200: answers.CONFIGURATION}, group="The cluster",
    ),
    Endpoint(
        "GET", f"{API}/topologies", handlers.topologies, "All topologies",
        {200: answers.TOPOLOGIES},
    ),
    Endpoint(
        "POST", f"{API}/topologies", handlers.submit, "Submit a topology",
        {201: answers.SUBMITTED, 200: answers.SUBMITTED_BEFORE},
        leads="always", body_limit=BODY_LIMIT, errors=(400, 409, 413, 422),
        body=(
            Parameter("submission", "text", "A key of the submitter's own, the same in each retry: a UUID.", required=True),
            Parameter("description", "object", "The typed description, `Topology.describe()`.", required=True),
            Parameter("pickles", "object", "Component -> its pickle, as base64. Nimbus never unpickles."),
            Parameter("conf", "object", "The merged configuration of the topology."),
            Parameter("component_confs", "object", "Component -> its merged configuration."),
            Parameter("python", "text", "The Python that packed it, `3.11.4`: its minor version must be the cluster's.",
                      required=True),
            Parameter("cloudpickle", "text", "The cloudpickle that packed it: major and minor version must be the cluster's.",
                      required=True),
            Parameter("squall", "text", "The release that packed it."),
            Parameter("active", "true or false", "Whether its spouts run at once.", True),
            Parameter("replace", "true or false", "Whether it takes over from a running topology of its name.", False),
            Parameter("wait_secs", "number", "With `replace`: how long the old one may drain.", least=0,
                      most=MAX_SECONDS),
            Parameter("files", "object", "What was sent before: `code`, `wheels`, `requirements` -> SHA-256."),
        ),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}", handlers.topology, "State, counters and workers of a topology",
        {200: answers.TOPOLOGY},
        errors=(404,),
    ),
    Endpoint(
        "DELETE", f"{API}/topologies/{{name}}", handlers.kill, "Kill a topology: it drains, then its name is free",
        {202: answers.CHANGED}, leads="always", query=(_WAIT,), errors=(400, 404, 409, 422),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/activate", handlers.activate, "Let the spouts run",
        {202: answers.CHANGED}, leads="always", errors=(400, 404, 409),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/deactivate", handlers.deactivate, "Have the spouts rest",
        {202: answers.CHANGED}, leads="always", errors=(400, 404, 409),
    ),
    Endpoint(
        "POST", f"{API}/topologies/{{name}}/rebalance", handlers.rebalance, "Place all tasks anew, after a drain",
        {202: answers.CHANGED}, leads="always", errors=(400, 404, 409, 422),
        body=(
            Parameter("workers", "whole number", "The new number of workers. Default: as before."),
            Parameter("parallelism", "object", "Component -> its new number of tasks."),
            _WAIT,
        ),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/components/{{component}}", handlers.component, "One component",
        {200: answers.COMPONENT},
        errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/errors", handlers.errors, "The latest errors of the user's code, the oldest first",
        {200: answers.ERRORS},
        query=(Parameter("component", "text", "Only this component's."),), errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/workers", handlers.workers,
        "The workers of a topology, or those that it had when it ended",
        {200: answers.WORKERS},
        errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/configuration", handlers.topology_configuration,
        "The merged configuration of a topology, without secrets", {200: answers.CONFIGURATIONS}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/counters", handlers.counters, "What the components and each worker have counted",
        {200: answers.COUNTERS}, errors=(404,),
    ),
    Endpoint(
        "GET", f"{API}/topologies/{{name}}/workers/{{worker}}/log", handlers.log,
        "A piece of a worker's log, from its supervisor, until the topology is killed",
        {200: answers.LOG},
        query=(
            Parameter("file", "text", "Which log: its own, what was written past it, or its environment's build log.", "worker",
                      ("worker", "output", "build")),
            Parameter("offset", "whole number", "The first byte; negative: counted from the end.", 0),
            Parameter("limit", "whole number", "Bytes at most.", 65_536, least=1),
        ),
        errors=(400, 404),
    ),
    Endpoint(
        "PUT", f"{API}/files/{{sha256}}", None, "Send a file that a topology brings; the body is its bytes",
        {201: answers.SENT, 200: answers.SENT_BEFORE}, leads="always", errors=(400, 413),
        group="Files", name="put_file",
    ),
    Endpoint(
        "GET", f"{API}/files/{{sha256}}", None, "The bytes of a file", {200: answers.BYTES}, who=DAEMONS, errors=(400, 404),
        media_type="application/octet-stream", group="Files", name="get_file",
    ),
    Endpoint(
        "HEAD", f"{API}/files/{{sha256}}", None, "Whether a file is there", {200: answers.NOTHING}, who=DAEMONS, leads="always",
        errors=(400, 404), group="Files", name="has_file",
    ),
    Endpoint(
        "POST", f"{API}/supervisors/{{id}}/reports", handlers.reports,
        "What a supervisor passes on of its workers; a sign of life too",
        {200: answers.REFUSED},
        who=SUPERVISORS, leads="reports", body_limit=BODY_LIMIT, errors=(400, 413), group="For daemons",
        body=(
            Parameter("reports", "list", 'Of `{"topology", "report"}`: the name, and the record as the store has it.'),
            Parameter("counters", "list", 'Of `{"topology_id", "worker", "incarnation", "counters"}`.'),
        ),
    ),
    Endpoint(
        "GET", f"{API}/openapi.json", None, "This API as an OpenAPI document", {200: answers.OPENAPI}, who=ANYBODY,
        group="For machines", name="openapi",
    ),
    Endpoint(
        "GET", "/health", None, "Whether this Nimbus can do its work: 200, or 503 while the store is away",
        {200: answers.HEALTH, 503: answers.HEALTH_503}, who=ANYBODY,
        group="For machines", name="health",
    ),
    Endpoint(
        "GET", "/metrics", None, "Topologies, workers and counters for Prometheus", {200: answers.PROMETHEUS},
        media_type="text/plain; version=0.0.4", group="For machines", name="metrics",
    ),
)  # fmt: skip
