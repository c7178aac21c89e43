"""The commit protocol of topologies with state: one batch for each epoch, with the rows of all tasks, in the table once.

The log of the topology decides which epochs count; here is only what makes an epoch visible after that. A task with rows in an
epoch makes its *part* at the end of the epoch, which can be committed only when all parts are made:

1. write    Spark writes the rows to `staging/<batch>/<part>/`, a folder that no other job has ever written to.
2. list     the files that Spark wrote are found, and each gets a name in the table that only this part has.
3. record   `staging/<batch>/<index>.json` names part and files. After that, the part's name is in the topology's snapshot.

The log commits the epoch; then each task *shows* its part. The first one shows all:

4. parts    the records of all parts are read.
5. move     each file is renamed to its place among the table's files, unless another task has done so.
6. publish  the manifest entry, with the files of all parts, is put if absent at `commits/<batch>.json`.
7. clear    `staging/<batch>/` is deleted.
8. sweep    what this task has staged for earlier epochs is deleted.

**Why it is right.** An epoch number is never used twice, not even for an epoch that was never committed (`worker.epochs`). So
all parts of an epoch that the log has committed are from one attempt at it, and each task has at most one: a task that has to
stage again continues with the same part. Parts of frozen processes are of epochs that are void.

*Whole.* All records of an epoch were put before it was committed, and none is deleted before the batch's entry is put. So
a task that reads the records after the commit, and then finds no entry, has read them all, with one exception: the entry was
put, then a checkpoint has taken it over and its file was deleted. An entry that is put then does not count: the checkpoint has
one of the same name, and readers take that one (`state`). A reader sees a batch by one entry, so it sees all rows of the epoch
or none.

*Once.* All tasks name an epoch's batch alike, so the table has it once however often it is shown. A process
that was frozen at any step, and goes on later, finds the entry, or puts it again without effect; it finds the files where they
are, or moves them to the same places.

*Nothing is deleted that a commit names.* Step 7 deletes what the entry has made needless. Step 8 deletes parts of earlier
epochs of this task alone, and of tasks whose place it has taken (index j goes to j mod parallelism): it shows epochs in their
order, so what is left of earlier ones is void. No task claims the writer id of such a batch, so no other sweeper takes it for a
dead task's: who only sees the table cannot know which epochs the log has committed.

If the state is an older copy of itself, epochs may be committed again, with other rows: then the entry that is there has not
the part that is shown, and `BatchConflict` says so. Parts that another submission has staged for the epoch are left out: they
are from before the copy.
Must not know: Spark, logs, tuples.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest import layout
from squall_io.spark.manifest.commit import BatchConflict, BatchLost, is_data, suffix_of
from squall_io.spark.manifest.entries import BatchEntry, DataFile, decode_entry, encode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, require_below, seal
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.sweep import TMP_AGE, now_of

PART: Final = "part of an epoch"


class StagedFile(msgspec.Struct, frozen=True):
    """A file of a part: where Spark has written it, its place in the table, and what its bytes are."""

    source: str
    path: str
    size: int
    digest: str


class EpochPart(msgspec.Struct, frozen=True):
    """What one task has staged for an epoch."""

    #: `<index>~<random>`.
    name: str
    #: The submission whose task has staged it.
    topology_id: str
    #: The number of its rows' schema.
    schema: int
    rows: int
    files: tuple[StagedFile, ...]


@dataclass(frozen=True)
class Shower:
    """The names that a task writes into entries."""

    topology: str
    topology_id: str
    component: str
    incarnation: tuple[int, int]


@dataclass(frozen=True)
class Shown:
    """An epoch that is visible: its entry, and whether this call has put it."""

    entry: BatchEntry
    made: bool


def new_part(index: int) -> str:
    """Return a name for a part of a task that nothing else has."""
    return f"{index}~{secrets.token_hex(6)}"


def index_of(part: str) -> int:
    """Return the index of the task that has made a part."""
    return int(part.partition("~")[0])


def list_part(
    files: Files, batch: BatchName, name: str, topology_id: str, schema: int, rows: int, *, data: str
) -> EpochPart:
    """Find what Spark wrote for a part (step 2). data: the table's folder of data files. Raises `BatchLost` if there is
    nothing."""
    folder = batch.attempt(name)
    below = len(folder) + 1
    staged = [status for status in files.walk(folder) if is_data(status, below)]
    if not staged:
        raise BatchLost(f"batch {batch}: Spark has left no file in {files.root}/{folder}")
    try:
        digests = map_concurrently(lambda status: files.digest(status.path), staged)
    except AbsentFile as missing:
        raise BatchLost(f"batch {batch}: a file in {files.root}/{folder} is gone") from missing
    found = []
    for number, (status, digest) in enumerate(zip(staged, digests)):
        directory, _, file = status.path[below:].rpartition("/")
        place = layout.place_in(directory, batch.data_file(name, number, suffix_of(file)))
        found.append(StagedFile(status.path, layout.place_in(data, place), status.size, digest))
    return EpochPart(name, topology_id, schema, rows, tuple(found))


def put_part(files: Files, batch: BatchName, part: EpochPart) -> None:
    """Put the record of a part (step 3). If the answer is lost, put the same part again."""
    files.replace(batch.part_record(index_of(part.name)), seal(PART, part))


def drop_part(files: Files, batch: BatchName, name: str) -> None:
    """Delete a part of an epoch that is void."""
    path = batch.part_record(index_of(name))
    part = _read_part(files, batch, path)
    if part is not None and part.name == name:  # otherwise the task has staged again
        files.delete(path)
    files.delete(batch.attempt(name))


def show_epoch(
    files: Files,
    batch: BatchName,
    name: str,
    by: Shower,
    wall: Callable[[], float],
    at: Callable[[str], None] = lambda step: None,
) -> Shown:
    """Make an epoch visible that the log has committed, with all its parts (steps 4 to 7).

    name: the part of the task that shows. Raises `BatchLost` if its rows are gone, `BatchConflict` if the table has other rows
    for the epoch, `UnreadableRecord`, and errors of `Files`. Call it again after any of them.
    """
    at("parts")
    parts = _read_parts(files, batch)
    own = next((part for part in parts if part.name == name), None)
    if (there := _find(files, batch, name)) is not None:
        files.delete(batch.staging)
        return Shown(there, made=False)
    if own is None:
        return Shown(_require_counted(files, batch, name), made=False)
    parts = [part for part in parts if part.topology_id == own.topology_id]
    at("move")
    moves = [file for part in parts for file in part.files]
    map_concurrently(lambda file: _move(files, batch, file), moves)
    at("publish")
    entry = BatchEntry(
        batch=batch,
        topology=by.topology,
        topology_id=by.topology_id,
        component=by.component,
        incarnation=by.incarnation,
        schema=max(part.schema for part in parts),
        rows=sum(part.rows for part in parts),
        files=tuple(DataFile(file.path, file.size, file.digest) for file in moves),
        committed=wall(),
    )
    put = files.put_if_absent(batch.commit, encode_entry(entry))
    if not put:
        entry = _find(files, batch, name) or entry
    at("clear")
    files.delete(batch.staging)
    return Shown(entry, put)


def sweep_parts(files: Files, batch: BatchName, index: int, parallelism: int) -> None:
    """Delete what is staged for epochs before that of `batch`, which is visible, by a task and those whose place it has taken
    (step 8).
    """
    for status in files.list(layout.STAGING):
        earlier = layout.batch_of(status.name)
        if earlier is None or earlier.writer_id != batch.writer_id or earlier.number >= batch.number:
            continue
        start = len(earlier.staging) + 1
        below = files.walk(earlier.staging)
        tops = {each.path[start:].partition("/")[0] for each in below}
        mine = {top for top in tops if _is_of(layout.part_index(top), index, parallelism)}
        gone = [earlier.staging] if tops == mine else [f"{earlier.staging}/{top}" for top in sorted(mine)]
        map_concurrently(files.delete, gone)


def sweep_temporary(files: Files) -> None:
    """Delete temporary files that are too old to be used: tasks without a writer id cannot tell which of them are theirs."""
    if found := [status for status in files.list(layout.TMP) if status.modified]:
        old = now_of(files) - TMP_AGE
        map_concurrently(files.delete, [status.path for status in found if status.modified <= old])


def _is_of(part: int | None, index: int, parallelism: int) -> bool:
    return part is not None and part % parallelism == index


def _read_parts(files: Files, batch: BatchName) -> list[EpochPart]:
    """Return the parts of an epoch that have a record, by index."""
    records = [status for status in files.list(batch.staging) if _is_record(status)]
    found = map_concurrently(lambda status: _read_part(files, batch, status.path), records)
    return sorted((part for part in found if part is not None), key=lambda part: index_of(part.name))


def _is_record(status: FileStatus) -> bool:
    return status.name.endswith(".json") and layout.part_index(status.name) is not None


def _read_part(files: Files, batch: BatchName, path: str) -> EpochPart | None:
    """Return a part; None if another task has made the epoch visible meanwhile."""
    try:
        part = decode(PART, EpochPart, files.read(path), path)
    except AbsentFile:
        return None
    if layout.part_index(part.name) is None or batch.part_record(index_of(part.name)) != path:
        raise UnreadableRecord(path, f"is damaged: it holds the part {part.name!r:.100}")
    require_below([file.source for file in part.files], batch.attempt(part.name), path)
    require_below([file.path for file in part.files], "", path)
    return part


def _move(files: Files, batch: BatchName, file: StagedFile) -> None:
    """Rename a file to its place, unless that was done before."""
    with suppress(AbsentFile):
        files.move_if_absent(file.source, file.path)
        return
    # A process that was frozen may find that others have shown the batch, and that its rows have been moved or dropped since.
    if not files.exists(file.path) and batch not in read_state(files).counted:
        raise BatchLost(
            f"batch {batch}: {files.root}/{file.source} is gone, and there is no {files.root}/{file.path}: committed rows were "
            "removed. Put the file back; with an empty file there, the rows are given up"
        )


def _find(files: Files, batch: BatchName, name: str) -> BatchEntry | None:
    """Return the batch's entry if it has its own file. Raises `BatchConflict` if the part is not in it."""
    with suppress(AbsentFile):
        entry = decode_entry(files.read(batch.commit), batch.commit)
        _require_part(files, entry.paths, batch, name)
        return entry
    return None


def _require_counted(files: Files, batch: BatchName, name: str) -> BatchEntry:
    """Return the batch's entry in a checkpoint. Raises `BatchLost` if there is none either."""
    entry = read_state(files).counted.get(batch)
    if entry is None:
        raise BatchLost(
            f"batch {batch}: {files.root}/{batch.part_record(index_of(name))} is gone, and the batch is not in the table: "
            "committed rows were removed. Put the staging folder of the batch back"
        )
    _require_part(files, entry.paths, batch, name)
    return entry


def _require_part(files: Files, paths: Collection[str], batch: BatchName, name: str) -> None:
    """Raise `BatchConflict` unless a part's files are among those of an entry."""
    prefix = f"{batch.data_prefix}{name}-"
    if any(path.rpartition("/")[2].startswith(prefix) for path in paths):
        return
    raise BatchConflict(
        f"batch {batch} is in {files.root} already, without the part {name}: the table has other rows of this epoch, which the "
        "state has forgotten, since its folder is an older copy. Give the sink another table, or the topology another "
        "topology.state.path"
    )


build_type_info(StagedFile, EpochPart)
