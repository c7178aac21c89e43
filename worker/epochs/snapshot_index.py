"""The index of a snapshot's file: which key groups its blocks hold, so that a task reads those of its own groups only.

A block is some of the file's pieces, one after the other. The pieces of a state come in the order of their groups, so the
groups of a task are in few blocks. Each block has a digest of its own, and the digest of a file is that of its index: so
whatever is read is checked.
Must not know: stores, what pieces hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from squall.exact_structs import build_type_info
from worker.routing.key_groups import GroupRange

#: The bytes before a piece: how long it is.
LENGTH: Final = 8
#: A block of this many bytes is complete.
BLOCK_BYTES: Final = 64 * 1024


class IndexedBlock(Struct, frozen=True, array_like=True):
    """Some pieces of a file, one after the other, and before or after them those of other groups."""

    size: int
    digest: bytes
    #: None: it is for all tasks, such as broadcast states.
    groups: GroupRange | None
    #: Of a block with more than one piece: the groups of each, which say which of them are to be decoded.
    pieces: tuple[GroupRange | None, ...] = ()


class SnapshotIndex(Struct, frozen=True):
    """The last piece of a file."""

    #: The pieces before the tail, from the head on.
    blocks: tuple[IndexedBlock, ...]
    #: The digest of the piece before this one.
    tail: bytes


build_type_info(SnapshotIndex)


@dataclass(slots=True)
class OpenBlock:
    """A block to which pieces are being added."""

    start: int
    end: int
    pieces: list[GroupRange | None]

    @property
    def groups(self) -> GroupRange | None:
        """The groups of its pieces."""
        found = self.pieces[0]
        for each in self.pieces[1:]:
            found = None if found is None or each is None else found.joined(each)
        return found


class BlockBuilder:
    """Puts the pieces of a file into blocks, as they are written."""

    def __init__(self, start: int) -> None:
        """`start`: where the first piece begins."""
        self.blocks: list[OpenBlock] = []
        self.end = start

    def add(self, size: int, groups: GroupRange | None) -> None:
        """Add a piece. `size`: with its length."""
        start, self.end = self.end, self.end + size
        if self.blocks and self.belongs(self.blocks[-1], groups):
            self.blocks[-1].pieces.append(groups)
            self.blocks[-1].end = self.end
        else:
            self.blocks.append(OpenBlock(start, self.end, [groups]))

    def belongs(self, block: OpenBlock, groups: GroupRange | None) -> bool:
        """Return whether a piece goes on where a block ends."""
        if block.end - block.start >= BLOCK_BYTES:
            return False
        last = block.pieces[-1]
        if last is None or groups is None:
            return last is groups
        return groups.groups == last.groups and groups.first >= last.first

    def index(self, data: bytearray, tail: bytes) -> SnapshotIndex:
        """Return the index of a file whose pieces are all there; `tail`: the digest of what follows them."""
        with memoryview(data) as view:
            return SnapshotIndex(
                tuple(
                    IndexedBlock(
                        each.end - each.start,
                        hashlib.sha256(view[each.start : each.end]).digest(),
                        each.groups,
                        tuple(each.pieces) if len(each.pieces) > 1 else (),
                    )
                    for each in self.blocks
                ),
                tail,
            )


class PlacedBlock(msgspec.Struct, frozen=True):
    """A block, and where it is in the file."""

    start: int
    block: IndexedBlock

    @property
    def end(self) -> int:
        """Where what follows it begins."""
        return self.start + self.block.size

    def groups_of(self, piece: int) -> GroupRange | None:
        """Return the groups of one of its pieces."""
        return self.block.pieces[piece] if self.block.pieces else self.block.groups


def placed(index: SnapshotIndex, start: int) -> Iterator[PlacedBlock]:
    """Yield the blocks of a file with their places; `start`: that of the first one."""
    for block in index.blocks:
        yield PlacedBlock(start, block)
        start += block.size


def is_wanted(groups: GroupRange | None, wanted: GroupRange | None) -> bool:
    """Return whether what holds some groups is needed. `wanted`: None: everything is."""
    return groups is None or wanted is None or groups.meets(wanted)


def stretches(blocks: list[PlacedBlock]) -> list[list[PlacedBlock]]:
    """Return blocks, those that follow each other together: each list is read at once."""
    found: list[list[PlacedBlock]] = []
    for block in blocks:
        if found and found[-1][-1].end == block.start:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def split(data: memoryview) -> list[memoryview]:
    """Return the pieces in some bytes. Raises ValueError."""
    found, at = [], 0
    while at < len(data):
        start = at + LENGTH
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            raise ValueError("it ends too early")
        found.append(data[start:at])
    return found
