"""`squall table PATH`: shows the contents of a table, whether its files are unchanged since their commit, and how many of its
rows are replays.

Without options the command reads only the manifest, without Spark. `--verify` also reads the files, `--key` counts rows with
Spark, and `--sweep` deletes leftovers.
Must not know: how a table is stored on its file system.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from squall_cli.cluster.cluster_client import echo_json, json_option
from squall_cli.cluster.waiting import WaitProgress
from squall_cli.options.kinds import Seconds, Whole, folders
from squall_cli.options.spark_options import check_places, names, spark_options, table_path
from squall_cli.spark import table_delta, table_files, table_register, table_sweep, table_versions
from squall_cli.spark.started_spark import StartedSpark
from squall_cli.terminal import formats
from squall_cli.terminal.lines import echo
from squall_cli.terminal.tables import TableColumn, show, table_of
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.stores.files import OpenStore
    from squall_io.spark.reading.committed import KeyCounts
    from squall_io.spark.reading.summary import (
        PartitionSummary,
        StreamSummary,
        TableSummary,
        Verification,
        WriterSummary,
    )
    from squall_io.spark.results.versions import Version
    from squall_io.spark.rows.schema import Schema


T = TypeVar("T")

#: The most partitions that are shown: the last ones by name. --json has all partitions.
MOST_PARTITIONS: Final = 20
#: The most problems that are named, and the most files that belong to no batch.
MOST_NAMED: Final = 50

WRITERS: Final[tuple[TableColumn[WriterSummary], ...]] = (
    TableColumn("TOPOLOGY", lambda each: each.topology, elastic=True),
    TableColumn("COMPONENT", lambda each: each.component, elastic=True),
    TableColumn("BATCHES", lambda each: formats.whole(each.batches), number=True),
    TableColumn("ROWS", lambda each: formats.whole(each.rows), number=True),
    TableColumn("SIZE", lambda each: formats.in_bytes(each.size), number=True),
    TableColumn("LAST COMMIT", lambda each: formats.moment(each.last_commit), rank=1),
)
VERSIONS: Final[tuple[TableColumn[Version], ...]] = (
    TableColumn("VERSION", lambda each: str(each.number), number=True),
    TableColumn("MADE BY", lambda each: each.job, elastic=True),
    TableColumn("ROWS", lambda each: formats.whole(each.rows), number=True),
    TableColumn("FILES", lambda each: formats.whole(len(each.files)), number=True),
    TableColumn("SIZE", lambda each: formats.in_bytes(each.size), number=True),
    TableColumn("PUBLISHED", lambda each: formats.moment(each.published), rank=1),
)
PARTITIONS: Final[tuple[TableColumn[PartitionSummary], ...]] = (
    TableColumn("PARTITION", lambda each: each.path, elastic=True),
    TableColumn("FILES", lambda each: formats.whole(each.files), number=True),
    TableColumn("SIZE", lambda each: formats.in_bytes(each.size), number=True),
)


@click.command("table")
@click.argument("path", metavar="PATH", callback=table_path, shell_complete=folders)
@click.option(
    "--verify",
    "verifying",
    is_flag=True,
    help="Read every file, and compare its digest with the committed one.",
)
@click.option(
    "--key",
    metavar="NAMES",
    callback=names,
    help="Count replays: rows that are equal to an earlier row in these columns.",
)
@click.option("--sweep", "sweeping", is_flag=True, help="Delete leftovers of topologies that have ended.")
@click.option(
    "--older-than",
    metavar="SECS",
    type=Seconds(),
    help="Sweep only topologies that have written nothing for this long.  [default: 86400, a day]",
)
@click.option("--dry-run", is_flag=True, help="Only show what --sweep would delete.")
@click.option(
    "--enable-delta",
    is_flag=True,
    help="Give the table a Delta log, or add what its log lacks.",
)
@click.option(
    "--rebuild-delta",
    is_flag=True,
    help="Make a damaged Delta log hold what is committed.",
)
@click.option(
    "--versions", metavar="N", type=Whole(1), help="Show only the last N versions of its Delta log."
)
@click.option("--files", "listing", is_flag=True, help="Print only the paths of the committed files.")
@click.option(
    "--register",
    metavar="NAME",
    help="Give the table a name in a Hive metastore: TABLE or DATABASE.TABLE.",
)
@spark_options
@json_option
def table(
    path: str,
    verifying: bool,
    key: tuple[str, ...] | None,
    sweeping: bool,
    older_than: float | None,
    dry_run: bool,
    enable_delta: bool,
    rebuild_delta: bool,
    versions: int | None,
    listing: bool,
    register: str | None,
    master: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> None:
    """Show the contents of the table at PATH: a table of a SparkSink, or of results.

    Without options the command reads only the manifest: that needs no Spark, and no Java for a table on this machine. --verify
    reads every committed file and compares its digest with the committed one. --key lets Spark count the rows that are replays
    of other rows. --sweep deletes leftovers of topologies that ended in the middle of a batch: the command assumes that a
    topology has ended if it wrote nothing for a day, or for --older-than seconds. If its sink is alive, it writes the batch
    again; no row is lost. --enable-delta gives a table of Parquet files a Delta log, from which readers of Delta tables see the
    committed rows; a sink's new table has one. --versions shows what `read_committed(version=...)` can read. --files is for
    programs that read files, such as DuckDB. --register lets Spark make an external table of the data files, or update it.

    \b
    Examples:
      squall table hdfs://namenode:9000/warehouse/delays
      squall table /tmp/delays --verify
      squall table /tmp/delays --key carrier,hour --json
      squall table /tmp/delays --sweep --dry-run

    Exit status: 0 done; 1 if part of the manifest cannot be read, or a file has changed since its commit; 2 wrong usage.
    """
    changing = sweeping or enable_delta or rebuild_delta
    others = changing or verifying or key is not None
    alone = (listing, versions is not None, register is not None, others)
    check_together(sweeping, dry_run or older_than is not None, alone)
    check_places(master, conf, reads=[path], writes=[path] if changing else [])
    conf = conf if register is None else table_register.settings(master, conf)
    with StartedSpark(master, conf) as started:
        files = started.store(path)
        if print_alone(started, files, listing, versions, register, conf, as_json):
            return
        changed = table_delta.change(files, enable_delta, rebuild_delta)
        age = table_sweep.OLD if older_than is None else older_than
        swept, found = swept_and_read(files, age if sweeping else None, dry_run)
        verified, counts = checked(files) if verifying else None, None
        bad = [*unreadable_lines(found), *problem_lines(verified)]
        if key is not None and found.schema is not None and not bad:
            counts = counted(started, path, found.schema, key)
    if as_json:
        swept_in_json = {} if swept is None else {"swept": table_sweep.in_json(swept)}
        echo_json({**in_json(found, verified, counts), **swept_in_json})
    else:
        print_all(found, swept, changed, counts, verified)
    if bad:
        echo("\n".join(bad), err=True)
        sys.exit(1)


def print_alone(
    started: StartedSpark,
    files: OpenStore,
    listing: bool,
    versions: int | None,
    register: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> bool:
    """Do what an option asks for that works alone; return whether there is one."""
    if listing:
        print_files(files, as_json)
    elif versions is not None:
        print_versions(files, versions, as_json)
    elif register is not None:
        print_registered(table_register.run(started, files, register, conf), as_json)
    else:
        return False
    return True


def print_files(files: OpenStore, as_json: bool) -> None:
    """Print the committed files."""
    found = table_files.found(files)
    if as_json:
        return echo_json(table_files.in_json(files.root, found))
    for line in table_files.lines(found):
        echo(line)


def print_registered(done: table_register.Done, as_json: bool) -> None:
    """Print under which name the table is registered."""
    if as_json:
        return echo_json(table_register.in_json(done))
    for line in table_register.lines(done):
        echo(line)


def print_versions(files: OpenStore, most: int, as_json: bool) -> None:
    """Print the last versions of the table's Delta log."""
    found = table_versions.found(files, most)
    if as_json:
        return echo_json(table_versions.in_json(files.root, found))
    show(table_of(table_versions.COLUMNS, found), sys.stdout)


