"""Values that all layers share: a worker's process and its address, a task, a topology's state.

An `Incarnation` and a `TaskRow` are tuples; in the store, on disk and on the wire they are JSON arrays. A `TopologyState` is a
string everywhere: the state's name. `TopologyState` is also the only table of the states: what a state means, what it asks of
workers, and to which state each event leads. A new state is one entry in this table.
Must not know: records, files, the wire, time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple


class Incarnation(NamedTuple):
    """One process of a worker. A later process of the same worker compares greater."""

    #: The version of the assignment that placed the worker.
    version: int
    #: How many times the supervisor has restarted the worker under this version.
    restart: int

    def __repr__(self) -> str:
        return f"({self.version}, {self.restart})"


class TaskRow(NamedTuple):
    """One task of a topology: number `component_index` (from 0) of its component."""

    task: int
    component: str
    component_index: int


#: The ZeroMQ endpoints at which a worker receives frames: for data and for control frames.
Address = tuple[str, str]


@dataclass(frozen=True)
class Keys:
    """The CURVE key pair of a topology as Z85 text; all its workers share it."""

    public: str
    secret: str = field(repr=False)


#: In `TopologyState.leads_to`: the state before the rebalance or the replacement.
PREVIOUS: Final = "(previous)"
#: In `TopologyState.leads_to`: the record is removed. No record ever has this state.
GONE: Final = "GONE"


#: The events of an ACTIVE or INACTIVE topology, and the states to which they lead. An INACTIVE topology can complete too: its
#: spouts may have finished before they were deactivated.
_PLACED: Final = {
    "activate": "ACTIVE",
    "deactivate": "INACTIVE",
    "rebalance": "REBALANCING",
    "kill": "KILLED",
    "replace": "REPLACING",
    "complete": "COMPLETED",
    "crash": "FAILED",
}


class TopologyState(str, Enum):
    """A state of a topology; equal to its name as a string.

    `meaning` documents the state. `asks` is the order that workers get in this state: "run", "pause", "drain" or "stop".
    `leads_to` maps each legal event to the next state; all other events are illegal.
    """

    asks: str
    meaning: str
    leads_to: Mapping[str, str]

    def __new__(cls, name: str, asks: str, meaning: str, leads_to: dict[str, str]) -> TopologyState:
        """Make the string `name` with the attributes of the state."""
        state = str.__new__(cls, name)
        state._value_ = name
        state.asks = asks
        state.meaning = meaning
        state.leads_to = MappingProxyType(leads_to)
        return state

    ACTIVE = ("ACTIVE", "run", "spouts run", _PLACED)
    INACTIVE = (
        "INACTIVE",
        "pause",
        "spouts are paused (or were never opened), tuples in flight are processed",
        _PLACED,
    )
    REBALANCING = (
        "REBALANCING",
        "drain",
        "waits for the drain before its tasks are placed again, then returns to the previous state",
        {"kill": "KILLED", "rebalanced": PREVIOUS, "crash": "FAILED"},
    )
    REPLACING = (
        "REPLACING",
        "drain",
        "waits for the drain and for the end of its workers, before another version takes over",
        {"kill": "KILLED", "restore": PREVIOUS},
    )
    COMPLETED = (
        "COMPLETED",
        "stop",
        "all sources have ended and all tuples are processed; final until `kill`",
        {"kill": "KILLED", "replace": "REPLACING"},
    )
    FAILED = (
        "FAILED",
        "stop",
        "a crash ended it; the error is kept until `kill`",
        {"kill": "KILLED", "replace": "REPLACING"},
    )
    KILLED = (
        "KILLED",
        "drain",
        "waits for the drain, then for the end of its workers; then the name is free",
        {"kill": "KILLED", "remove": GONE},
    )

    __str__ = str.__str__
    __repr__ = str.__repr__
