"""The refusals and failures of a replay.

Must not know: Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from topology_api import SquallError


class CannotReplay(SquallError):
    """A topology, sources or outputs that cannot be replayed. `problems` lists every problem."""

    def __init__(self, topology: str, problems: Iterable[str]) -> None:
        self.topology = topology
        self.problems = tuple(problems)
        super().__init__(topology, self.problems)

    def __str__(self) -> str:
        lines = ["  - " + problem.replace("\n", "\n    ") for problem in self.problems]
        return "\n".join([f"topology {self.topology!r} cannot be replayed in this way:", *lines])


class ReplayFailed(SquallError):
    """A replay ran, but has no result; the text says why, and where."""


class TooManyErrors(ReplayFailed):
    """More tuples failed than allowed. `errors` is their number, `first` has the texts of the first few."""

    def __init__(self, topology: str, errors: int, most: int, first: Iterable[str]) -> None:
        self.topology = topology
        self.errors = errors
        self.most = most
        self.first = tuple(first)
        super().__init__(topology, errors, most, self.first)

    def __str__(self) -> str:
        counted = "1 error" if self.errors == 1 else f"{self.errors:,} errors"
        head = f"the replay of topology {self.topology!r} was stopped after {counted}, of at most {self.most:,} (max_errors):"
        return "\n".join([head, *("  " + text.replace("\n", "\n  ") for text in self.first)])
