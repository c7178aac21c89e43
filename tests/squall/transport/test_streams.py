"""Streams promise: a number for each, a source for each number of a task, and `BadFrame` for unknown ones."""

from __future__ import annotations

import tracemalloc

import pytest

from squall.transport.errors import BadFrame
from squall.transport.wire import Streams
from tests.squall.transport.topologies import many_streams, two_streams


def test_streams_are_numbered_in_the_order_of_declaration() -> None:
    assert Streams(two_streams(), {}).numbers == {("words", "default"): 0, ("words", "other"): 1}


def test_the_source_of_a_tasks_stream_is_the_same_object_each_time() -> None:
    streams = Streams(two_streams(), {1: "words"})
    found = streams.source(1, 1)
    assert (found.component, found.task, found.stream, found.fields) == ("words", 1, "other", ("a", "b"))
    assert streams.source(1, 1) is found


@pytest.mark.parametrize(("task", "number"), [(1, 2), (7, 0)])
def test_an_unknown_stream_or_task_is_a_bad_frame(task: int, number: int) -> None:
    with pytest.raises(BadFrame, match=f"stream {number} of task {task}"):
        Streams(two_streams(), {1: "words"}).source(task, number)


def test_later_tasks_are_known_once_they_are_added() -> None:
    streams = Streams(two_streams(), {1: "words"})
    streams.component_of = {1: "words", 7: "words"}
    assert streams.source(7, 0).task == 7


def test_a_new_source_costs_the_same_however_many_streams_there_are() -> None:
    streams = Streams(many_streams(), {1: "many"})
    tracemalloc.start()
    try:
        streams.source(1, 4_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000  # a copy of the streams takes 40,000 bytes
    finally:
        tracemalloc.stop()
