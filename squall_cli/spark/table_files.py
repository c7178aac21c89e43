"""`squall table PATH --files`: the paths of the committed files, for programs that read files.

Must not know: which files are committed, how the rest of a table is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_io.spark.reading.file_list import CommittedTogether


def found(files: Files) -> list[CommittedTogether]:
    """Return the committed files."""
    from squall_io.spark.manifest.envelopes import UnreadableRecord
    from squall_io.spark.manifest.state import UnreadableManifest
    from squall_io.spark.reading.file_list import list_committed

    try:
        return list_committed(files)
    except UnreadableRecord as problem:
        raise UnreadableManifest(files.root, [problem]) from None


def lines(commits: Sequence[CommittedTogether]) -> Iterator[str]:
    """Yield the path of each file."""
    for together in commits:
        yield from (file.path for file in together.files)


def in_json(root: str, commits: Sequence[CommittedTogether]) -> dict[str, Any]:
    """Return everything that is known of the files as JSON values."""
    return {
        "path": root,
        "rows": sum(each.rows for each in commits),
        "commits": [
            {
                "of": each.of,
                "rows": each.rows,
                "committed": each.committed,
                "files": [
                    {"path": file.path, "bytes": file.size, "partition": dict(file.partition)}
                    for file in each.files
                ],
            }
            for each in commits
        ],
    }
