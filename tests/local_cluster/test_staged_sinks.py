"""Staged sinks: their rows are there once, epoch by epoch, whatever happens to the topology or to their calls."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.staged_words import StagedRows, calls_of, shown_rows
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Pass,
    Words,
    eventually,
    expected_rows,
    words_to_rows,
)
from topology_api import Context, FailTuple, TopologyFailed, Tuple
from worker.loop.epoch_worker import EpochWorker


def conf_at(folder: Path, secs: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{folder}/state", "topology.epoch.secs": secs, **more}


def assert_calls_are_in_order(folder: Path) -> None:
    """Each file was committed or aborted at most once, never both, and each task commits its epochs in order."""
    ends: dict[str, str] = {}
    epochs: dict[str, list[int]] = defaultdict(list)
    for call, task, epoch, name in calls_of(folder):
        if call != "stage":
            assert name not in ends, f"{name}: {ends[name]}, then {call}"
            ends[name] = call
        if call == "commit":
            epochs[task].append(int(epoch))
    assert all(each == sorted(set(each)) for each in epochs.values()), epochs


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_each_row_is_shown_once_however_often_calls_fail_and_clusters_start_again(
    tmp_path: Path, seed: int, workers: int
) -> None:
    draw = random.Random(seed)
    conf = conf_at(tmp_path, **{"topology.workers": workers})
    sink = StagedRows(str(tmp_path / "rows"), failing=0.3)
    for last in (False, False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Words(400, 100), Count(0.1), sink), conf)
            cluster.advance(60 if last else draw.uniform(0.1, 3.0))
    assert shown_rows(tmp_path / "rows") == expected_rows(list(range(400)))
    assert_calls_are_in_order(tmp_path / "rows")


def test_rows_are_shown_epoch_by_epoch(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(200, 100), Count(), StagedRows(str(tmp_path / "rows"))), conf_at(tmp_path)
        )
        cluster.advance(1.1)
        some = shown_rows(tmp_path / "rows")
        assert 0 < len(some) < 200
        cluster.advance(10)
        assert cluster.last_status("words").state == "COMPLETED"
    assert shown_rows(tmp_path / "rows") == expected_rows(list(range(200)))
    assert not list((tmp_path / "rows" / "staged").iterdir())


def test_epochs_wait_while_nothing_can_be_staged(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(200, 100), Count(), StagedRows(str(tmp_path / "rows"))), conf_at(tmp_path)
        )
        cluster.advance(1)
        (tmp_path / "rows" / "away").touch()
        cluster.advance(1)
        before = shown_rows(tmp_path / "rows")
        cluster.advance(20)
        status = cluster.status("words")
        assert status.state == "ACTIVE" and shown_rows(tmp_path / "rows") == before
        assert "the file is" in status.errors[-1].render()
        (tmp_path / "rows" / "away").unlink()
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
    assert shown_rows(tmp_path / "rows") == expected_rows(list(range(200)))


def rewind(cluster: LocalCluster) -> None:
    """Let all tasks return to the last commit, while their processes live on."""
    for worker in cluster._host.workers("words"):
        if isinstance(worker, EpochWorker) and worker.lead is not None:
            worker.lead.peer_gone("other")


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_what_was_staged_for_a_void_epoch_is_aborted(tmp_path: Path, workers: int) -> None:
    aborted = 0
    for seed in range(4):
        folder, draw = tmp_path / str(seed), random.Random(seed)
        sink = StagedRows(str(folder / "rows"), failing=0.3)
        with LocalCluster(simulated_time=True, seed=seed) as cluster:
            conf = conf_at(folder, **{"topology.workers": workers})
            cluster.submit(words_to_rows(Words(300, 100), Count(), sink, 3), conf)
            for _ in range(6):
                cluster.advance(draw.uniform(0.3, 2))
                rewind(cluster)
            cluster.advance(60)
        assert shown_rows(folder / "rows") == expected_rows(list(range(300)))
        assert_calls_are_in_order(folder / "rows")
        aborted += sum(call == "abort" for call, *_ in calls_of(folder / "rows"))
    assert aborted > 0


def test_another_state_has_another_lineage(tmp_path: Path) -> None:
    sink = StagedRows(str(tmp_path / "rows"))
    for state in ("one", "two"):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words_to_rows(Finite(50), Count(), sink), conf_at(tmp_path / state))
            cluster.advance(5)
            assert cluster.last_status("words").state == "COMPLETED"
    assert shown_rows(tmp_path / "rows") == sorted(2 * expected_rows(list(range(50))))
    lineages = {name.split("-")[2] for *_, name in calls_of(tmp_path / "rows")}
    assert len(lineages) == 2 and "" not in lineages


class StagesNothing(StagedRows):
    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        self.note("stage", epoch, "nothing")
        return None


def test_without_a_handle_nothing_is_committed(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(50), Count(), StagesNothing(str(tmp_path / "rows"))), conf_at(tmp_path)
        )
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
    assert {call for call, *_ in calls_of(tmp_path / "rows")} == {"stage"}


class OddHandles(StagedRows):
    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        return object()


def test_a_handle_that_cannot_be_kept_ends_the_topology(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(50), Count(), OddHandles(str(tmp_path / "rows"))), conf_at(tmp_path)
        )
        cluster.advance(10)
        with pytest.raises(
            TopologyFailed, match=r"the handle that stage\(\) returned for epoch 1 is no msgpack value"
        ):
            cluster.wait("words", 60)


class RefusesWords(StagedRows):
    def row(self, tup: Tuple) -> Any:
        if tup["word"] == "w3":
            raise FailTuple("w3 is no word")
        return super().row(tup)


@pytest.mark.parametrize("with_path", [True, False])
def test_a_tuple_that_makes_no_row_fails_alone(tmp_path: Path, with_path: bool) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        conf = conf_at(tmp_path) if with_path else {}
        cluster.submit(words_to_rows(Finite(70), Count(), RefusesWords(str(tmp_path / "rows"))), conf)
        cluster.advance(60)
        assert cluster.last_status("words").state == "COMPLETED"
        letters = cluster.dead_letters("words")
    assert len(letters) == 10
    wanted = [row for row in expected_rows(list(range(70))) if row[0] != "w3"]
    assert shown_rows(tmp_path / "rows") == wanted


def test_without_a_state_path_each_row_is_shown_at_least_once(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(300, 100), Pass(), StagedRows(str(tmp_path / "rows"), failing=0.2))
        )
        cluster.advance(200)
        assert cluster.last_status("words").state == "COMPLETED"
    assert {number for _, number in shown_rows(tmp_path / "rows")} == set(range(300))


def test_a_staged_sink_may_also_run_in_the_loop(tmp_path: Path) -> None:
    """Without a spout that keeps the loop busy: one answer leads to the next."""
    sink = StagedRows(str(tmp_path / "rows"))
    sink.threaded = False
    with LocalCluster() as cluster:
        cluster.submit(words_to_rows(Finite(100), Count(), sink), conf_at(tmp_path, 0.2))
        cluster.wait("words", 60)
    assert shown_rows(tmp_path / "rows") == expected_rows(list(range(100)))


class WaitsForStores(StagedRows):
    """Waits for something that never comes, unless its rows are not wanted any more, or the test has seen enough."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.context = context
        Path(self.folder, f"pid-{os.getpid()}").touch()

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        Path(self.folder, "waits").touch()
        while not Path(self.folder, "go").exists():
            if self.context.stopped:
                Path(self.folder, "stopped").touch()
                raise OSError("not any more")
            time.sleep(0.01)
        return super().stage(epoch, rows)