def check_together(sweeping: bool, of_sweep: bool, alone: Sequence[bool]) -> None:
    """Raise `UsageError` if options were given that do not go together."""
    if of_sweep and not sweeping:
        raise click.UsageError("--older-than and --dry-run work only with --sweep: give --sweep, too")
    if sum(alone) > 1:
        raise click.UsageError(
            "--files, --versions and --register each work alone: leave the other options out"
        )


def swept_and_read(
    files: OpenStore, age: float | None, dry_run: bool
) -> tuple[table_sweep.Sweep | None, TableSummary]:
    """Sweep the table unless `age` is None. Return the result, and a summary of the table after the sweep."""
    from squall_io.spark.manifest.envelopes import UnreadableRecord
    from squall_io.spark.manifest.state import UnreadableManifest
    from squall_io.spark.reading.summary import table_summary

    try:
        swept = None if age is None else table_sweep.sweep(files, age, dry_run)
        return swept, table_summary(files)
    except UnreadableRecord as problem:
        raise UnreadableManifest(files.root, [problem]) from None


def counted(started: StartedSpark, path: str, schema: Schema, key: tuple[str, ...]) -> KeyCounts:
    """Count the rows by key, with a progress bar while Spark runs."""
    from squall_io.spark.reading.committed import count_keys, key_names
    from squall_io.spark.results.job_errors import spark_errors_as

    def failed(reason: str, error: Exception) -> SquallError:
        return SquallError(f"the keys of {path} could not be counted: {reason}; --verify names damaged files")

    key_names(schema, key)  # before Spark is started
    session = started.watched()
    with spark_errors_as(failed):
        return count_keys(session, path, key)


