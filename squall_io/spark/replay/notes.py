"""What tasks of a replay report besides their tuples: errors and counts.

Notes travel as records. A component that is no output hands them to the first component that reads it, which passes them
on, so
that all of them arrive with the outputs and no frame has to be kept for its notes alone.
Must not know: Spark, tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from squall_io.spark.replay.inference import Kind
from squall_io.spark.replay.records import Buffer, Origin, dumps

#: Texts of errors that a task's totals carry.
FIRST: Final = 3


@dataclass(frozen=True)
class ErrorNote:
    """A tuple that failed, or a call that raised."""

    component: str
    task: int
    index: int
    call: str
    stream: str | None
    """The tuple's stream; None if no tuple failed."""
    values: str | None
    error: str | None
    traceback: str
    sources: tuple[Origin, ...]
    """The source rows that the tuple was made of."""

    @property
    def text(self) -> str:
        """For a message."""
        what = f"{self.component}[{self.task}] {self.call}"
        given = "" if self.values is None else f" of {self.values}"
        lines = [f"{what}{given}: {self.error or 'the tuple was failed'}"]
        return "\n  ".join([*lines, *self.traceback.splitlines()])


@dataclass
class Totals:
    """What one task did."""

    component: str
    task: int
    executed: int = 0
    emitted: int = 0
    failed: int = 0
    unsettled: int = 0
    """Tuples that were neither acked nor failed."""
    errors: int = 0
    first: list[str] = field(default_factory=list)
    fatal: str | None = None
    """Why the task could not be run at all."""
    kinds: dict[int, list[Kind]] = field(default_factory=dict)
    """The types of the values of output streams without a schema, by number and field."""
    conflicts: dict[int, str] = field(default_factory=dict)
    """Why the values of such a stream have no common type."""


def encode_errors(notes: Iterable[ErrorNote]) -> bytes:
    """Errors as bytes."""
    return dumps(list(notes))


def decode_errors(blob: Buffer) -> list[ErrorNote]:
    """The errors of a record."""
    notes: list[ErrorNote] = pickle.loads(blob)
    return notes


def decode_totals(blob: Buffer) -> Totals:
    """The totals of a record."""
    totals: Totals = pickle.loads(blob)
    return totals
