"""Where the rows of each batch are, in a form that Spark passes to its tasks: a path, and which rows of the file.

Must not know: which batches are wanted, what the files hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from squall_io.spark.manifest.originals import originals
from squall_io.spark.manifest.state import TableState


class FileRange(NamedTuple):
    """Rows of a file that follow each other."""

    #: Relative to the table.
    path: str
    #: The size of the whole file, in bytes.
    size: int
    #: The number of the first row in the file.
    first: int = 0
    #: None: all rows of the file.
    rows: int | None = None


def places_of(state: TableState) -> Mapping[str, tuple[FileRange, ...]]:
    """Return the rows of each batch that a sink has committed, by the batch's name. A batch without rows is missing."""
    return {
        str(original.entry.batch): tuple(
            FileRange(each.file.path, each.file.size, each.first, each.rows) for each in original.ranges
        )
        for original in originals(state)
    }
