"""Makes the handles of a bolt's states from its declarations. Must not know: tasks, tuples."""

from __future__ import annotations

from topology_api.state import NAMES, ListState, MapState, State, states_of
from worker.state.codecs import Codec
from worker.state.lists import ListHandle, MarkingListHandle
from worker.state.maps import MapHandle, MarkingMapHandle
from worker.state.plain_values import PlainValueHandle
from worker.state.table import MarkingTable, StateHandle, StateTable
from worker.state.values import ValueHandle


def handles(table: StateTable, bolt: type) -> dict[str, StateHandle]:
    """Return a handle for each state that a bolt's class declares."""
    states = states_of(bolt)
    NAMES.update(states)  # a class that was unpickled did not name them
    return {name: handle(table, name, state) for name, state in states.items()}


def handle(table: StateTable, name: str, state: State) -> StateHandle:
    """Return the handle of one declaration."""
    codecs = [Codec(kind, state.pickled) for kind in state.types]
    marks = isinstance(table, MarkingTable)
    if isinstance(state, MapState):
        kind = MarkingMapHandle if marks else MapHandle
        return kind(table, name, codecs[0], codecs[1], state.ttl)
    if isinstance(state, ListState):
        return (MarkingListHandle if marks else ListHandle)(table, name, codecs[0], state.ttl)
    if codecs[0].plain and state.keyed and state.ttl is None:
        return PlainValueHandle(table, name, codecs[0], state.default)
    return ValueHandle(table, name, codecs[0], default=state.default, ttl=state.ttl, keyed=state.keyed)
