"""A topology promises to keep no more bytes without a commit than it may: spouts pause, say why, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.flaky_files import FlakyFiles, state_on_flaky_files
from tests.rewinding_spout import FromPosition
from topology_api import (
    Fields,
    Spout,
    StagedSink,
    TokenSink,
    Topology,
    TopologyBuilder,
    Tuple,
)
from worker.loop.epoch_worker import EpochWorker

#: Bytes of a value, the limit, and how many such values are that much.
SIZE, LIMIT_MB = 10_000, 1
MANY = LIMIT_MB * 2**20 // SIZE
TOTAL = 5 * MANY
#: How many values may be on their way when the spouts hear of the limit, with those of a tenth of a second.
MORE = 60


class Large(FromPosition):
    outputs = Fields("number", "text")

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total

    def next_tuple(self) -> float:
        if self.at < self.total:
            self.at += 1
            self.emit((self.at, "x" * SIZE))
        return 0.01


class LargeWithoutPosition(Spout):
    outputs = Large.outputs

    def open(self, context: object) -> None:
        self.at = 0

    def next_tuple(self) -> float:
        if self.at < TOTAL:
            self.at += 1
            self.emit((self.at, "x" * SIZE), message_id=self.at)
        return 0.01


class Small(LargeWithoutPosition):
    """Its tuples become large later."""

    outputs = Fields("number")

    def next_tuple(self) -> float:
        if self.at < TOTAL:
            self.at += 1
            self.emit((self.at,), message_id=self.at)
        return 0.01


class Outside:
    """What the sinks write to: numbers, and tokens."""

    away = False
    written: list[int] = []
    tokens: dict[str, int] = {}

    @classmethod
    def reach(cls) -> None:
        if cls.away:
            raise OSError("the outside is away")


class Writes(TokenSink):
    def row(self, tup: Tuple) -> Any:
        return tup["number"], "x" * SIZE

    def read_token(self, token: str) -> int:
        Outside.reach()
        return Outside.tokens.get(token, 0)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        Outside.reach()
        assert token is not None and epoch is not None
        if Outside.tokens.get(token, 0) != expected:
            return False
        Outside.tokens[token] = epoch
        Outside.written += [number for number, _ in rows]
        return True


class Stages(StagedSink):
    row = Writes.row

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        Outside.reach()
        return [number for number, _ in rows]

    def commit(self, epoch: int | None, handle: Any) -> None:
        Outside.written += handle

    def abort(self, epoch: int | None, handle: Any) -> None:
        """Nothing is kept elsewhere."""


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"away": False, "written": [], "tokens": {}}.items():
        monkeypatch.setattr(Outside, name, value)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[FlakyFiles]:
    return state_on_flaky_files(monkeypatch)


def to_sink(spout: Spout, sink: TokenSink | StagedSink) -> Topology:
    builder = TopologyBuilder("large")
    builder.set_spout("source", spout)
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    return builder.build()


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.state.path": f"file://{path}",
        "topology.epoch.secs": 0.3,
        "topology.epoch.uncommitted.mb": LIMIT_MB,
        **more,
    }


@pytest.mark.parametrize("spout", [Large(), LargeWithoutPosition(), Small()])
@pytest.mark.parametrize("sink", [Writes(), Stages()])
@pytest.mark.parametrize("workers", [1, 2])
def test_while_the_store_is_away_no_more_bytes_are_kept_than_may(
    tmp_path: Path, stores: list[FlakyFiles], spout: Spout, sink: TokenSink | StagedSink, workers: int
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(to_sink(spout, sink), conf_at(tmp_path, **{"topology.workers": workers}))
        cluster.advance(2)
        before = len(Outside.written)
        assert before > 0
        for store in stores:
            store.away = True
        cluster.advance(60)
        status = cluster.status("large")
        found = status.components["source"]
        assert found.emitted - before <= MANY + MORE
        assert found.idle.startswith("waits for the state store: ")
        assert status.epoch is not None
        [why] = [each.why for each in status.epoch.waits if each.what == "commit"]
        assert "topology.epoch.uncommitted.mb: 1" in why and "MB" in why
        for store in stores:
            store.away = False
        cluster.advance(60)
        assert sorted(Outside.written) == list(range(1, TOTAL + 1))
        assert cluster.status("large").components["source"].idle == "source empty"


def test_rows_that_the_outside_does_not_take_are_no_more_than_may_be_kept(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(to_sink(Large(), Writes()), conf_at(tmp_path))
        cluster.advance(1)
        before = len(Outside.written)
        Outside.away = True
        cluster.advance(60)
        status = cluster.status("large")
        assert status.components["source"].emitted - before <= MANY + MORE
        assert status.components["source"].idle == "waits for a commit" and status.epoch is not None
        [why] = [each.why for each in status.epoch.waits if each.what == "commit"]
        assert "most of them in sink[" in why
        number = status.epoch.number
        cluster.advance(60)
        assert cluster.status("large").epoch.number == number, "no further epoch would help"  # type: ignore[union-attr]
        Outside.away = False
        cluster.advance(60)
        assert sorted(Outside.written) == list(range(1, TOTAL + 1))


def test_after_a_rewind_at_the_limit_what_is_emitted_again_finds_room(
    tmp_path: Path, stores: list[FlakyFiles]
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(to_sink(LargeWithoutPosition(), Writes()), conf_at(tmp_path))
        cluster.advance(1)
        for store in stores:
            store.away = True
        cluster.advance(10)
        [worker] = cluster._host.workers("large")
        assert isinstance(worker, EpochWorker) and worker.uncommitted.bound.full
        for store in stores:
            store.away = False
        assert worker.lead is not None
        worker.lead.peer_gone("w7")
        cluster.advance(60)
        assert sorted(Outside.written) == list(range(1, TOTAL + 1))
        assert cluster.status("large").epoch.rewinds == 1  # type: ignore[union-attr]


def test_at_the_limit_an_epoch_ends_although_its_interval_is_not_over(tmp_path: Path) -> None:
    """The limit is no rate, either."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(to_sink(Large(), Writes()), conf_at(tmp_path, **{"topology.epoch.secs": 600}))
        cluster.advance(60)
        status = cluster.status("large")
        assert status.components["source"].emitted == TOTAL
        assert status.epoch is not None and 3 <= status.epoch.number <= 6
        assert len(Outside.written) >= TOTAL - MANY - MORE
