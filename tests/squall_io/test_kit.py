"""The parts that connectors share: what is settled, waiting, shares, secrets, codecs."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.kit.codecs import UnreadableMessage, decoder, encoder, format_problem
from squall_io.kit.in_flight import ItemsInFlight
from squall_io.kit.secrets import NoSecret, is_reference, resolved, secret_problem, url_problem
from squall_io.kit.shares import own_partitions, task_of, united
from squall_io.kit.waiting import FIRST_WAIT, LOG_AGAIN, LONGEST_WAIT, Waiting
from topology_api import FailTuple

# Settled.


@given(st.lists(st.integers(1, 3), max_size=30), st.randoms(use_true_random=False))
def test_everything_before_the_position_is_settled_and_the_item_at_it_is_not(
    steps: list[int], draw: Any
) -> None:
    flight, at, open_items = ItemsInFlight(7), 7, []
    for step in steps:
        flight.taken(at, at + step)
        open_items.append(at)
        at += step
        if draw.random() < 0.6:
            flight.settle(open_items.pop(draw.randrange(len(open_items))))
        assert flight.position == min(open_items, default=at)
        assert flight.is_settled == (not open_items) and flight.next == at
        assert flight.waiting >= len(open_items)
    while open_items:
        flight.settle(open_items.pop(draw.randrange(len(open_items))))
    assert (flight.position, flight.waiting) == (at, 0)


def test_what_is_settled_behind_an_unsettled_item_counts_as_waiting() -> None:
    flight = ItemsInFlight(0)
    for offset in range(5):
        flight.taken(offset, offset + 1)
    for offset in range(1, 5):
        flight.settle(offset)
    assert (flight.position, flight.waiting) == (0, 5)
    flight.settle(0)
    assert (flight.position, flight.waiting) == (5, 0)


@given(st.lists(st.integers(1, 5), max_size=30), st.randoms(use_true_random=False))
def test_many_at_once_are_the_same_as_one_by_one(sizes: list[int], draw: Any) -> None:
    one, many = ItemsInFlight(0), ItemsInFlight(0)
    at, open_items = 0, []
    for size in sizes:
        items = list(range(at, at + 2 * size, 2))
        at += 2 * size
        for item in items:
            one.taken(item, at)
        many.taken_many(items, at)
        open_items += items
        if draw.random() < 0.5:
            draw.shuffle(open_items)
        settled, open_items = open_items[:size], open_items[size:]
        for item in settled:
            one.settle(item)
        many.settle_many(settled)
        assert (one.position, one.waiting, one.next) == (many.position, many.waiting, many.next)


def test_items_that_were_not_emitted_after_all_are_taken_back() -> None:
    flight = ItemsInFlight(0)
    flight.taken_many([0, 1, 4, 5], 6)
    flight.settle_many([0])
    flight.take_back(4)
    assert (flight.position, flight.waiting, flight.next) == (1, 1, 4)
    flight.settle_many([1])
    assert (flight.position, flight.is_settled) == (4, True)


# Waiting.


class World:
    """A clock, a log, and what the status shows."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.time, self.shown, self.caplog = 100.0, [""], caplog
        self.waiting = Waiting("Kafka", logging.getLogger("t"), self.shown.append, lambda: self.time)

    def lines(self) -> list[str]:
        found = [record.getMessage() for record in self.caplog.records]
        self.caplog.clear()
        return found


