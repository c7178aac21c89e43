"""A local cluster with worker processes works like one inside this process, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster, process_engine
from squall.daemon.process_stat import stat_of
from supervisor.agent import Supervisor
from tests.local_cluster.process_topologies import (
    Hangs,
    Keeps,
    NeedsSink,
    Notes,
    Numbers,
    Raises,
    Stores,
    line,
    noted,
    wait_until,
)
from topology_api import (
    InvalidConfig,
    NameTaken,
    NoSuchTopology,
    Replay,
    SquallError,
    TopologyBuilder,
    TopologyFailed,
)

CAP = 60.0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters keep their files."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def cluster(state: Path) -> Iterator[LocalCluster]:
    with LocalCluster(processes=True, supervisors=2, slots=2) as cluster:
        yield cluster
    assert list(state.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the components write."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def is_gone(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is None or not stat.living


def test_a_topology_runs_in_processes_of_its_own_until_it_is_completed(
    cluster: LocalCluster, folder: Path
) -> None:
    cluster.submit(line("words", Numbers(500), Notes(folder), Notes(folder)))
    cluster.wait("words", CAP)
    status = cluster.status("words")
    assert (status.state, status.workers, status.notes) == ("COMPLETED", 0, ())
    spout = status.components["numbers"]
    assert (spout.emitted, spout.acked, spout.failed, spout.pending, spout.idle) == (
        500,
        500,
        0,
        0,
        "finished",
    )
    for bolt in ("bolt1", "bolt2"):
        rows = noted(folder, bolt)
        assert sorted(number for number, _ in rows) == list(range(500))
        assert status.components[bolt].executed == status.components[bolt].metrics["noted"] == 500
        processes = {pid for _, pid in rows}
        assert len(processes) == 2
        assert os.getpid() not in processes
        assert all(is_gone(pid) for pid in processes)
        assert all(path.read_text().endswith("cleaned up\n") for path in folder.glob(f"{bolt}-*"))


def test_status_shows_what_runs_where(cluster: LocalCluster, state: Path) -> None:
    cluster.submit(line("words", Numbers(None, 0.01), Keeps()))
    wait_until(lambda: len(cluster.workers("words")) == 2)
    workers = cluster.workers("words")
    assert [view.worker for view in workers] == ["w1", "w2"]
    assert sorted(task for view in workers for task in view.tasks) == [1, 2, 3]
    for view in workers:
        assert view.incarnation == (1, 0)
        assert view.directory.is_relative_to(state)
        assert not is_gone(view.pid)
    wait_until(lambda: all((view.directory / "worker.log").exists() for view in workers))
    assert len({view.directory.parents[3] for view in workers}) == 2, "each supervisor has one of them"
    assert [path.stat().st_mode & 0o777 for path in state.iterdir()] == [0o700]
    with pytest.raises(NoSuchTopology):
        cluster.workers("other")


def test_shutdown_ends_all_processes_in_any_state(state: Path, folder: Path) -> None:
    cluster = LocalCluster(processes=True)
    cluster.submit(line("stops", Numbers(None, 0.01), Notes(folder)))
    cluster.submit(line("hangs", Numbers(None, 0.01), Hangs(folder)))
    wait_until(lambda: (folder / "hangs").exists() and noted(folder, "bolt1"))
    pids = [view.pid for name in ("stops", "hangs") for view in cluster.workers(name)]
    assert len(pids) == 4
    cluster.hurry(1.0)
    cluster.shutdown()
    assert all(is_gone(pid) for pid in pids)
    assert list(state.iterdir()) == []
    assert {path.read_text().splitlines()[-1] for path in folder.glob("bolt1-*")} == {"cleaned up"}
    cluster.shutdown()  # a second shutdown does nothing
    assert cluster.last_status("stops").workers == 0
    with pytest.raises(SquallError, match="has been shut down"):
        cluster.kill("stops")


def test_a_killed_topology_frees_its_name_and_leaves_no_files(
    cluster: LocalCluster, folder: Path, state: Path
) -> None:
    topology = line("words", Numbers(None, 0.001), Notes(folder))
    cluster.submit(topology)
    with pytest.raises(NameTaken):
        cluster.submit(topology)
    wait_until(lambda: noted(folder, "bolt1"))
    cluster.kill("words")
    wait_until(lambda: cluster.topologies() == [])
    wait_until(lambda: not list(state.glob("*/*/topologies/*")))
    final = cluster.last_status("words").components
    assert final["numbers"].emitted == final["numbers"].acked == final["bolt1"].executed > 0, "it has drained"
    assert final["numbers"].pending == final["numbers"].failed == 0
    cluster.submit(line("words", Numbers(10), Notes(folder)))
    cluster.wait("words", CAP)
    assert cluster.status("words").components["numbers"].acked == 10


def test_a_topology_whose_trees_do_not_end_is_killed_at_its_deadline(cluster: LocalCluster) -> None:
    cluster.submit(line("keeps", Numbers(5), Keeps()))
    wait_until(lambda: cluster.status("keeps").components["bolt1"].executed == 5)
    cluster.kill("keeps", wait_secs=0.2)
    wait_until(lambda: cluster.topologies() == [])
    assert cluster.last_status("keeps").components["numbers"].failures == {"stopped": 5}


def test_a_topology_rests_while_it_is_inactive(cluster: LocalCluster, folder: Path) -> None:
    cluster.submit(line("words", Numbers(None, 0.001), Notes(folder)), active=False)
    wait_until(lambda: len(cluster.workers("words")) == 2)
    assert cluster.status("words").components["numbers"].idle == "inactive"
    assert noted(folder, "bolt1") == []
    cluster.activate("words")
    wait_until(lambda: len(noted(folder, "bolt1")) > 20)
    cluster.deactivate("words")
    wait_until(lambda: cluster.status("words").components["numbers"].idle == "inactive")
    wait_until(lambda: cluster.status("words").components["numbers"].pending == 0)
    seen = len(noted(folder, "bolt1"))
    cluster.activate("words")
    wait_until(lambda: len(noted(folder, "bolt1")) > seen + 20)


@pytest.mark.slow
def test_a_rebalance_changes_workers_and_tasks_and_loses_nothing(cluster: LocalCluster, folder: Path) -> None:
    cluster.submit(line("grows", Numbers(3000, 0.001), Notes(folder), Notes(folder)))
    wait_until(lambda: len(noted(folder, "bolt2")) > 100)
    cluster.rebalance("grows", workers=3, parallelism={"bolt1": 4})
    wait_until(lambda: len(cluster.workers("grows")) == 3 and cluster.status("grows").state == "ACTIVE")
    wait_until(lambda: len(list(folder.glob("bolt1-*"))) == 4)
    cluster.wait("grows", CAP)
    status = cluster.status("grows")
    spout = status.components["numbers"]
    assert spout.emitted == spout.acked >= 3000  # a spout task that has moved starts from the beginning
    assert status.components["bolt1"].tasks == 4
    for bolt in ("bolt1", "bolt2"):
        assert {number for number, _ in noted(folder, bolt)} == set(range(3000))
        assert status.components[bolt].executed == len(noted(folder, bolt))


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_every_tuple_is_acked(
    cluster: LocalCluster, folder: Path
) -> None:
    cluster.submit(line("words", Numbers(2000, 0.001), Notes(folder)))
    wait_until(lambda: len(noted(folder, "bolt1")) > 100)
    without_spout = next(view for view in cluster.workers("words") if 1 not in view.tasks)
    os.kill(without_spout.pid, signal.SIGKILL)
    cluster.wait("words", CAP)
    status = cluster.status("words")
    assert status.components["numbers"].acked == 2000
    assert {number for number, _ in noted(folder, "bolt1")} == set(range(2000))
    [note] = status.notes
    assert note.startswith(
        f"worker {without_spout.worker} (pid {without_spout.pid}) of topology 'words' was killed"
    )
    assert "SIGKILL" in note
    assert len({pid for _, pid in noted(folder, "bolt1")}) == 3


def test_errors_of_all_workers_are_in_the_status(cluster: LocalCluster) -> None:
    cluster.submit(line("refuses", Numbers(None, 0.005), Raises()))
    wait_until(lambda: len({report.task for report in cluster.status("refuses").errors if report.call}) == 2)
    status = cluster.status("refuses")
    assert status.components["bolt1"].errors >= 2
    report = next(report for report in status.errors if report.call)
    assert (report.component, report.call) == ("bolt1", "execute")
    assert "is refused" in report.text
    assert len(report.render().splitlines()) <= 15
    assert 'process_topologies.py", line ' in report.render().splitlines()[-2]
    assert [report.time for report in status.errors] == sorted(report.time for report in status.errors)


@pytest.mark.slow
def test_a_bolt_that_fails_in_prepare_is_tried_again_and_its_error_is_in_the_status(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    cluster.submit(line("down", Numbers(50), NeedsSink(sink)))
    wait_until(lambda: cluster.status("down").errors and cluster.status("down").notes)
    status = cluster.status("down")
    assert status.state == "ACTIVE"
    assert "prepare() raised ConnectionError: the sink is down" in status.errors[0].render()
    assert "the sink is down" in status.notes[0]
    assert "it is started again" in status.notes[0]
    sink.touch()
    cluster.wait("down", CAP)
    assert cluster.status("down").components["numbers"].acked == 50
    assert cluster.status("down").components["bolt1"].errors >= 1, "errors of earlier processes still count"


def test_a_topology_that_is_to_crash_on_errors_fails_with_the_report(cluster: LocalCluster) -> None:
    cluster.submit(line("crashes", Numbers(None, 0.01), Raises(), topology_on_error="crash"))
    with pytest.raises(TopologyFailed, match=r"execute\(\) raised ValueError: 7 is refused"):
        cluster.wait("crashes", CAP)
    status = cluster.status("crashes")
    assert (status.state, status.workers) == ("FAILED", 0)


def test_workers_find_a_module_that_was_put_on_the_path_later(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_bolts.py").write_text(
        "from topology_api import Bolt\nclass Late(Bolt):\n    def execute(self, tup):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import late_bolts  # type: ignore[import-not-found]

    monkeypatch.setitem(sys.modules, "late_bolts", late_bolts)  # the import is undone afterwards
    cluster.submit(line("late", Numbers(20), late_bolts.Late()))
    cluster.wait("late", CAP)
    assert cluster.status("late").components["bolt1"].executed == 20


def test_wait_reports_progress_when_its_time_is_over(cluster: LocalCluster) -> None:
    cluster.submit(line("words", Numbers(None, 0.01), Keeps()))
    with pytest.raises(TimeoutError, match=r"'words' is not completed \(after 0.05 s\): state ACTIVE"):
        cluster.wait("words", 0.05)
    cluster.kill("words", wait_secs=0)
    with pytest.raises(TopologyFailed, match="it was killed"):
        cluster.wait("words", CAP)


def test_a_refused_write_to_disk_is_tried_again(
    cluster: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_engine, "RETRY_SECS", 0.01)
    sync, refusals = Supervisor.sync, iter([True, True, True])

    def refused_at_first(supervisor: Supervisor, now: float) -> None:
        if next(refusals, False):
            raise OSError(errno.ENOSPC, "no space left on device")
        sync(supervisor, now)

    monkeypatch.setattr(Supervisor, "sync", refused_at_first)
    cluster.submit(line("words", Numbers(20), Notes(folder)))
    cluster.wait("words", CAP)
    assert caplog.text.count("cannot supervise its workers at the moment: [Errno 28]") == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_cluster_that_breaks_reports_it_and_still_ends_its_processes(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(processes=True)
    cluster.submit(line("words", Numbers(None, 0.01), Keeps()))
    wait_until(lambda: cluster.status("words").components["bolt1"].executed)
    pids = [view.pid for view in cluster.workers("words")]

    def breaks(supervisor: Supervisor, now: float) -> None:
        raise ZeroDivisionError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(Supervisor, "sync", breaks)
        wait_until(lambda: cluster.broken is not None)
    with pytest.raises(SquallError, match=r"the local cluster has stopped: .*a fault of ours"):
        cluster.wait("words", CAP)
    cluster.shutdown()
    assert all(is_gone(pid) for pid in pids)
    assert list(state.iterdir()) == []


def test_settings_that_need_workers_in_this_process_are_refused() -> None:
    with pytest.raises(InvalidConfig) as caught:
        LocalCluster(processes=True, simulated_time=True, encode=True, observers=(object(),), slots=0)
    assert len(caught.value.problems) == 4


def test_switches_that_are_no_booleans_are_refused() -> None:
    switches: dict[str, Any] = {"processes": "no", "simulated_time": 1, "encode": None}
    with pytest.raises(InvalidConfig) as caught:
        LocalCluster(**switches)
    assert caught.value.problems == (
        "LocalCluster(processes='no'): it must be True or False",
        "LocalCluster(simulated_time=1): it must be True or False",
        "LocalCluster(encode=None): it must be True or False",
    )


def test_workers_inside_this_process_start_no_processes() -> None:
    with LocalCluster() as cluster, pytest.raises(SquallError, match=r"LocalCluster\(processes=True\)"):
        cluster.workers("words")


@pytest.mark.slow
def test_a_store_that_is_away_loses_no_tuple_and_its_task_is_shown_as_down(
    cluster: LocalCluster, folder: Path
) -> None:
    store, away = folder / "store", folder / "away"
    away.mkdir()
    numbers = Numbers(1500, pause=0.005)
    numbers.replay = Replay(max_attempts=3, first_delay=0.5)
    builder = TopologyBuilder("orders", conf={"topology.on.outage": "wait", "topology.workers": 2})
    builder.set_spout("numbers", numbers)
    builder.set_bolt("store", Stores(store)).shuffle_grouping("numbers")
    cluster.submit(builder.build())
    wait_until(lambda: bool(cluster.status("orders").components["store"].down), CAP)
    [down] = cluster.status("orders").components["store"].down
    assert "FileNotFoundError" in down.error and abs(time.time() - down.since) < CAP
    away.rename(store)
    cluster.wait("orders", CAP)
    components = cluster.status("orders").components
    assert (components["numbers"].acked, components["numbers"].failed) == (1500, 0)
    assert components["store"].down == ()
    assert set((store / "numbers").read_text().split()) == set(map(str, range(1500)))
