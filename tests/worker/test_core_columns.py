"""The columns of the core compared with lists, and the hash of texts with its definition, whichever core runs."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.transport.id_columns import IdColumn, Ids, as_ids, from_raw, raw
from squall.transport.row_columns import RowColumns, as_rows, columns_of, from_columns
from worker.routing.key_hash import key_hash
from worker.routing.text_hash import choice_of, choices_of, spread, text_hash

LEAST, MOST = -(1 << 63), (1 << 63) - 1
IDS = st.one_of(st.integers(LEAST, MOST), st.sampled_from([LEAST, -1, 0, 1, MOST]))
TOO_LARGE = st.sampled_from([LEAST - 1, MOST + 1, 1 << 64, 1 << 200, -(1 << 200)])
#: No floats: the compiled core cuts one to an int, as C does; ids are never floats.
NO_ID: st.SearchStrategy[Any] = st.sampled_from(["1", None, b"1", [], (1,), 1j])
POSITIONS = st.integers(-6, 40)
SLICES = st.slices(40)
#: Each example is a long story already.
HALF = settings(max_examples=settings().max_examples // 2)
#: The errors for a wrong value.
REFUSED = (OverflowError, TypeError)


def failing(ids: list[int]) -> Iterator[int]:
    """Ids, and then an error of the caller's."""
    yield from ids
    raise LookupError("the caller's")


class IdsAgainstAList(RuleBasedStateMachine):
    """Operations on a column: its content equals that of a list, and an error changes nothing."""

    @initialize(ids=st.lists(IDS, max_size=40))
    def begin(self, ids: list[int]) -> None:
        self.column, self.model = IdColumn(ids), list(ids)

    @rule(item=IDS)
    def append(self, item: int) -> None:
        self.column.append(item)
        self.model.append(item)

    @rule(wrong=TOO_LARGE | NO_ID)
    def append_an_invalid_id(self, wrong: Any) -> None:
        with pytest.raises(REFUSED):
            self.column.append(wrong)

    @rule(ids=st.lists(IDS, max_size=40), how=st.sampled_from([list, tuple, iter, IdColumn]))
    def extend(self, ids: list[int], how: Any) -> None:
        self.column.extend(how(ids))
        self.model.extend(ids)

    @rule()
    def extend_by_itself(self) -> None:
        if len(self.model) < 1000:
            self.column.extend(self.column)
            self.model.extend(list(self.model))

    @rule(ids=st.lists(IDS, max_size=5), wrong=TOO_LARGE | NO_ID, more=st.lists(IDS, max_size=40))
    def extend_by_an_invalid_id_and_go_on(self, ids: list[int], wrong: Any, more: list[int]) -> None:
        with pytest.raises(REFUSED):
            self.column.extend([*ids, wrong])
        with pytest.raises(LookupError):
            self.column.extend(failing(ids))
        assert self.column == self.model
        for item in more:
            self.append(item)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        assert self.column.pop() == self.model.pop()

    @precondition(lambda self: not self.model)
    @rule()
    def pop_of_nothing(self) -> None:
        with pytest.raises(IndexError):
            self.column.pop()

    @rule(at=POSITIONS)
    def read(self, at: int) -> None:
        assert outcome(lambda: self.column[at]) == outcome(lambda: self.model[at])

    @rule(at=POSITIONS)
    def read_by_position_alone(self, at: int) -> None:
        if 0 <= at < len(self.model):
            assert self.column.get(at) == self.model[at]
        else:
            with pytest.raises(IndexError):
                self.column.get(at)
            with pytest.raises(IndexError):
                self.column.put(at, 1)

    @rule(at=POSITIONS, item=IDS)
    def write(self, at: int, item: int) -> None:
        assert outcome(lambda: self.column.__setitem__(at, item)) == outcome(
            lambda: self.model.__setitem__(at, item)
        )

    @precondition(lambda self: self.model)
    @rule(
        wrong=TOO_LARGE | NO_ID.filter(lambda wrong: wrong != 1.0)
    )  # the compiled core cuts a float to an int here
    def write_an_invalid_id(self, wrong: Any) -> None:
        with pytest.raises(REFUSED):
            self.column[-1] = wrong

    @rule(at=SLICES)
    def part(self, at: slice) -> None:
        part = self.column[at]
        assert type(part) is IdColumn and part == self.model[at]
        part.append(1)  # a column of its own
        with pytest.raises(TypeError):
            self.column[at] = [1]

    @rule(at=POSITIONS | SLICES)
    def delete(self, at: Any) -> None:
        assert outcome(lambda: self.column.__delitem__(at)) == outcome(lambda: self.model.__delitem__(at))

    @rule(item=IDS, at=POSITIONS)
    def find(self, item: int, at: int) -> None:
        assert (item in self.column) == (item in self.model)
        if 0 <= at < len(self.model):
            assert self.model[at] in self.column
        assert "1" not in self.column and None not in self.column

    @rule(at=st.sampled_from(["1", None, 1.0]))
    def no_position(self, at: Any) -> None:
        with pytest.raises(TypeError):
            self.column[at]
        with pytest.raises(TypeError):
            del self.column[at]

    @rule()
    def travel(self) -> None:
        assert (
            raw(self.column)
            == raw(self.model)
            == b"".join(one.to_bytes(8, "little", signed=True) for one in self.model)
        )
        assert from_raw(raw(self.column)) == self.model
        assert pickle.loads(pickle.dumps(self.column)) == self.model

    @invariant()
    def holds_what_a_list_would(self) -> None:
        assert len(self.column) == len(self.model)
        assert list(self.column) == self.model
        assert self.column == self.model and self.column == IdColumn(self.model)
        assert self.column != [*self.model, 1] and self.column != IdColumn([*self.model, 1])
        assert bool(self.column) == bool(self.model)
        assert repr(self.column) == f"IdColumn({self.model})"


