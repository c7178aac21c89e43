"""The handlers of the API, and their arguments: the parts of a Nimbus, and one request after it was read.

Each handler is a function of the services and the call, and returns a status and the struct to send. Handlers run in threads of
a pool, several at a time; they hand changes to the control thread.
Must not know: Starlette; the paths of the handlers (these are in `table.py`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, convert, structs, to_builtins

from nimbus.files.stored_files import FileStore
from nimbus.http.auth import Caller
from nimbus.http.errors import NoLeader, Unauthorized
from nimbus.http.folder_probes import check_shared
from nimbus.http.history import history_answer, wanted_version
from nimbus.http.previous import former_supervisor, previous_answer
from nimbus.http.views import Views
from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.lifecycle.states import KILLED
from nimbus.submission.parse import BadRequest, check_versions
from nimbus.submission.repeated import repetition
from nimbus.submission.set_options import differences, shown_options
from nimbus.submission.submission import Submission
from squall.api import answers, cluster_answers, requests
from squall.cluster.records import (
    BadRecord,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
    decode,
)
from squall.daemon.command_loop import Driver
from squall.http.client import Client, Refused, at
from squall.packages.versions import own_versions
from squall.security.redaction import redacted
from topology_api.epoch_rules import has_path, state_path
from topology_api.errors import NoSuchTopology, SquallError

_log = logging.getLogger(__name__)

T = TypeVar("T")
Query = TypeVar("Query")
Body = TypeVar("Body")

#: Seconds within which a request is answered, if necessary with "unavailable".
ANSWER_SECS: Final = 4.5
#: The minimum number of seconds that a command gets, however long it took to read its request.
LEAST_SECS: Final = 1.5
#: Seconds that a supervisor has for the state of a worker's tasks: see `supervisor.state_questions.PATIENCE`.
LIVE_SECS: Final = 4.2


class ApiCall(msgspec.Struct, Generic[Query, Body], frozen=True):
    """A request: its sender, the names in its path, its query, and its body.

    `began`: the time, on the monotonic clock, at which the handler could begin; `address`: where the request came from.
    """

    caller: Caller
    path: Mapping[str, str]
    query: Query
    body: Body
    began: float = msgspec.field(default_factory=time.monotonic)
    address: str = ""

    @property
    def by(self) -> str:
        """Who sent the request, and from where, as far as Nimbus knows."""
        return f"{self.caller.kind} at {self.address}" if self.address else self.caller.kind

    @property
    def left(self) -> float:
        """The seconds that are left for the answer."""
        return max(LEAST_SECS, ANSWER_SECS - (time.monotonic() - self.began))


class Services(msgspec.Struct, frozen=True):
    """The parts of one Nimbus that its HTTP handlers use."""

    views: Views
    files: FileStore
    control: LeaderLoop
    driver: Driver
    #: The options of this daemon.
    conf: Mapping[str, object]
    #: Makes the client that asks a supervisor for logs.
    ask_supervisor: Callable[[SupervisorRecord], Client]
    started: float = msgspec.field(default_factory=time.monotonic)

    def lead(self, call: ApiCall[Query, Body], command: Callable[[Nimbus], T]) -> T:
        """Run a command on the master, in the control thread."""
        return self.driver.call(lambda: self.control.lead(command), timeout=call.left)

    def leader_url(self) -> str:
        """Return the leader's URL.

        Raises `NoLeader` if there is no leader, or if this Nimbus itself is the new leader and has not taken over yet.
        """
        leader = self.views.leader_id()
        if leader is not None and leader != self.control.me.id:
            for record in self.views.registry.all_nimbuses():
                if record.id == leader and record.url:
                    return record.url
        why = self.control.why_not_leading
        because = "" if why is None else f". This Nimbus ({self.control.me.id}) does not lead: {why}"
        raise NoLeader(f"no Nimbus leads at the moment: ask again in a few seconds{because}")


#: A call without query or body.
Plain = ApiCall[None, None]
#: The status, and the struct that is sent as JSON.
Reply = tuple[int, Struct]
Change = Callable[[Nimbus, str], object]


# The cluster


def cluster(services: Services, call: Plain) -> Reply:
    return 200, services.views.cluster(time.monotonic() - services.started)


def configuration(services: Services, call: Plain) -> Reply:
    return 200, cluster_answers.ConfigurationAnswer(services.control.me.id, redacted(services.conf))


def nimbuses(services: Services, call: Plain) -> Reply:
    found = services.views.nimbuses()
    led = any(each.state == "leading" for each in found)
    return 200, cluster_answers.NimbusesAnswer(found, None if led else services.control.why_not_leading)


def supervisors(services: Services, call: Plain) -> Reply:
    return 200, cluster_answers.SupervisorsAnswer(services.views.supervisors())


def drain(services: Services, call: Plain) -> Reply:
    # Raises if there is no such supervisor. `undrain` does not check this, so that it also works for a supervisor that is gone.
    services.views.supervisor(call.path["id"])
    return _set_drained(services, call, True)


def undrain(services: Services, call: Plain) -> Reply:
    return _set_drained(services, call, False)


def _set_drained(services: Services, call: Plain, drained: bool) -> Reply:
    supervisor_id = call.path["id"]
    services.lead(call, lambda nimbus: nimbus.drain(supervisor_id, drained))
    return 202, cluster_answers.DrainAnswer(supervisor_id, drained)


def reports(services: Services, call: ApiCall[None, requests.ReportsRequest]) -> Reply:
    """Accept the reports and counters that a supervisor sends. Any Nimbus accepts counters; `app.py` redirects reports to the
    leader."""
    supervisor_id = call.path["id"]
    if call.caller.id != supervisor_id:
        raise Unauthorized(f"only supervisor {supervisor_id!r} may send its reports")
    news = [(row.topology, _report_in(row)) for row in call.body.reports]
    for row in call.body.counters:
        if services.views.is_of_another(row.topology_id, row.worker, row.incarnation, supervisor_id):
            _log.warning(
                "counters of worker %s of %s came from another supervisor, %s",
                row.worker,
                row.topology_id,
                supervisor_id,
            )
            continue
        data = json.dumps(row.counters).encode()
        services.views.counters.count_bytes(row.topology_id, row.worker, row.incarnation, data)
    if not services.control.leading:
        return 200, cluster_answers.ReportsAnswer([])

    def command(nimbus: Nimbus) -> list[cluster_answers.RefusedReport]:
        nimbus.heard(supervisor_id)
        return [
            cluster_answers.RefusedReport(name, report.worker, report.incarnation)
            for name, report in news
            if not nimbus.report(name, report.worker, report, supervisor_id)
        ]

    return 200, cluster_answers.ReportsAnswer(services.lead(call, command))


def _report_in(row: requests.ReportRow) -> WorkerReport:
    try:
        return decode(WorkerReport, json.dumps(row.report).encode())
    except BadRecord as error:
        raise BadRequest([str(error)], "a report") from None


# Topologies


def topologies(services: Services, call: Plain) -> Reply:
    return 200, answers.TopologiesAnswer(services.views.topologies())


def submit(services: Services, call: ApiCall[None, Submission]) -> Reply:
    submission = structs.replace(call.body, by=call.by)
    _check_parts(services, submission)
    # Checking large archives may take long. It is done only once, so the time for the answer begins after the check.
    call = structs.replace(call, began=time.monotonic())
    _check_folder(services, call, submission)
    call = structs.replace(call, began=time.monotonic())
    return services.lead(call, lambda nimbus: _accept(nimbus, submission))


def _check_parts(services: Services, submission: Submission) -> None:
    """Check the versions and the files of a submission."""
    name, packed = submission.topology.name, submission.versions
    check_versions(name, packed, own_versions(), services.views.registry.all_supervisors())
    for kind, sha256 in submission.files.items():
        services.files.check(kind, sha256)


def _check_folder(services: Services, call: ApiCall[Any, Any], submission: Submission) -> None:
    """Check that the hosts share the folder of a submission's state, unless it was accepted before, by an earlier request."""
    if not has_path(submission.topology, submission.conf) and not submission.replace:
        return

    def merged(nimbus: Nimbus) -> TopologyRecord | None:
        """Return the record of the submission, with the options that operators have set for the version before."""
        return None if nimbus.submitted(submission.key) is not None else nimbus.check(submission)[1]

    record = services.lead(call, merged)
    if record is not None:
        check_shared(services.views.registry, services.ask_supervisor, record.name, record.conf)


