"""`squall table PATH --versions N`: the last versions of a table's Delta log, which `read_committed(version=...)` reads.

Must not know: how a log is read, how the rest of a table is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_cli.terminal import formats
from squall_cli.terminal.tables import TableColumn
from topology_api.errors import SquallError

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


def found(files: Files, most: int) -> tuple[LogVersion, ...]:
    """Return the last versions, the newest first."""
    from squall_io.spark.delta.history import last_versions
    from squall_io.spark.manifest.state import read_state
    from squall_io.spark.manifest.tables import ROWS, read_table

    if read_table(files).holds != ROWS:
        raise SquallError(
            f"{files.root} holds versions of a result, and has no Delta log: without --versions, the command shows them"
        )
    return last_versions(files, most, lambda: read_state(files).counted)


def in_json(root: str, versions: Sequence[LogVersion]) -> dict[str, Any]:
    """Return the versions as JSON values."""
    shown = [
        {("version" if name == "number" else name): value for name, value in vars(each).items()}
        for each in versions
    ]
    return {"path": root, "versions": shown}
