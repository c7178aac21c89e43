"""`squall table PATH --versions N`: the last versions of a table's Delta log, which `read_committed(version=...)` reads.

Must not know: how a log is read, how the rest of a table is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from squall_cli.terminal import formats
from squall_cli.terminal.tables import TableColumn

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_io.spark.delta.history import LogVersion

COLUMNS: Final[tuple[TableColumn[LogVersion], ...]] = (
    TableColumn("VERSION", lambda each: str(each.number), number=True),
    TableColumn("WRITTEN", lambda each: formats.known_moment(each.written)),
    TableColumn("WHAT", lambda each: each.operation.lower(), elastic=True, rank=1),
    TableColumn("BATCHES ADDED", lambda each: formats.whole(each.batches), number=True),
    TableColumn("REPLACED", lambda each: formats.whole(each.replaced), number=True, rank=2),
    TableColumn("FILES", lambda each: formats.whole(each.files), number=True, rank=3),
    TableColumn("ROWS", lambda each: formats.whole(each.rows), number=True),
)


def versions(files: Files, most: int | None) -> tuple[LogVersion, ...]:
    """Return the last versions, the newest first; nothing if none were asked for, or the table holds results, whose versions
    are shown anyway."""
    from squall_io.spark.delta.history import last_versions
    from squall_io.spark.manifest.state import read_state
    from squall_io.spark.manifest.tables import ROWS, read_table

    if most is None or read_table(files).holds != ROWS:
        return ()
    return last_versions(files, most, lambda: read_state(files).counted)


def in_json(found: tuple[LogVersion, ...]) -> list[dict[str, Any]]:
    """Return the versions as JSON values."""
    return [
        {("version" if name == "number" else name): value for name, value in vars(each).items()}
        for each in found
    ]