test_a_column_of_ids_is_a_list_of_64_bit_integers = IdsAgainstAList.TestCase
test_a_column_of_ids_is_a_list_of_64_bit_integers.settings = HALF


def outcome(call: Any) -> Any:
    """The result of a call, or the class of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


@given(TOO_LARGE | NO_ID, st.lists(IDS, max_size=3))
def test_a_column_refuses_values_that_are_no_ids(wrong: Any, ids: list[int]) -> None:
    with pytest.raises(REFUSED):
        IdColumn([*ids, wrong])


@pytest.mark.parametrize("data", [b"1234567", b"123456789", memoryview(b"1234567890")])
def test_raw_bytes_that_are_no_whole_ids_are_refused(data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        from_raw(data)


@given(st.lists(IDS, max_size=40))
def test_columns_are_restored_from_their_bytes(ids: list[int]) -> None:
    column = as_ids(ids)
    assert type(column) is Ids and as_ids(column) is column
    for data in (raw(column), memoryview(raw(column)), memoryview(b"head" + raw(column))[4:]):
        assert type(from_raw(data)) is Ids and list(from_raw(data)) == ids


def test_a_column_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(IdColumn())


VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(allow_nan=False))
ARITIES = st.integers(0, 4)


class RowsAgainstAList(RuleBasedStateMachine):
    """Operations on rows in columns: they equal a list of rows, and an error changes nothing."""

    @initialize(arity=ARITIES)
    def begin(self, arity: int) -> None:
        self.arity = arity
        self.rows: Any = RowColumns(arity)
        self.model: list[tuple[Any, ...]] = []

    @rule(data=st.data(), count=st.integers(1, 12))
    def append(self, data: st.DataObject, count: int) -> None:
        row = data.draw(st.tuples(*[VALUES] * self.arity))
        for _ in range(count):
            self.rows.append(row)
            self.model.append(row)

    @rule(length=st.integers(0, 6))
    def append_another_length(self, length: int) -> None:
        if length != self.arity:
            with pytest.raises(ValueError, match=f"{length} values among rows of {self.arity}"):
                self.rows.append((1,) * length)

    @rule(at=POSITIONS)
    def read(self, at: int) -> None:
        assert outcome(lambda: self.rows[at]) == outcome(lambda: self.model[at])
        if not 0 <= at < len(self.model):
            with pytest.raises(IndexError):
                self.rows.row(at)

    @rule(at=SLICES)
    def part(self, at: slice) -> None:
        part = self.rows[at]
        assert part == self.model[at] and len(part) == len(self.model[at])
        part.append((1,) * self.arity)  # rows of its own

    @rule(at=POSITIONS | SLICES)
    def delete(self, at: Any) -> None:
        assert outcome(lambda: self.rows.__delitem__(at)) == outcome(lambda: self.model.__delitem__(at))

    @rule(at=st.sampled_from(["1", None, 1.0]))
    def no_position(self, at: Any) -> None:
        with pytest.raises(TypeError):
            self.rows[at]
        with pytest.raises(TypeError):
            del self.rows[at]

    @rule()
    def travel(self) -> None:
        columns = [list(column) for column in columns_of(self.rows)]
        assert columns == [list(column) for column in zip(*self.model)]
        assert list(from_columns(columns, len(self.model))) == self.model

    @invariant()
    def are_what_a_list_would_be(self) -> None:
        assert len(self.rows) == len(self.model) and bool(self.rows) == bool(self.model)
        assert list(self.rows) == self.model and self.rows == self.model
        assert self.rows != [*self.model, (0,) * self.arity]
        assert repr(self.rows) == f"RowColumns({self.model!r})"


test_rows_in_columns_are_a_list_of_rows = RowsAgainstAList.TestCase
test_rows_in_columns_are_a_list_of_rows.settings = HALF


@given(st.data(), ARITIES, st.integers(0, 20), st.sampled_from([list, tuple]))
def test_rows_are_restored_from_columns_of_any_kind(
    data: st.DataObject, arity: int, count: int, kind: Any
) -> None:
    rows = data.draw(st.lists(st.tuples(*[VALUES] * arity), min_size=count, max_size=count))
    made = from_columns([kind(row[at] for row in rows) for at in range(arity)], count)
    assert list(made) == rows and list(as_rows(made)) == rows and list(as_rows(rows)) == rows
    assert [list(column) for column in columns_of(made)] == [list(column) for column in zip(*rows)]


def test_rows_of_different_lengths_make_no_columns() -> None:
    rows = RowColumns(2)
    for wrong in ((), (1,), (1, 2, 3)):
        with pytest.raises(ValueError):
            rows.append(wrong)
    assert rows == [] and rows.columns() == []


def stafford(number: int) -> int:
    """The finaliser that `worker.routing.key_hash` names, in numbers without bounds."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


