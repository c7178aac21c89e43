"""Changes of PostgreSQL without a server: messages, values, transactions, and what a slot may forget."""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.postgres.confirming import UNDER_WAY, Emitted, KeptPositions
from squall_io.postgres.pgoutput import UNCHANGED, UnknownMessage, parsed
from squall_io.postgres.transactions import ChangeReader, LostChanges, lsn_of, lsn_text
from squall_io.postgres.values import value_of

NOON = datetime(2000, 1, 1, 12, tzinfo=timezone.utc)


def begin(lsn: int) -> bytes:
    return b"B" + struct.pack("!QqI", lsn, 12 * 3600 * 10**6, 7)


def commit(lsn: int, after: int) -> bytes:
    return b"C" + struct.pack("!BQQq", 0, lsn, after, 0)


def relation(number: int, name: str, *columns: tuple[str, int, int]) -> bytes:
    made = (
        b"R"
        + struct.pack("!I", number)
        + b"public\0"
        + name.encode()
        + b"\0d"
        + struct.pack("!H", len(columns))
    )
    for column, kind, flags in columns:
        made += bytes([flags]) + column.encode() + b"\0" + struct.pack("!Ii", kind, -1)
    return made


def row(*values: Any) -> bytes:
    made = struct.pack("!H", len(values))
    for value in values:
        if value is None or value is UNCHANGED:
            made += b"n" if value is None else b"u"
        else:
            made += b"t" + struct.pack("!I", len(value.encode())) + value.encode()
    return made


def change(kind: bytes, number: int, *parts: tuple[bytes, tuple[Any, ...]]) -> bytes:
    return kind + struct.pack("!I", number) + b"".join(name + row(*values) for name, values in parts)


ORDERS = relation(5, "orders", ("id", 23, 1), ("name", 25, 0), ("doc", 25, 0))
INSERT = change(b"I", 5, (b"N", ("1", None, "größe")))


def read(reader: ChangeReader, *messages: bytes) -> list[tuple[Any, ...]]:
    found = [each for message in messages for each in reader.next(parsed(message))]
    return [(each.op, each.row, each.old) for each in found]


def reader(lsn: int = 0, done: int = 0) -> ChangeReader:
    return ChangeReader(lsn, done, lambda text: None)


def test_changes_have_their_columns_by_name() -> None:
    own = reader()
    found = read(
        own,
        begin(90),
        ORDERS,
        INSERT,
        change(b"U", 5, (b"N", ("1", "b", UNCHANGED))),
        change(b"U", 5, (b"K", ("1", None, None)), (b"N", ("2", "b", "c"))),
        change(b"U", 5, (b"O", ("2", "b", "large")), (b"N", ("2", "c", UNCHANGED))),
        change(b"D", 5, (b"K", ("2", None, None))),
        b"T" + struct.pack("!IBI", 1, 0, 5),
        commit(90, 120),
    )
    assert found == [
        ("insert", {"id": 1, "name": None, "doc": "größe"}, None),
        ("update", {"id": 1, "name": "b"}, None),
        ("update", {"id": 2, "name": "b", "doc": "c"}, {"id": 1}),
        ("update", {"id": 2, "name": "c", "doc": "large"}, {"id": 2, "name": "b", "doc": "large"}),
        ("delete", None, {"id": 2}),
        ("truncate", None, None),
    ]
    assert (own.lsn, own.read) == (120, 0)
    first = reader()
    (only,) = [each for message in (begin(90), ORDERS, INSERT) for each in first.next(parsed(message))]
    assert (only.table, only.lsn, only.at) == ("public.orders", 90, NOON)


@pytest.mark.parametrize("done", range(4))
def test_a_transaction_goes_on_where_it_was_left(done: int) -> None:
    inserts = [change(b"I", 5, (b"N", (str(number), None, None))) for number in range(3)]
    one = reader()
    read(one, begin(90), ORDERS, *inserts[:done])
    assert (one.lsn, one.read) == (90, done)
    two = reader(one.lsn, one.read)
    found = read(two, begin(90), ORDERS, *inserts, commit(90, 120))
    assert [values["id"] for _, values, _ in found] == list(range(done, 3))
    one.restart()
    assert [values["id"] for _, values, _ in read(one, begin(90), ORDERS, *inserts)] == list(range(done, 3))


def test_a_transaction_that_does_not_come_again_is_lost() -> None:
    with pytest.raises(LostChanges, match="commit 0/5A, of which 2 changes were read, does not come again"):
        read(reader(90, 2), begin(130))


def test_an_idle_server_moves_the_position_between_transactions_only() -> None:
    own = reader(50)
    own.idle(70)
    assert own.lsn == 70
    read(own, begin(90), ORDERS, INSERT)
    own.idle(200)
    assert (own.lsn, own.read) == (90, 1)
    own.restart()  # the connection broke within the transaction
    own.idle(200)
    assert (own.lsn, own.read) == (90, 1)
    read(own, begin(90), ORDERS, INSERT, commit(90, 120))
    own.idle(100)
    assert own.lsn == 120


