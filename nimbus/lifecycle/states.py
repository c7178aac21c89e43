"""The life of a topology, as one table.

A state and an event give the next state; a pair that the table does not hold is illegal, raises and changes
nothing. `activate` and `deactivate` may be said twice, and `kill` again, with another wait.

| state | meaning |
|---|---|
| ACTIVE | spouts run |
| INACTIVE | spouts rest (or were never opened), what is in flight is worked off |
| REBALANCING | waits for the drain before its tasks are placed anew, then goes back to the state before |
| REPLACING | waits for the drain, and for its workers to be gone, before another version of it takes over |
| COMPLETED | every source has ended and all is worked off; final until `kill` |
| FAILED | a crash ended it; the error is kept until `kill` |
| KILLED | waits for the drain, then for its workers to be gone; then the name is free |

Must not know: records, the store, time, who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from topology_api.errors import SquallError

ACTIVE: Final = "ACTIVE"
INACTIVE: Final = "INACTIVE"
REBALANCING: Final = "REBALANCING"
REPLACING: Final = "REPLACING"
COMPLETED: Final = "COMPLETED"
KILLED: Final = "KILLED"
FAILED: Final = "FAILED"
GONE: Final = "GONE"
"""Where `remove` leads: the record is no more. No record ever holds it."""

STATES: Final = (ACTIVE, INACTIVE, REBALANCING, REPLACING, COMPLETED, FAILED, KILLED)

USER_EVENTS: Final = ("activate", "deactivate", "rebalance", "kill")
OWN_EVENTS: Final = ("rebalanced", "restore", "complete", "crash", "remove")
EVENTS: Final = (*USER_EVENTS, "replace", *OWN_EVENTS)
"""`replace` comes with the submission of another version; `restore`: that version does not take over, or did not run."""

PREVIOUS: Final = "(previous)"
"""Stands in the table for the state before a rebalance or a replacement began."""
_MAY_BE_PREVIOUS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {REBALANCING: (ACTIVE, INACTIVE), REPLACING: (ACTIVE, INACTIVE, COMPLETED, FAILED)}
)

TABLE: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        (ACTIVE, "activate"): ACTIVE,
        (ACTIVE, "deactivate"): INACTIVE,
        (ACTIVE, "rebalance"): REBALANCING,
        (ACTIVE, "replace"): REPLACING,
        (ACTIVE, "complete"): COMPLETED,
        (ACTIVE, "crash"): FAILED,
        (ACTIVE, "kill"): KILLED,
        (INACTIVE, "activate"): ACTIVE,
        (INACTIVE, "deactivate"): INACTIVE,
        (INACTIVE, "rebalance"): REBALANCING,
        (INACTIVE, "replace"): REPLACING,
        (INACTIVE, "complete"): COMPLETED,  # its spouts had finished before they were told to rest
        (INACTIVE, "crash"): FAILED,
        (INACTIVE, "kill"): KILLED,
        (REBALANCING, "rebalanced"): PREVIOUS,
        (REBALANCING, "crash"): FAILED,
        (REBALANCING, "kill"): KILLED,
        (REPLACING, "restore"): PREVIOUS,
        (REPLACING, "kill"): KILLED,
        (COMPLETED, "replace"): REPLACING,
        (COMPLETED, "kill"): KILLED,
        (FAILED, "replace"): REPLACING,
        (FAILED, "kill"): KILLED,
        (KILLED, "kill"): KILLED,
        (KILLED, "remove"): GONE,
    }
)


class IllegalTransition(SquallError):
    """An event that a topology in this state does not take; nothing was changed."""

    def __init__(self, state: str, event: str, name: str | None = None) -> None:
        super().__init__(state, event, name)
        self.state = state
        self.event = event
        self.name = name

    @property
    def allowed(self) -> tuple[str, ...]:
        """What a topology in this state does take."""
        return allowed_events(self.state)

    def __str__(self) -> str:
        what = "a topology" if self.name is None else f"topology {self.name!r}"
        possible = ", ".join(event for event in self.allowed if event in USER_EVENTS)
        return f"cannot {self.event} {what}: it is {self.state}; possible now: {possible or 'nothing'}"


def allowed_events(state: str) -> tuple[str, ...]:
    """The events that a topology in this state takes, in the order of `EVENTS`."""
    return tuple(event for event in EVENTS if (state, event) in TABLE)


def step(state: str, event: str, previous: str | None = None, name: str | None = None) -> str:
    """The state after the event, or `IllegalTransition`.

    `previous` is what a REBALANCING or REPLACING record remembers; `name` is the topology's, for the message.
    """
    target = TABLE.get((state, event))
    if target == PREVIOUS:
        target = previous if previous in _MAY_BE_PREVIOUS[state] else None
    if target is None:
        raise IllegalTransition(state, event, name)
    return target


def as_markdown() -> str:
    """The table as the documentation shows it: a row for each state, a column for each event."""
    rows = [["state", *EVENTS], ["---"] * (len(EVENTS) + 1)]
    rows += [[state, *(TABLE.get((state, event), "") for event in EVENTS)] for state in STATES]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
