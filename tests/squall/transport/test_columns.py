"""The columns promise: rows come back equal, of the same types, and share nothing; values that cannot be encoded are named."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import fractions
import pickle
import resource
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.transport.columns import LARGE, pack_rows, unpack_rows
from squall.transport.errors import BadFrame, Unencodable

CODECS = ("pickle", "msgpack")

ATOM = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(st.characters(categories=["Cs"]), max_size=2)
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc))
)


@dataclasses.dataclass
class Point:
    x: int
    y: Any


VALUE = st.recursive(
    ATOM,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Point, st.integers(), inner)
    ),
    max_leaves=6,
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc))
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(-9, 2**63), inner, max_size=3)
    ),
    max_leaves=6,
)


@dataclasses.dataclass(frozen=True)
class Fixed:
    __slots__ = ("x", "y")
    x: int
    y: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return Fixed, (self.x, self.y)


class Tagged(list[Any]):
    tag = 0


class Named(NamedTuple):
    x: int
    y: Any


class Kind(enum.Enum):
    GOOD = [1]
    BAD = [2]


class Word(str):
    __slots__ = ()


class OnlyOnce:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


class Refuses:
    """Raises this instead of being pickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        raise self.error


def names(count: int) -> tuple[str, ...]:
    return tuple(f"f{number}" for number in range(count))


def through(codec: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    fields = len(rows[0]) if rows else 2
    parts = pack_rows(codec, names(fields), rows)
    arrived = [memoryview(bytearray(part)) for part in parts]  # as received from a network
    return list(unpack_rows(codec, arrived, len(rows), fields))


@given(st.integers(0, 3).flatmap(lambda n: st.lists(st.tuples(*[VALUE] * n), max_size=12)))
def test_by_pickle_any_rows_come_back_equal_and_of_the_same_types(rows: list[tuple[Any, ...]]) -> None:
    back = through("pickle", rows)
    assert back == rows
    assert repr(list(back)) == repr(rows)


@given(st.integers(0, 3).flatmap(lambda n: st.lists(st.tuples(*[PLAIN] * n), max_size=12)))
def test_by_msgpack_rows_of_supported_types_come_back_equal_and_of_the_same_types(
    rows: list[tuple[Any, ...]],
) -> None:
    back = through("msgpack", rows)
    assert back == rows
    assert repr(list(back)) == repr(rows)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "texts",
    [[""], ["", ""], ["a", "b\0c"], ["\0"], ["\0", "\0"], ["a\0", "\0b"], ["", "x", ""], ["ä", "€", "𝄞"]],
)
def test_texts_with_any_separators_come_back(codec: str, texts: list[str]) -> None:
    rows = [(text, 1) for text in texts]
    assert through(codec, rows) == rows


def test_subclasses_stay_what_they_are() -> None:
    rows = [(Word("a"), True), (Word("b"), 1), ("c", 1.0)]
    back = through("pickle", rows)
    assert back == rows
    assert [[type(value) for value in row] for row in back] == [[Word, bool], [Word, int], [str, float]]


