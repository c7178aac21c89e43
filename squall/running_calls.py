"""Which of a worker's calls are running, with the trees of their tuples: fixed records in a buffer that outlives the process.

The worker writes them into a file that is mapped into its memory (`worker_files.CALLS`); after a death the supervisor reads
what was running. A record belongs to one task; it has 64-bit numbers, and the key of the tuple.
Must not know: files, processes, tasks.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from msgspec import Struct

from squall.exact_structs import build_type_info

#: The most tasks of a worker whose calls are recorded, and the most trees of one call.
MOST_TASKS: Final = 256
MOST_ROOTS: Final = 6
#: The size of a call that has no tuple: of a spout, `tick`, `prepare` and the like.
NO_TUPLE: Final = -1
#: The size of a tuple's key (`worker.tasks.tuple_keys`), and what stands for none.
KEY_BYTES: Final = 16
NO_KEY: Final = bytes(KEY_BYTES)
_MAGIC: Final = int.from_bytes(b"SQCALLS2", "little")
_HEAD: Final = struct.Struct("<Qq")
#: The task, the number of tuples in the call (0: no call is running), the trees, the key.
_RECORD: Final = struct.Struct(f"<qq{MOST_ROOTS}q{KEY_BYTES}s")
#: The size of the buffer in bytes.
SIZE: Final = _HEAD.size + MOST_TASKS * _RECORD.size


class CallAtDeath(Struct, frozen=True, forbid_unknown_fields=True):
    """A call that was running when its worker died."""

    task: int
    #: The number of tuples in the call: 1, or the size of a batch; or `NO_TUPLE`.
    size: int
    #: The trees of the tuple; of a batch, those of its first tuple.
    roots: tuple[int, ...]
    #: The key of the tuple, if it was alone in the call, as hexadecimal digits; "": it has none.
    key: str = ""


build_type_info(CallAtDeath)


def begin_calls(buffer: Any, pid: int) -> None:
    """Write the head of a buffer of zeros."""
    _HEAD.pack_into(buffer, 0, _MAGIC, pid)


class CallMark:
    """The record of one task. Only the thread that runs the task's calls may use it."""

    __slots__ = ("at", "buffer", "task")

    def __init__(self, buffer: Any, index: int, task: int) -> None:
        """`index`: of the record; the task may have had it before."""
        self.buffer = buffer
        self.at = _HEAD.size + index * _RECORD.size
        self.task = task

    def enter(self, size: int, roots: list[int], key: bytes = NO_KEY) -> None:
        """Record that a call begins with this number of tuples. `key`: of the tuple, if it is one."""
        shown = roots if len(roots) == MOST_ROOTS else (roots + [0] * MOST_ROOTS)[:MOST_ROOTS]
        _RECORD.pack_into(self.buffer, self.at, self.task, size, *shown, key)

    def leave(self) -> None:
        """Record that the call has ended."""
        _RECORD.pack_into(self.buffer, self.at, self.task, 0, *[0] * MOST_ROOTS, NO_KEY)


def is_of(data: bytes, pid: int) -> bool:
    """Return whether the process `pid` has marked its calls there."""
    return len(data) == SIZE and _HEAD.unpack_from(data) == (_MAGIC, pid)


def calls_in(data: bytes, pid: int) -> list[CallAtDeath]:
    """Return the calls that were running when the process `pid` died; none if the data is not that process's."""
    if not is_of(data, pid):
        return []
    records = _RECORD.iter_unpack(data[_HEAD.size :])
    return [
        CallAtDeath(task, size, tuple(root for root in roots if root > 0), "" if key == NO_KEY else key.hex())
        for task, size, *roots, key in records
        if size
    ]
