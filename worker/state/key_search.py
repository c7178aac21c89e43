"""Finds the keys of a running task that rows write in one way, where that does not tell what the key is: those of a user's
class, and arrays of many texts. It compares the keys one by one, a slice between two calls of the task.

Must not know: tasks, files, who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Final

from worker.state.contents import dicts_of_keys
from worker.state.keys import canonical, original
from worker.state.live import MOST_KEYS
from worker.state.readable import json_form
from worker.state.table import StateHandle
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: The keys of a slice: some 3 ms.
SLICE: Final = 1000
#: The types whose values JSON has: no row writes one as an object.
_PLAIN: Final = frozenset({str, bool, type(None)})


class KeySearch:
    """A search among the keys that a task has at its beginning. Keys that come later are not looked at."""

    def __init__(self, form: Any, states: Mapping[str, StateHandle], timers: KeyTimers) -> None:
        """`form`: as JSON has it. To be called between two calls of the task, as `step` is."""
        self.form = form
        #: At once, since keys move between the dicts of a state; a key may be there several times.
        self.keys: list[Any] = list(timers.times)
        for handle in states.values():
            if not isinstance(handle, ValueHandle) or handle.keyed:
                self.keys += chain.from_iterable(dicts_of_keys(handle))
        self.total, self.compared = len(self.keys), 0
        self.left = iter(self.keys)
        #: In the form of `canonical`, each once.
        self.found: dict[Any, None] = {}

    def step(self) -> bool:
        """Compare a slice; return whether the search is over."""
        self.find(islice(self.left, SLICE))
        self.compared = min(self.compared + SLICE, self.total)
        return self.compared == self.total or len(self.found) >= MOST_KEYS

    def find(self, keys: Iterable[Any]) -> None:
        """Compare keys in the form of `canonical`."""
        form = self.form
        parts = len(form) if isinstance(form, list) else None
        for key in keys:
            plain = original(key)
            if parts is None:
                if type(plain) in _PLAIN:
                    continue
            elif not isinstance(plain, (list, tuple)) or len(plain) != parts:
                continue
            if json_form(plain) == form:
                self.found[canonical(plain)] = None
