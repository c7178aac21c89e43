"""The lifecycle of a topology, as one table.

A state and an event give the next state. A pair that is not in the table is illegal: the event raises `IllegalTransition` and
changes nothing. `activate` and `deactivate` may be repeated; so may `kill`, with a different wait. The states and their events
are those of `squall.values.TopologyState`.

Must not know: records, the store, time, callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from squall.values import GONE, PREVIOUS, TopologyState
from topology_api.errors import SquallError

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
