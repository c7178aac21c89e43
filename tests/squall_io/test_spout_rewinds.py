"""HdfsLines and CommittedRows in topologies with a state path: each line and row counts once, from the source on."""

from __future__ import annotations

import io
import json
import logging
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from local_cluster import LocalCluster
from squall.stores.files import FilesUnavailable
from squall_cli.main import squall
from squall_io.spark import CommittedRows, HdfsLines
from squall_io.spark.spouts import reading_spout
from squall_io.spark.spouts.positions import EmittedSoFar, LostInput, PositionRecord, digest_of_snapshot
from squall_io.spark.spouts.steady_stores import open_steady
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from topology_api import Bolt, Replay, StatefulBolt, TokenSink, Topology, TopologyBuilder, Tuple, ValueState
from topology_api.guarantees import guarantees

REPLAY = Replay(max_attempts=30, first_delay=0.01, max_delay=0.1)


@pytest.fixture(autouse=True)
def one_emission_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a rewind finds units that are half emitted."""
    monkeypatch.setattr(reading_spout, "AT_ONCE", 1)


class SlowLines(HdfsLines):
    """Emits some 30 lines a second."""

    def next_tuple(self) -> float:
        return max(super().next_tuple() or 0.0, 0.03)


class SlowRows(CommittedRows):
    """Emits some 30 rows a second."""

    def next_tuple(self) -> float:
        return max(super().next_tuple() or 0.0, 0.03)


class Pass(Bolt):
    """Raises for some lines the first times, after it has emitted."""

    outputs = ("line",)

    def prepare(self, context: Any) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["line"],))
        if self.random.random() < 0.05:
            raise ValueError("as the test has it")


class CountLines(StatefulBolt):
    key = "line"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1


def topology(spout: Any, tasks: int = 3) -> Topology:
    builder = TopologyBuilder("reader")
    builder.set_spout("lines", spout, parallelism=tasks)
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("lines")
    builder.set_bolt("count", CountLines(), 2).fields_grouping("pass", "line")
    return builder.build()


def conf_at(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.3,
        "topology.max.spout.pending": 4,
        **more,
    }


def counted(tmp_path: Path) -> dict[str, int]:
    """How often each line was counted, in the last commit."""
    command = ["state", "export", f"{tmp_path}/state/reader", "--component", "count"]
    result = CliRunner().invoke(squall, command, prog_name="squall")
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return {row["key"]: row["value"] for row in rows if row["kind"] == "ValueState"}


def write(folder: Path, numbers: range, lines: int = 40) -> list[str]:
    written = []
    folder.mkdir(exist_ok=True)
    for number in numbers:
        here = [f"{number}/{line} {'x' * 60}" for line in range(lines)]
        (folder / f"{number:03}.txt").write_text("".join(f"{line}\n" for line in here))
        written += here
    return written


def test_a_call_that_emits_more_than_may_be_pending_holds_up_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_spout, "AT_ONCE", 64)
    written = write(tmp_path / "text", range(3), 100)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(HdfsLines(f"{tmp_path}/text", replay=REPLAY)), conf_at(tmp_path))
        cluster.advance(60)
        assert cluster.last_status("reader").state == "COMPLETED"
    assert counted(tmp_path) == dict.fromkeys(written, 1)


def positions(tmp_path: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(squall, ["state", "list", f"{tmp_path}/state", "--json"], prog_name="squall")
    [lines] = [each for each in json.loads(result.stdout)["components"] if each["component"] == "lines"]
    return list(lines["positions"].values())


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 20))])
def test_each_line_counts_once_however_often_the_topology_starts_again(
    tmp_path: Path, seed: int, follow: bool
) -> None:
    draw, text = random.Random(seed), tmp_path / "text"
    wanted = write(text, range(4))
    for start in range(4):
        if start and follow:
            wanted += write(text, range(4 * start, 4 * start + 2))
        spout = SlowLines(str(text), split_bytes=1024, follow=follow, replay=REPLAY)
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            conf = conf_at(tmp_path, **{"topology.workers": draw.choice([1, 2])})
            cluster.submit(topology(spout, draw.choice([3, 3, 1, 4])), conf)
            cluster.advance(60 if start == 3 else draw.uniform(0.1, 1.5))
            status = cluster.last_status("reader")
            assert status.errors == () or "as the test has it" in status.errors[-1].render()
    assert status.state == ("ACTIVE" if follow else "COMPLETED")
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)
    folders = {position["folder"] for position in positions(tmp_path)} if follow else set()
    assert len(folders) == (1 if follow else 0), "all tasks go on with what the first start has found"


def test_positions_of_earlier_runs_without_a_state_path_are_where_it_begins(tmp_path: Path) -> None:
    text, folder = tmp_path / "text", str(tmp_path / "positions")
    write(text, range(3))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(HdfsLines(str(text), split_bytes=1024, positions=folder, replay=REPLAY), 2))
        cluster.advance(200)
        assert cluster.last_status("reader").state == "COMPLETED"
    wanted = write(text, range(3, 6))
    before = {path: path.read_bytes() for path in (tmp_path / "positions" / "tasks").iterdir()}
    for secs in (0.6, 60):
        with LocalCluster(simulated_time=True) as cluster:
            spout = SlowLines(str(text), split_bytes=1024, positions=folder, replay=REPLAY)
            cluster.submit(topology(spout), conf_at(tmp_path))
            cluster.advance(secs)
            state = cluster.last_status("reader").state
    assert state == "COMPLETED"
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)
    after = {path: path.read_bytes() for path in (tmp_path / "positions" / "tasks").iterdir()}
    assert after == before, "positions are in the commits, not there"


def test_a_task_that_had_finished_keeps_its_position_for_another_number_of_tasks(tmp_path: Path) -> None:
    text = tmp_path / "text"
    wanted = write(text, range(1), lines=5) + write(text, range(1, 2), lines=100)
    for tasks, secs in ((2, 0.8), (2, 0.8), (2, 0.5), (1, 60)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(SlowLines(str(text), replay=REPLAY), tasks), conf_at(tmp_path))
            cluster.advance(secs)
            state = cluster.last_status("reader").state
            assert state == ("ACTIVE" if secs < 1 else "COMPLETED")
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)


def test_what_the_positions_refer_to_must_be_there(tmp_path: Path) -> None:
    text = tmp_path / "text"
    write(text, range(4))
    spout = SlowLines(str(text), split_bytes=1024, replay=REPLAY)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout), conf_at(tmp_path))
        cluster.advance(0.7)
    [snapshot] = (text / "_squall" / "readers").glob("*/snapshots/*.json")
    kept = snapshot.read_bytes()
    snapshot.unlink()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout), conf_at(tmp_path))
        cluster.advance(10)
        status = cluster.last_status("reader")
    assert status.state == "FAILED"
    assert f"{snapshot} is gone, which says what the committed positions are" in status.errors[-1].render()
    assert not snapshot.exists()
    snapshot.write_bytes(kept)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout), conf_at(tmp_path))
        cluster.advance(60)
        assert cluster.last_status("reader").state == "COMPLETED"
    assert set(counted(tmp_path).values()) == {1}


def test_a_store_that_is_away_at_the_start_loses_no_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs are committed meanwhile: they hold the position that was given, or that of the first start."""
    text, away = tmp_path / "text", False
    wanted = write(text, range(4))

    def steady(path: str, conf: Any, follow_links: bool = False) -> Any:
        if away:
            raise FilesUnavailable(f"cannot open {path}: as the test has it")
        return open_steady(path, conf, follow_links)

    monkeypatch.setattr(reading_spout, "open_steady", steady)
    spout = SlowLines(str(text), split_bytes=1024, replay=REPLAY)
    for is_away, secs in ((True, 3.0), (False, 0.7), (True, 3.0), (False, 60.0)):
        away = is_away
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(spout), conf_at(tmp_path))
            cluster.advance(secs)
            status = cluster.last_status("reader")
            assert status.state == ("COMPLETED" if secs == 60.0 else "ACTIVE")
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)
    readers = list((text / "_squall" / "readers").iterdir())
    assert len(readers) == 1, "each task has named the same folder"