def defined_hash(text: str) -> int:
    """The content hash of a text by its definition: CRC-32 and length of its UTF-8, a lone surrogate as three bytes."""
    data = b"".join(one.encode("utf-8", "surrogatepass") for one in text)
    return stafford((crc32(data) | len(data) % 2**32 << 32) ^ stafford(1))


class Word(str):
    """A str subclass that misreports its contents."""

    def encode(self, *args: Any, **options: Any) -> bytes:
        return b"another"

    def __len__(self) -> int:
        return 1


SURROGATES = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)
TEXTS = st.one_of(
    st.text(st.characters(max_codepoint=0x7F)),
    st.text(st.characters(max_codepoint=0xFF)),
    st.text(st.characters(max_codepoint=0xFFFF)),
    st.text(st.characters(min_codepoint=0x10000)),
    st.text(SURROGATES),
    st.text(st.one_of(st.characters(), SURROGATES)),
    st.text(st.characters(max_codepoint=0x7F), min_size=200, max_size=400),
    st.just(""),
)


@given(TEXTS, st.integers(1, 1000))
def test_the_hash_of_a_text_follows_its_definition(text: str, tasks: int) -> None:
    expected = defined_hash(text)
    assert text_hash(text) == key_hash(text) == key_hash(Word(text)) == expected
    assert choice_of(text, tasks) == expected % tasks


@given(st.lists(st.text(), max_size=8), st.integers(1, 1000))
def test_a_column_of_texts_is_hashed_as_each_of_its_texts(texts: list[str], tasks: int) -> None:
    encoded = [text.encode() for text in texts]
    offsets = array("i", [0, *accumulate(map(len, encoded))])
    chosen = choices_of(b"".join(encoded), memoryview(offsets), tasks)
    assert chosen == array("i", [choice_of(text, tasks) for text in texts])


@pytest.mark.parametrize("last", range(0, 0x110000, 0x1357))
def test_texts_of_every_plane_are_hashed(last: int) -> None:
    text = "word" + chr(last)
    assert text_hash(text) == defined_hash(text)


def test_text_hash_accepts_texts_only() -> None:
    for wrong in (b"word", 1, None):
        with pytest.raises((TypeError, AttributeError)):
            text_hash(wrong)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        choice_of("word", 0)


def test_texts_are_added_to_the_lists_of_their_places_up_to_the_first_that_has_none() -> None:
    texts = [f"word-{number}" for number in range(50)] + ["", "ä", "\ud800"]
    lists: list[list[Any] | None] = [[] for _ in range(7)]
    assert spread(texts, lists) == len(texts)
    assert lists == [[text for text in texts if text_hash(text) % 7 == place] for place in range(7)]
    assert spread(["a", "b", 3, "c"], [[]]) == 2
    assert spread([Word("a"), "b"], [[]]) == 0
    other = next(text for text in texts if text_hash(text) % 2 == 1)
    assert spread([other], [[], None]) == 0
    assert spread([], [[]]) == 0
