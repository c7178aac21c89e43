"""Checks the states of a stateful bolt in tests: that each value can be kept, and that none is changed behind the state's back.

A mutable value that is read through its state counts as changed. One that the bolt has kept elsewhere, and changes in a later
call without reading it again, would be lost. Must not know: tasks, how a run is driven.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from local_cluster.changed_lines import ChangedLines
from topology_api import SquallError, StateError
from topology_api.wording import shown
from worker.state import contents
from worker.state.keys import original
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.table import NONE, StateTable
from worker.state.values import WHOLE, ValueHandle

#: How many values are compared before and after each call: those that were used last.
KEPT_IN_VIEW: Final = 64
#: The name of a state, and the key whose value it is.
Place = tuple[str, Any]


class StateWatch:
    """Watches the states of one task. `found` gets each error."""

    def __init__(self, table: StateTable, found: Callable[[SquallError], object]) -> None:
        self.table = table
        self.found = found
        #: The encoded values of mutable types after the call that used them last.
        self.seen: OrderedDict[Place, Any] = OrderedDict()
        #: Finds the lines of a call that change these values.
        self.lines = ChangedLines[Place](self.seen, self.encoded)

    def traced(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the user's that does the same, and is traced while it runs."""
        return partial(self.lines.run, method)

    def after(self, call: str) -> None:
        """Check a call before it counts. `call`: the user's method. Raises StateError if a value could not be kept."""
        changed = self.table.changed
        contents.check(changed)
        used = {
            (handle.name, WHOLE if isinstance(handle, ValueHandle) and not handle.keyed else self.table.key)
            for handle in changed
            if not getattr(handle, "plain", True)
        }
        for place, old in self.seen.items():
            if place not in used and self.encoded(place) != old:
                self.found(self.changed_behind(place, call))
                self.seen.clear()
                break
        for place in used:
            self.seen[place] = self.encoded(place)
            self.seen.move_to_end(place)
        while len(self.seen) > KEPT_IN_VIEW:
            self.seen.popitem(last=False)

    def changed_behind(self, place: Place, call: str) -> StateError:
        """Return the error for a value that a call has changed without reading it from its state."""
        name, key = place
        return StateError(
            f"{self.table.where}: {call}() changed the value of state {name!r}, key {shown(original(key))}, in place"
            f"{self.lines.text(place)}, without reading it from self.{name} in this call: the change would be lost. Read a "
            "mutable value from its state in each call that changes it"
        )

    def encoded(self, place: Place) -> Any:
        """Return the encoded value of a state and key, to be compared."""
        name, key = place
        handle = self.table.handles[name]
        if isinstance(handle, MapHandle):
            return {
                item: handle.codec.encode(part, handle) for item, part in handle.cells.get(key, {}).items()
            }
        if isinstance(handle, ListHandle):
            return [handle.codec.encode(part, handle) for part in handle.cells.get(key, [])]
        assert isinstance(handle, ValueHandle)
        found = handle.at(key)
        return None if found is NONE else handle.codec.encode(found, handle)
