"""The files of snapshots: their names, their content, and which of them may be swept.

A name carries epoch, rewind number, task and incarnation, so no two attempts write the same file. A file counts only if a
commit names it together with its digest, or a file that counts does. The format has a version; a damaged file, or one of a
newer version, is refused by name.
A file holds *parts*, which were encoded while the task went on, and behind them its tail: the `TaskSnapshot`, and an index
(`snapshot_index`). Its parts are all that the task held, or what had changed since the file before: then the snapshot names the
files that it builds upon. A task that needs the keys of some groups only reads the tail of a file, then what the index says.
Must not know: stores, what a task keeps in its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced

from squall.exact_structs import build_type_info
from worker.epochs.after_commit import EpochOutcome
from worker.epochs.records import CommitRecord, SnapshotFile
from worker.epochs.snapshot_index import (
    LENGTH,
    BlockBuilder,
    PlacedBlock,
    SnapshotIndex,
    is_wanted,
    placed,
    split,
    stretches,
)
from worker.routing.key_groups import GroupRange

VERSION: Final = 3
_HEAD: Final = b"SQEP%02d\n" % VERSION
#: The head of a file without an index.
_HEAD_2: Final = b"SQEP02\n"
#: The head of a file that is a `TaskSnapshot` alone, without parts: what earlier releases have written.
_HEAD_1: Final = b"SQEP01\n"
#: A file with no more bytes of parts is read at once.
_AT_ONCE: Final = 64 * 1024


class BadSnapshot(ValueError):
    """A snapshot file that is damaged, or that this version cannot read."""


class SnapshotLink(Struct, frozen=True):
    """A file that a snapshot consists of."""

    name: str
    digest: str
    bytes: int
    #: See `SnapshotFile`.
    tail: int = 0


class TaskSnapshot(Struct):
    """What one task wrote for one epoch, as plain values."""

    task: str
    epoch: int
    rewind: int
    incarnation: int
    #: Keyed state, timers, and whatever else the task's own code keeps.
    state: Any = None
    #: (target task, stream, rows) that had not left yet.
    outboxes: list[tuple[str, str, list[Any]]] = []
    #: (source task, rows) that came over the closing edges of cycles, behind this task's snapshot and before their barrier.
    recorded: list[tuple[str, list[Any]]] = []
    #: Tuples that the task holds unsettled: executed again after a rewind.
    held: list[Any] = []
    #: (tuple or timer, failures, seconds until it is tried again).
    parked: list[tuple[Any, int, float]] = []
    #: (id, when it expires) of the dead letters that were sent again to this task.
    resent: list[tuple[str, float | None]] = []
    #: (tuple or timer, why it was given up, failures) of the dead letters that their readers have yet to get.
    unread: list[tuple[Any, str, int]] = []
    #: A spout's position, and values of a spout that cannot rewind, which it must emit again.
    position: Any = None
    again: list[tuple[Any, Any]] = []
    finished: bool = False
    #: Input tasks whose end mark was executed, and target tasks to which this task has sent its own.
    ended: list[str] = []
    ends_sent: list[str] = []
    #: To be shown after this commit or an earlier one, and not confirmed yet.
    outcomes: list[EpochOutcome] = []
    #: The files before this one that it builds upon, the whole one first. `read_chain` adds this one.
    chain: list[SnapshotLink] = []
    #: How many cells the whole one holds, and the submission that has written all of them.
    cells: int = 0
    submission: str = ""
    #: By how many seconds the wall clock was moved since the file before was begun.
    shift: float = 0.0
    #: (component, stream, its fields): of streams whose rows are here. Empty in files of earlier releases, and without rows.
    fields: list[tuple[str, str, list[str]]] = []
    #: Empty in the file. After reading: the parts of all files of the chain, in the order in which they were written.
    parts: list[Any] = []

    def has_rows(self) -> bool:
        """Return whether there are rows of streams, or outcomes, which may hold some."""
        rows = (self.outboxes, self.recorded, self.held, self.parked, self.again, self.outcomes)
        return any(rows)


build_type_info(TaskSnapshot)
_DECODER = msgspec.msgpack.Decoder(TaskSnapshot)
_INDEX_DECODER = msgspec.msgpack.Decoder(SnapshotIndex)
#: Where the key groups of a part are, if the reader asks for them.
GROUPS: Final = "groups"


class SnapshotData:
    """The bytes of a file, which are put together piece by piece."""

    def __init__(self, groups: GroupRange | None = None) -> None:
        """`groups`: those of the keys in it; None: they are not divided into groups."""
        self.data = bytearray(_HEAD)
        self.groups = groups
        #: How many cells the parts hold.
        self.cells = 0
        #: Whether all parts are there.
        self.whole = True
        self.name = ""
        self.since = 0
        #: Where the snapshot begins, and what the digest of the file is; 0 and "" until `finish` and `file` are called.
        self.tail = 0
        self.digest = ""
        self.ending = False
        self.blocks = BlockBuilder(len(_HEAD))
        #: What is behind the parts, once the file is whole.
        self.last = b""

    def add(self, piece: bytes, groups: GroupRange | None = None) -> None:
        """Add a part. `groups`: those of its keys; None: it is for all tasks."""
        self.append(piece)
        self.blocks.add(LENGTH + len(piece), groups)

    def append(self, piece: bytes) -> None:
        """Add a piece."""
        self.data += len(piece).to_bytes(LENGTH, "big")
        self.data += piece

    def finish(self, snapshot: TaskSnapshot) -> None:
        """Add the snapshot: no parts follow."""
        if not snapshot.chain:
            snapshot.cells = self.cells
        self.tail = len(self.data)
        self.last = msgspec.msgpack.encode(snapshot)
        self.append(self.last)
        self.name = (
            f"{snapshot.epoch}-{snapshot.rewind}-{snapshot.incarnation}-{snapshot.task.replace('/', '.')}"
        )
        self.since = epoch_of(snapshot.chain[0].name) if snapshot.chain else 0
        self.ending = bool(snapshot.ended)

    def file(self) -> SnapshotFile:
        """Add the index, and return what a commit says of the file. This takes its time, and any thread may ask; again, too."""
        if not self.digest:
            index = self.blocks.index(self.data, hashlib.sha256(self.data[self.tail :]).digest())
            packed = msgspec.msgpack.encode(index)
            self.append(packed)
            self.digest = hashlib.sha256(_HEAD + packed).hexdigest()
        return SnapshotFile(self.name, self.digest, self.since, self.tail, self.groups, self.ending)


def pack_snapshot(snapshot: TaskSnapshot) -> bytes:
    """Return a snapshot without its parts."""
    return msgspec.msgpack.encode(replaced(snapshot, parts=[]))


def unpack_snapshot(packed: bytes) -> TaskSnapshot:
    """Return the snapshot that `pack_snapshot` has packed, or that is in a file behind the parts."""
    return _DECODER.decode(packed)


def encode_snapshot(snapshot: TaskSnapshot, groups: GroupRange | None = None) -> tuple[SnapshotFile, bytes]:
    """Return what a commit says of a file that holds a snapshot with all its parts, and the bytes of the file. The parts may
    have labels (`read_chain`); without a label they are for all tasks.
    """
    data = SnapshotData(groups)
    for part in snapshot.parts:
        data.add(
            msgspec.msgpack.encode({name: value for name, value in part.items() if name != GROUPS}),
            part.get(GROUPS),
        )
    data.cells = snapshot.cells
    data.finish(replaced(snapshot, parts=[], chain=[]))
    return data.file(), bytes(data.data)


def decode_snapshot(
    file: SnapshotFile | SnapshotLink, data: bytes, wanted: GroupRange | None = None, labelled: bool = False
) -> TaskSnapshot:
    """Return the snapshot in a file, with its own parts; with `wanted`, without those that have other groups only. `labelled`:
    each part says which groups it has. Raises BadSnapshot.
    """
    if file.tail:
        if not data.startswith(_HEAD):
            raise _another_version(file, data) if data.startswith(_HEAD[:4]) else _damaged(file, len(data))
        tail = _read_tail(file, data[file.tail :])
        reader = _BlockReader(file, tail, wanted, labelled)
        found = reader.parts(lambda start, end: data[start:end])
        if len(_HEAD) + sum(block.size for block in tail.index.blocks) != file.tail:
            raise _damaged(file, len(data))
        tail.snapshot.parts = found
        return tail.snapshot
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise _damaged(file, len(data))
    if not data.startswith((_HEAD_1, _HEAD_2)):
        raise _another_version(file, data)
    try:
        if data.startswith(_HEAD_1):
            return _DECODER.decode(data[len(_HEAD_1) :])
        *parts, last = split(memoryview(data)[len(_HEAD_2) :])
        snapshot = _DECODER.decode(last)
        snapshot.parts = [msgspec.msgpack.decode(part) for part in parts]
    except (msgspec.DecodeError, ValueError) as error:
        raise BadSnapshot(f"snapshot {file.name} cannot be read: {error}") from error
    return snapshot


def _damaged(file: SnapshotFile | SnapshotLink, size: int) -> BadSnapshot:
    return BadSnapshot(f"snapshot {file.name} is damaged: it has {size} bytes with another digest")


def _another_version(file: SnapshotFile | SnapshotLink, data: bytes) -> BadSnapshot:
    head = data[: len(_HEAD)]
    return BadSnapshot(
        f"snapshot {file.name} begins with {head!r}, not {_HEAD!r}: another version of Squall has written it"
    )


class _Tail(msgspec.Struct, frozen=True):
    """What follows the parts of a file."""

    snapshot: TaskSnapshot
    index: SnapshotIndex


def _read_tail(file: SnapshotFile | SnapshotLink, data: bytes) -> _Tail:
    """Return what is in the bytes from a file's tail on. Raises BadSnapshot."""
    try:
        packed, index = split(memoryview(data))
        if hashlib.sha256(_HEAD + index).hexdigest() != file.digest:
            raise _damaged(file, file.tail + len(data))
        found = _INDEX_DECODER.decode(index)
        if hashlib.sha256(data[: LENGTH + len(packed)]).digest() != found.tail:
            raise _damaged(file, file.tail + len(data))
        return _Tail(_DECODER.decode(packed), found)
    except BadSnapshot:
        raise
    except (msgspec.DecodeError, ValueError) as error:
        raise BadSnapshot(f"snapshot {file.name} is damaged: its tail cannot be read: {error}") from error


