"""Supervisors are killed repeatedly, hosts disappear and come back, disks are full."""

from __future__ import annotations

import contextlib
import os
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
from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.daemon_processes import QUICK
from tests.cluster_faults.moments import PACE, Moment, starting
from tests.faults.ledger_topology import STOP
from tests.faults.running import Tally
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def check_slots(run: ClusterRun) -> None:
    """No slot of a supervisor has two processes, and each running process is known to its supervisor."""
    for number in range(len(run.daemons.supervisors)):
        slots = Counter(started.slot for started in run.daemons.processes(number).values())
        assert not [slot for slot, times in slots.items() if times > 1], slots

    def all_known() -> bool:
        living = {process.pid for process in run.daemons.living_workers()}
        return living <= {started.pid for started in run.daemons.processes().values()}

    # A process lives for a moment before its supervisor has recorded it; an unrecorded one lives until its lease ends.
    run.wait_for(all_known, "each worker process is known to its supervisor", 3.0)


def test_workers_survive_twenty_deaths_of_their_supervisor(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, supervisors=1, slots=4) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        assert len(before) == 2
        daemon = run.daemons.supervisors[0]
        for turn in range(20):
            daemon.kill()
            daemon.start()
            if turn % 5 == 4:  # the other times it is killed while it starts
                run.wait_for(lambda: run.daemons.supervisors_there(), "the supervisor", 30.0)
            check_slots(run)
        run.wait_for(lambda: run.daemons.supervisors_there(), "the supervisor", 30.0)
        run.flows()
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0


def test_tasks_of_a_lost_host_move_and_its_old_workers_have_no_effect(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, slots=2) as run:
        daemons = run.daemons
        lost = next(number for number in (0, 1) if daemons.processes(number))
        pids = [daemons.supervisors[lost].pid, *(one.pid for one in daemons.processes(lost).values())]
        before = {started.pid for started in daemons.processes().values()}
        for pid in pids:  # freezing it looks to the others like a host that lost its network
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()

            def others() -> set[int]:
                return {one.pid for one in daemons.processes(1 - lost).values()} - before

            run.wait_for(others, "the tasks' new workers", 40.0)
            limit = float(str(QUICK["nimbus.supervisor.timeout.secs"])) + 5.0
            assert time.monotonic() - began <= limit + 5.0
            run.flows(200)
        finally:
            moment = time.monotonic_ns()
            run.thawed.update(dict.fromkeys(pids[1:], moment))
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)
        run.wait_for(lambda: not any(map(is_worker, pids[1:])), "the end of the old workers", 30.0)
        run.flows()
        check_slots(run)


def is_worker(pid: int) -> bool:
    try:
        return b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_full_disk_stops_no_worker_that_runs(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    state = tmp_path / "cluster" / "supervisor-1"
    state.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(state)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    try:
        with ledger_cluster(tmp_path, zookeeper.servers, supervisors=1, slots=4) as run:
            before = {started.pid for started in run.daemons.processes().values()}
            filler = state / "filler"
            with kept_full(filler):
                run.flows_for(12.0, longest_gap=2.0)  # longer than the lease and the worker timeout
                assert {started.pid for started in run.daemons.processes().values()} == before
                (run.another("other") / STOP).touch()
                run.wait_for(
                    lambda: "No space left" in str(run.status_of("other")["notes"]), "a word about the disk"
                )
            run.wait_for(lambda: run.status_of("other")["state"] == "COMPLETED", "that there is room again")
            run.flows_for(3.0, longest_gap=2.0)
            assert before <= {started.pid for started in run.daemons.processes().values()}
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


def test_a_kill_during_the_start_leaves_nothing(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    moments: list[Moment] = [lambda state, name: True, placed, starting, running]
    with ledger_cluster(tmp_path, zookeeper.servers, slots=4) as run:
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
        run.wait_for(
            lambda: len(run.daemons.living_workers()) == 2, "that only the workers of the run are there"
        )
        run.wait_for(lambda: not any("short" in name for name in folders(run)), "the removal of their files")