def test_waits_double_up_to_a_bound_and_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog)
    waits = []
    for _ in range(20):
        waits.append(world.waiting.failed("no answer"))
        world.time += waits[-1]
    assert waits == [min(FIRST_WAIT * 2**number, LONGEST_WAIT) for number in range(20)]
    assert len(world.lines()) == 1 + int((world.time - 100) // LOG_AGAIN)
    assert world.shown[-1].startswith("waiting for Kafka for ") and world.shown[-1].endswith("s: no answer")
    assert world.waiting.seconds == world.time - 100 and world.waiting.reason == "no answer"


def test_the_end_of_an_outage_is_said_once_and_the_next_one_begins_afresh(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(caplog)
    world.waiting.succeeded()
    assert not world.lines() and world.shown == [""]
    world.waiting.failed("refused")
    world.waiting.failed("refused")
    world.time += 2.5
    world.waiting.succeeded()
    world.waiting.succeeded()
    assert world.lines() == ["waits for Kafka: refused", "Kafka answers again after 2.5 s"]
    assert world.shown[-1] == "" and world.waiting.seconds == 0 and world.waiting.reason == ""
    assert world.waiting.failed("refused") == FIRST_WAIT


# Shares.


@given(
    st.sets(st.tuples(st.sampled_from(["a", "b", "orders"]), st.integers(0, 30)), max_size=40),
    st.integers(1, 9),
)
def test_each_partition_has_one_task(partitions: set[tuple[str, int]], parallelism: int) -> None:
    shares = [own_partitions(partitions, index, parallelism) for index in range(parallelism)]
    assert sorted(each for share in shares for each in share) == sorted(partitions)


@given(st.integers(1, 40), st.integers(1, 9))
def test_tasks_have_the_same_number_of_partitions_or_one_more(partitions: int, parallelism: int) -> None:
    all_of_them = [("orders", number) for number in range(partitions)]
    counts = [len(own_partitions(all_of_them, index, parallelism)) for index in range(parallelism)]
    assert max(counts) - min(counts) <= 1


def test_a_name_has_the_task_that_other_programs_can_compute() -> None:
    assert [task_of(name, 4) for name in ("a", "b", "/var/log/x")] == [3, 1, 3]


def test_positions_of_all_tasks_are_one() -> None:
    assert united([{"a": 1}, {}, {"b": [2, 3]}]) == {"a": 1, "b": [2, 3]}


# Secrets.


def test_secrets_are_found_where_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    (tmp_path / "key").write_text("file secret\n")
    settings = {"password": "env:SHOP_PASSWORD", "key": f"file:{tmp_path}/key", "user": "app", "retries": 3}
    assert resolved(settings) == {"password": "s3cret", "key": "file secret", "user": "app", "retries": 3}


@pytest.mark.parametrize("value", ["hunter2", "env:", "env:A B", "env:hunter2!", "ENV:NAME", "file:", ""])
def test_a_secret_itself_is_refused_and_not_shown(value: str) -> None:
    problem = secret_problem("password", value)
    assert problem is not None and "env:NAME" in problem and not is_reference(value)
    assert "hunter2" not in problem and "A B" not in problem and "ENV:" not in problem


def test_other_arguments_are_refused_with_their_type() -> None:
    assert "password is a int" in str(secret_problem("password", 5))
    assert "absolute path" in str(secret_problem("password", "file:key"))
    assert secret_problem("password", "env:NAME") is secret_problem("password", "file:/run/key") is None


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * 70_000])
def test_a_secret_that_is_not_there_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoSecret, match=rf"key is file:{path}"):
        resolved({"key": f"file:{path}"})
    with pytest.raises(NoSecret, match="no SQUALL_TEST_MISSING: set it where the worker is started"):
        resolved({"key": "env:SQUALL_TEST_MISSING"})


def test_a_url_with_a_password_is_refused_and_not_shown() -> None:
    problem = url_problem("url", "redis://app:hunter2@host:6379/0", "password")
    assert problem is not None and "hunter2" not in problem and "password=env:NAME" in problem
    assert url_problem("url", "redis://app@host:6379/0", "password") is None
    for hidden in ("redis://app:hun/ter2@host:6379", "mqtt://app:hun#ter2@host", "nats://app:1?ter2@host"):
        problem = url_problem("url", hidden, "password")
        assert problem is not None and "ter2" not in problem
    assert "url is a int" in str(url_problem("url", 5, "password"))
    assert "no URL" in str(url_problem("url", "http://[::1", "password"))


# Codecs.


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_json_comes_back_and_is_read_by_others(value: Any) -> None:
    data = encoder("json")(value)
    assert decoder("json")(data) == json.loads(data) == value


def test_bytes_and_text() -> None:
    assert decoder("bytes")(b"\xff") == encoder("bytes")(b"\xff") == b"\xff"
    assert encoder("bytes")(memoryview(b"ab")) == b"ab"
    assert decoder("str")(encoder("str")("größe")) == "größe"


@pytest.mark.parametrize(
    ("format", "data", "why"),
    [
        ("str", b"a\xff", "no text in UTF-8"),
        ("json", b'{"a":', "no JSON"),
        ("json", b"[" * 100_000, "no JSON"),
    ],
)
def test_a_message_that_cannot_be_read_says_why(format: str, data: bytes, why: str) -> None:
    with pytest.raises(UnreadableMessage, match=why):
        decoder(format)(data)


@pytest.mark.parametrize(
    ("format", "value", "why"),
    [
        ("bytes", "text", "'text' .str. is not bytes"),
        ("str", b"x", "is not text"),
        ("str", "\ud800", "no valid Unicode"),
        ("json", object(), "cannot be written as JSON"),
        (len, [1], r"len returned 1 .int., not bytes"),
        (bytes.fromhex, "zz", "fromhex raises ValueError"),
    ],
)
def test_a_value_that_cannot_be_written_fails_its_tuple(
    format: str | Callable[[Any], bytes], value: Any, why: str
) -> None:
    with pytest.raises(FailTuple, match=why):
        encoder(format)(value)


def test_functions_of_users() -> None:
    assert decoder(bytes.hex)(b"\x01") == "01" and encoder(bytes.fromhex)("01") == b"\x01"
    with pytest.raises(UnreadableMessage, match="int raises ValueError"):
        decoder(int)(b"x")


def test_formats_travel_and_others_are_refused() -> None:
    assert format_problem("decode", "json") is format_problem("decode", bytes.hex) is None
    assert pickle.loads(pickle.dumps(("json", bytes.hex))) == ("json", bytes.hex)
    assert "decode is 'xml' (str): give 'bytes', 'str', 'json', a function, or a codec" in str(
        format_problem("decode", "xml")
    )
