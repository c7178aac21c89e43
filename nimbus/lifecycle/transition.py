"""Transitions: applies an event to a topology's record according to the table of states, and writes the record with its
deadlines.

Must not know: when an event is due.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, cast

from msgspec.structs import replace

from nimbus.lifecycle.states import ACTIVE, INACTIVE, KILLED, REBALANCING, REPLACING, step
from squall.cluster.records import Placement, TopologyRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"


def message_timeout(record: TopologyRecord) -> float:
    """Return how many seconds a topology may drain by default."""
    return cast(float, record.conf[MESSAGE_TIMEOUT])


def restart_deadlines(registry: Registry, now: float, time: float) -> None:
    """Give every topology with a deadline its full time again: a different Nimbus set the deadline, on its own clock. `now`:
    the time on this Nimbus's clock; `time`: seconds since 1970."""
    for record in registry.all_topologies():
        if record.deadline is not None:
            wait = message_timeout(record) if record.wait is None else record.wait
            registry.topologies.update(record, replace(record, deadline=now + wait, until=time + wait))


def transition(
    registry: Registry,
    record: TopologyRecord,
    event: str,
    time: float,
    *,
    wait: float | None = None,
    **changes: object,
) -> None:
    """Apply an event to a record, and write the record without the fields that belong to its earlier state. `time`: seconds
    since 1970; `wait`: the seconds until the `deadline` among the changes. If the event is illegal, raises `IllegalTransition`
    and changes nothing.
    """
    state = step(record.state, event, record.previous, record.name)
    if state == record.state and not changes and wait is None:
        return  # a repeated command
    fields: dict[str, Any] = {
        "state": state,
        "previous": record.state if state in (REBALANCING, REPLACING) else None,
        "deadline": None,
        "wait": wait,
        "until": None if wait is None else time + wait,
        "parallelism": {},
    }
    if state != record.state:
        fields["since"] = time
    if state == KILLED:
        fields["replaces"] = None  # the previous version does not return
    elif record.replaces is not None and state in (ACTIVE, INACTIVE):
        # The record keeps its deadline: by then the new version must have proved that it runs.
        for field in ("deadline", "wait", "until"):
            del fields[field]
    registry.topologies.update(record, replace(record, **(fields | changes)))
    _log.info("%s: %s, %s -> %s", record.name, event, record.state, state)


def forget_drains(registry: Registry, topology_id: str, workers: Iterable[Placement]) -> None:
    """Forget that workers have drained: the reason for the drain is over."""
    for placement in workers:
        report = registry.report(topology_id, placement.worker)
        if report is not None and report.drained:
            registry.save_report(topology_id, replace(report, drained=False))
