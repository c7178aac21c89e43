"""What there is to tell of a table: numbers from its manifest, and whether its files are what the manifest says.

The summary reads the manifest alone, so it costs the same for rows of any number. `verify` reads every file.
Must not know: how any of it is shown, Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from squall_io.spark.manifest.entries import DataFile, Entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.files import FileMissing, Files, FilesError, FilesUnavailable
from squall_io.spark.manifest.layout import DATA_PREFIX, FOLDER, STAGING, TABLE, BatchName, batch_of
from squall_io.spark.manifest.state import State, read_state
from squall_io.spark.manifest.tables import NumberedSchema, Table, latest_schema, read_table

#: Files that are read at once: each is mostly waiting for the file system.
_AT_ONCE: Final = 8

#: Called with the number of files that were read, of all, and their bytes.
Progress = Callable[[int, int, int], object]


@dataclass(frozen=True)
class WriterSummary:
    """What one component of one topology has committed."""

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
    """What a table holds, in numbers."""

    root: str
    table: Table
    schema: NumberedSchema | None
    """The newest; None: nothing has been written yet."""
    rows: int
    files: int
    size: int
    """Bytes of those files."""
    batches: int
    first_commit: float | None
    last_commit: float | None
    """Seconds since 1970, by the clocks of the workers that wrote."""
    writers: tuple[WriterSummary, ...]
    partitions: tuple[PartitionSummary, ...]
    replaced: int
    """Batches whose rows are in the files of another one."""
    abandoned: int
    """Batches of superseded owners, which do not count."""
    writing: int
    """Batches that are being written."""
    leftover: int
    """Staging folders of batches that are done or abandoned: the next owner of their task sweeps them."""
    checkpoint: int
    """The newest checkpoint's number; 0: there is none yet."""
    loose: int
    """Batches that are not in it."""
    uncertain: int
    """Batches that may turn out not to count: their task has a new owner, which has not said so yet, and we may only read."""
    unreadable: tuple[UnreadableRecord, ...]
    """Records that cannot be read; the rows of their batches are missing from the numbers above."""


def table_summary(files: Files) -> TableSummary:
    """Look at the manifest; `NoTable`, `UnreadableRecord`, and what `Files` raises."""
    table = read_table(files)
    staged = [batch for status in files.list(STAGING) if (batch := batch_of(status.name)) is not None]
    state = read_state(files)
    entries = state.entries
    writing = [batch for batch in staged if _under_way(batch, state)]
    return TableSummary(
        root=files.root,
        table=table,
        schema=latest_schema(files),
        rows=sum(entry.rows for entry in entries),
        files=sum(len(entry.files) for entry in entries),
        size=sum(entry.size for entry in entries),
        batches=len(entries),
        first_commit=min((entry.committed for entry in entries), default=None),
        last_commit=max((entry.committed for entry in entries), default=None),
        writers=tuple(_writers(entries)),
        partitions=tuple(_partitions(file for entry in entries for file in entry.files)),
        replaced=len(state.replaced),
        abandoned=len(state.abandoned),
        writing=len(writing),
        leftover=len(staged) - len(writing),
        checkpoint=state.checkpoint.number,
        loose=len(state.uncovered) + len(state.uncertain),
        uncertain=len(state.uncertain),
        unreadable=state.unreadable,
    )


def _under_way(batch: BatchName, state: State) -> bool:
    """Whether its owner may still be at work on it: nobody came after it, and it is not committed."""
    return batch.epoch >= state.claims.newest(batch.seat) and batch not in state.counted


def _writers(entries: Iterable[Entry]) -> Iterator[WriterSummary]:
    found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.topology, entry.component].append(entry)
    for (topology, component), own in sorted(found.items()):
        yield WriterSummary(
            topology,
            component,
            batches=len(own),
            rows=sum(entry.rows for entry in own),
            size=sum(entry.size for entry in own),
            last_commit=max(entry.committed for entry in own),
        )


def _partitions(files: Iterable[DataFile]) -> Iterator[PartitionSummary]:
    found: dict[str, list[int]] = defaultdict(list)
    for file in files:
        found[file.path.rpartition("/")[0]].append(file.size)
    for path, sizes in sorted(found.items()):
        yield PartitionSummary(path, len(sizes), sum(sizes))


@dataclass(frozen=True)
class FileProblem:
    """A file of a committed batch that is not as its manifest entry says."""

    path: str
    batch: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} {self.why} (batch {self.batch})"


@dataclass(frozen=True)
class Verification:
    """What reading every file has shown."""

    files: int
    size: int
    problems: tuple[FileProblem, ...]
    strays: tuple[str, ...]
    """Files of rows that are no committed batch's: readers of the manifest do not see them, others do, until they are swept."""
    unreadable: tuple[UnreadableRecord, ...]


def verify(files: Files, progress: Progress = lambda done, total, size: None) -> Verification:
    """Read every file of every batch that counts, and compare: is it there, its size, its digest."""
    read_table(files)
    state = read_state(files)
    there = {status.path: status.size for status in files.walk("") if _is_data(status.path)}
    wanted = [(entry.batch, file) for entry in state.entries for file in entry.files]
    problems: list[FileProblem] = []
    size = 0
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="squall-verify") as pool:
        found = pool.map(lambda each: _wrong(files, each[1], there.get(each[1].path)), wanted)
        try:
            for done, ((batch, file), why) in enumerate(zip(wanted, found), start=1):
                if why:
                    problems.append(FileProblem(file.path, str(batch), why))
                size += file.size
                progress(done, len(wanted), size)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for what is only to come
            raise
    known = {file.path for entry in (*state.entries, *state.replaced) for file in entry.files}
    strays = tuple(sorted(path for path in there if path not in known and _is_stray(path, state)))
    return Verification(len(wanted), size, tuple(problems), strays, state.unreadable)


def _is_data(path: str) -> bool:
    """Whether it is a file in the table's Hive layout that the sink has named."""
    return not path.startswith(f"{FOLDER}/") and path.rpartition("/")[2].startswith(DATA_PREFIX)


def _is_stray(path: str, state: State) -> bool:
    """Whether a file that no entry names is left over; not one that is on its way into the manifest."""
    batch = batch_of(path.rpartition("/")[2])
    return batch is None or not _under_way(batch, state)


def _wrong(files: Files, file: DataFile, size: int | None) -> str:
    """What is wrong with a file; "" when nothing is."""
    if size is None:
        return "is missing"
    if size != file.size:
        return f"has {size:,} bytes instead of {file.size:,}"
    try:
        return "" if files.digest(file.path) == file.digest else "has other content: its digest does not fit"
    except FileMissing:
        return "is missing"
    except FilesUnavailable as error:
        files.exists(TABLE)  # when the file system as a whole is away, that is the error
        return f"cannot be read: {error}"
    except FilesError as error:
        return f"cannot be read: {error}"
