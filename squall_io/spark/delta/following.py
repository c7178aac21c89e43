"""The Delta log of a table follows its manifest: which files each new version adds and removes.

The manifest decides what a table holds. The log is brought up to it by any process that may write, at any time, as often as it
likes (`catch_up`), and by a sink after its own batches (`own_batches`). A batch is acked without it.

**Why it is right.** A version that exists is never changed, and version v + 1 is put if absent, by a process that has read all
versions up to v.

*Only what counts for ever is added.* An entry is added if `state.read_state` counts it and is certain, or if its owner has
taken the last look of the protocol (step 6 of `commit`). Both count for ever.

*No file is added twice.* Who puts v + 1 knows all files that are live at v, and adds none of them. A file that is removed is
not added again: `catch_up` reads the log first and the manifest afterwards, so what it knows of the manifest is at least as new
as what the writers of all versions up to v knew. The rows of a batch that was compacted are therefore in one of the files only,
in each version. An owner that adds its own batch finds the names of batches whose rows others have moved (`replaces`) in the
versions that it has not put itself. `moved_rows` has what a version of a compaction adds and removes.

*Nothing is missing for long.* `catch_up` compares all files, and not numbers of batches: a listing of HDFS may show batch 3 of
an owner and not yet batch 2, so the greatest number that was added says nothing about those before it. `txn` has this number
for other readers, as the protocol wants.

*A call that takes effect late* (a request in a frozen server) puts version v + 1 only if no other process has. So it is right,
and old: the next one continues from it.

A log that holds something that Squall has not written is left alone (`ForeignLog`).
Must not know: Spark, sinks, threads.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files
from squall_io.spark.delta import log_names
from squall_io.spark.delta.actions import (
    AddedFile,
    CommitInfo,
    DeltaAction,
    ForeignLog,
    Metadata,
    Protocol,
    RemovedFile,
    Txn,
    encode_actions,
    uri_of,
)
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.delta.delta_schemas import needs_ntz, refused_names, schema_string
from squall_io.spark.delta.log_checkpoints import write_checkpoint
from squall_io.spark.delta.moved_rows import Moving, is_dropped, missing_from
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.tables import ROWS, NumberedSchema, TableRecord, latest_schema, read_table
from squall_io.spark.rows.partitions import partition_values
from topology_api import SquallError

#: The most files that a version adds or removes: some 4 MB of JSON.
MOST_FILES: Final = 10_000
#: A checkpoint is made after this many versions.
CHECKPOINT_EVERY: Final = 100
#: The setting of a Delta table that says for how long versions are kept, its value, and the same in seconds.
RETENTION: Final = ("delta.logRetentionDuration", "interval 7 days")
RETAINED: Final = 7 * 24 * 3600.0
_PLAIN: Final = Protocol(1, 2)
_WITH_NTZ: Final = Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))


class NoDeltaLog(SquallError):
    """A table that cannot have a Delta log."""


@dataclass(frozen=True)
class Caught:
    """What `catch_up` has done."""

    #: The newest version.
    version: int
    added: int
    removed: int


def enable(files: Files, wall: Callable[[], float]) -> bool:
    """Give a table a Delta log, which holds nothing yet; return False if it has one. Raises `NoDeltaLog`, `ForeignLog`."""
    table, schema = read_table(files), latest_schema(files)
    if why := cannot_follow(table, schema):
        raise NoDeltaLog(f"{files.root} cannot have a Delta log: {why}")
    assert schema is not None
    log = DeltaLog(files)
    log.refresh()
    if log.version >= 0:
        return False
    return files.put_if_absent(log_names.version_path(0), encode_actions(_first(table, schema, wall())))


def newest_version(files: Files) -> int:
    """Return the newest version of the Delta log of a table; -1 if it has none."""
    found = (log_names.version_of(status.name) for status in files.list(log_names.FOLDER))
    return max((version for version in found if version is not None), default=-1)


def cannot_follow(table: TableRecord, schema: NumberedSchema | None) -> str | None:
    """Return why a table cannot have a Delta log; None if it can."""
    if table.holds != ROWS:
        return "it holds versions of a result, of which a reader needs only the newest"
    if table.file_format != "parquet":
        return f"its files are {table.file_format}, and a Delta table has files of parquet"
    if schema is None:
        return "it has no schema yet; it gets one when a sink starts"
    if names := refused_names(schema.schema):
        return f"a Delta table has no column {names[0]!r}; Delta allows none of the characters ' ,;{{}}()=', tabs and new lines"
    return None


def catch_up(files: Files, wall: Callable[[], float], log: DeltaLog | None = None) -> Caught:
    """Bring the Delta log of a table up to its manifest. Does nothing if there is no log (version -1).

    log: what an earlier call has read, to read only what is new. Raises `ForeignLog`, `UnreadableManifest`.
    """
    log = DeltaLog(files) if log is None else log
    added = removed = 0
    while True:
        log.refresh()
        if log.version < 0:
            return Caught(-1, 0, 0)
        # Read after the log: see above.
        state = require_readable(files, read_state(files))
        table, schema = read_table(files), latest_schema(files)
        assert schema is not None
        versions = next_versions(log, state, table, schema, wall())
        if not versions:
            break
        for actions in versions:
            if not put_next(log, actions):
                break
            added += sum(action.add is not None for action in actions)
            removed += sum(action.remove is not None for action in actions)
    if log.version - max(log.checkpoint, 0) >= CHECKPOINT_EVERY:
        write_checkpoint(files, log.version, held(log))
        log.checkpoint = log.version
        _delete_old(files, log.version)
    return Caught(log.version, added, removed)


def rebuild(files: Files, wall: Callable[[], float]) -> int:
    """Make the Delta log of a table hold what the manifest says, also if other processes write to it meanwhile; return
    the version. Raises `NoDeltaLog`, `UnreadableManifest`.

    Nothing is deleted: readers begin with the checkpoint of a new version. A file that is added again by a task that began
    earlier is there once, since a Delta log knows files by their paths.
    """
    table, schema = read_table(files), latest_schema(files)
    if why := cannot_follow(table, schema):
        raise NoDeltaLog(f"{files.root} cannot have a Delta log: {why}")
    assert schema is not None
    require_readable(files, read_state(files))
    now = wall()
    version = newest_version(files) + 1
    info = DeltaAction(commit_info=CommitInfo(_millis(now), "REBUILD"))
    while not files.put_if_absent(
        log_names.version_path(version), encode_actions([*_first(table, schema, now), info])
    ):
        version += 1
    log = DeltaLog(files)
    # The manifest is read after the version is there: what is committed later is in a later version.
    state = require_readable(files, read_state(files))
    uncertain = set(state.uncertain)
    entries = [entry for entry in state.entries if entry.batch not in uncertain]
    log.version = version - 1
    log.apply([*_first(table, schema, now), *adding_actions((), entries, table.partition_by, now)])
    write_checkpoint(files, version, held(log))
    return version


def _delete_old(files: Files, checkpoint: int) -> None:
    """Delete what readers of the last days do not need: versions before a checkpoint, and earlier checkpoints."""
    found = files.list(log_names.FOLDER)
    # The newest file was written a moment ago, so it tells the present time by the clock that dates all files.
    old = max((status.modified for status in found), default=0.0) - RETAINED
    needless = [
        status.path
        for status in found
        if (number := log_names.number_in(status.name)) is not None
        and number < checkpoint
        and 0 < status.modified < old
    ]
    map_concurrently(files.delete, needless)


def put_next(log: DeltaLog, actions: list[DeltaAction]) -> bool:
    """Put the version that follows, and apply it; return False if another process has put a different one."""
    path, data = log_names.version_path(log.version + 1), encode_actions(actions)
    # After a lost answer the version may be there: it is this one, or the log is read again.
    if not log.files.put_if_absent(path, data):
        return False
    log.apply(actions)
    return True


def next_versions(
    log: DeltaLog, state: TableState, table: TableRecord, schema: NumberedSchema, now: float
) -> list[list[DeltaAction]]:
    """Return the versions that bring a log up to a state of the manifest that was read after it; none if it is there."""
    uncertain = set(state.uncertain)
    certain = [entry for entry in state.entries if entry.batch not in uncertain]
    kept = {path for entry in certain for path in entry.paths}
    if unknown := log.live.keys() - {path for entry in state.counted.values() for path in entry.paths}:
        count = "a file" if len(unknown) == 1 else f"{len(unknown):,} files"
        raise ForeignLog(
            f"the Delta log of {log.files.root} has {count} of no committed batch, such as {min(unknown)}: "
            "the manifest is an older copy of itself, or another program has changed the log"
        )
    missing = missing_from(log.live.keys(), certain, state)
    removed = {file.path for moving in missing.moving for file in moving.removes}
    # Replaced batches that the log has, and what replaces them as well: a task added its batch after a `rebuild`.
    twice = {file.path: file for entry in state.replaced for file in entry.files if file.path in log.live}
    dropped = state.dropped.keys()
    first = [
        *_changed(log, table, schema),
        *(_removed(file, dropped, now) for path, file in twice.items() if path not in kept | removed),
    ]
    by, plain = table.partition_by, missing.plain
    versions = list(_cut(log, first, plain, by, now)) if first or plain else []
    # Each in a version of its own, with all that it removes: no reader sees a part of a compaction.
    return [*versions, *(list(_moving_actions(moving, dropped, by, now)) for moving in missing.moving)]


def _moving_actions(
    moving: Moving, dropped: AbstractSet[str], partition_by: Sequence[str], now: float
) -> Iterator[DeltaAction]:
    """Yield the version of a batch that replaces others."""
    entry = moving.entry
    info = CommitInfo(
        _millis(now),
        "DELETE" if entry.dropped else "OPTIMIZE",
        batches=(str(entry.batch),),
        replaces=moving.replaces,
    )
    yield DeltaAction(commit_info=info)
    for file in moving.adds:
        yield DeltaAction(add=add_of(file, partition_by, entry.committed, moving.is_new))
    for file in moving.removes:
        yield _removed(file, dropped, now)


def _cut(
    log: DeltaLog,
    first: list[DeltaAction],
    adding: Sequence[BatchEntry],
    partition_by: Sequence[str],
    now: float,
) -> Iterator[list[DeltaAction]]:
    """Yield versions of at most `MOST_FILES` files, or of one entry."""
    taken: list[BatchEntry] = []
    size = 0
    for entry in adding:
        if taken and size + len(entry.files) > MOST_FILES:
            yield [*first, *adding_actions(log.live, taken, partition_by, now)]
            first, taken, size = [], [], 0
        taken.append(entry)
        size += len(entry.files)
    yield [*first, *adding_actions(log.live, taken, partition_by, now)]


def adding_actions(
    live: Container[str], entries: Sequence[BatchEntry], partition_by: Sequence[str], now: float
) -> Iterator[DeltaAction]:
    """Yield the actions that add entries, without files that are live."""
    names = tuple(str(entry.batch) for entry in entries)
    yield DeltaAction(
        commit_info=CommitInfo(
            timestamp=_millis(now),
            batches=names,
            replaces=tuple(name for entry in entries for name in entry.replaces),
        )
    )
    newest: dict[str, int] = {}
    for entry in entries:
        for file in entry.files:
            if file.path not in live:
                yield DeltaAction(add=add_of(file, partition_by, entry.committed))
        owner = f"{entry.batch.writer_id}.{entry.batch.epoch}"
        newest[owner] = max(entry.batch.number, newest.get(owner, 0))
    for owner, number in newest.items():
        yield DeltaAction(txn=Txn(owner, number, _millis(now)))


def add_of(file: DataFile, partition_by: Sequence[str], committed: float, is_new: bool = True) -> AddedFile:
    """Return the action that adds a data file. is_new: whether its rows are new to the log."""
    values = partition_values(file.path, partition_by)
    return AddedFile(uri_of(file.path), values, file.size, _millis(committed), is_new)


def _removed(file: DataFile, dropped: AbstractSet[str], now: float) -> DeltaAction:
    # If its rows are in another file, no data changes.
    changed = is_dropped(file, dropped)
    return DeltaAction(remove=RemovedFile(uri_of(file.path), changed, _millis(now), size=file.size))


def _changed(log: DeltaLog, table: TableRecord, schema: NumberedSchema) -> Iterator[DeltaAction]:
    """Yield the actions that tell a new schema."""
    text, protocol = schema_string(schema.schema), protocol_for(schema)
    if log.protocol != protocol and protocol != _PLAIN:
        yield DeltaAction(protocol=protocol)
    if log.metadata is None or log.metadata.schema_string != text:
        if why := cannot_follow(table, schema):
            raise ForeignLog(f"the Delta log of {log.files.root} cannot follow any further: {why}")
        before = log.metadata
        assert before is not None  # version 0 has it
        yield DeltaAction(
            meta_data=Metadata(
                before.id, text, before.partition_columns, before.configuration, before.created_time
            )
        )


def protocol_for(schema: NumberedSchema) -> Protocol:
    """Return what a reader has to know of a schema."""
    return _WITH_NTZ if needs_ntz(schema.schema) else _PLAIN


def _first(table: TableRecord, schema: NumberedSchema, now: float) -> list[DeltaAction]:
    """Return version 0."""
    metadata = Metadata(
        id=f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-4{secrets.token_hex(2)[1:]}-8{secrets.token_hex(2)[1:]}-{secrets.token_hex(6)}",
        schema_string=schema_string(schema.schema),
        partition_columns=table.partition_by,
        configuration=dict([RETENTION]),
        created_time=_millis(now),
    )
    info = CommitInfo(timestamp=_millis(now), operation="CREATE TABLE")
    return [
        DeltaAction(commit_info=info),
        DeltaAction(protocol=protocol_for(schema)),
        DeltaAction(meta_data=metadata),
    ]


def held(log: DeltaLog) -> list[DeltaAction]:
    """Return the actions of a checkpoint of the log's version."""
    return [
        DeltaAction(protocol=log.protocol),
        DeltaAction(meta_data=log.metadata),
        *(DeltaAction(txn=txn) for txn in log.txns.values()),
        *(DeltaAction(add=add) for add in log.live.values()),
    ]


def _millis(seconds: float) -> int:
    return round(seconds * 1000)