def _accept(nimbus: Nimbus, submission: Submission) -> Reply:
    """Submit a topology. Runs in the control thread, so that no other command intervenes."""
    known = nimbus.submitted(submission.key) is not None
    before = None
    if submission.replace and not known:
        with suppress(SquallError):  # there is none, or it cannot be read, which `submit` says
            before = nimbus.topology(submission.topology.name)
    record = nimbus.submit(submission)
    return 200 if known else 201, _submitted(before, record, submission.reset_options)


def _submitted(
    before: TopologyRecord | None, record: TopologyRecord, reset_options: bool
) -> answers.SubmittedAnswer:
    """`before`: the version that is replaced, if any."""
    kept_at = state_path(record.conf)
    answer = answers.SubmittedAnswer(record.name, record.id, record.state, state_path=kept_at)
    if before is None:
        return answer
    kept = {} if reset_options else shown_options(before.set_options)
    now = shown_options(record.set_options)
    kept = {key: value for key, value in kept.items() if now.get(key) == value}
    return structs.replace(answer, kept=kept, changed=differences(before, record))


def check_submission(services: Services, call: ApiCall[None, Submission]) -> Reply:
    submission = call.body
    there = {kind: sha256 for kind, sha256 in submission.files.items() if services.files.has(sha256)}
    # The others are sent before a submission.
    _check_parts(services, structs.replace(submission, files=there))
    before, record = services.lead(call, lambda nimbus: nimbus.check(submission))
    check_shared(services.views.registry, services.ask_supervisor, record.name, record.conf)
    return 200, _submitted(before, record, submission.reset_options)


