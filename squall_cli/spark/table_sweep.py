"""`squall table PATH --sweep`: what submissions have left that have ended is deleted, or only shown.

Must not know: how it is decided what counts, how the rest of a table is shown.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from squall_cli import figures
from squall_cli.tables import Column, harmless
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall_io.spark.manifest.ended import Leftovers, Submission
    from squall_io.spark.manifest.files import Files

#: A topology that has written nothing for so many seconds is taken for ended, unless another time is asked for.
OLD: Final = 24 * 3600.0

COLUMNS: Final = (
    Column("LEFT BY", elastic=True),
    Column("BATCHES", number=True),
    Column("FILES", number=True),
    Column("SIZE", number=True),
    Column("LAST SIGN OF LIFE", rank=1),
)


@dataclass(frozen=True)
class Sweep:
    """What was found, and whether it was deleted."""

    found: Leftovers
    age: float
    dry: bool


def sweep(files: Files, age: float, dry: bool) -> Sweep:
    """Find what there is to sweep, and delete it unless it is only to be shown."""
    from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
    from squall_io.spark.manifest.state import UnreadableManifest
    from squall_io.spark.manifest.tables import ROWS, read_table

    if read_table(files).holds != ROWS:
        raise SquallError(
            f"{files.root} holds versions of a result: what runs have left there the next run deletes when it is"
            " a day old; --sweep is for tables that sinks write"
        )
    try:
        found = find_leftovers(files, age)
    except UnreadableManifest as problem:
        raise SquallError(f"{problem}\nNothing is swept: it may be what says that a batch counts.") from None
    if not dry:
        owner = f"squall table --sweep on {socket.gethostname()}, process {os.getpid()}"
        sweep_ended(files, found, owner, time.time())
    return Sweep(found, age, dry)


def rows(done: Sweep) -> list[tuple[str, ...]]:
    """Cells of the table of what was swept."""
    return [
        (
            each.topology_id,
            figures.whole(len(each.leftovers)),
            figures.whole(_files(each)),
            figures.in_bytes(_size(each)),
            figures.moment(each.last_sign),
        )
        for each in done.found.ended
    ]


def lines(done: Sweep) -> Iterator[str]:
    """What was done, in sentences."""
    ended, others, temporary = done.found.ended, done.found.others, done.found.temporary
    files = sum(map(_files, ended)) + len(temporary)
    if files or ended:
        what = f"{figures.plural(files, 'file')} of {_batches(ended)}, {figures.in_bytes(sum(map(_size, ended)))}"
        yield f"would be deleted: {what} (--dry-run)" if done.dry else f"deleted: {what}"
    else:
        yield "nothing to sweep"
    for each in others:
        yield (
            f"left alone: {_batches([each])} of {harmless(each.topology_id)}, with a sign of life less than"
            f" {figures.span(done.age)} ago ({figures.moment(each.last_sign)})"
        )


def in_json(done: Sweep) -> dict[str, Any]:
    """All of it as JSON values."""
    return {
        "dry_run": done.dry,
        "older_than": done.age,
        "submissions": [_submission(each) for each in done.found.ended],
        "left_alone": [_submission(each) for each in done.found.others],
        "temporary_files": len(done.found.temporary),
    }


def _submission(found: Submission) -> dict[str, Any]:
    batches = [
        {
            "batch": str(each.batch),
            "files": each.files,
            "bytes": each.size,
            "committed": each.entry is not None,
        }
        for each in found.leftovers
    ]
    return {"topology_id": found.topology_id, "last_sign": found.last_sign, "batches": batches}


def _batches(submissions: Sequence[Submission]) -> str:
    return figures.plural(sum(len(each.leftovers) for each in submissions), "batch", "batches")


def _files(found: Submission) -> int:
    return sum(each.files for each in found.leftovers)


def _size(found: Submission) -> int:
    return sum(each.size for each in found.leftovers)
