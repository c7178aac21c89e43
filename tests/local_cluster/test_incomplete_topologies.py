"""Reasons why a topology does not end, and how complete_topology reports them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from local_cluster import complete
from local_cluster.testing import ScriptedSpout, complete_topology
from tests.local_cluster.small_topologies import Idle, Keeps, Lines, Unlucky, one_bolt, word_count
from topology_api import (
    Bolt,
    Context,
    Fields,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)


def test_an_endless_spout_that_is_not_replaced_is_named_in_the_timeout() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(word_count(), timeout=0.3)
    assert "topology 'word-count' is not completed within 0.3 s" in str(caught.value)
    assert "spout 'lines' [1] has not called finish()" in str(caught.value)
    assert "emitted so far" in str(caught.value)


def test_a_spout_that_is_idle_for_ever_times_out_and_says_why_it_is_idle() -> None:
    with pytest.raises(
        TimeoutError, match=r"has not called finish\(\), 0 emitted so far, idle: source empty"
    ):
        complete_topology(word_count(Idle()), timeout=2.0)


class Echoes(Bolt):
    """Sends its tuples to itself, for ever."""

    outputs = Fields("x")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],))


def test_a_cycle_that_never_rests_times_out() -> None:
    builder = TopologyBuilder("cycle")
    builder.set_spout("script", ScriptedSpout("x", [(1,)]))
    builder.set_bolt("echo", Echoes()).shuffle_grouping("script").shuffle_grouping("echo")
    with pytest.raises(TimeoutError, match=r"spout 'script' \[1\] has 1 open tree"):
        complete_topology(builder.build(), timeout=0.3)


def test_a_topology_in_which_nothing_can_happen_any_more_ends_at_once() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(Keeps(), [(1,), (2,)]),
            conf={"topology.enable.message.timeouts": False},
            timeout=3600,
        )
    text = str(caught.value)
    assert "nothing can happen any more" in text
    assert "spout 'script' [1] has 2 open tree(s)" in text
    assert "bolt 'bolt' [2] has executed 2 tuple(s) that it neither acked nor failed" in text


class Forever(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("timeouts", [True, False])
def test_an_async_call_that_never_ends_is_named_at_once(timeouts: bool) -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(Forever(), [(1,)]),
            conf={"topology.enable.message.timeouts": timeouts},
            timeout=3600,
        )
    assert "nothing can happen any more" in str(caught.value)
    assert "call(s) of bolt 'bolt' [2] have not ended" in str(caught.value)


class KeepsAndRaises(Keeps):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup[0] == 2:
            raise ValueError("the last error")


def test_the_timeout_has_the_last_error_of_user_code() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(KeepsAndRaises(), [(1,), (2,)]),
            conf={"topology.enable.message.timeouts": False},
        )
    assert "the last error" in str(caught.value)
    assert "test_incomplete_topologies.py" in str(caught.value)


class Unprepared(Bolt):
    def prepare(self, context: Context) -> None:
        raise OSError("no database here")

    def execute(self, tup: Tuple) -> None:
        """Never returns."""


def test_a_topology_that_fails_raises_with_the_line_at_fault() -> None:
    with pytest.raises(TopologyFailed, match=r"prepare\(\) raised OSError: no database here") as caught:
        complete_topology(one_bolt(Unprepared(), [(1,)]))
    assert "test_incomplete_topologies.py" in str(caught.value)


def test_with_on_error_crash_the_first_error_fails_the_topology() -> None:
    with pytest.raises(TopologyFailed, match="unlucky 1"):
        complete_topology(one_bolt(Unlucky({1: 1}), [(1,)]), conf={"topology.on.error": "crash"})


class Closes(Bolt):
    executed = 0
    calls: list[str] = []

    def execute(self, tup: Tuple) -> None:
        Closes.executed += 1

    def cleanup(self) -> None:
        self.calls.append("cleanup")


def test_components_are_cleaned_up_whether_the_topology_completes_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Closes.calls.clear()
    complete_topology(one_bolt(Closes(), [(1,)]))
    assert Closes.calls == ["cleanup"]
    builder = TopologyBuilder("endless")
    builder.set_spout("lines", Lines())
    builder.set_bolt("closes", Closes()).shuffle_grouping("lines")
    # A clock on which each executed tuple takes a second, so that the time is over after the bolt was prepared.
    monkeypatch.setattr(complete, "time", SimpleNamespace(monotonic=lambda: float(Closes.executed)))
    with pytest.raises(TimeoutError):
        complete_topology(builder.build(), timeout=10)
    assert Closes.calls == ["cleanup"] * 2