def rollback(services: Services, call: ApiCall[None, requests.RollbackRequest]) -> Reply:
    name, asked = call.path["name"], call.body
    known = services.lead(call, lambda nimbus: nimbus.submitted(asked.submission))
    if known is not None:
        return 200, answers.SubmittedAnswer(known.name, known.id, known.state, repeats=known.repeats or None)
    ended = services.lead(call, lambda nimbus: nimbus.end_trial(name, asked.version, asked.submission))
    if ended is not None:
        return 202, answers.SubmittedAnswer(name, ended.back.id, ended.state, rolled_back=ended.version)
    version, bundled = wanted_version(services.views, name, asked.version)
    own = own_versions()
    # The cloudpickle of an earlier version is not known.
    versions = own if not version.python else {**own, "python": version.python}
    submission = structs.replace(
        repetition(version, bundled, asked.state),
        key=asked.submission,
        versions=versions,
        wait_secs=asked.wait_secs,
        by=call.by,
    )

    def command(nimbus: Nimbus) -> Reply:
        nimbus.topology(name)  # raises if it is gone by now: a rollback submits no new topology
        return _accept(nimbus, submission)

    _check_parts(services, submission)
    _check_folder(services, call, submission)
    call = structs.replace(call, began=time.monotonic())
    status, answer = services.lead(call, command)
    return status, structs.replace(answer, repeats=version.id)


def topology(services: Services, call: Plain) -> Reply:
    return 200, services.views.topology(call.path["name"])


def kill(services: Services, call: ApiCall[requests.KillQuery, None]) -> Reply:
    return _changed(services, call, lambda nimbus, name: nimbus.kill(name, call.query.wait_secs), gone=KILLED)


