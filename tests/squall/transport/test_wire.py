"""Messages promise: they are decoded equal and with the same types; invalid bytes give `BadFrame` only."""

from __future__ import annotations

import datetime
import decimal
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.transport import wire
from squall.transport.carrier import Parts
from squall.transport.control import HEAD, XOR_HEAD, pack_control, unpack_control
from squall.transport.errors import BadFrame, Unencodable
from squall.transport.frames import (
    NO_MORE,
    Batch,
    Control,
    CyclePhase,
    CycleProbe,
    CycleReply,
    FailureClaim,
    Frame,
    KeepAlive,
)
from squall.transport.wire import Header, LinkHeartbeat, Undecodable
from squall.values import Incarnation
from topology_api import Failure
from topology_api.tuples import Source

ID = st.integers(min_value=-(2**63), max_value=2**63 - 1)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=6,
)


def source(fields: int = 2) -> Source:
    return Source("words", 7, "default", tuple(f"f{number}" for number in range(fields)))


def encode(frame: Frame, codec: str = "pickle") -> Parts:
    if isinstance(frame, Control):
        header = Header(wire.CONTROL_FRAME, frame.sender, Incarnation(3, 1), Incarnation(4, 0), 5, 17)
        return [wire.seal(header, pack_control(frame, 16))]
    assert isinstance(frame, Batch)
    body, further = wire.pack_batch(frame, codec, {("words", "default"): 3})
    kind = wire.END if frame.ended else wire.BATCH
    return [
        wire.seal(Header(kind, frame.sender, Incarnation(3, 1), Incarnation(4, 0), 5, 17), body),
        *further,
    ]


def decode(parts: Parts, fields: int = 2, codec: str = "pickle") -> Frame:
    header, body = wire.open_header(parts)
    if header.kind == wire.CONTROL_FRAME:
        return unpack_control(header.sender, body)[0]
    return wire.unpack_batch(header, body, parts[1:], codec, lambda task, number: source(fields))


def through(frame: Frame, fields: int = 2) -> Frame:
    return decode(encode(frame), fields)


def batch_of(rows: list[tuple[Any, ...]], roots: list[int], edges: list[int], fields: int = 2) -> Batch:
    batch = Batch(source(fields), 9, rows, roots, edges)
    batch.sender, batch.frame, batch.cycle = "w1", 12, 2
    return batch


@given(st.lists(st.tuples(st.tuples(VALUE, VALUE), ID, ID), max_size=20))
def test_a_batch_comes_back_equal_and_of_the_same_types(
    tuples: list[tuple[tuple[Any, Any], int, int]],
) -> None:
    rows, roots, edges = (
        [row for row, _, _ in tuples],
        [root for _, root, _ in tuples],
        [edge for _, _, edge in tuples],
    )
    back = through(batch_of(rows, roots, edges))
    assert isinstance(back, Batch)
    assert back.rows == rows
    assert repr(list(back.rows)) == repr(rows)
    assert (back.roots, back.edges) == (roots, edges)
    assert (back.target, back.sender, back.frame, back.cycle, back.ended) == (9, "w1", 12, 2, False)
    assert (back.source.component, back.source.task, back.source.stream) == ("words", 7, "default")


def test_rows_without_fields_keep_their_number() -> None:
    back = through(batch_of([(), (), ()], [1, 2, 3], [4, 5, 6], fields=0), fields=0)
    assert isinstance(back, Batch)
    assert back.rows == [(), (), ()]


def test_tuples_of_several_trees_keep_all_of_them() -> None:
    batch = batch_of([("a", 1), ("b", 2)], [5, 6], [7, 8])
    batch.more = {1: ((9, -10), (11, 12))}
    back = through(batch)
    assert isinstance(back, Batch)
    assert back.more == {1: ((9, -10), (11, 12))}
    assert back.waiting_roots(1) == {6, 9, 11}


def test_a_batch_without_further_trees_shares_the_empty_table() -> None:
    back = through(batch_of([("a", 1)], [5], [7]))
    assert isinstance(back, Batch)
    assert back.more is NO_MORE


def test_an_end_mark_is_decoded_as_one() -> None:
    mark = batch_of([], [], [])
    mark.ended = True
    back = through(mark)
    assert isinstance(back, Batch)
    assert back.ended
    assert len(back) == 0


def test_a_control_frame_is_decoded_completely() -> None:
    control = Control(
        "w2",
        xors={3: ([1, 2], [-(2**63), 2**63 - 1])},
        failures=[(4, Failure("failed", "count", 6, "ValueError: no", 0))],
        grants={5: 17},
        keep_alives=[KeepAlive("count", 6, (1, 2))],
        flush=True,
        cycles=[CycleProbe(0, 4)],
        down=[(6, 12345), (6, 0), (7, -1)],
        claims=[(6, 99, FailureClaim(2, 1.5, "away", False)), (7, 99, FailureClaim(3, 7.0, None, True))],
    )
    assert through(control) == control
    assert bool(control)
    assert not Control("w2")