def checked(files: OpenStore) -> Verification:
    """Compare every file with its digest, and show the progress on one line."""
    from squall_io.spark.reading.summary import verify

    with WaitProgress() as progress:
        next_line = time.monotonic() + 1.0

        def show(done: int, total: int, size: int) -> None:
            nonlocal next_line
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + (0.2 if progress.status else 3.0)
                progress.show(f"{done:,} of {formats.plural(total, 'file')} read, {formats.in_bytes(size)}")

        return verify(files, show)


def print_all(
    found: TableSummary,
    swept: table_sweep.Sweep | None,
    changed: str | None,
    counts: KeyCounts | None,
    verified: Verification | None,
) -> None:
    """Print the contents of a table, and what the options have done."""
    print_summary(found)
    print_swept(swept)
    for line in (*([f"\n{changed}"] if changed else []), *key_lines(counts), *verified_lines(verified)):
        echo(line)


def print_summary(found: TableSummary) -> None:
    """Print the contents of a table."""
    from squall_io.spark.manifest.tables import describe

    echo(f"{found.root}: {describe(found.table)}")
    if found.schema is not None:
        numbered = f" {found.stream.schemas}" if found.stream else ""
        echo(f"schema{numbered}: {found.schema}")
    echo(f"\n{totals(found)}")
    print_rows(WRITERS, found.stream.writers if found.stream else ())
    print_rows(VERSIONS, found.versions)
    if found.table.partition_by:
        shown = found.partitions[-MOST_PARTITIONS:]  # the last by name: usually partitions are days
        print_rows(PARTITIONS, shown)
        more = len(found.partitions) - len(shown)
        if more:
            echo(f"and {formats.plural(more, 'partition')} before them (--json has all)")
    if found.stream and (notes := list(stream_notes(found.stream))):
        echo("\n" + "\n".join(notes))


def print_rows(columns: Sequence[TableColumn[T]], things: Sequence[T]) -> None:
    """Print an empty line and a table with a row for each thing; print nothing if there are no things."""
    if things:
        echo()
        show(table_of(columns, things), sys.stdout)


def totals(found: TableSummary) -> str:
    """Return the totals of the table in one line."""
    if found.last_commit is None:
        return "Nothing has been committed yet." if found.stream else "Nothing has been published yet."
    what = f"{formats.plural(found.rows, 'row')} in "
    if found.stream:
        what += f"{formats.plural(found.stream.batches, 'batch', 'batches')}, "
    ago = formats.span(time.time() - found.last_commit)
    done = "committed last" if found.stream else "published"
    return (
        f"{what}{formats.plural(found.files, 'file')}, {formats.in_bytes(found.size)};"
        f" {done} on {formats.moment(found.last_commit)}, {ago} ago"
    )


def stream_notes(stream: StreamSummary) -> Iterator[str]:
    """Yield sentences with further facts about a table that a stream writes."""

    def batches(number: int, verb: str, verbs: str) -> str:
        return f"{formats.plural(number, 'batch', 'batches')} {verb if number == 1 else verbs}"

    if stream.checkpoint:
        loose = (
            f"; {batches(stream.loose, 'is', 'are')} not in it yet" if stream.loose else " has all batches"
        )
        yield f"checkpoint {stream.checkpoint}{loose}"
    if stream.replaced:
        gone = f"; a vacuum has deleted the files of {stream.vacuumed:,} of them" if stream.vacuumed else ""
        moved = batches(stream.replaced, "is in another batch's files", "are in other batches' files")
        yield f"{moved}, or dropped{gone}"
    if stream.writing:
        writing = batches(stream.writing, "is being written, or was", "are being written, or were")
        yield f"{writing} when its topology ended (--sweep)"
    if stream.abandoned or stream.leftover:
        yield (
            f"{batches(stream.abandoned, 'does', 'do')} not count, since the tasks that wrote them had been replaced;"
            f" {formats.plural(stream.leftover, 'folder')} of leftovers will be swept by the next start of their task, or by"
            " --sweep"
        )
    if stream.uncertain:
        what = "may turn out not to count: a new task has taken over, but has not written its fence yet"
        yield batches(stream.uncertain, what, what)
    yield from table_delta.lines(stream.delta)