def activate(services: Services, call: ApiCall[None, requests.NoFields]) -> Reply:
    return _changed(services, call, Nimbus.activate)


def deactivate(services: Services, call: ApiCall[None, requests.NoFields]) -> Reply:
    return _changed(services, call, Nimbus.deactivate)


def rebalance(services: Services, call: ApiCall[None, requests.RebalanceRequest]) -> Reply:
    if call.body.workers is not None:
        record = services.views.record(call.path["name"])
        conf = {**record.conf, WORKERS: call.body.workers}
        check_shared(services.views.registry, services.ask_supervisor, record.name, conf)
        call = structs.replace(call, began=time.monotonic())
    asked = call.body.workers, call.body.parallelism, call.body.wait_secs
    return _changed(services, call, lambda nimbus, name: nimbus.rebalance(name, *asked))


def _changed(services: Services, call: ApiCall[Query, Body], change: Change, gone: str = "GONE") -> Reply:
    """Change a topology and answer with its state. `gone`: the answer if the topology had no workers and was removed at
    once."""
    name = call.path["name"]

    def command(nimbus: Nimbus) -> str:
        change(nimbus, name)
        try:
            return nimbus.topology(name).state
        except NoSuchTopology:
            return gone

    return 202, answers.StateAnswer(name, services.lead(call, command))


def component(services: Services, call: Plain) -> Reply:
    return 200, services.views.component(call.path["name"], call.path["component"])


def errors(services: Services, call: ApiCall[requests.ErrorsQuery, None]) -> Reply:
    return 200, answers.ErrorsAnswer(services.views.errors(call.path["name"], call.query.component))


def workers(services: Services, call: Plain) -> Reply:
    views = services.views
    return 200, answers.WorkersAnswer(views.workers(views.record(call.path["name"])))


def topology_configuration(services: Services, call: Plain) -> Reply:
    return 200, services.views.configuration(call.path["name"])


def counters(services: Services, call: Plain) -> Reply:
    return 200, services.views.worker_counters(call.path["name"])


def history(services: Services, call: Plain) -> Reply:
    return 200, history_answer(services.views, call.path["name"])


def previous(services: Services, call: Plain) -> Reply:
    return 200, previous_answer(services.views, call.path["name"])


def log(services: Services, call: ApiCall[requests.LogQuery, None]) -> Reply:
    query = call.query
    found = _of_its_supervisor(
        services, call, "logs", query.version, file=query.file, offset=query.offset, limit=query.limit
    )
    return 200, convert(found, answers.LogAnswer)


def stacks(services: Services, call: Plain) -> Reply:
    return 200, convert(_of_its_supervisor(services, call, "stacks"), answers.StacksAnswer)


def live_state(services: Services, call: ApiCall[None, requests.LiveStateRequest]) -> Reply:
    worker = call.path["worker"]
    topology_id, record = services.views.supervisor_of(call.path["name"], worker)
    if not record.url:
        raise Refused(
            404, "NotFound", f"supervisor {record.id} on {record.host} does not serve the state of workers"
        )
    with closing(services.ask_supervisor(record)) as client:
        path = f"/state/{at(topology_id, worker)}"
        found = client.post(path, to_builtins(call.body), repeatable=True, timeout=LIVE_SECS)
    return 200, convert(found, answers.LiveStateAnswer)


def _of_its_supervisor(
    services: Services, call: ApiCall[Any, Any], what: str, version: str | None = None, **query: object
) -> Any:
    """Return the answer of the supervisor that runs a worker, or that ran it for a version that has ended."""
    worker = call.path["worker"]
    if version is None:
        topology_id, record = services.views.supervisor_of(call.path["name"], worker)
    else:
        topology_id, record = version, former_supervisor(services.views, call.path["name"], worker, version)
    if not record.url:
        raise Refused(404, "NotFound", f"supervisor {record.id} on {record.host} does not serve {what}")
    with closing(services.ask_supervisor(record)) as client:
        return client.get(f"/{what}/{at(topology_id, worker)}", **query)