@pytest.mark.slow
def test_a_call_that_waits_can_end_when_all_tasks_return_to_the_last_commit(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with LocalCluster(processes=True) as cluster:
        topology = words_to_rows(Finite(200, 1_000), Count(), WaitsForStores(str(folder)), 1)
        cluster.submit(topology, conf_at(tmp_path, 0.2, **{"topology.workers": 2}))
        eventually(lambda: (folder / "waits").exists())
        [waiting] = [int(path.name.partition("-")[2]) for path in folder.glob("pid-*")]
        [other] = [worker.pid for worker in cluster.workers("words") if worker.pid != waiting]
        os.kill(other, signal.SIGKILL)
        eventually(lambda: (folder / "stopped").exists())
        (folder / "go").touch()
        cluster.wait("words", 60)
    assert len(list(folder.glob("pid-*"))) == 1, "the process went on"
    assert shown_rows(folder) == expected_rows(list(range(200)))


@pytest.mark.soak  # tests/squall_io/test_file_sink.py kills workers of a StagedSink, too
@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_rows_are_shown_once_when_workers_are_killed_again_and_again(tmp_path: Path, workers: int) -> None:
    sink, folder = StagedRows(str(tmp_path / "rows"), failing=0.1), tmp_path / "rows"
    draw = random.Random(workers)
    with LocalCluster(processes=True) as cluster:
        conf = conf_at(tmp_path, 0.2, **{"topology.workers": workers})
        cluster.submit(words_to_rows(Finite(3_000, 1_000), Count(0.01), sink), conf)
        for _ in range(3):
            eventually(lambda: any(worker.opened for worker in cluster.workers("words")))
            before = len(shown_rows(folder))
            eventually(lambda before=before: len(shown_rows(folder)) > before)  # type: ignore[misc]
            worker = draw.choice(cluster.workers("words"))
            os.kill(worker.pid, signal.SIGKILL)
            eventually(lambda worker=worker: all(each.pid != worker.pid for each in cluster.workers("words")))  # type: ignore[misc]
        cluster.wait("words", 60)
    assert shown_rows(folder) == expected_rows(list(range(3_000)))
    assert_calls_are_in_order(folder)
