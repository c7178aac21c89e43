"""Spout, Bolt and BatchBolt as bases: no constructor, no state, and calls that reach the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topology_api import BatchBolt, Bolt, EmitError, Fields, Replay, Spout, SquallError


class Task:
    """Records the calls that reach the runtime."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))


class Numbers(Spout):
    outputs = Fields("n")

    def next_tuple(self) -> None:
        self.emit((1,), message_id=1)


class Double(Bolt):
    outputs = Fields("n")

    def __init__(self, factor: int) -> None:  # no super().__init__() anywhere
        self.factor = factor

    def execute(self, tup: Any) -> None:
        self.emit((tup[0] * self.factor,))


def test_defaults_are_those_of_the_page() -> None:
    assert (Spout.outputs, Spout.replay, Spout.threaded) == ({}, Replay(), False)
    assert (Bolt.outputs, Bolt.auto_anchor, Bolt.auto_ack, Bolt.threaded) == ({}, True, True, False)
    assert (Bolt.max_concurrency, Bolt.tick_interval) == (100, None)
    assert (BatchBolt.batch_size, BatchBolt.batch_interval) == (1000, 1.0)


def test_calls_of_a_spout_reach_its_task() -> None:
    spout = Numbers()
    task = vars(spout)["_squall_task"] = Task()
    spout.next_tuple()
    spout.emit_direct(3, (2,), message_id="b", stream="s")
    spout.finish()
    assert task.calls == [
        ("emit", ((1,),), {"message_id": 1, "stream": "default"}),
        ("emit_direct", (3, (2,)), {"message_id": "b", "stream": "s"}),
        ("finish", (), {}),
    ]


def test_calls_of_a_bolt_reach_its_task() -> None:
    bolt = Double(2)
    task = vars(bolt)["_squall_task"] = Task()
    tup: Any = (21,)
    bolt.execute(tup)
    bolt.emit_direct(3, (2,), anchors=())
    bolt.ack(tup)
    bolt.fail(tup, "why")
    bolt.reset_timeout(tup)
    assert task.calls == [
        ("emit", ((42,),), {"anchors": None, "stream": "default"}),
        ("emit_direct", (3, (2,)), {"anchors": (), "stream": "default"}),
        ("ack", (tup,), {}),
        ("fail", (tup, "why"), {}),
        ("reset_timeout", (tup,), {}),
    ]


def test_a_call_without_a_task_names_where_it_works() -> None:
    with pytest.raises(EmitError, match=r"Numbers\.emit .* call it in open or later"):
        Numbers().next_tuple()
    with pytest.raises(EmitError, match=r"Double\.ack .* call it in prepare or later"):
        Double(1).ack(None)  # type: ignore[arg-type]


def test_a_component_that_answers_every_attribute_does_not_fool_the_base() -> None:
    class Greedy(Double):
        def __getattr__(self, name: str) -> Any:
            return None

    with pytest.raises(EmitError):
        Greedy(1).emit((1,))


def test_optional_methods_do_nothing_and_missing_ones_are_reported() -> None:
    spout, bolt, batch = Spout(), Bolt(), BatchBolt()
    nothing: Any = None
    optional: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (spout.open, (nothing,)),
        (spout.ack, (1,)),
        (spout.fail, (1, nothing)),
        (spout.activate, ()),
        (spout.deactivate, ()),
        (spout.close, ()),
        (bolt.prepare, (nothing,)),
        (bolt.tick, ()),
        (bolt.end_of_input, ()),
        (bolt.cleanup, ()),
    ]
    assert [method(*arguments) for method, arguments in optional] == [None] * len(optional)
    with pytest.raises(SquallError, match="next_tuple"):
        spout.next_tuple()
    with pytest.raises(SquallError, match="execute"):
        bolt.execute(nothing)
    with pytest.raises(SquallError, match="execute_batch"):
        batch.execute_batch(())
