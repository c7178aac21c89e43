"""The handlers of the API: each is a function of the services and the call, and returns a status and the struct to send.

They run in threads of a pool, several at a time; changes are handed to the control thread.
Must not know: Starlette, which path leads here (`table.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from msgspec import Struct, convert

from nimbus.http.errors import Unauthorized
from nimbus.http.services import ApiCall, Services
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.states import KILLED
from nimbus.submission.parse import BadRequest, check_versions
from nimbus.submission.submission import Submission
from squall.api import answers
from squall.api.requests import (
    ErrorsQuery,
    KillQuery,
    LogQuery,
    NoFields,
    RebalanceRequest,
    ReportRow,
    ReportsRequest,
)
from squall.cluster.records import BadRecord, TopologyRecord, WorkerReport, decode
from squall.http.client import Refused, at
from squall.packages.versions import own_versions
from squall.security.redaction import redacted
from topology_api.errors import NoSuchTopology

Q = TypeVar("Q")
B = TypeVar("B")
#: A call without query or body.
Plain = ApiCall[None, None]
#: The status, and what is sent as JSON.
Reply = tuple[int, Struct]


# The cluster


def cluster(services: Services, call: Plain) -> Reply:
    uptime = time.monotonic() - services.started
    return 200, services.views.cluster(services.store_state(), uptime)


def configuration(services: Services, call: Plain) -> Reply:
    return 200, answers.ConfigurationAnswer(services.me.id, redacted(services.conf))


def supervisors(services: Services, call: Plain) -> Reply:
    return 200, answers.SupervisorsAnswer(services.views.supervisors())


def drain(services: Services, call: Plain) -> Reply:
    services.views.supervisor(call.path["id"])  # `undrain` also takes a supervisor that is gone
    return _set_drained(services, call, True)


def undrain(services: Services, call: Plain) -> Reply:
    return _set_drained(services, call, False)


def _set_drained(services: Services, call: Plain, drained: bool) -> Reply:
    supervisor_id = call.path["id"]
    services.lead(call, lambda nimbus: nimbus.drain(supervisor_id, drained))
    return 202, answers.DrainAnswer(supervisor_id, drained)


def reports(services: Services, call: ApiCall[None, ReportsRequest]) -> Reply:
    """Take what a supervisor forwards. Any Nimbus takes counters; `app.py` redirects reports to the leader."""
    supervisor_id = call.path["id"]
    if call.caller.id != supervisor_id:
        raise Unauthorized(f"only supervisor {supervisor_id!r} sends its reports")
    news = [(row.topology, _report_in(row)) for row in call.body.reports]
    for row in call.body.counters:
        data = json.dumps(row.counters).encode()
        services.counters.count_bytes(row.topology_id, row.worker, row.incarnation, data)
    if not services.control.leading:
        return 200, answers.ReportsAnswer([])

    def command(nimbus: Nimbus) -> list[answers.RefusedReport]:
        nimbus.heard(supervisor_id)
        return [
            answers.RefusedReport(name, report.worker, report.incarnation)
            for name, report in news
            if not nimbus.report(name, report.worker, report)
        ]

    return 200, answers.ReportsAnswer(services.lead(call, command))


def _report_in(row: ReportRow) -> WorkerReport:
    try:
        return decode(WorkerReport, json.dumps(row.report).encode())
    except BadRecord as error:
        raise BadRequest([str(error)], "a report") from None


# Topologies


def topologies(services: Services, call: Plain) -> Reply:
    return 200, answers.TopologiesAnswer(services.views.topologies())


def submit(services: Services, call: ApiCall[None, Submission]) -> Reply:
    submission = call.body
    check_versions(submission, own_versions(), services.views.registry.all_supervisors())
    for kind, sha256 in submission.files.items():
        services.files.check(kind, sha256)
    call = replace(call, began=time.monotonic())  # checking large archives takes long, and happens once
    known, record = services.lead(call, lambda nimbus: _accept(nimbus, submission))
    return 200 if known else 201, answers.SubmittedAnswer(record.name, record.id, record.state)


def _accept(nimbus: Nimbus, submission: Submission) -> tuple[bool, TopologyRecord]:
    """Return (whether it was there already, its record). In the control thread, so that nothing comes between."""
    known = nimbus.submitted(submission.key) is not None
    return known, nimbus.submit(submission)


def topology(services: Services, call: Plain) -> Reply:
    return 200, services.views.topology(call.path["name"])


def kill(services: Services, call: ApiCall[KillQuery, None]) -> Reply:
    return _changed(
        services, call, lambda nimbus: nimbus.kill(call.path["name"], call.query.wait_secs), gone=KILLED
    )


def activate(services: Services, call: ApiCall[None, NoFields]) -> Reply:
    return _changed(services, call, lambda nimbus: nimbus.activate(call.path["name"]))


def deactivate(services: Services, call: ApiCall[None, NoFields]) -> Reply:
    return _changed(services, call, lambda nimbus: nimbus.deactivate(call.path["name"]))


def rebalance(services: Services, call: ApiCall[None, RebalanceRequest]) -> Reply:
    name, asked = call.path["name"], call.body
    return _changed(
        services,
        call,
        lambda nimbus: nimbus.rebalance(name, asked.workers, asked.parallelism, asked.wait_secs),
    )


def _changed(
    services: Services, call: ApiCall[Q, B], change: Callable[[Nimbus], object], gone: str = "GONE"
) -> Reply:
    """Change a topology, and answer with its state; `gone`: when it had no workers, and so was removed at once."""
    name = call.path["name"]

    def command(nimbus: Nimbus) -> str:
        change(nimbus)
        try:
            return nimbus.topology(name).state
        except NoSuchTopology:
            return gone

    return 202, answers.StateAnswer(name, services.lead(call, command))


def component(services: Services, call: Plain) -> Reply:
    return 200, services.views.component(call.path["name"], call.path["component"])


def errors(services: Services, call: ApiCall[ErrorsQuery, None]) -> Reply:
    return 200, answers.ErrorsAnswer(services.views.errors(call.path["name"], call.query.component))


def workers(services: Services, call: Plain) -> Reply:
    return 200, answers.WorkersAnswer(services.views.workers(call.path["name"]))


def topology_configuration(services: Services, call: Plain) -> Reply:
    return 200, services.views.configuration(call.path["name"])


def counters(services: Services, call: Plain) -> Reply:
    return 200, services.views.worker_counters(call.path["name"])


def log(services: Services, call: ApiCall[LogQuery, None]) -> Reply:
    worker, query = call.path["worker"], call.query
    topology_id, record = services.views.supervisor_of(call.path["name"], worker)
    if not record.url:
        raise Refused(404, "NotFound", f"supervisor {record.id} on {record.host} does not serve logs")
    client = services.ask_supervisor(record)
    try:
        path = f"/logs/{at(topology_id, worker)}"
        answer = client.get(path, file=query.file, offset=query.offset, limit=query.limit)
        return 200, convert(answer, answers.LogAnswer)
    finally:
        client.close()