def test_a_file_that_is_gone_is_reported_and_holds_up_the_end(tmp_path: Path) -> None:
    text = tmp_path / "text"
    wanted = write(text, range(2))
    spout = SlowLines(str(text), split_bytes=1024, replay=REPLAY)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout, 1), conf_at(tmp_path))
        cluster.advance(0.5)
    data = (text / "000.txt").read_bytes()
    (text / "000.txt").unlink()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout, 1), conf_at(tmp_path))
        cluster.advance(60)
        status = cluster.status("reader")
        assert status.state == "ACTIVE"
        assert "000.txt" in status.errors[-1].render()
        (text / "000.txt").write_bytes(data)
        cluster.advance(60)
        assert cluster.last_status("reader").state == "COMPLETED"
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("follow", [False, True])
def test_each_committed_row_counts_once_however_often_the_topology_starts_again(
    tmp_path: Path, follow: bool
) -> None:
    pytest.importorskip("pyspark")  # it has to be installed where a table is read
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    draw, table = random.Random(7), open_files(str(tmp_path / "table"))
    wanted: list[str] = []
    tasks = [SinkTask(table, "line string", index=index) for index in range(2)]

    def commit(count: int) -> None:
        for _ in range(count):
            rows = [f"{len(wanted) + number}" for number in range(draw.randint(1, 15))]
            data = io.BytesIO()
            pq.write_table(pa.table({"line": rows}), data)
            task = draw.choice(tasks)
            task.put({"part.parquet": data.getvalue()}, rows=len(rows), committed=float(len(wanted)))
            wanted.extend(rows)

    commit(30)
    for start in range(4):
        if start and follow:
            commit(3)
        spout = SlowRows(f"{tmp_path}/table", "line", follow=follow, replay=REPLAY)
        with LocalCluster(simulated_time=True, seed=start) as cluster:
            cluster.submit(topology(spout, [2, 2, 3, 1][start]), conf_at(tmp_path))
            cluster.advance(60 if start == 3 else draw.uniform(0.3, 0.6))
            state = cluster.last_status("reader").state
            assert start == 3 or state == "ACTIVE"
    assert state == ("ACTIVE" if follow else "COMPLETED")
    assert counted(tmp_path) == dict.fromkeys(wanted, 1)