def test_a_value_that_cannot_be_pickled_is_named_by_field_and_position() -> None:
    batch = batch_of([("a", 1), ("b", lambda: None)], [1, 2], [3, 4])
    with pytest.raises(Unencodable, match="field 'f1'") as caught:
        encode(batch)
    assert caught.value.position == 1


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_frame_and_nothing_else(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode([data])


@pytest.mark.parametrize("frame", ["batch", "control", "sign"])
def test_a_message_with_any_byte_flipped_is_refused(frame: str) -> None:
    if frame == "sign":
        good = wire.seal(
            Header(wire.HEARTBEAT, "w1", Incarnation(1, 0), Incarnation(2, 0), 3, 0),
            wire.pack_heartbeat(LinkHeartbeat(1, 2, 3, 4, 0.5, 0, ("tcp://a:1", "tcp://a:2"))),
        )
    else:
        batch = batch_of([("word", 1), ("other", decimal.Decimal("2.5"))], [1, 2], [3, 4])
        control = Control("w1", xors={3: ([1, 2], [3, 4])}, grants={4: 5})
        good = bytes(encode(batch if frame == "batch" else control)[0])
    wire.open_header([good])
    for at in range(len(good)):
        for flip in (1, 128, 255):
            broken = bytearray(good)
            broken[at] ^= flip
            with pytest.raises(BadFrame):
                wire.open_header([bytes(broken)])


def test_a_message_that_is_too_short_or_too_long_is_refused() -> None:
    good = bytes(encode(batch_of([("word", 1)], [1], [3]))[0])
    for candidate in (*(good[:size] for size in range(len(good))), good + b"x"):
        with pytest.raises(BadFrame):
            decode([candidate])


def test_a_batch_whose_further_parts_are_missing_is_refused() -> None:
    parts = encode(batch_of([(b"x" * 1_000_000, 1)], [1], [3]))
    assert len(parts) > 1, "large values travel as parts of their own"
    with pytest.raises(BadFrame, match="further parts"):
        decode(parts[:1])


def test_a_length_of_four_gigabytes_is_refused_before_anything_is_allocated() -> None:
    body = wire.BATCH_HEAD.pack(0, 1, 2, 0, 2**32 - 1, 1, 0, 0, 2**32 - 1)
    with pytest.raises(BadFrame, match="tuples"):
        decode([wire.seal(Header(wire.BATCH, "w1", Incarnation(1, 0), Incarnation(2, 0), 3, 4), body)])
    control = HEAD.pack(0, 1, 0) + XOR_HEAD.pack(1, 2**32 - 1)
    with pytest.raises(BadFrame, match="XORs"):
        decode(
            [wire.seal(Header(wire.CONTROL_FRAME, "w1", Incarnation(1, 0), Incarnation(2, 0), 3, 4), control)]
        )


def test_another_protocol_version_is_refused_by_its_number() -> None:
    data = bytearray(encode(Control("w1", flush=True))[0])
    data[2] = 9
    with pytest.raises(BadFrame, match="version 9"):
        decode([bytes(data)])


def test_the_header_has_the_sender_and_the_receiver() -> None:
    header, _ = wire.open_header(encode(Control("w1", flush=True)))
    assert header == Header(wire.CONTROL_FRAME, "w1", Incarnation(3, 1), Incarnation(4, 0), 5, 17)


class Unloadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_values_that_cannot_be_decoded_give_the_batch_without_them_and_its_trees() -> None:
    batch = batch_of([("a", Unloadable()), ("b", 2)], [5, 6], [7, 8])
    with pytest.raises(Undecodable, match=r"component 'words'.*ValueError") as caught:
        through(batch)
    assert caught.value.roots == {5, 6}
    assert (caught.value.batch.frame, caught.value.batch.rows) == (12, [])


def test_ids_are_little_endian_on_every_machine() -> None:
    data = encode(batch_of([("a", 1)], [258], [-2]))[0]
    assert struct.pack("<qq", 258, -2) in bytes(data)


def test_times_and_decimals_keep_type_and_precision() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    row = (datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone), decimal.Decimal("1.10"))
    back = through(batch_of([row], [1], [2]))
    assert isinstance(back, Batch)
    assert repr(back.rows[0]) == repr(row)


def test_a_batch_that_is_too_large_names_its_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 10_000)
    batch = batch_of([("a", b"x" * 100), ("b", b"y" * 20_000), ("c", b"z" * 50)], [1, 2, 3], [4, 5, 6])
    with pytest.raises(Unencodable, match=r"field 'f1'.*a message takes 10,000 at most") as caught:
        encode(batch)
    assert caught.value.position == 1


def test_no_control_frame_makes_its_reader_run_code() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    payload = pickle.dumps(Evil(), protocol=5)
    body = HEAD.pack(0, 0, len(payload)) + payload
    with pytest.raises(BadFrame):
        decode(
            [wire.seal(Header(wire.CONTROL_FRAME, "w1", Incarnation(1, 0), Incarnation(2, 0), 3, 4), body)]
        )
    head = wire.BATCH_HEAD.pack(0, 7, 9, 3, 0, 12, 0, len(payload), 0)
    with pytest.raises(BadFrame):
        decode(
            [wire.seal(Header(wire.BATCH, "w1", Incarnation(1, 0), Incarnation(2, 0), 3, 4), head + payload)]
        )


def test_failures_of_any_text_and_all_messages_about_cycles_are_decoded() -> None:
    control = Control(
        "w2",
        failures=[(2**62, Failure("failed", None, None, "half a pair: \ud800", 3))],
        cycles=[CycleProbe(1, 2), CycleReply(1, 2, "w3", True, 2**40, 7, 1), CyclePhase(1, 2)],
        missing=[(3, 9)],
    )
    back = through(control)
    assert isinstance(back, Control)
    assert back.failures[0][1].error == "half a pair: \\ud800"
    assert (back.cycles, back.missing) == (control.cycles, control.missing)
