"""What a stateful call has emitted is taken back if it raises: outboxes, trees and counters are those of a model that knows
only the calls that returned.
"""

from __future__ import annotations

from random import Random
from threading import get_ident
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api.tuples import SETTLED, Source, Tuple
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route
from worker.tasks.holding import MOST_KEPT, HoldingEmitter

#: (root of the tuple at hand, what the call emits: a word and its stream, whether the call returns).
CALLS = st.lists(
    st.tuples(
        st.sampled_from((0, 5, 6)),
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(("one", "all"))), max_size=6),
        st.booleans(),
    ),
    max_size=12,
)


def emitter_of(kind: type[HoldingEmitter] = HoldingEmitter) -> HoldingEmitter:
    """An emitter whose stream "one" goes to a task each, by key, and "all" to two tasks."""
    outputs = {}
    for stream, grouping in (("one", "fields"), ("all", "all")):
        source = Source("words", 3, stream, ("word",))
        outputs[stream] = StreamOutput(source, is_direct=False)
        boxes = {task: Outbox(source, task) for task in (7, 8)}
        add_route(outputs[stream], grouping, Reader(("word",), boxes, lambda task: False, 0))
        outputs[stream].shorten()
    emitter = kind("words", 3, outputs, Random(1))
    emitter.open_for(get_ident())
    return emitter


def tuple_of(root: int) -> Tuple:
    tup = Tuple.__new__(Tuple)
    tup._values, tup._source, tup._root, tup._xor, tup._more = (
        ("x",),
        Source("s", 1, "d", ("x",)),
        root,
        0,
        (),
    )
    return tup


def rows_in(emitter: HoldingEmitter) -> dict[tuple[str, int], list[tuple[Any, int]]]:
    """Row and root of each tuple in the outboxes, by stream and task."""
    return {
        (box.source.stream, box.target): list(zip(map(tuple, box.rows), box.roots))
        for box in emitter.boxes()
        if box.rows
    }


@given(CALLS, st.booleans())
def test_only_what_returned_calls_have_emitted_is_in_outboxes(
    calls: list[tuple[int, list[tuple[str, str]], bool]], holds_all: bool
) -> None:
    emitter, model = emitter_of(), emitter_of()
    emitter.holds_all = emitter.holds_all or holds_all
    for root, emissions, returns in calls:
        emitter.anchor, model.anchor = tup, other = tuple_of(root), tuple_of(root)
        before = emitter.emitted
        for word, stream in emissions:
            emitter.emit((word,), stream=stream)
            if returns:
                model.emit((word,), stream=stream)
        model.release()
        if returns:
            emitter.release()
        else:
            emitter.drop()
        assert not emitter.holds()
        assert emitter.emitted == before + len(emissions) * returns
        assert (tup._xor != 0) == (other._xor != 0)
        assert rows_in(emitter) == rows_in(model)
        filled = [box for box in emitter.boxes() if box.rows]
        assert sorted(map(id, emitter.dirty)) == sorted(map(id, filled)), "each once, and none that is empty"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=20))
def test_the_edges_of_a_tuple_are_those_of_its_rows(calls: list[tuple[str, bool]]) -> None:
    emitter, tup = emitter_of(), tuple_of(5)
    emitter.anchor = tup
    for word, returns in calls:
        emitter.emit((word,), stream="one")
        emitter.emit((word * 2,), stream="one")
        if returns:
            emitter.release()
        else:
            emitter.drop()
    edges = 0
    for box in emitter.boxes():
        for edge in box.edges:
            edges ^= edge
    assert tup._xor == edges


def test_a_call_that_emits_much_leaves_no_long_list() -> None:
    emitter = emitter_of()
    emitter.anchor = tuple_of(0)
    for number in range(MOST_KEPT + 1):
        emitter.emit((f"w{number}",), stream="one")
    assert not emitter.held, "they are in outboxes already"
    emitter.release()
    assert not emitter.boxes_filled
    assert sum(len(box) for box in emitter.boxes()) == emitter.emitted == MOST_KEPT + 1


def test_a_subclass_gets_each_emission_when_the_call_has_returned() -> None:
    class Sends(HoldingEmitter):
        def send(self, row: Any, boxes: Any, anchors: Any, stream: str) -> None:
            sent.append((row, stream))

    sent: list[Any] = []
    emitter = emitter_of(Sends)
    emitter.anchor = tuple_of(5)
    emitter.emit(("a",), stream="one")
    emitter.drop()
    emitter.emit(("b",), stream="one")
    assert not sent
    emitter.release()
    assert sent == [(("b",), "one")]


def test_an_acked_tuple_is_no_anchor() -> None:
    emitter = emitter_of()
    emitter.anchor = tuple_of(SETTLED)
    with pytest.raises(Exception, match="it was acked or failed already"):
        emitter.emit(("a",), stream="one")
    assert not emitter.holds() and not emitter.dirty