def test_a_changed_schema_is_said_once() -> None:
    said: list[str] = []
    own = ChangeReader(0, 0, said.append)
    other = relation(5, "orders", ("id", 20, 1), ("title", 25, 0), ("doc", 25, 0))
    read(own, begin(90), ORDERS, ORDERS, other, other)
    assert said == ["public.orders: new columns title; no columns name any more; other types of id"]


@given(st.binary(max_size=60), st.sampled_from([INSERT, ORDERS, begin(1), commit(1, 2)]), st.integers(0, 60))
def test_broken_messages_are_refused_and_break_nothing_else(noise: bytes, good: bytes, cut: int) -> None:
    for data in (noise, good[:cut], good[:cut] + noise):
        try:
            parsed(data)
        except UnknownMessage as error:
            assert "cannot be read" in str(error) or "unknown kind" in str(error)


@pytest.mark.parametrize("cut", range(1, len(INSERT)))
def test_a_row_that_is_cut_off_is_no_row(cut: int) -> None:
    with pytest.raises(UnknownMessage):
        parsed(INSERT[:cut])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (16, "t", True),
        (17, "\\x00ff", b"\0\xff"),
        (20, "-9223372036854775808", -(2**63)),
        (25, "text", "text"),
        (114, '{"a": [1, null]}', {"a": [1, None]}),
        (701, "1e+300", 1e300),
        (1082, "2024-02-29", date(2024, 2, 29)),
        (1082, "infinity", "infinity"),
        (1082, "0044-03-15 BC", "0044-03-15 BC"),
        (1083, "23:59:59.5", time(23, 59, 59, 500_000)),
        (1114, "2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3)),
        (1114, "20240-02-29 01:02:03", "20240-02-29 01:02:03"),
        (1184, "2024-02-29 01:02:03.123+00", datetime(2024, 2, 29, 1, 2, 3, 123_000, timezone.utc)),
        (1184, "2024-02-29 01:02:03+05:30", "2024-02-29 01:02:03+05:30"),
        (1700, "12345678901234567890.10", Decimal("12345678901234567890.10")),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (3802, "no json", "no json"),
        (1007, "{1,2}", "{1,2}"),
        (99_999, "of an extension", "of an extension"),
    ],
)  # fmt: skip
def test_values(kind: int, text: str, value: Any) -> None:
    found = value_of(text, kind)
    assert found == value and type(found) is type(value)


def test_places_in_the_log_have_a_text() -> None:
    for lsn in (0, 1, 2**32 + 0xAB, 2**64 - 1):
        assert lsn_of(lsn_text(lsn)) == lsn
    assert lsn_text(0x16B374D848) == "16/B374D848"


# What a slot may forget.


@given(st.lists(st.integers(1, 3), max_size=20), st.randoms(use_true_random=False))
def test_the_place_is_the_commit_of_the_first_change_that_is_not_settled(sizes: list[int], draw: Any) -> None:
    emitted, open_changes, lsn = Emitted(5), {}, 5
    for size in sizes:
        lsn += 10
        for _ in range(size):
            open_changes[emitted.add(lsn)] = lsn
            while open_changes and draw.random() < 0.5:
                number = draw.choice(sorted(open_changes))
                emitted.settle(number)
                del open_changes[number]
            assert emitted.place(lsn) == min(open_changes.values(), default=lsn)
        lsn += 3
        assert emitted.place(lsn) == min(open_changes.values(), default=lsn)


def test_changes_from_before_a_rewind_settle_nothing() -> None:
    emitted = Emitted(5)
    before = [emitted.add(10) for _ in range(3)]
    emitted.restart(10)
    again = [emitted.add(10) for _ in range(3)]
    for number in before:
        emitted.settle(number)
    assert emitted.place(20) == 10
    for number in again:
        emitted.settle(number)
    assert emitted.place(20) == 20


def test_a_slot_forgets_nothing_that_a_kept_commit_needs() -> None:
    keep = 3
    kept = KeptPositions(keep)
    kept.restart(0, 100)
    places = []
    for epoch in range(1, 12):
        kept.ask(10 * epoch, 100 + epoch)
        places.append(kept.place(10 * epoch))  # all that was asked for is committed
    first = keep + UNDER_WAY
    assert places == [0] * (first - 2) + [100 + epoch for epoch in range(12 - first + 1)]
    kept = KeptPositions(keep)
    kept.restart(0, 100)
    for epoch in range(1, 30):
        kept.ask(10 * epoch, 100 + epoch)
        assert kept.place(10) == 0  # no commit since the first
