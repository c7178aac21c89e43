"""What is done for each request: a function of the desk and the call that gives JSON values, or a status with them.

They run in threads of a pool, several at a time; what changes something is handed to the control thread.
Must not know: Starlette, which path leads here (`table.py`).
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, TypeVar

from nimbus.http.desk import Call, Desk
from nimbus.http.errors import Unauthorized
from nimbus.lifecycle import KILLED
from nimbus.master import Nimbus
from nimbus.submission import BadRequest, Fields, Submission, check_versions, read_submission
from squall.cluster.records import BadRecord, TopologyRecord, WorkerReport, decode
from squall.http_client import Refused, at
from squall.redaction import redacted
from squall.versions import minor, own_versions
from topology_api.errors import NoSuchTopology

T = TypeVar("T")
Answer = tuple[int, Any]


# The cluster


def cluster(desk: Desk, call: Call) -> Answer:
    return 200, desk.views.cluster(desk.store_state(), desk.uptime_secs)


def configuration(desk: Desk, call: Call) -> Answer:
    return 200, {"id": desk.me.id, "conf": redacted(desk.conf)}


def supervisors(desk: Desk, call: Call) -> Answer:
    return 200, {"supervisors": desk.views.supervisors()}


def drain(desk: Desk, call: Call) -> Answer:
    return _drain(desk, call, on=True)


def undrain(desk: Desk, call: Call) -> Answer:
    return _drain(desk, call, on=False)


def _drain(desk: Desk, call: Call, on: bool) -> Answer:
    supervisor_id = call.path["id"]
    if on:
        desk.views.supervisor(supervisor_id)  # one that is gone may be let in again
    desk.lead(call, lambda nimbus: nimbus.drain(supervisor_id, on))
    return 202, {"id": supervisor_id, "drained": on}


def reports(desk: Desk, call: Call) -> Answer:
    """What a supervisor passes on. A Nimbus that does not lead takes the counters; reports were led to the leader."""
    supervisor_id = call.path["id"]
    if call.caller.id != supervisor_id:
        raise Unauthorized(f"only supervisor {supervisor_id!r} sends its reports")
    fields = Fields(call.body, ("reports", "counters"))
    said, counted = fields.take("reports", [], list), fields.take("counters", [], list)
    fields.check()
    news = [_read_report(each) for each in said]
    for each in counted:
        topology_id, worker, incarnation, data = _read_counters(each)
        desk.counters.count_bytes(topology_id, worker, incarnation, data)
    if not desk.control.leading:
        return 200, {"refused": []}

    def take(nimbus: Nimbus) -> list[dict[str, Any]]:
        nimbus.heard(supervisor_id)
        return [
            {"topology": name, "worker": report.worker, "incarnation": list(report.incarnation)}
            for name, report in news
            if not nimbus.report(name, report.worker, report)
        ]

    return 200, {"refused": desk.lead(call, take)}


def has_reports(body: object) -> bool:
    """Whether somebody has to lead to take this."""
    return isinstance(body, dict) and bool(body.get("reports"))


def _read_report(each: object) -> tuple[str, WorkerReport]:
    fields = Fields(each, ("topology", "report"))
    name, body = fields.need("topology", "", str), fields.need("report", {}, dict)
    fields.check("a report")
    try:
        return name, decode(WorkerReport, json.dumps(body).encode())
    except BadRecord as error:
        raise BadRequest([str(error)], "a report") from None


def _read_counters(each: object) -> tuple[str, str, tuple[int, int], bytes]:
    fields = Fields(each, ("topology_id", "worker", "incarnation", "counters"))
    topology_id, worker = fields.need("topology_id", "", str), fields.need("worker", "", str)
    incarnation, body = fields.need("incarnation", [], list), fields.need("counters", {}, dict)
    if len(incarnation) != 2 or not all(type(number) is int for number in incarnation):
        fields.problems.append(f"'incarnation' is {incarnation!r:.80}, it must be two whole numbers")
    fields.check("counters")
    return topology_id, worker, (incarnation[0], incarnation[1]), json.dumps(body).encode()


# Topologies


def topologies(desk: Desk, call: Call) -> Answer:
    return 200, {"topologies": desk.views.topologies()}


def submit(desk: Desk, call: Call) -> Answer:
    submission = read_submission(call.body)
    check_versions(submission, own_versions(), desk.views.registry.supervisors())
    for kind, sha256 in submission.files.items():
        desk.files.check(kind, sha256)
    call = replace(
        call, began=time.monotonic()
    )  # looking into large archives takes its time, and is done once
    known, record = desk.lead(call, lambda nimbus: _take_in(nimbus, submission))
    return 200 if known else 201, {"name": record.name, "id": record.id, "state": record.state}


def _take_in(nimbus: Nimbus, submission: Submission) -> tuple[bool, TopologyRecord]:
    """(whether it was there already, the record): in the control thread, so that nothing comes between."""
    known = nimbus.submitted(submission.key) is not None
    record = nimbus.submit(
        submission.topology,
        submission.conf,
        submission.component_confs,
        submission.active,
        submission=submission.key,
        files=submission.files,
        python=minor(submission.versions["python"]),
        replace=submission.replace,
        wait_secs=submission.wait_secs,
    )
    return known, record


def topology(desk: Desk, call: Call) -> Answer:
    return 200, desk.views.topology(call.path["name"])


def kill(desk: Desk, call: Call) -> Answer:
    name = call.path["name"]

    def command(nimbus: Nimbus) -> str:
        nimbus.kill(name, call.query["wait_secs"])
        return _state_of(nimbus, name, gone=KILLED)

    return 202, {"name": name, "state": desk.lead(call, command)}


def activate(desk: Desk, call: Call) -> Answer:
    Fields({} if call.body is None else call.body, ()).check()
    return _changed(desk, call, lambda nimbus: nimbus.activate(call.path["name"]))


def deactivate(desk: Desk, call: Call) -> Answer:
    Fields({} if call.body is None else call.body, ()).check()
    return _changed(desk, call, lambda nimbus: nimbus.deactivate(call.path["name"]))


def rebalance(desk: Desk, call: Call) -> Answer:
    fields = Fields({} if call.body is None else call.body, ("workers", "parallelism", "wait_secs"))
    workers = fields.take("workers", None, int)
    parallelism = fields.take("parallelism", None, dict)
    wait_secs = fields.seconds("wait_secs")
    fields.check()
    name = call.path["name"]
    return _changed(desk, call, lambda nimbus: nimbus.rebalance(name, workers, parallelism, wait_secs))


def _changed(desk: Desk, call: Call, change: Any) -> Answer:
    name = call.path["name"]

    def command(nimbus: Nimbus) -> str:
        change(nimbus)
        return _state_of(nimbus, name, gone="GONE")

    return 202, {"name": name, "state": desk.lead(call, command)}


def _state_of(nimbus: Nimbus, name: str, gone: str) -> str:
    try:
        return nimbus.topology(name).state
    except NoSuchTopology:
        return gone  # at once, when it had no workers


def component(desk: Desk, call: Call) -> Answer:
    return 200, desk.views.component(call.path["name"], call.path["component"])


def errors(desk: Desk, call: Call) -> Answer:
    return 200, {"errors": desk.views.errors(call.path["name"], call.query["component"])}


def workers(desk: Desk, call: Call) -> Answer:
    return 200, {"workers": desk.views.workers(call.path["name"])}


def topology_configuration(desk: Desk, call: Call) -> Answer:
    return 200, desk.views.configuration(call.path["name"])


def counters(desk: Desk, call: Call) -> Answer:
    return 200, desk.views.worker_counters(call.path["name"])


def log(desk: Desk, call: Call) -> Answer:
    worker = call.path["worker"]
    topology_id, record = desk.views.supervisor_of(call.path["name"], worker)
    if not record.url:
        raise Refused(404, "NotFound", f"supervisor {record.id} on {record.host} does not serve logs")
    client = desk.ask_supervisor(record)
    try:
        query = {name: call.query[name] for name in ("file", "offset", "limit")}
        return 200, client.get(f"/logs/{at(topology_id, worker)}", **query)
    finally:
        client.close()
