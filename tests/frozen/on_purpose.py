"""Deliberate differences of the current code from the commit's: entries of the frozen tables that do not hold any more.

Each difference has its reason. Everything else must be as before. Must not know: how anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final


@dataclass(frozen=True)
class Difference:
    """Mutations whose outcome has changed."""

    of: str
    """The fixture, such as `TopologyRecord`; `*` stands for anything here and below."""
    mutation: str
    """Its name, such as `format := 5.0`."""
    was: str
    """The outcome by the table: `same`, `changed`, or an error's name."""
    now: str
    """The outcome now."""
    why: str


STRICTER: Final = (
    "a value of another type than the field's, which no writer ever wrote, is refused with the record's own error; "
    "before, it was taken as it was, or made into something else"
)
#: Error -> the error that now refuses the same. An error report's reader promises ValueError, which `BadCounters` wraps.
_REFUSED_WITH: Final = {
    "BadFile": ("orders", "pulse", "end"),
    "BadCounters": ("counters", "counters of a topology"),
    "crash ValueError": ("error report",),
    "UnreadableRecord": (
        "table",
        "commit",
        "claim",
        "fence",
        "checkpoint",
        "version",
        "reader's position",
        "reader's files",
    ),
}

#: HTTP answers that have changed.
ANSWERS: Final = {
    "openapi": "the schemas are made from the structs and refer to each other; paths, methods and statuses are compared below",
    "reported: reports that are none": "all problems of the request are named, not the first one",
}
#: Pickles with names that have moved.
PICKLES: Final = {
    "local_cluster:WorkerView": "what `LocalCluster.workers` shows of a moment; nothing of Squall's stores one",
}
#: Errors that are not part of the user's API and have been renamed.
RENAMED_ERRORS: Final = {
    "nimbus.files:FileMissing": "NoSuchFile",
    "nimbus.state:BadState": "BadStateDirectory",
    "squall_io.spark.manifest.files:FileMissing": "AbsentFile",
    "supervisor.identity:BadState": "BadStateDirectory",
}

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "*", "*", "crash *", "[A-Z]*", "what was an error that nobody had thought of may be one of ours"
    ),
    *(
        Difference(of, "*", was, now, STRICTER)
        for now, kinds in _REFUSED_WITH.items()
        for of in kinds
        for was in ("same", "changed")
    ),
    Difference(
        "reader",
        "*",
        "ReaderMismatch",
        "UnreadableRecord",
        "a field of another type is damage, not another reader",
    ),
    Difference(
        "checkpoint",
        "*",
        "FilesRefused",
        "UnreadableRecord",
        "a path that is no text is damage: no file is asked for",
    ),
)


def kind_of(outcome: Any) -> str:
    """One word for an outcome."""
    return outcome if isinstance(outcome, str) else "changed"


def is_on_purpose(of: str, mutation: str, was: Any, now: Any) -> bool:
    """Whether an outcome has changed on purpose."""
    return any(
        fnmatchcase(of, each.of)
        and fnmatchcase(mutation, each.mutation)
        and fnmatchcase(kind_of(was), each.was)
        and fnmatchcase(kind_of(now), each.now)
        for each in DIFFERENCES
    )
