"""Committing sinks promise: `row` takes the tuples of the next epoch while another call of the sink waits for the outside; all
other calls are made one after the other, in one thread, from `prepare` to `cleanup`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import eventually
from tests.rewinding_spout import FromPosition
from topology_api import Context, Fields, StagedSink, TokenSink, TopologyBuilder, Tuple
from topology_api.errors import TopologyFailed

#: Seconds after which a call that should have gone on long ago goes on.
CAP = 60.0


class Numbers(FromPosition):
    outputs = Fields("number")

    def next_tuple(self) -> float:
        self.at += 1
        self.emit((self.at,), message_id=self.at)
        return 0.001


class Calls:
    """What the sinks of this process have done. A call named `waiting` waits for `gate`; one named `raising` raises once."""

    def __init__(self) -> None:
        self.waiting = self.raising = ""
        self.error: type[BaseException] = OSError
        self.entered, self.gate = threading.Event(), threading.Event()
        self.rows = 0
        self.shown: list[int] = []
        self.tokens: dict[str, int] = {}
        #: (name, thread) of each call other than `row`, and the threads of `row`.
        self.made: list[tuple[str, int]] = []
        self.threads_of_rows: set[int] = set()
        self.running = 0
        self.most = 0

    def make(self, name: str) -> None:
        """A call begins and, as far as it is alone, ends."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.made.append((name, threading.get_ident()))
        if name == self.waiting:
            self.entered.set()
            self.gate.wait(CAP)
        self.running -= 1
        if name == self.raising:
            self.raising = ""
            raise self.error(f"{name} has failed")


CALLS = Calls()


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    made = Calls()
    monkeypatch.setitem(globals(), "CALLS", made)
    yield made
    made.gate.set()


def number_of(tup: Tuple) -> int:
    CALLS.threads_of_rows.add(threading.get_ident())
    CALLS.rows += 1
    return int(tup["number"])


class Stages(StagedSink):
    def prepare(self, context: Context) -> None:
        CALLS.make("prepare")

    def row(self, tup: Tuple) -> int:
        return number_of(tup)

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        CALLS.make("stage")
        return rows

    def commit(self, epoch: int | None, handle: Any) -> None:
        CALLS.make("commit")
        CALLS.shown += handle

    def abort(self, epoch: int | None, handle: Any) -> None:
        CALLS.make("abort")

    def cleanup(self) -> None:
        CALLS.make("cleanup")


class NoHandle(Stages):
    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        return object()


class Writes(TokenSink):
    prepare = Stages.prepare
    row = Stages.row
    cleanup = Stages.cleanup

    def read_token(self, token: str) -> int:
        CALLS.make("read_token")
        return CALLS.tokens.get(token, 0)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        CALLS.make("write")
        assert token is not None and epoch is not None
        if CALLS.tokens.get(token, 0) != expected:
            return False
        CALLS.tokens[token] = epoch
        CALLS.shown += rows
        return True


EACH_CALL = pytest.mark.parametrize(
    ("sink", "name"),
    [(Stages(), "stage"), (Stages(), "commit"), (Writes(), "read_token"), (Writes(), "write")],
)


def submit(cluster: LocalCluster, path: Path, sink: StagedSink | TokenSink) -> None:
    builder = TopologyBuilder("numbers")
    builder.set_spout("source", Numbers())
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    conf = {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.1}
    cluster.submit(builder.build(), conf)


@EACH_CALL
def test_rows_are_taken_while_another_call_waits(
    tmp_path: Path, calls: Calls, sink: StagedSink | TokenSink, name: str
) -> None:
    calls.waiting = name
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, sink)
        assert calls.entered.wait(CAP)
        taken = calls.rows
        eventually(lambda: calls.rows >= taken + 50, CAP)
        assert not calls.shown and not calls.gate.is_set()
        calls.gate.set()
        eventually(lambda: len(calls.shown) > taken + 50, CAP)
    assert calls.shown == list(range(1, len(calls.shown) + 1)), "each once, in order"


@EACH_CALL
def test_all_calls_but_row_are_made_in_one_thread_one_after_the_other(
    tmp_path: Path, calls: Calls, sink: StagedSink | TokenSink, name: str
) -> None:
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, sink)
        eventually(
            lambda: [each for each, _ in calls.made].count(name) >= (1 if name == "read_token" else 5), CAP
        )
    names = [each for each, _ in calls.made]
    assert (names[0], names[-1], names.count("prepare"), names.count("cleanup")) == (
        "prepare",
        "cleanup",
        1,
        1,
    )
    [thread] = {each for _, each in calls.made}
    assert len(calls.threads_of_rows) == 1 and thread not in calls.threads_of_rows
    assert calls.most == 1


@EACH_CALL
def test_a_call_that_raises_beside_the_rows_is_reported_and_made_again(
    tmp_path: Path, calls: Calls, sink: StagedSink | TokenSink, name: str
) -> None:
    calls.raising = name
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, sink)
        eventually(lambda: len(calls.shown) > 50, CAP)
        status = cluster.status("numbers")
        assert status.components["sink"].errors == 1 and f"{name} has failed" in str(status.errors)
    assert calls.shown == list(range(1, len(calls.shown) + 1))


def test_a_call_beside_the_rows_without_memory_ends_the_topology(tmp_path: Path, calls: Calls) -> None:
    calls.raising, calls.error = "stage", MemoryError
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, Stages())
        with pytest.raises(TopologyFailed, match="MemoryError: stage has failed"):
            cluster.wait("numbers", CAP)


def test_a_handle_that_cannot_be_kept_ends_the_topology_beside_the_rows(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, NoHandle())
        with pytest.raises(TopologyFailed, match="is no msgpack value"):
            cluster.wait("numbers", CAP)


def test_the_end_of_a_worker_waits_for_the_call_and_then_cleans_up(tmp_path: Path, calls: Calls) -> None:
    calls.waiting = "commit"
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, Stages())
        assert calls.entered.wait(CAP)
        threading.Timer(0.2, calls.gate.set).start()
    names = [each for each, _ in calls.made]
    assert names[-1] == "cleanup" and calls.most == 1 and calls.shown


def test_a_long_call_beside_the_rows_is_in_the_status(tmp_path: Path, calls: Calls) -> None:
    calls.waiting = "stage"
    with LocalCluster() as cluster:
        submit(cluster, tmp_path, Stages())
        assert calls.entered.wait(CAP)
        eventually(lambda: cluster.status("numbers").components["sink"].loads[0].call_since is not None, CAP)
        calls.waiting = ""
        calls.gate.set()
        eventually(lambda: cluster.status("numbers").components["sink"].loads[0].call_since is None, CAP)
