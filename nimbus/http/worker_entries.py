"""Workers as the API shows them: what the assignment, the supervisor's report and the worker's counters say of one.

Must not know: the store, callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import structs

from squall.api.answers import WorkerEntry
from squall.cluster.counters import ProcessLoad
from squall.cluster.records import Placement, WorkerReport
from squall.values import TaskRow

_MEGABYTE: Final = 1_000_000


def entry_of(
    place: Placement,
    report: WorkerReport | None,
    state: str,
    tasks: list[TaskRow],
    host: str | None,
    conf: Mapping[str, Any],
    used: ProcessLoad | None,
) -> WorkerEntry:
    """Return a worker. `conf`: the options of its topology; `used`: what its process uses; None if unknown."""
    incarnation = place.incarnation if report is None else report.incarnation
    limit = conf.get("topology.worker.memory.mb")
    return WorkerEntry(
        worker=place.worker,
        supervisor=place.supervisor,
        host=host,
        slot=place.slot,
        incarnation=incarnation,
        tasks=tasks,
        opened=report is not None and report.opened,
        state=state,
        restarts=incarnation.restart,
        memory_limit=None if limit is None else int(limit) * _MEGABYTE,
        **({} if used is None else structs.asdict(used)),
    )


def state_of(report: WorkerReport | None, leaving: bool | None, supervised: bool) -> str:
    """Return a worker's state in one word. `leaving`: whether the worker was withdrawn; None: the worker is gone."""
    if not supervised:
        return "LOST"
    if leaving is None or (report is not None and report.stopped):
        return "STOPPED"
    if leaving:
        return "STOPPING"
    if report is None or not report.opened:
        return "STARTING"
    return "DRAINED" if report.drained else "RUNNING"
