"""`squall table PATH --sweep`: deletes the leftovers of ended submissions, or, with --dry-run, only shows them.

Must not know: which batches are committed, how the rest of a table is shown.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from squall_cli.terminal import formats
from squall_cli.terminal.tables import TableColumn
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_io.spark.manifest.ended import Leftovers, SubmissionLeftovers

#: The default of --older-than: seconds without a write after which a topology is considered ended.
OLD: Final = 24 * 3600.0

COLUMNS: Final[tuple[TableColumn[SubmissionLeftovers], ...]] = (
    TableColumn("LEFT BY", lambda each: each.topology_id, elastic=True),
    TableColumn("BATCHES", lambda each: formats.whole(len(each.leftovers)), number=True),
    TableColumn("FILES", lambda each: formats.whole(_files(each)), number=True),
    TableColumn("SIZE", lambda each: formats.in_bytes(_size(each)), number=True),
    TableColumn("LAST SIGN OF LIFE", lambda each: formats.moment(each.last_sign), rank=1),
)


class Sweep(msgspec.Struct, frozen=True):
    """The leftovers that were found, and whether they were deleted."""

    found: Leftovers
    age: float
    dry: bool


def sweep(files: Files, age: float, dry: bool) -> Sweep:
    """Find leftovers, and delete them unless `dry`."""
    from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
    from squall_io.spark.manifest.state import UnreadableManifest
    from squall_io.spark.manifest.tables import ROWS, read_table

    if read_table(files).holds != ROWS:
        raise SquallError(
            f"{files.root} holds versions of a result: in such a table, the next run deletes leftovers that are a day old;"
            " --sweep is for tables that sinks write"
        )
    try:
        found = find_leftovers(files, age)
    except UnreadableManifest as problem:
        raise SquallError(
            f"{problem}\nNothing is swept: an unreadable record may say that a batch is committed."
        ) from None
    if not dry:
        owner = f"squall table --sweep on {socket.gethostname()}, process {os.getpid()}"
        sweep_ended(files, found, owner, time.time())
    return Sweep(found, age, dry)


def lines(done: Sweep) -> Iterator[str]:
    """Yield sentences that describe the result."""
    ended, others, temporary = done.found.ended, done.found.others, done.found.temporary
    files = sum(map(_files, ended)) + len(temporary)
    if files or ended:
        what = f"{formats.plural(files, 'file')} of {_batches(ended)}, {formats.in_bytes(sum(map(_size, ended)))}"
        yield f"would be deleted: {what} (--dry-run)" if done.dry else f"deleted: {what}"
    else:
        yield "nothing to sweep"
    for each in others:
        yield (
            f"left alone: {_batches([each])} of {each.topology_id}, with a sign of life less than"
            f" {formats.span(done.age)} ago ({formats.moment(each.last_sign)})"
        )


def in_json(done: Sweep) -> dict[str, Any]:
    """Return the whole result as JSON values."""
    return {
        "dry_run": done.dry,
        "older_than": done.age,
        "submissions": [_submission(each) for each in done.found.ended],
        "left_alone": [_submission(each) for each in done.found.others],
        "temporary_files": len(done.found.temporary),
    }


def _submission(found: SubmissionLeftovers) -> dict[str, Any]:
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


def _batches(submissions: Sequence[SubmissionLeftovers]) -> str:
    return formats.plural(sum(len(each.leftovers) for each in submissions), "batch", "batches")


def _files(found: SubmissionLeftovers) -> int:
    return sum(each.files for each in found.leftovers)


def _size(found: SubmissionLeftovers) -> int:
    return sum(each.size for each in found.leftovers)
