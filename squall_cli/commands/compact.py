"""`squall compact PATH`: puts the rows of many small files of a table into few larger ones, while writers and readers go on.

Tables of Parquet files need neither Spark nor, on this machine, Java. Must not know: what is merged, and how.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from squall_cli.cluster.cluster_client import echo_json, json_option
from squall_cli.cluster.waiting import WaitProgress
from squall_cli.options.kinds import Whole, folders
from squall_cli.options.spark_options import check_places, spark_options, table_path
from squall_cli.spark.started_spark import StartedSpark
from squall_cli.terminal import formats
from squall_cli.terminal.lines import echo
from squall_cli.terminal.tables import TableColumn, show, table_of
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_io.spark.compaction.compacting import Compacted, DirectoryGain, WriteMerge
    from squall_io.spark.manifest.tables import TableRecord

#: The most directories that are shown, the last ones by name. --json has all.
MOST_SHOWN: Final = 20
_MIB: Final = 1 << 20

GAINS: Final[tuple[TableColumn[DirectoryGain], ...]] = (
    TableColumn("PARTITION", lambda each: each.directory or "(all)", elastic=True),
    TableColumn("FILES", lambda each: formats.whole(each.files_before), number=True),
    TableColumn("FILES NOW", lambda each: formats.whole(each.files_after), number=True),
    TableColumn("SIZE", lambda each: formats.in_bytes(each.size_before), number=True),
    TableColumn(
        "SIZE NOW",
        lambda each: "" if each.size_after is None else formats.in_bytes(each.size_after),
        number=True,
    ),
)


@click.command("compact")
@click.argument("path", metavar="PATH", callback=table_path, shell_complete=folders)
@click.option(
    "--target-size",
    metavar="MIB",
    type=Whole(1, 4096),
    default=128,
    help="The size of the new files, in MiB.  [default: 128]",
)
@click.option(
    "--partition",
    metavar="DIRECTORY",
    help="Only this partition, as in day=2026-03-01 or day=2026-03-01/hour=7.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--take-over", is_flag=True, help="Do not wait for another compaction: end it.")
@spark_options
@json_option
def compact(
    path: str,
    target_size: int,
    partition: str | None,
    dry_run: bool,
    take_over: bool,
    master: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> None:
    """Put the rows of small files of the table at PATH into fewer, larger files, while sinks and readers go on.

    Files below three quarters of --target-size are small; files of one partition are put together, in the order of their
    commits. Rows, their order and their commit times stay, so all of Squall's readers see what they saw before. The old files
    stay until `squall vacuum`: until then, programs that read all files of a folder find these rows twice. A command that is
    ended has lost only its last step; type it again. Tables of Parquet files are compacted without Spark, others with it.

    \b
    Examples:
      squall compact /tables/delays
      squall compact hdfs://namenode:9000/delays --partition day=2026-03-01
      squall compact /tables/delays --dry-run --json

    Exit status: 0 done, or nothing to do; 1 not all was done; 2 wrong usage.
    """
    from squall_io.spark.compaction.compacting import outlook, planned, require_compactable
    from squall_io.spark.manifest.rewriting import Wanted

    check_places(master, conf, reads=[path], writes=[] if dry_run else [path])
    began = time.monotonic()
    with StartedSpark(master, conf) as started:
        files = started.store(path)
        table = require_compactable(files)
        wanted = Wanted(target_size * _MIB, partition_of(table, partition), table.data)
        steps = planned(files, wanted)
        found = outlook(steps, wanted)
        if steps and not dry_run:
            found = run(started, files, table, wanted, take_over)
    if as_json:
        echo_json(in_json(path, found, dry_run))
        return
    print_gains(found)
    for line in lines(found, dry_run, time.monotonic() - began):
        echo(line)


def partition_of(table: TableRecord, given: str | None) -> str:
    """Return the directory of --partition; "" if it is not given. Raises `UsageError` if the table has no such directories."""
    if given is None:
        return ""
    found = given.strip("/")
    names = [part.partition("=")[0] for part in found.split("/")]
    if names != list(table.partition_by[: len(names)]):
        by = "/".join(f"{name}=..." for name in table.partition_by)
        known = f"it is partitioned as {by}" if by else "it is not partitioned"
        raise click.UsageError(f"--partition names {given!r}, which is no directory of this table: {known}")
    return found


def run(started: StartedSpark, files: Files, table: TableRecord, wanted: Any, take_over: bool) -> Compacted:
    """Compact the table, and show the progress on one line."""
    from squall_io.spark.compaction.compacting import compact as carry_out
    from squall_io.spark.manifest.claims import Superseded
    from squall_io.spark.manifest.rewriting import RewriterBusy
    from squall_io.spark.processes import this_process
    from squall_io.spark.results.job_errors import spark_errors_as

    def failed(reason: str, error: Exception) -> SquallError:
        return SquallError(f"{files.root} could not be compacted: {reason}; no row is lost")

    write = writer(started, files, table)
    whose = f"squall compact on {socket.gethostname()}, process {os.getpid()}"
    with WaitProgress() as progress, spark_errors_as(failed):
        next_line = time.monotonic() + 1.0

        def report(done: int, total: int) -> None:
            nonlocal next_line
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + (0.2 if progress.status else 3.0)
                progress.show(f"{done:,} of {formats.plural(total, 'small file')} merged")

        try:
            return carry_out(
                files,
                wanted,
                write,
                whose,
                me=this_process(),
                take_over=take_over,
                progress=report,
            )
        except RewriterBusy as busy:
            raise SquallError(
                f"{busy}. Wait for it; if it has ended without saying so, --take-over goes on"
            ) from None
        except Superseded as error:
            raise SquallError(
                f"another compaction has taken over: {error.by}. What this one had finished stays; nothing is lost"
            ) from None


def writer(started: StartedSpark, files: Files, table: TableRecord) -> WriteMerge:
    """Return what writes the new files."""
    if table.file_format == "parquet":
        from squall_io.spark.compaction.parquet_merges import merge_parquet

        return merge_parquet
    from squall_io.spark.compaction.spark_merges import SparkMerges

    return SparkMerges(started.session(), files, table)


def print_gains(found: Compacted) -> None:
    """Print what was done in each partition."""
    if shown := found.gains[-MOST_SHOWN:]:
        show(table_of(GAINS, shown), sys.stdout)
    if more := len(found.gains) - len(shown):
        echo(f"and {formats.plural(more, 'partition')} before them (--json has all)")


def lines(found: Compacted, dry_run: bool, seconds: float) -> Iterator[str]:
    """Yield sentences about the whole table."""
    if not found.made:
        yield "Nothing to compact: there are no small files that could be put together."
        return
    files = f"{formats.plural(found.files_before, 'file')}, {formats.in_bytes(found.size_before)}"
    batches = formats.plural(found.replaced, "batch", "batches")
    if dry_run:
        yield f"\nwould merge {files} of {batches} into {formats.plural(found.files_after, 'file')}"
        return
    now = f"{formats.plural(found.files_after, 'file')}, {formats.in_bytes(found.size_after)}"
    yield f"\nmerged {files} of {batches} into {now} ({formats.duration(seconds)})"
    yield "The old files stay until `squall vacuum` deletes them."


def in_json(path: str, found: Compacted, dry_run: bool) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    return {
        "path": path,
        "dry_run": dry_run,
        "replaced": found.replaced,
        "made": found.made,
        "rows": found.rows,
        "files_before": found.files_before,
        "files_after": found.files_after,
        "bytes_before": found.size_before,
        "bytes_after": None if dry_run else found.size_after,
        "partitions": [
            {
                "partition": gain.directory,
                "files_before": gain.files_before,
                "files_after": gain.files_after,
                "bytes_before": gain.size_before,
                "bytes_after": gain.size_after,
            }
            for gain in found.gains
        ],
    }
