"""Checks after each call that what it has written can be kept: for a task in which something could not.

Production does not check each value, since encoding it costs more than the call. So a value that no snapshot can hold is found
when the epoch ends, and which call has written it is not known by then. Then all tasks return to the last commit, and the task
that had the value checks each call from there on: the one that writes it raises, and costs its own tuple alone.
Must not know: tasks, snapshots.
"""

from __future__ import annotations

from typing import Any

import msgspec

from topology_api import StateError
from topology_api.wording import typed
from worker.state.keys import original
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.saving import packed_keys
from worker.state.table import NONE, StateHandle, StateTable
from worker.state.timers import KeyTimers
from worker.state.values import WHOLE, ValueHandle


class ValueChecks:
    """Checks the calls of one task."""

    def __init__(self, table: StateTable) -> None:
        self.table = table

    def after(self, call: str) -> None:
        """Check a call before it counts. Raises StateError if something that it has changed cannot be kept."""
        changed, key = self.table.changed, self.table.key
        if changed and key is not NONE:
            self.check_key(key)
        for handle in changed:
            if isinstance(handle, ValueHandle):
                found = handle.at(key if handle.keyed else WHOLE)
                if found is not NONE:
                    handle.codec.kept(found, handle)
            elif isinstance(handle, MapHandle):
                check_items(handle, key)
            elif isinstance(handle, ListHandle):
                check_elements(handle, key)
            elif isinstance(handle, KeyTimers):
                self.check_names(handle, key)

    def check_key(self, key: Any) -> None:
        """Check a key itself."""
        plain = original(key)
        try:
            packed_keys([plain], "")
        except Exception as error:
            raise StateError(
                f"{self.table.where}: the key {typed(plain)} cannot be kept: {type(error).__name__}: {error}: group by a value "
                "that pickle can carry"
            ) from error

    def check_names(self, timers: KeyTimers, key: Any) -> None:
        """Check the names of a key's timers."""
        for name in timers.times.get(key, ()):
            try:
                msgspec.msgpack.encode(name)
            except Exception as error:
                raise StateError(
                    f"{self.table.where}: the name of a timer, {typed(name)}, cannot be kept: {type(error).__name__}: {error}"
                ) from error


def check_items(handle: StateHandle, key: Any) -> None:
    """Check the items of a key's map that the running call has touched."""
    assert isinstance(handle, MapHandle)
    items = handle.cells.get(key, {})
    for item in handle.logged:
        if item in items:
            handle.keys_codec.kept_key(item, handle)
            handle.codec.kept(items[item], handle)


def check_elements(handle: StateHandle, key: Any) -> None:
    """Check the elements of a key's list that the running call may have changed."""
    assert isinstance(handle, ListHandle)
    elements = handle.cells.get(key, [])
    if handle.old is None:
        elements = elements[handle.length :]
    elif handle.plain:
        before = {id(each) for each in handle.old}
        elements = [each for each in elements if id(each) not in before]
    for element in elements:
        handle.codec.kept(element, handle)
