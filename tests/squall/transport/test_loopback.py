"""The loopback promises: frames arrive in order at their worker, encoded or not."""

from __future__ import annotations

from typing import Any

import pytest

from squall.transport.carriers.loopback import Loopback
from squall.transport.frames import Batch, Control, Frame
from squall.transport.id_columns import Ids
from squall.transport.wire import Streams
from tests.squall.transport.topologies import two_streams
from topology_api.tuples import Source

COMPONENTS = {1: "words", 2: "count"}


def batch(rows: list[tuple[Any, ...]], number: int = 1) -> Batch:
    made = Batch(
        Source("words", 1, "default", ("word",)), 2, rows, [9] * len(rows), list(range(1, len(rows) + 1))
    )
    made.sender, made.frame = "w1", number
    return made


@pytest.fixture(params=[False, True], ids=["objects", "encoded"])
def loopback(request: pytest.FixtureRequest) -> Loopback:
    return Loopback(Streams(two_streams(), COMPONENTS), encoded=request.param)


def test_frames_arrive_in_order_at_their_worker(loopback: Loopback) -> None:
    first: list[Frame] = []
    second: list[Frame] = []
    loopback.join("w1", first.append)
    loopback.join("w2", second.append)
    for number in range(1, 4):
        loopback.send("w2", batch([(f"word{number}",)], number))
    loopback.send("w1", Control("w2", grants={2: 7}))
    assert [frame.rows for frame in second if isinstance(frame, Batch)] == [
        [("word1",)],
        [("word2",)],
        [("word3",)],
    ]
    assert [frame.frame for frame in second if isinstance(frame, Batch)] == [1, 2, 3]
    assert first == [Control("w2", grants={2: 7})]


def test_frames_to_a_worker_that_left_are_lost_without_harm(loopback: Loopback) -> None:
    got: list[Frame] = []
    loopback.join("w2", got.append)
    loopback.leave("w2")
    loopback.send("w2", batch([("a",)]))
    assert got == []


def test_a_value_that_cannot_be_encoded_fails_its_tuple_at_the_sender_and_the_others_go_on() -> None:
    loopback = Loopback(Streams(two_streams(), COMPONENTS), encoded=True)
    sender: list[Frame] = []
    receiver: list[Frame] = []
    loopback.join("w1", sender.append)
    loopback.join("w2", receiver.append)
    sent = batch([("a",), (lambda: None,), ("c",)])
    sent.roots = Ids([10, 11, 12])
    sent.more = {1: ((20, 5),), 2: ((21, 6),)}
    loopback.send("w2", sent)
    (arrived,) = receiver
    assert isinstance(arrived, Batch)
    assert arrived.rows == [("a",), ("c",)]
    assert arrived.roots == [10, 12]
    assert arrived.more == {1: ((21, 6),)}
    (control,) = sender
    assert isinstance(control, Control)
    assert [root for root, _ in control.failures] == [11, 20]
    assert "'word'" in (control.failures[0][1].error or "")


class Unread:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_value_that_cannot_be_decoded_fails_the_tuples_of_its_batch_at_the_receiver() -> None:
    loopback = Loopback(Streams(two_streams(), COMPONENTS), encoded=True)
    receiver: list[Frame] = []
    loopback.join("w2", receiver.append)
    sent = batch([("a",), (Unread(),)])
    sent.roots = Ids([10, 11])
    loopback.send("w2", sent)
    note, arrived = receiver
    assert isinstance(note, Control) and isinstance(arrived, Batch)
    assert [(root, failure.component, failure.task) for root, failure in note.failures] == [
        (10, "count", 2),
        (11, "count", 2),
    ]
    assert arrived.frame == sent.frame and not len(arrived.rows), "its number is needed for the grant"


def test_encoded_sources_know_component_stream_and_fields() -> None:
    loopback = Loopback(Streams(two_streams(), COMPONENTS), encoded=True)
    got: list[Frame] = []
    loopback.join("w2", got.append)
    made = Batch(Source("words", 1, "other", ("a", "b")), 2, [(1, 2)], [0], [0])
    made.sender = "w1"
    loopback.send("w2", made)
    (arrived,) = got
    assert isinstance(arrived, Batch)
    assert (arrived.source.component, arrived.source.stream, tuple(arrived.source.fields)) == (
        "words",
        "other",
        ("a", "b"),
    )