class _BlockReader:
    """Reads the parts of one file that are wanted."""

    def __init__(
        self, file: SnapshotFile | SnapshotLink, tail: _Tail, wanted: GroupRange | None, labelled: bool
    ) -> None:
        self.file, self.wanted, self.labelled = file, wanted, labelled
        every = placed(tail.index, len(_HEAD))
        self.blocks = [each for each in every if is_wanted(each.block.groups, wanted)]

    def parts(self, read: Callable[[int, int], bytes]) -> list[Any]:
        """Return the parts. `read`: returns the bytes from one place up to another. Raises BadSnapshot."""
        found: list[Any] = []
        for stretch in stretches(self.blocks):
            data = memoryview(read(stretch[0].start, stretch[-1].end))
            for block in stretch:
                start = block.start - stretch[0].start
                found += self.parts_of(block, data[start : start + block.block.size])
        return found

    def parts_of(self, block: PlacedBlock, data: memoryview) -> Iterator[Any]:
        """Yield the parts of a block. Raises BadSnapshot."""
        if hashlib.sha256(data).digest() != block.block.digest:
            raise BadSnapshot(
                f"snapshot {self.file.name} is damaged: its bytes {block.start} to {block.end} have another digest"
            )
        try:
            for at, piece in enumerate(split(data)):
                groups = block.groups_of(at)
                if is_wanted(groups, self.wanted):
                    part = msgspec.msgpack.decode(piece)
                    if self.labelled:
                        part[GROUPS] = groups
                    yield part
        except (msgspec.DecodeError, ValueError) as error:
            raise BadSnapshot(f"snapshot {self.file.name} cannot be read: {error}") from error


