"""Tries the promises of a connector one by one, and lists those that it breaks in one error.

Each promise is tried alone, so that the error has all of them. Must not know: what connectors do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from topology_api import SquallError
from topology_api.wording import shown
from worker.errors.reports import failure_text

T = TypeVar("T")
#: How many of its last calls an error lists.
MOST_CALLS = 12


class ContractBroken(SquallError, AssertionError):
    """A connector breaks its contract. `broken` has a text for each promise that it breaks; `name` names its class."""

    def __init__(self, name: str, broken: Sequence[str]) -> None:
        self.name = name
        self.broken = tuple(broken)
        super().__init__(name, self.broken)

    def __str__(self) -> str:
        return f"{self.name} breaks {len(self.broken)} promise(s):" + "".join(
            f"\n- {text}" for text in self.broken
        )


class Broken(Exception):
    """One promise is broken. Its text says how."""


class Calls:
    """The calls of one trial, for its error."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def make(self, text: str, call: Callable[[], T]) -> T:
        """Make a call that must not raise. Raises Broken if it does."""
        self.made.append(text)
        try:
            return call()
        except Exception as error:
            raise Broken(f"{text} raised {failure_text(error)}") from error

    def refused(self, text: str, call: Callable[[], object], why: str) -> None:
        """Make a call that must raise. Raises Broken, with `why` it must, if it does not."""
        self.made.append(text)
        try:
            call()
        except Exception:
            return
        raise Broken(f"{text} raised nothing: {why}")

    def __str__(self) -> str:
        left_out = len(self.made) - MOST_CALLS
        texts = self.made[-MOST_CALLS:]
        return "; ".join([f"({left_out} calls)", *texts] if left_out > 0 else texts)


class PromiseTrial(Protocol):
    """One try of one promise."""

    calls: Calls

    def end(self) -> None:
        """Close what was opened."""


TrialT = TypeVar("TrialT", bound=PromiseTrial)


def try_all(
    name: str, promises: Mapping[str, Callable[[TrialT], None]], new_trial: Callable[[], TrialT]
) -> None:
    """Try each promise. Raises ContractBroken with all that are broken."""
    broken: list[str] = []
    cause: Broken | None = None
    gc.freeze()  # a kill frees what it has left: the garbage collector looks at what is new only
    try:
        for text, promise in promises.items():
            trial = new_trial()
            try:
                promise(trial)
            except Broken as error:
                broken.append(f"{text}: {error}\n    after: {trial.calls}")
                cause = cause or error
            finally:
                trial.end()
    finally:
        gc.unfreeze()
    if broken:
        raise ContractBroken(name, broken) from cause


def difference(there: Mapping[Any, int], expected: Mapping[Any, int]) -> str | None:
    """Return how counted rows differ from those that should be there; None: they do not."""
    texts = []
    for row in dict.fromkeys([*expected, *there]):
        times, wanted = there.get(row, 0), expected.get(row, 0)
        if times < 0:
            texts.append(f"{shown(row)}, which was there before, no more")
        elif times != wanted:
            texts.append(f"{shown(row)} {times} time(s) instead of {wanted}")
    more = f" and {len(texts) - 3} more rows" if len(texts) > 3 else ""
    return f"{', '.join(texts[:3])}{more}" if texts else None
