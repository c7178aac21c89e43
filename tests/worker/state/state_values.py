"""What a state holds, for comparisons."""

from __future__ import annotations

from typing import Any

from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.table import StateHandle
from worker.state.values import ValueHandle


def values_of(handle: StateHandle) -> dict[Any, Any]:
    """The values of each key, of which none is touched."""
    if isinstance(handle, ValueHandle):
        cells = handle.current()
        assert cells.keys().isdisjoint(handle.raw)
        return {**cells, **{key: handle.codec.decode(data) for key, data in handle.raw.items()}}
    assert isinstance(handle, MapHandle | ListHandle)
    return {key: handle.peek(key) for key in handle.cells.keys() | handle.raw.keys()}
