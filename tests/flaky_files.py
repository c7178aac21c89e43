"""`Files` that are away, or lose the answers of some calls: before they are done, after, or until much later; or done twice.

    files = FlakyFiles(LocalFiles(path), random.Random(7), chance=0.2)
    files.away = True                   # every call fails, and nothing is done

Must not know: what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest

from squall.stores.files import Files, FilesError, FilesUnavailable
from squall.stores.local import LocalFiles

WRITES: Final = ("put_if_absent", "replace", "move_if_absent", "delete")


class FlakyFiles:
    """`Files` as a caller sees them over a bad network."""

    def __init__(self, files: Files, draw: Random | None = None, chance: float = 0.0) -> None:
        self._files = files
        self._draw = draw or Random(0)
        self.chance = chance
        self.away = False
        #: Writes whose callers were told that there is no answer, and which are still to be done.
        self._late: list[Callable[[], Any]] = []
        #: The names of the calls that failed.
        self.failed: list[str] = []

    @property
    def root(self) -> str:
        return self._files.root

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)

        def call(*arguments: Any) -> Any:
            return self._call(name, lambda: method(*arguments))

        return call

    def _call(self, name: str, do: Callable[[], Any]) -> Any:
        if self.away:
            return self._fail(name)
        if self._draw.random() < 0.3:
            self._do_late()
        if self._draw.random() >= self.chance:
            return do()
        if name not in WRITES:
            return self._fail(name)
        how = self._draw.choice(["before", "after", "late", "doubled"])
        if how == "doubled":
            do()
            return do()
        if how == "after":
            do()
        elif how == "late":
            self._late.append(do)
        return self._fail(name)

    def _do_late(self) -> None:
        late, self._late = self._late, []
        for do in late:
            with suppress(FilesError):  # no caller waits for the answer
                do()

    def _fail(self, name: str) -> Any:
        self.failed.append(name)
        raise FilesUnavailable(f"cannot {name}: the server has not answered in time")


def state_on_flaky_files(monkeypatch: pytest.MonkeyPatch, *chance: Any) -> list[FlakyFiles]:
    """Let topologies keep their state in flaky files, and return these, as they are opened. `chance`: see `FlakyFiles`."""
    opened: list[FlakyFiles] = []

    def open_flaky(path: str, **_: Any) -> FlakyFiles:
        opened.append(FlakyFiles(LocalFiles(path), *chance))
        return opened[-1]

    monkeypatch.setattr("worker.loop.epoch_store.open_store", open_flaky)
    return opened
