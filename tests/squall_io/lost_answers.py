"""A store that carries out each call, and then reports that it is unavailable: the answers to chosen calls are lost.

    losing = LosingFiles(LocalFiles(path), nth(7))           # that of the 7th call
    losing = LosingFiles(LocalFiles(path), first_of_each())  # the first one of each kind of call at each kind of place

Must not know: what is stored.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Final

from squall.stores.files import Files, FilesError, FilesUnavailable

#: Whether an answer is lost: by call, path, and the number of the call.
Loses = Callable[[str, str, int], bool]

_NUMBERS: Final = re.compile(r"[0-9]+|[0-9a-f]{8,}")


class LosingFiles:
    """`Files`, or an `OpenStore`, as seen by a caller that does not get some answers."""

    def __init__(self, files: Files, loses: Loses, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._loses = loses
        #: Actions of others before the loss of the answer is reported.
        self._meanwhile = meanwhile
        self._lock = threading.Lock()
        self.calls = 0
        #: The names of the calls whose answers were lost.
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._files, name)
        if name in ("root", "close"):
            return value

        def call(path: str, *rest: Any) -> Any:
            with self._lock:
                self.calls += 1
                lost = self._loses(name, path, self.calls)
            try:
                result = value(path, *rest)
            except FilesError:
                if not lost:
                    raise
            if not lost:
                return result
            self.lost.append(name)
            self._meanwhile()
            raise FilesUnavailable(f"cannot {name} {path}: the answer was lost")

        return call


def none(call: str, path: str, number: int) -> bool:
    """All answers arrive."""
    return False


def nth(first: int, calls: int = 1) -> Loses:
    """Lose this many answers in a row, beginning with that of this call."""
    return lambda call, path, number: first <= number < first + calls


def first_of_each() -> Loses:
    """The first answer of each call at each place is lost; places that differ only in a number are one."""
    asked: set[tuple[str, str]] = set()

    def loses(call: str, path: str, number: int) -> bool:
        place = (call, _NUMBERS.sub("#", path))
        lost = place not in asked
        asked.add(place)
        return lost

    return loses
