"""`squall table PATH --enable-delta` and `--rebuild-delta`: give a table a Delta log, or make it hold what the manifest says.

Must not know: how the log is written, how the rest of a table is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from squall_cli.terminal import formats
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_io.spark.delta.comparing import LogState


#: What helps if a log cannot be followed.
ADVICE: Final = "The log was left as it is; --rebuild-delta writes a version that holds what is committed, and deletes nothing"


def change(files: Files, enabling: bool, rebuilding: bool) -> str | None:
    """Do what the options ask for; return what was done, None if nothing was asked for."""
    from squall_io.spark.delta.actions import ForeignLog
    from squall_io.spark.delta.following import catch_up, enable, rebuild

    if rebuilding:
        version = rebuild(files, time.time)
        return f"the Delta log continues with version {version}, which has all committed files"
    if not enabling:
        return None
    try:
        made = enable(files, time.time)
        caught = catch_up(files, time.time)
    except ForeignLog as error:
        raise SquallError(f"{error}\n{ADVICE}") from None
    added = formats.plural(caught.added, "file")
    return f"the table has a Delta log now, with {added}" if made else f"added to the Delta log: {added}"


def lines(found: LogState | None) -> Iterator[str]:
    """Yield sentences about the Delta log of a table."""
    if found is None:
        return
    if found.problem:
        yield f"its Delta log does not follow the table: {found.problem}. {ADVICE}"
    elif found.since is None:
        yield f"its Delta log has all batches, in version {found.version}"
    else:
        batches = formats.plural(found.lacks, "batch", "batches")
        ago = formats.span(max(0.0, time.time() - found.since))
        yield (
            f"its Delta log, at version {found.version}, lacks {batches}, the oldest from {ago} ago; a sink adds its own within"
            " seconds, and --enable-delta adds all"
        )
