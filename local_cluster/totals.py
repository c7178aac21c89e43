"""Summing what the tasks of a topology did, over all its workers, into a `TopologyStatus`.

Reads counters only, so it may be called while the workers run.
Must not know: how workers are driven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from local_cluster.status import ComponentStatus, TopologyStatus
from local_cluster.virtual_host import Hosted
from squall.cluster.records import TopologyRecord
from squall.telemetry import Histogram
from topology_api import Topology
from topology_api.topology import ComponentSpec
from worker.metrics import Totals
from worker.reports import ErrorReport
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.worker import Worker

#: Why a spout that has no tasks at this moment does not emit, by the topology's state; in all other states: inactive.
WITHOUT_TASKS = {"ACTIVE": "not open yet", "COMPLETED": "finished"}


def topology_status(
    record: TopologyRecord, topology: Topology, hosted: Hosted | None, now: float
) -> TopologyStatus:
    """The status of one topology."""
    live = list(hosted.workers.values()) if hosted else []
    retired = list(hosted.retired) if hosted else []
    workers = [*retired, *(worker for worker in live if worker not in retired)]
    components = {spec.id: component_status(spec, workers, record.state) for spec in topology.components}
    reports: list[ErrorReport] = [
        report for worker in workers for log in worker.errors.values() for report in list(log.kept)
    ]
    return TopologyStatus(
        name=record.name,
        state=record.state,
        components=components,
        workers=len(live),
        errors=tuple(sorted(reports, key=lambda report: report.time)),
        error=record.error,
        uptime=now - record.submitted,
    )


def component_status(spec: ComponentSpec, workers: Iterable[Worker], state: str) -> ComponentStatus:
    """The totals of one component."""
    totals = Totals()
    for worker in workers:
        totals.errors += worker.errors[spec.id].count
        totals.dropped += worker.links.dropped.get(spec.id, 0)
        for task in list(worker.tasks.values()):
            if task.spec.id == spec.id:
                add_task(totals, task, worker.stopped)
    idle = totals.idle
    reason = ""
    if spec.kind == "spout":
        reason = summary_of(idle) if idle else WITHOUT_TASKS.get(state, "inactive")
    return ComponentStatus(
        kind=spec.kind,
        tasks=spec.parallelism,
        emitted=totals.emitted,
        executed=totals.executed,
        acked=totals.acked,
        failed=totals.failed,
        replayed=totals.replayed,
        pending=totals.pending,
        errors=totals.errors,
        dropped=totals.dropped,
        p50=totals.latency.percentile(50),
        p99=totals.latency.percentile(99),
        idle=reason,
        metrics={name: shown_metric(value) for name, value in totals.metrics.items()},
        failures=totals.failures,
        first_failure=totals.first_failure[1] if totals.first_failure else "",
    )


def shown_metric(value: object) -> object:
    """A metric of the user's as a status shows it: of a histogram count, p50 and p99."""
    if isinstance(value, Histogram):
        return {"count": value.count, "p50": value.percentile(50), "p99": value.percentile(99)}
    return value


def add_task(totals: Totals, task: Task, stopped: bool) -> None:
    """Add what one task did."""
    totals.emitted += task.emitter.emitted
    totals.executed += task.executed
    totals.acked += task.acked
    totals.failed += task.failed
    for name, value in task.metrics.read().items():
        so_far = totals.metrics.get(name)
        if isinstance(value, Histogram) and isinstance(so_far, Histogram):
            so_far.merge(value)
        elif isinstance(value, (int, float)) and isinstance(so_far, (int, float)):
            totals.metrics[name] = so_far + value
        else:
            totals.metrics[name] = value
    if isinstance(task, SpoutTask):
        totals.replayed += task.replayed
        totals.latency.merge(task.latency)
        for reason, count in list(task.given_up.items()):
            totals.failures[reason] = totals.failures.get(reason, 0) + count
        firsts = [first for first in (totals.first_failure, task.first_failure) if first is not None]
        totals.first_failure = min(firsts, default=None)
        if not stopped:
            totals.pending += task.pending
            reason = task.idle_reason()
            totals.idle[reason] = totals.idle.get(reason, 0) + 1


def summary_of(idle: dict[str, int]) -> str:
    """The reason that most tasks have; "" when any of them emits."""
    if not idle or "" in idle:
        return ""
    return Counter(idle).most_common(1)[0][0]