class ReadFile(Protocol):
    """Returns the bytes of a file from an offset on, at most `length` of them."""

    def __call__(self, name: str, offset: int = 0, length: int | None = None, /) -> bytes: ...


def read_chain(
    file: SnapshotFile, read: ReadFile, wanted: GroupRange | None = None, labelled: bool = False
) -> TaskSnapshot:
    """Return a snapshot with the parts of all files that it consists of; `wanted` and `labelled` as in `decode_snapshot`: of
    large files, only what is wanted is read. Raises BadSnapshot, and what `read` raises.
    """
    snapshot, size, current = _read_file(file, read, wanted, labelled)
    shift, own = snapshot.shift, snapshot.parts
    for link in reversed(snapshot.chain):
        earlier, _, _ = _read_file(link, read, wanted, labelled)
        for part in earlier.parts:
            part["shift"] = part.get("shift", 0.0) + shift
        own = earlier.parts + own
        shift += earlier.shift
    snapshot.parts = own
    if current:
        snapshot.chain.append(link_to(file, size))
    return snapshot


def link_to(file: SnapshotFile, size: int) -> SnapshotLink:
    """Return what later snapshots say of a file that they build upon. `size`: in bytes."""
    return SnapshotLink(file.name, file.digest, size, file.tail)


def _read_file(
    file: SnapshotFile | SnapshotLink, read: ReadFile, wanted: GroupRange | None, labelled: bool
) -> tuple[TaskSnapshot, int, bool]:
    """Return the snapshot in a file, the size of the file, and whether later ones may build upon it."""
    if wanted is None or file.tail <= _AT_ONCE:
        data = read(file.name)
        snapshot = decode_snapshot(file, data, wanted, labelled)
        return snapshot, len(data), not data.startswith(_HEAD_1)
    data = read(file.name, file.tail)
    tail = _read_tail(file, data)
    reader = _BlockReader(file, tail, wanted, labelled)
    tail.snapshot.parts = reader.parts(lambda start, end: read(file.name, start, end - start))
    return tail.snapshot, file.tail + len(data), True


