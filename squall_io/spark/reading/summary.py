"""The contents of a table in numbers, from its manifest, and whether its files match the manifest.

The summary reads only the manifest, so it costs the same for any number of rows. `verify` reads every file.
Must not know: how the figures are shown, Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from squall.stores.files import AbsentFile, Files, FilesError, FileStatus, FilesUnavailable
from squall_io.spark.delta.comparing import LogState, compare_log
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import DATA_PREFIX, FOLDER, TABLE, BatchName, batch_of
from squall_io.spark.manifest.originals import OriginalBatch, originals
from squall_io.spark.manifest.state import TableState, read_state
from squall_io.spark.manifest.sweep import staged_batches
from squall_io.spark.manifest.tables import RESULTS, TableRecord, latest_schema, read_table
from squall_io.spark.manifest.vacuums import read_vacuums, without_files
from squall_io.spark.results.versions import Version, kept_versions
from squall_io.spark.rows.schema import Schema, parse_schema

#: How many files are read at once; each read mostly waits for the file system.
_AT_ONCE: Final = 8

#: Called with the number of files read so far, the number of all files, and the bytes read.
Progress = Callable[[int, int, int], object]


@dataclass(frozen=True)
class WriterSummary:
    """The batches that one component of one topology has committed, in numbers."""

    topology: str
    component: str
    batches: int
    rows: int
    size: int
    last_commit: float


@dataclass(frozen=True)
class PartitionSummary:
    """The files below one partition directory; "" in a table that is not partitioned."""

    path: str
    files: int
    size: int


@dataclass(frozen=True)
class TableSummary:
    """The contents of a table in numbers. For a table of results, these are the numbers of its newest version."""

    root: str
    table: TableRecord
    #: The newest schema; None if nothing has been written yet.
    schema: Schema | None
    #: The batches of a stream, or the newest version of a result: together they have all rows.
    parts: tuple[BatchEntry | Version, ...]
    #: The time of the oldest commit or kept version, in seconds since 1970 by the writer's clock; None if there is none.
    first_commit: float | None
    #: The time of the newest commit or version.
    last_commit: float | None
    #: Figures that only a table of batches has; None for a table of results.
    stream: StreamSummary | None = None
    #: Versions of a table of results whose files exist, the newest first.
    versions: tuple[Version, ...] = ()
    #: Records that cannot be read; the rows of their batches are missing from the numbers.
    unreadable: tuple[UnreadableRecord, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> int:
        """The number of files."""
        return sum(len(part.files) for part in self.parts)

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return sum(part.size for part in self.parts)

    @cached_property
    def partitions(self) -> tuple[PartitionSummary, ...]:
        """The partition directories, by path."""
        found: dict[str, list[int]] = defaultdict(list)
        for part in self.parts:
            below = part.folder if isinstance(part, Version) else self.table.data
            for file in part.files:
                found[file.path.rpartition("/")[0].removeprefix(below).lstrip("/")].append(file.size)
        return tuple(PartitionSummary(path, len(sizes), sum(sizes)) for path, sizes in sorted(found.items()))


@dataclass(frozen=True)
class StreamSummary:
    """The batches of a stream."""

    #: The number of schemas so far.
    schemas: int
    batches: int
    writers: tuple[WriterSummary, ...]
    #: Batches whose rows are in the files of another batch.
    replaced: int
    #: How many of these have no files of their own any more.
    vacuumed: int
    #: Batches of superseded owners, which do not count.
    abandoned: int
    #: Batches that may turn out not to count: their writer id has a new owner, whose fence does not exist yet, and this process
    #: may only read.
    uncertain: int
    #: Batches that are being written, or were being written when their topology ended.
    writing: int
    #: Staging folders of batches that are done or abandoned; the next owner of the writer id, if any, sweeps these folders.
    leftover: int
    #: The newest checkpoint's number; 0 if there is none yet.
    checkpoint: int
    #: Batches that are not in the newest checkpoint.
    loose: int
    #: How far the Delta log is; None if there is none.
    delta: LogState | None = None


def table_summary(files: Files) -> TableSummary:
    """Summarize the manifest. Raises `NoTable`, `UnreadableRecord`, and errors of `Files`."""
    if (table := read_table(files)).holds == RESULTS:
        if not (versions := tuple(kept_versions(files))):
            return TableSummary(files.root, table, None, (), None, None)
        newest, first = versions[0], versions[-1].published
        schema = parse_schema(newest.schema)
        return TableSummary(
            files.root, newest.table, schema, (newest,), first, newest.published, versions=versions
        )
    staged = staged_batches(files)
    state = read_state(files)
    latest = latest_schema(files)
    entries = state.entries
    # What sinks have committed, wherever the rows are now.
    empty = (entry for entry in entries if not entry.files and not entry.replaces)
    committed = [*originals(state), *(OriginalBatch(entry, ()) for entry in empty)]
    commits = [original.entry.committed for original in committed]
    writing = sum(_under_way(batch, state) for batch in staged)
    stream = StreamSummary(
        schemas=0 if latest is None else latest.number,
        batches=len(committed),
        writers=tuple(_writers(committed)),
        replaced=len(state.replaced),
        vacuumed=len(without_files(state, read_vacuums(files).values())[0]),
        abandoned=len(state.abandoned),
        uncertain=len(state.uncertain),
        writing=writing,
        leftover=len(staged) - writing,
        checkpoint=state.checkpoint.number,
        loose=len(state.uncovered) + len(state.uncertain),
        delta=compare_log(files),
    )
    columns = None if latest is None else latest.schema
    start, end = min(commits, default=None), max(commits, default=None)
    return TableSummary(files.root, table, columns, entries, start, end, stream, unreadable=state.unreadable)


def _under_way(batch: BatchName, state: TableState) -> bool:
    """Return whether a batch may still be in progress: its owner has no successor, and the batch is not committed."""
    return batch.epoch >= state.claims.newest(batch.writer_id) and batch not in state.counted


def _writers(committed: Iterable[OriginalBatch]) -> Iterator[WriterSummary]:
    found: dict[tuple[str, str], list[OriginalBatch]] = defaultdict(list)
    for original in committed:
        found[original.entry.topology, original.entry.component].append(original)
    for (topology, component), own in sorted(found.items()):
        rows, size = sum(each.rows for each in own), sum(each.size for each in own)
        last = max(each.entry.committed for each in own)
        yield WriterSummary(topology, component, batches=len(own), rows=rows, size=size, last_commit=last)


@dataclass(frozen=True)
class FileProblem:
    """A committed file that does not match the manifest."""

    path: str
    #: The batch or version that the file belongs to: `batch words-1.store.0.1.7`.
    of: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} {self.why} ({self.of})"


@dataclass(frozen=True)
class Verification:
    """The result of reading every file."""

    files: int
    size: int
    problems: tuple[FileProblem, ...] = ()
    #: Files of rows that belong to no committed batch: only readers that ignore the manifest see them.
    strays: tuple[str, ...] = ()
    unreadable: tuple[UnreadableRecord, ...] = ()


def verify(files: Files, progress: Progress = lambda done, total, size: None) -> Verification:
    """Read every committed file, or every file of the kept versions, and compare existence, size and digest with the
    manifest.
    """
    if read_table(files).holds == RESULTS:
        wanted = [(f"version {each.number}", file) for each in kept_versions(files) for file in each.files]
        return _compare(files, wanted, progress)
    state = read_state(files)
    # The files are listed after the state was read, so all files of the batches in the state already exist.
    listed = [status.path for status in files.walk("") if _is_data(status)]
    known = {file.path for entry in (*state.entries, *state.replaced) for file in entry.files}
    wanted = [(f"batch {entry.batch}", file) for entry in state.entries for file in entry.files]
    strays = sorted(path for path in listed if path not in known and _is_stray(path, state))
    return replace(_compare(files, wanted, progress), strays=tuple(strays), unreadable=state.unreadable)


def _compare(files: Files, wanted: Sequence[tuple[str, DataFile]], progress: Progress) -> Verification:
    """Compare these files with the manifest, several at once."""
    problems: list[FileProblem] = []
    size = 0
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="squall-verify") as pool:
        found = pool.map(lambda each: _wrong(files, each[1]), wanted)
        try:
            for done, ((of, file), why) in enumerate(zip(wanted, found), start=1):
                if why:
                    problems.append(FileProblem(file.path, of, why))
                size += file.size
                progress(done, len(wanted), size)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, no further call begins
            raise
    return Verification(len(wanted), size, tuple(problems))


def _is_data(status: FileStatus) -> bool:
    """Return whether this is a data file: it is in the table's Hive layout, under a name that a sink gave it."""
    hidden = status.path.startswith(f"{FOLDER}/")
    return not (status.is_folder or hidden) and status.name.startswith(DATA_PREFIX)


def _is_stray(path: str, state: TableState) -> bool:
    """Return whether a file without an entry is a leftover, and not a file that is about to be committed."""
    batch = batch_of(path.rpartition("/")[2])
    return batch is None or not _under_way(batch, state)


def _wrong(files: Files, file: DataFile) -> str:
    """Return what is wrong with a file, or ""."""
    try:
        if files.digest(file.path) == file.digest:
            return ""
        [there] = [status for status in files.list(file.path.rpartition("/")[0]) if status.path == file.path]
    except (AbsentFile, ValueError):
        return "is missing"
    except FilesUnavailable as error:
        files.exists(TABLE)  # raises if the whole file system is unavailable
        return f"cannot be read: {error}"
    except FilesError as error:
        return f"cannot be read: {error}"
    if there.size != file.size:
        return f"has {there.size:,} bytes instead of {file.size:,}"
    return "has other content: its digest does not fit"
