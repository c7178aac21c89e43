"""`squall vacuum PATH`: deletes the files of batches whose rows have been in other files for long, and drops old partitions.

Must not know: which files may go, how a table is stored.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from squall_cli.cluster.cluster_client import echo_json, json_option
from squall_cli.cluster.waiting import WaitProgress
from squall_cli.options.kinds import Age, folders
from squall_cli.options.spark_options import check_places, spark_options, table_path
from squall_cli.spark.started_spark import StartedSpark
from squall_cli.terminal import formats
from squall_cli.terminal.lines import echo

if TYPE_CHECKING:
    from squall.stores.files import OpenStore
    from squall_io.spark.retention.dropping import DroppedDays
    from squall_io.spark.retention.vacuum import Vacuumed

#: The default of --retention, in seconds: a week.
RETENTION: Final = 7 * 86_400.0
#: A shorter retention must be confirmed, in seconds.
SHORT: Final = 3600.0


@click.command()
@click.argument("path", metavar="PATH", callback=table_path, shell_complete=folders)
@click.option(
    "--retention",
    metavar="AGE",
    type=Age(),
    default=RETENTION,
    help="Keep files that were replaced less than AGE ago, such as 12h or 30d.  [default: 7d]",
)
@click.option("--allow-short", is_flag=True, help="Allow a --retention below an hour.")
@click.option(
    "--drop-older-than",
    "age",
    metavar="AGE",
    type=Age(),
    help="First drop the rows of days that lie more than AGE back, such as 90d.",
)
@click.option(
    "--by",
    "column",
    metavar="COLUMN",
    help="The partition column that has the day: a date, or text such as 2026-11-29.  [default: the only date]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@spark_options
@json_option
def vacuum(
    path: str,
    retention: float,
    allow_short: bool,
    age: float | None,
    column: str | None,
    dry_run: bool,
    master: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> None:
    """Delete files of the table at PATH whose rows are in other files since the retention, or were dropped.

    Topologies and readers go on meanwhile. A reader that began before its files were replaced needs them to its end, and so do
    earlier versions of the table: --retention says for how long. What `squall reprocess`, `squall replay`, CommittedRows and
    hold_table read is kept for as long as they read it. If the command is killed, the next one finishes its work.

    With --drop-older-than, partitions of old days are dropped first: their rows are gone for readers at once, and their files
    go with a vacuum after the retention. It needs a partition column with days: of type date, or, with --by, text in the form
    2026-11-29. Rows without a day stay.

    \b
    Examples:
      squall vacuum /tables/delays --dry-run
      squall vacuum hdfs://namenode:9000/warehouse/delays --retention 2d
      squall vacuum /tables/delays --drop-older-than 90d

    Exit status: 0 done; 1 if nothing may be deleted, with the reason; 2 wrong usage.
    """
    if retention < SHORT and not allow_short:
        raise click.UsageError(
            f"--retention {retention:g} is below an hour: a reader without a lease, such as read_committed or a reader of the"
            " Delta log, would find its files gone, and clocks of hosts may differ. Give --allow-short if no such reader is at"
            " work"
        )
    if column is not None and age is None:
        raise click.UsageError("--by names the column of --drop-older-than: give both")
    check_places(master, conf, reads=[path], writes=[] if dry_run else [path])
    with StartedSpark(master, conf) as started:
        files = started.store(path)
        gone = None if age is None else dropped(started, files, age, column, dry_run)
        done = vacuumed(files, retention, dry_run)
    if as_json:
        echo_json(in_json(path, retention, gone, done))
        return
    for line in (*drop_lines(gone, dry_run, retention), *lines(done, retention)):
        echo(line)


def process() -> str:
    """Return what names this process to other users of the table."""
    return f"squall vacuum on {socket.gethostname()}, process {os.getpid()}"


def dropped(
    started: StartedSpark, files: OpenStore, age: float, column: str | None, dry: bool
) -> DroppedDays:
    """Drop old partitions of a table."""
    from squall_io.spark.manifest.tables import read_table
    from squall_io.spark.processes import this_process
    from squall_io.spark.retention.counting import counter
    from squall_io.spark.retention.dropping import drop

    count = counter(files, read_table(files), started.session)
    return drop(files, age, process(), time.time, count, column=column, me=this_process(), dry=dry)


def vacuumed(files: OpenStore, retention: float, dry: bool) -> Vacuumed:
    """Vacuum a table, and show the progress on one line."""
    from squall_io.spark.retention.vacuum import vacuum as carry_out

    with WaitProgress() as progress:

        def show(done: int, total: int, size: int) -> None:
            progress.show(f"{done:,} of {formats.plural(total, 'file')} deleted, {formats.in_bytes(size)}")

        return carry_out(files, retention, process(), time.time, dry=dry, progress=show)


def drop_lines(gone: DroppedDays | None, dry: bool, retention: float) -> Iterator[str]:
    """Yield a sentence about the partitions that were dropped."""
    if gone is None:
        return
    if not gone.files:
        yield f"nothing to drop: no row has a {gone.column} before {gone.before}"
        return
    days = f"{formats.plural(len(gone.days), 'day')}, {gone.days[0]}"
    days += f" to {gone.days[-1]}" if len(gone.days) > 1 else ""
    rows = "" if gone.rows is None else f"{formats.plural(gone.rows, 'row')} in "
    what = f"{rows}{formats.plural(gone.files, 'file')} of {days}"
    if dry:
        yield f"would be dropped: {what} (--dry-run)"
    else:  # without a retention, the next lines say what has become of the files
        stay = f"; a vacuum deletes the files after {formats.span(retention)}" if retention else ""
        yield f"dropped: {what}{stay}"


def lines(done: Vacuumed, retention: float) -> Iterator[str]:
    """Yield sentences that describe the outcome."""
    if done.files:
        what = (
            f"{formats.plural(done.files, 'file')} of {_batches(done.batches)}, {formats.in_bytes(done.size)}"
        )
        yield f"would be deleted: {what} (--dry-run)" if done.dry else f"deleted: {what}"
    else:
        yield "nothing to delete"
    if done.recent:
        yield f"kept: the files of {_batches(done.recent)}, replaced less than {formats.span(retention)} ago"
    if done.behind:
        then = "would follow now" if done.dry else "has followed now"
        yield (
            f"kept until the next vacuum: the files of {_batches(done.behind)}, which the Delta log still had; it {then}"
        )
    for each in done.held:
        yield (
            f"held: the files of {_batches(each.batches)}, by {each.holder}, since {formats.known_moment(each.since)}"
            f" (until {formats.known_moment(each.until)} unless it goes on)"
        )


def in_json(path: str, retention: float, gone: DroppedDays | None, done: Vacuumed) -> dict[str, Any]:
    """Return the outcome as JSON values; times are seconds since 1970."""
    found = asdict(done)
    if gone is not None:
        found["dropped"] = {
            "column": gone.column,
            "before": str(gone.before),
            "days": list(map(str, gone.days)),
            "files": gone.files,
            "bytes": gone.size,
            "rows": gone.rows,
        }
    return {
        "path": path,
        "dry_run": found.pop("dry"),
        "retention": retention,
        "bytes": found.pop("size"),
        **found,
    }


def _batches(number: int) -> str:
    return formats.plural(number, "batch", "batches")
