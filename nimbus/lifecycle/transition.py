"""One step in the life of a topology: through the table, and written; and the deadlines that a step may set.

Must not know: when a step is due.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final, cast

from nimbus.lifecycle import ACTIVE, INACTIVE, KILLED, REBALANCING, REPLACING, step
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"


def message_timeout(record: TopologyRecord) -> float:
    """How long a topology may drain when nothing else was said."""
    return cast(float, record.conf[MESSAGE_TIMEOUT])


def set_deadlines_anew(registry: Registry, now: float, time: float) -> None:
    """A deadline that another Nimbus has set is a moment of its clock: the whole time is waited for again. `time`: of the
    calendar."""
    for record in registry.topologies():
        if record.deadline is not None:
            wait = message_timeout(record) if record.wait is None else record.wait
            registry.update_topology(record, replace(record, deadline=now + wait, until=time + wait))


def take_step(
    registry: Registry,
    record: TopologyRecord,
    event: str,
    time: float,
    *,
    wait: float | None = None,
    **changes: object,
) -> None:
    """Take the record through the table; what belonged to the state that it leaves goes. `time`: of the calendar; `wait`: of
    the `deadline` among the changes."""
    state = step(record.state, event, record.previous, record.name)
    if state == record.state and not changes and wait is None:
        return  # said twice
    settled: dict[str, Any] = {
        "state": state,
        "previous": record.state if state in (REBALANCING, REPLACING) else None,
        "deadline": None,
        "wait": wait,
        "until": None if wait is None else time + wait,
        "parallelism": {},
    }
    if state != record.state:
        settled["since"] = time
    if state == KILLED:
        settled["replaces"] = None  # whatever was before does not come back
    elif record.replaces is not None and state in (ACTIVE, INACTIVE):
        for field in ("deadline", "wait", "until"):  # by then it has to have proved that it runs
            del settled[field]
    registry.update_topology(record, replace(record, **(settled | changes)))
    _log.info("%s: %s, %s -> %s", record.name, event, record.state, state)