@pytest.mark.parametrize(
    "shared",
    [
        [1, 2],
        {"a": 1},
        {"a": [1]},
        [[1], 2],
        Point(1, 2),
        Point(1, [2]),
        Tagged([1]),
        {1, 2},
        bytearray(b"ab"),
        ([1], 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_two_tuples_share_nothing_mutable_whatever_they_shared_before(shared: Any) -> None:
    inner = [7]
    back = through("pickle", [(shared, inner), (shared, inner), ([inner], shared)])
    assert back == [(shared, [7]), (shared, [7]), ([[7]], shared)]
    for one, other in ((back[0], back[1]), (back[0], back[2]), (back[1], back[2])):
        mutable = {id(value) for value in one if type(value) is not tuple}
        assert mutable.isdisjoint(id(value) for value in other)
    if isinstance(shared, tuple):
        assert back[0][0][0] is not back[1][0][0]


def test_a_value_that_contains_itself_comes_back_so() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    (back,) = through("pickle", [(loop, loop)])
    assert back[0][1] is back[0]
    assert back[0] is back[1]


def test_objects_of_every_kind_come_back_with_all_their_attributes() -> None:
    tagged = Tagged([1, 2])
    tagged.tag = 9
    error = ValueError("wrong", 3)
    error.args += (4,)
    columns: list[list[Any]] = [
        [Point(1, "a"), Point(2, None)],
        [Point(1, [2]), Point(3, Point(4, {5}))],
        [Fixed(1, "a"), Fixed(2, [3])],
        [Point(1, 2), Fixed(1, 2)],
        [tagged, Tagged()],
        [Named(1, 2), Named(3, [4])],
        [fractions.Fraction(1, 3), uuid.UUID(int=7)],
        [collections.OrderedDict(b=1, a=2), collections.Counter("aab")],
        [range(3), frozenset({1, (2, 3)})],
        [int, numpy.dtype("f4")],
    ]
    for column in columns:
        back = through("pickle", [(value, "x") for value in column])
        assert [value for value, _ in back] == column
        assert [type(value) for value, _ in back] == [type(value) for value in column]
        assert [getattr(value, "tag", 0) for value, _ in back] == [getattr(v, "tag", 0) for v in column]
    (((kind, back_error),)) = through("pickle", [(Kind.GOOD, error)])
    assert kind is Kind.GOOD
    assert (type(back_error), back_error.args) == (ValueError, error.args)


@pytest.mark.parametrize("size", [10, LARGE, 4 * LARGE])
def test_arrays_come_back_equal_and_writable_and_large_ones_are_not_copied_on_the_way_out(size: int) -> None:
    array = numpy.arange(size, dtype="u1")
    fixed = numpy.arange(size, dtype="u1")
    fixed.flags.writeable = False
    parts = pack_rows("pickle", names(3), [(array, "a", fixed), (array, "b", fixed)])
    large = size >= LARGE
    assert len(parts) == (5 if large else 1)
    if large:
        assert numpy.shares_memory(array, numpy.frombuffer(parts[1], "u1"))
    for arrived in (parts, [bytes(part) for part in parts], [memoryview(bytearray(p)) for p in parts]):
        one, other = unpack_rows("pickle", arrived, 2, 3)
        assert numpy.array_equal(one[0], array)
        assert numpy.array_equal(other[2], fixed)
        assert (one[0].flags.writeable, one[2].flags.writeable) == (True, False)
        if arrived is not parts:  # these still refer to the sender's memory
            one[0][0] = 200
            assert (other[0][0], array[0]) == (0, 0)


def test_arrays_that_are_not_contiguous_and_other_numpy_values_come_back_too() -> None:
    array = numpy.arange(200_000.0).reshape(1000, 200)
    rows: list[tuple[Any, Any]] = [(array[::2, ::3], numpy.float32(1.5)), (array.T, numpy.int64(3))]
    for before, after in zip(rows, through("pickle", rows)):
        assert numpy.array_equal(after[0], before[0])
        assert (after[1], type(after[1])) == (before[1], type(before[1]))


@pytest.mark.parametrize("codec", CODECS)
def test_large_bytes_come_back_as_bytes(codec: str) -> None:
    rows = [(b"a" * LARGE, 1), (b"b", 2), (b"c" * (LARGE + 1), None)]
    back = through(codec, rows)
    assert back == rows
    assert {type(row[0]) for row in back} == {bytes}


def test_large_bytes_and_arrays_of_one_batch_are_not_mixed_up() -> None:
    arrays = [numpy.full(LARGE, number, "u1") for number in range(4)]
    rows: list[tuple[Any, ...]] = [
        (b"%d" % n * LARGE, arrays[n], [arrays[3 - n], b"%d" % (9 - n) * LARGE]) for n in range(4)
    ]
    for before, after in zip(rows, through("pickle", rows)):
        assert (before[0], before[2][1]) == (after[0], after[2][1])
        assert numpy.array_equal(before[1], after[1])
        assert numpy.array_equal(before[2][0], after[2][0])


@pytest.mark.parametrize("value", [lambda: None, threading.Lock(), Point(1, lambda: None), memoryview(b"a")])
def test_by_pickle_a_value_that_cannot_be_encoded_is_named_by_position_and_field(value: Any) -> None:
    with pytest.raises(Unencodable, match="field 'f1'") as caught:
        pack_rows("pickle", names(2), [("a", 1), ("b", value), ("c", value)])
    assert (caught.value.position, caught.value.field) == (1, "f1")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("own")])
def test_whatever_a_value_raises_while_it_is_pickled_names_its_field(error: BaseException) -> None:
    with pytest.raises(Unencodable, match=f"field 'f1'.*{type(error).__name__}") as caught:
        pack_rows("pickle", names(2), [("a", 1), ("b", Refuses(error)), ("c", 2)])
    assert (caught.value.position, caught.value.field) == (1, "f1")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2**64, "OverflowError"),
        (-(2**63) - 1, "OverflowError"),
        ("\ud800", "UnicodeEncodeError"),
        (Word("a"), "test_columns.Word"),
        ({1, 2}, "builtins.set"),
        ([Point(1, 2)], "Point"),
        ({(1, 2): 3}, "keys"),
        ({True: 3}, "keys"),
        (datetime.timedelta(1), "datetime.timedelta"),
        (bytearray(b"a"), "builtins.bytearray"),
        (numpy.float64(1), "numpy.float64"),
    ],
)
def test_by_msgpack_an_unsupported_type_is_named_with_its_field(value: Any, said: str) -> None:
    with pytest.raises(Unencodable, match="field 'f0'") as caught:
        pack_rows("msgpack", names(2), [("a", 1), (value, 2)])
    assert caught.value.position == 1
    assert said in str(caught.value)