def epoch_of(name: str) -> int:
    """Return the epoch in the name of a file."""
    return int(name.partition("-")[0])


class SweepFiles(msgspec.Struct, frozen=True):
    """Remove the files for which `may_remove` returns true."""

    #: The files that kept commits name.
    kept: frozenset[str]
    #: The newest rewind number, and the last commit.
    rewind: int
    epoch: int
    #: "component.index" -> the oldest epoch whose file a kept commit's snapshot of this task builds upon.
    since: Mapping[str, int] = msgspec.field(default_factory=dict)

    def may_remove(self, name: str) -> bool:
        """Return whether no commit needs a file, and none ever can.

        None can if a newer rewind number stands in the log. None can either if a later epoch of the same number is committed:
        otherwise files would pile up for as long as nothing fails.
        """
        parts = name.split("-", 3)
        if name in self.kept or len(parts) < 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return False  # other files, such as those that NFS makes, are left alone
        epoch, rewind = int(parts[0]), int(parts[1])
        if epoch >= self.since.get(parts[3], epoch + 1):
            return False
        return rewind < self.rewind or (rewind == self.rewind and epoch <= self.epoch)


def removable(sweep: SweepFiles, names: Iterable[str]) -> list[str]:
    """Return those of the files that may be removed."""
    return [name for name in names if sweep.may_remove(name)]


def sweep_of(commits: Iterable[CommitRecord], rewind: int, epoch: int) -> SweepFiles:
    """Return what may be removed while these commits are kept."""
    kept: set[str] = set()
    since: dict[str, int] = {}
    for commit in commits:
        for task, file in commit.files.items():
            kept.add(file.name)
            if file.since:
                name = task.replace("/", ".")
                since[name] = min(file.since, since.get(name, file.since))
    return SweepFiles(frozenset(kept), rewind, epoch, since)


def leftovers(sweep: SweepFiles, names: Iterable[str]) -> list[str]:
    """Return those of the names of unfinished files, `<name>.<random>`, that may be removed: of snapshots as above, and of
    records up to the one that began the last rewind, since others stand at their numbers."""
    found = []
    for name in names:
        whole = name.rpartition(".")[0]
        if whole.isdecimal():
            removed = int(whole) <= sweep.rewind
        else:
            removed = msgspec.structs.replace(sweep, kept=frozenset()).may_remove(whole)
        if removed:
            found.append(name)
    return found