def test_a_batch_that_is_gone_from_the_middle_of_its_rows_is_named(tmp_path: Path) -> None:
    """Reading on would leave out the rest of its rows."""
    begin = EmittedSoFar("reader-1", None, digest_of_snapshot({}), [PositionRecord(0, 1, {}, [("", 7, 12)])])
    write(tmp_path / "text", range(2))
    spout = HdfsLines(f"{tmp_path}/text", follow=True)
    context: Any = SimpleNamespace(
        topology="reader", topology_id="reader-1", component="lines", index=0, parallelism=1,
        conf={"topology.state.path": "file:///state"}, incarnation=(1, 0), log=logging.getLogger("t"), now=lambda: 0.0,
        progress=print,
    )  # fmt: skip
    spout.open(context)
    spout.rewind(None)
    spout.close()
    spout.open(context)
    with pytest.raises(LostInput, match=r"has lost 1 of the pieces whose beginning is committed \(7\)"):
        spout.rewind(msgspec.to_builtins(begin))


def test_a_topology_of_these_spouts_can_be_exactly_once() -> None:
    class Sink(TokenSink):
        pass

    for spout in (HdfsLines("hdfs://host:9000/logs"), CommittedRows("hdfs://host:9000/table", ["a"])):
        builder = TopologyBuilder("reader", {"topology.require": "exactly-once"})
        builder.set_spout("in", spout)
        builder.set_bolt("sink", Sink()).shuffle_grouping("in")
        built = builder.build()
        found = guarantees(built, {"topology.state.path": "hdfs://host:9000/state", "topology.acking": True})
        assert [pair.level for pair in found.pairs] == ["exactly-once"]
