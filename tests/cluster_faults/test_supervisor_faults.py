"""Supervisors are killed repeatedly or doubled, hosts disappear and come back, disks are full."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.worker_files import HEARTBEAT
from tests.cluster_faults.cluster_run import GAP, ClusterRun, ledger_cluster, store_of
from tests.cluster_faults.moments import PACE, Moment, starting
from tests.faults.ledger_topology import STOP
from tests.faults.running import Tally
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds without space on a disk: longer than the lease of a worker, 9, and its timeout.
FULL = 11.0


def check_slots(run: ClusterRun) -> None:
    """No slot of a supervisor has two processes, and each running process is known to its supervisor."""
    for number in range(len(run.daemons.supervisors)):
        slots = Counter(started.slot for started in run.daemons.processes(number).values())
        assert not [slot for slot, times in slots.items() if times > 1], slots

    def all_known() -> bool:
        living = {process.pid for process in run.daemons.living_workers()}
        return living <= {started.pid for started in run.daemons.processes().values()}

    # A process lives for a moment before its supervisor has recorded it; an unrecorded one lives until its lease ends.
    run.wait_for(all_known, "each worker process is known to its supervisor")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[ClusterRun]:
    """A cluster of two hosts. A test leaves its daemons whole and no other topology; the last one makes tuples fail."""
    with ledger_cluster(tmp_path_factory.mktemp("hosts"), zookeeper.servers, slots=4) as run:
        yield run


def test_workers_survive_the_deaths_of_their_supervisors(run: ClusterRun, soak: float) -> None:
    before = run.pids()
    assert len(before) == 2
    for daemon in run.daemons.supervisors:
        for turn in range(round(3 * soak)):
            daemon.kill()
            daemon.start()
            if turn % 3 == 1:  # the other times it is killed while it starts
                run.is_whole()
            check_slots(run)
    run.is_whole()
    run.flows()
    assert run.pids() == before
    assert run.failed() == 0


def test_a_full_disk_stops_no_worker_that_runs(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    state = tmp_path / "cluster" / "supervisor-1"
    state.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    try:
        with ledger_cluster(tmp_path, zookeeper.servers, supervisors=1, slots=4) as run:
            before = run.pids()
            filler = state / "filler"
            with kept_full(filler):
                run.flows_for(FULL, longest_gap=GAP)
                assert run.pids() == before
                (run.another("other") / STOP).touch()
                run.wait_for(
                    lambda: "No space left" in str(run.status_of("other")["notes"]), "a word about the disk"
                )
            run.wait_for(lambda: run.status_of("other")["state"] == "COMPLETED", "that there is room again")
            run.flows()
            assert before <= run.pids()
            run.obey("kill", "other", "-w", "0", "--wait")
            assert run.failed() == 0
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


@contextmanager
def kept_full(path: Path) -> Iterator[None]:
    """A disk without free space: anything that is freed is filled at once."""
    ended = threading.Event()

    def fill() -> None:
        with path.open("wb", buffering=0) as file:
            while not ended.wait(0.002):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * 4096):
                        pass

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        path.unlink()


def folders(run: ClusterRun) -> set[str]:
    """The files of topologies that supervisors keep."""
    return {
        path.name
        for daemon in run.daemons.supervisors
        for path in (run.daemons.folder / daemon.name).glob("topologies/*")
    }


def placed(state: Path, name: str) -> bool:
    """The supervisor has an assignment for the topology."""
    return any(state.glob(f"topologies/{name}-*"))


def running(state: Path, name: str) -> bool:
    """A worker has reported."""
    return any(state.glob(f"topologies/{name}-*/workers/*/{HEARTBEAT}"))


def test_a_kill_during_the_start_leaves_nothing(run: ClusterRun) -> None:
    moments: list[Moment] = [lambda state, name: True, placed, starting, running]
    states = [run.daemons.folder / daemon.name for daemon in run.daemons.supervisors]
    for turn, moment in enumerate(moments):
        name = f"short-{turn}"
        books = Tally(run.another(name))
        run.wait_for(
            # The moment may have passed by now; it is killed all the same.
            lambda: any(moment(state, name) for state in states) or books.of("A"),  # noqa: B023
            f"the moment {turn} of {name}",
            pace=PACE,
        )
        run.daemons.client.delete(f"topologies/{name}", wait_secs=0)
    run.wait_for(lambda: run.names() == [run.name], "the end of the killed ones")
    run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "that only the workers of the run are there")
    run.wait_for(lambda: not any("short" in name for name in folders(run)), "the removal of their files")
    assert run.failed() == 0


def test_the_second_supervisor_of_one_id_waits_and_disturbs_nothing(
    run: ClusterRun, zookeeper: ZooKeeperServer
) -> None:
    """The state directory of a supervisor was copied to another host."""
    copy = run.daemons.another_supervisor(zookeeper.servers)
    state, copied = (run.daemons.folder / daemon.name for daemon in (run.daemons.supervisors[0], copy))
    copied.mkdir(mode=0o700)
    for name in ("id", "key", "cluster"):
        shutil.copy2(state / name, copied / name)
    told: list[str] = []
    with store_of(run, zookeeper.servers) as store:
        store.watch("/", told.append)
        try:
            copy.start()
            run.wait_for(
                lambda: "remove the files `id` and `key`" in copy.text(), "that it says what is wrong"
            )
            told.clear()
            run.flows_for(4.0, longest_gap=GAP)
            assert len(told) < 10, f"there are writes to ZooKeeper all the time: {told}"
        finally:
            copy.end()
    assert len(run.daemons.living_workers()) == 2 and run.failed() == 0


def test_tasks_of_a_lost_host_move_and_its_old_workers_have_no_effect(run: ClusterRun) -> None:
    daemons = run.daemons
    lost = next(number for number in (0, 1) if daemons.processes(number))
    pids = [daemons.supervisors[lost].pid, *(one.pid for one in daemons.processes(lost).values())]
    before = run.pids()
    for pid in pids:  # freezing it looks to the others like a host that lost its network
        os.kill(pid, signal.SIGSTOP)
    try:

        def others() -> set[int]:
            return {one.pid for one in daemons.processes(1 - lost).values()} - before

        run.wait_for(others, "the tasks' new workers")
        run.flows(200)
    finally:
        moment = time.monotonic_ns()
        run.thawed.update(dict.fromkeys(pids[1:], moment))
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
    run.wait_for(lambda: not any(map(is_worker, pids[1:])), "the end of the old workers")
    run.flows()
    check_slots(run)


def is_worker(pid: int) -> bool:
    try:
        return b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