def test_a_value_that_cannot_be_decoded_is_a_bad_frame_that_names_the_tuple() -> None:
    parts = pack_rows("pickle", names(1), [("fine",), (OnlyOnce(),)])
    with pytest.raises(BadFrame, match=r"tuple 1 .* ValueError"):
        unpack_rows("pickle", parts, 2, 1)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=60))
def test_garbage_is_a_bad_frame_and_nothing_else(codec: str, data: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack_rows(codec, [data], 3, 2)


@contextmanager
def two_gigabytes_more() -> Iterator[None]:
    """Let the process have this much more memory: a flipped pickle may ask for 30 GB, and a machine may try to give them."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (2 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_a_flipped_byte_gives_rows_of_the_right_shape_or_a_bad_frame(codec: str, data: st.DataObject) -> None:
    good = bytes(pack_rows(codec, names(2), [("word", 1), ("other", None)])[0])
    at = data.draw(st.integers(0, len(good) - 1))
    broken = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    try:
        with two_gigabytes_more():
            rows = unpack_rows(codec, [broken], 2, 2)
    except BadFrame:
        return
    assert [len(row) for row in rows] == [2, 2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("tuples", "fields"), [(1, 2), (3, 2), (0, 2), (2, 1), (2, 3), (2, 0), (2**24, 2)])
def test_inconsistent_numbers_of_rows_or_fields_are_a_bad_frame(codec: str, tuples: int, fields: int) -> None:
    parts = pack_rows(codec, names(2), [("a", 1), ("b", 2)])
    with pytest.raises(BadFrame):
        unpack_rows(codec, parts, tuples, fields)


@pytest.mark.parametrize("codec", CODECS)
def test_no_parts_or_too_many_parts_are_a_bad_frame(codec: str) -> None:
    parts = pack_rows(codec, names(1), [("a",)])
    for arrived in ([], [*parts, b"more"], [b"", *parts]):
        with pytest.raises(BadFrame):
            unpack_rows(codec, arrived, 1, 1)


def test_an_array_whose_part_is_missing_is_a_bad_frame() -> None:
    parts = pack_rows("pickle", names(1), [(numpy.zeros(LARGE, "u1"),)])
    with pytest.raises(BadFrame):
        unpack_rows("pickle", parts[:1], 1, 1)


def test_msgpack_of_another_structure_is_a_bad_frame() -> None:
    others: list[Any] = [
        [[1], [2, 3]],
        {"a": 1},
        7,
        [7],
        [[msgspec.msgpack.Ext(99, b"x")]],
        [None],
        ["ab\0c"],
    ]
    for columns in others:
        with pytest.raises(BadFrame):
            unpack_rows("msgpack", [msgspec.msgpack.encode(columns)], 1, 1)


def test_a_pickle_of_another_object_is_a_bad_frame() -> None:
    others: list[Any] = [
        None,
        7,
        ([], None, None),
        ([None], None),
        ([7], None),
        ([None], [b"x"]),
        ({"a": 1}, None),
    ]
    for value in others:
        with pytest.raises(BadFrame):
            unpack_rows("pickle", [pickle.dumps(value)], 1, 1)


def test_arrays_that_share_memory_arrive_separately_and_keep_type_and_shape() -> None:
    base = numpy.arange(12.0)
    one = numpy.zeros(3)
    rows = [(base[:6],), (base[3:].reshape(3, 3),), (one,), (one,), (numpy.array(["a", None], dtype=object),)]
    for sent in (rows[:2], rows[2:4], rows):
        back = unpack_rows("pickle", pack_rows("pickle", ("array",), sent), len(sent), 1)
        for (array,), (original,) in zip(back, sent):
            assert array.dtype == original.dtype
            assert numpy.array_equal(array, original)
        if back[0][0].flags.writeable:
            back[0][0][...] = -1
            assert numpy.array_equal(back[1][0], sent[1][0]), "the second tuple has an array of its own"
        assert back[0][0].flags.writeable == sent[0][0].flags.writeable
