"""The lifecycle of a topology, as one table, and its transitions, which write the record.

A state and an event give the next state. A pair that is not in the table is illegal: the event raises `IllegalTransition` and
changes nothing. `activate` and `deactivate` may be repeated; so may `kill`, with a different wait. The states and their events
are those of `squall.values.TopologyState`.

Must not know: when an event is due, callers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from msgspec.structs import replace

from squall.cluster.records import Placement, TopologyRecord
from squall.cluster.registry import Registry
from squall.values import GONE, PREVIOUS, TopologyState
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"

ACTIVE: Final = TopologyState.ACTIVE
INACTIVE: Final = TopologyState.INACTIVE
REBALANCING: Final = TopologyState.REBALANCING
REPLACING: Final = TopologyState.REPLACING
COMPLETED: Final = TopologyState.COMPLETED
KILLED: Final = TopologyState.KILLED
FAILED: Final = TopologyState.FAILED
RUNNING: Final = (ACTIVE, INACTIVE)

STATES: Final = tuple(TopologyState)

USER_EVENTS: Final = ("activate", "deactivate", "rebalance", "kill")
OWN_EVENTS: Final = ("rebalanced", "restore", "complete", "crash", "remove")
#: `replace`: a new version was submitted. `restore`: the new version does not take over, or did not run.
EVENTS: Final = (*USER_EVENTS, "replace", *OWN_EVENTS)

TABLE: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {(state, event): target for state in TopologyState for event, target in state.leads_to.items()}
)


class IllegalTransition(SquallError):
    """A topology in this state does not allow the event; nothing was changed."""

    def __init__(self, state: str, event: str, name: str | None = None) -> None:
        super().__init__(state, event, name)
        self.state = state
        self.event = event
        self.name = name

    def __str__(self) -> str:
        what = "a topology" if self.name is None else f"topology {self.name!r}"
        possible = ", ".join(event for event in allowed_events(self.state) if event in USER_EVENTS)
        return f"cannot {self.event} {what}: it is {self.state}; possible now: {possible or 'nothing'}"


def allowed_events(state: str) -> tuple[str, ...]:
    """Return the events that a topology in this state allows, in the order of `EVENTS`."""
    return tuple(event for event in EVENTS if (state, event) in TABLE)


def step(state: str, event: str, previous: str | None = None, name: str | None = None) -> str:
    """Return the state after the event. Raises `IllegalTransition` if the state does not allow the event.

    `previous`: the state that a REBALANCING or REPLACING record remembers; `name`: the topology's name, for the message.
    """
    target = TABLE.get((state, event))
    if target == PREVIOUS:
        led_here = previous in STATES and state in TopologyState[previous].leads_to.values()
        target = previous if led_here else None
    if target is None:
        raise IllegalTransition(state, event, name)
    return GONE if target == GONE else TopologyState[target]


# Transitions: an event is applied to a topology's record, which is written with its deadlines.


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