def print_swept(swept: table_sweep.Sweep | None) -> None:
    """Print which leftovers were deleted, and which were left."""
    if swept is None:
        return
    print_rows(table_sweep.COLUMNS, swept.found.ended)
    echo()
    for line in table_sweep.lines(swept):
        echo(line)


def key_lines(counts: KeyCounts | None) -> Iterator[str]:
    """Yield a line with the number of rows that are replays."""
    if counts is None:
        return
    key = ", ".join(counts.key)
    text = f"{formats.plural(counts.keys, 'key')}, {formats.plural(counts.duplicates, 'duplicate')}"
    if counts.without_key:
        text += f", {formats.plural(counts.without_key, 'row')} with a null in the key"
    yield f"\nby {key}: {text} in {formats.plural(counts.rows, 'row')}"


def verified_lines(verified: Verification | None) -> Iterator[str]:
    """Yield lines with the result of --verify, and with the files that belong to no batch."""
    if verified is None:
        return
    read = f"{formats.plural(verified.files, 'file')}, {formats.in_bytes(verified.size)}"
    right = verified.files - len(verified.problems)
    yield f"\nverified {read}: {f'{right:,}' if verified.problems else 'all'} as committed"
    if verified.strays:
        number = formats.plural(len(verified.strays), "file")
        yield f"{number} of no committed batch, seen only by readers that ignore the manifest:"
        yield from _named(verified.strays)


def unreadable_lines(found: TableSummary) -> Iterator[str]:
    """Yield the parts of the manifest that cannot be read."""
    if found.unreadable:
        from squall_io.spark.manifest.state import UnreadableManifest

        yield f"squall table: {UnreadableManifest(found.root, found.unreadable)}"


def problem_lines(verified: Verification | None) -> Iterator[str]:
    """Yield the files that were changed after their commit."""
    if verified is not None and verified.problems:
        yield f"squall table: {formats.plural(len(verified.problems), 'file')} not as committed:"
        yield from _named(verified.problems)


def _named(things: tuple[object, ...]) -> Iterator[str]:
    for thing in things[:MOST_NAMED]:
        yield f"  - {thing}"
    if len(things) > MOST_NAMED:
        yield f"  - and {len(things) - MOST_NAMED:,} more (--json has all)"


def in_json(found: TableSummary, verified: Verification | None, counts: KeyCounts | None) -> dict[str, Any]:
    """Return everything as JSON values; times are seconds since 1970."""
    answer: dict[str, Any] = {
        "path": found.root,
        "holds": found.table.holds,
        "format": found.table.file_format,
        "layout": found.table.layout,
        "partition_by": list(found.table.partition_by),
        "schema": None if found.schema is None else str(found.schema),
        "rows": found.rows,
        "files": found.files,
        "bytes": found.size,
        "first_commit": found.first_commit,
        "last_commit": found.last_commit,
        "partitions": [{"path": p.path, "files": p.files, "bytes": p.size} for p in found.partitions],
        "unreadable": [{"path": problem.path, "why": problem.why} for problem in found.unreadable],
    }
    if found.stream is not None:
        answer |= {
            name: value for name, value in vars(found.stream).items() if name not in ("writers", "delta")
        }
        answer["delta"] = None if found.stream.delta is None else vars(found.stream.delta)
        answer["writers"] = [
            {("bytes" if name == "size" else name): value for name, value in vars(writer).items()}
            for writer in found.stream.writers
        ]
    else:
        answer["versions"] = [
            {
                "version": each.number,
                "run": each.run,
                "job": each.job,
                "rows": each.rows,
                "files": len(each.files),
                "bytes": each.size,
                "published": each.published,
            }
            for each in found.versions
        ]
    if counts is not None:
        answer["by_key"] = {**vars(counts), "duplicates": counts.duplicates}
    if verified is not None:
        answer["verified"] = {
            "files": verified.files,
            "bytes": verified.size,
            "problems": [vars(problem) for problem in verified.problems],
            "strays": list(verified.strays),
        }
    return answer
