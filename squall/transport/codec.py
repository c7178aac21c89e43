"""Frames as bytes. A batch is a header, raw 64-bit columns of root and edge ids, and one pickle of its value columns.

Every length is checked before anything is allocated or decoded; what is not a frame raises `BadFrame` and nothing else.
Values come back equal and of the same type (pickle protocol 5); only ever decode frames of a link that was authenticated.
Must not know: sockets, tasks, credit.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Callable
from sys import byteorder
from typing import Any, Final

from squall.transport.errors import BadFrame, Unencodable
from squall.transport.frames import NO_MORE, Batch, Control, Frame
from topology_api.tuples import Source

VERSION: Final = 1
BATCH, END, CONTROL = 1, 2, 3
#: version, kind, cycle + 1, source task, target task, stream number, tuples, frame number, lengths: sender, more, values.
HEADER: Final = struct.Struct("<BBHHHHIQHII")
#: Larger frames are refused (a batch is a few hundred tuples; one tuple may be large).
MOST_BYTES: Final = 1 << 30
MOST_TUPLES: Final = 1 << 24

__all__ = ["BadFrame", "Unencodable", "decode", "encode"]

#: Finds the source of a (task, stream number) pair.
FindSource = Callable[[int, int], Source]


def encode(frame: Frame, stream_number: Callable[[str, str], int]) -> bytes:
    """The bytes of a frame. A value that cannot be pickled raises `Unencodable`."""
    if isinstance(frame, Control):
        body = pickle.dumps(frame, protocol=5)
        return HEADER.pack(VERSION, CONTROL, 0, 0, 0, 0, 0, 0, 0, 0, len(body)) + body
    source = frame.source
    sender = frame.sender.encode()
    more = pickle.dumps(frame.more, protocol=5) if frame.more else b""
    values = pack_columns(frame)
    number = stream_number(source.component, source.stream)
    kind = END if frame.ended else BATCH
    lengths = len(sender), len(more), len(values)
    header = HEADER.pack(
        VERSION,
        kind,
        frame.cycle + 1,
        source.task,
        frame.target,
        number,
        len(frame.rows),
        frame.frame,
        *lengths,
    )
    return b"".join([header, sender, raw(frame.roots), raw(frame.edges), more, values])


def decode(data: bytes, find_source: FindSource) -> Frame:
    """The frame that the bytes hold; anything else raises `BadFrame`."""
    if not HEADER.size <= len(data) <= MOST_BYTES:
        raise BadFrame(f"{len(data)} bytes are no frame")
    version, kind, cycle, task, target, number, tuples, frame, sender_size, more_size, size = (
        HEADER.unpack_from(data)
    )
    if version != VERSION:
        raise BadFrame(f"a frame of protocol version {version}; this Squall speaks version {VERSION}")
    if kind not in (BATCH, END, CONTROL) or tuples > MOST_TUPLES:
        raise BadFrame(f"a frame of kind {kind} with {tuples} tuples")
    if HEADER.size + sender_size + 16 * tuples + more_size + size != len(data):
        raise BadFrame(f"a frame of {len(data)} bytes whose lengths do not add up")
    try:
        return unpack(
            data, kind, find_source, cycle, task, target, number, tuples, frame, sender_size, more_size
        )
    except BadFrame:
        raise
    except Exception as error:
        raise BadFrame(f"a frame that cannot be decoded: {type(error).__name__}: {error}") from error


def unpack(
    data: bytes, kind: int, find_source: FindSource, cycle: int, task: int, target: int, number: int, tuples: int, frame: int,
    sender_size: int, more_size: int,
) -> Frame:  # fmt: skip
    """Decode a frame whose lengths were checked."""
    view = memoryview(data)[HEADER.size :]
    if kind == CONTROL:
        control = pickle.loads(view)
        if not isinstance(control, Control):
            raise BadFrame(f"a control frame that holds a {type(control).__name__}")
        return control
    sender = bytes(view[:sender_size]).decode()
    view = view[sender_size:]
    roots, edges = ids(view[: 8 * tuples]), ids(view[8 * tuples : 16 * tuples])
    view = view[16 * tuples :]
    more = pickle.loads(view[:more_size]) if more_size else NO_MORE
    columns = pickle.loads(view[more_size:])
    rows = list(zip(*columns)) if columns else [()] * tuples
    if len(rows) != tuples or any(len(column) != tuples for column in columns):
        raise BadFrame(f"a batch of {tuples} tuples with {len(rows)} rows")
    batch = Batch(find_source(task, number), target, rows, roots, edges, more)
    batch.sender, batch.frame, batch.cycle, batch.ended = sender, frame, cycle - 1, kind == END
    return batch


def pack_columns(frame: Batch) -> bytes:
    """The rows as one pickle of a list per field; columns are made here, not in the outbox (see `worker.outbox`)."""
    columns = [list(column) for column in zip(*frame.rows)]
    try:
        return pickle.dumps(columns, protocol=5)
    except Exception as error:
        for position, row in enumerate(frame.rows):
            for name, value in zip(frame.source.fields, row):
                check(position, name, value)
        raise Unencodable(0, "?", f"{type(error).__name__}: {error}") from error


def check(position: int, name: str, value: Any) -> None:
    """Raise `Unencodable` for a value that cannot be pickled."""
    try:
        pickle.dumps(value, protocol=5)
    except Exception as error:
        raise Unencodable(position, name, f"{type(error).__name__}: {error}") from error


def raw(column: list[int]) -> bytes:
    """Ids as little-endian 64-bit integers."""
    packed = array("q", column)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def ids(data: memoryview) -> list[int]:
    """The ids of a raw column."""
    packed = array("q")
    packed.frombytes(data)
    if byteorder == "big":
        packed.byteswap()
    return packed.tolist()
