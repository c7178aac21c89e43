"""Workers are frozen by SIGSTOP: if for too long, they are replaced once, and a process that thaws later has no effect."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_cluster.process_engine import ProcessEngine, WorkerView
from tests.faults import leaks
from tests.faults.ledger import SINK, SPOUT, Life, lives_of, read
from tests.faults.running import QUICK, Run, Surroundings, ledger_run

pytestmark = pytest.mark.faults

RECOVERY = 25.0
#: A supervisor for each worker and one to spare; both sides notice a silent supervisor soon.
ON_THEIR_OWN = Surroundings(supervisors=3, slots=1, lease=3.0, supervisor_timeout=5.0)


def freeze(worker: WorkerView) -> int:
    """SIGSTOP; return the pid once the process is stopped."""
    os.kill(worker.pid, signal.SIGSTOP)
    deadline = time.monotonic() + RECOVERY
    while leaks.state_of(worker.pid) not in ("T", None):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return worker.pid


def thaw(pid: int) -> int:
    """SIGCONT, if the process still exists; return the moment."""
    moment = time.monotonic_ns()
    if leaks.state_of(pid) is not None:
        os.kill(pid, signal.SIGCONT)
    return moment


def lives_of_process(run: Run, role: str, pid: int) -> list[Life]:
    return [life for life in lives_of(read(run.books), role) if life.pid == pid]


@contextmanager
def silent_supervisor(run: Run, worker: WorkerView) -> Iterator[None]:
    """Suspend the supervisor of a worker, as if its host were cut off; resume it in the end."""
    engine = run.cluster._engine
    assert isinstance(engine, ProcessEngine)
    (supervisor,) = (
        one for one in engine.supervisors if worker.pid in {hosted.pid for hosted in one.workers()}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "next_time", lambda now: now + 0.1)
        patch.setattr(supervisor, "sync", lambda now: None)
        yield


def ended(pid: int) -> bool:
    """Whether a process has ended, even if not yet reaped."""
    return leaks.state_of(pid) in (None, "Z")


def test_a_worker_frozen_longer_than_its_timeout_is_replaced_once(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        victim, other = run.workers()
        pid = freeze(victim)
        run.replaced(victim.worker, pid, cap=5 * RECOVERY)
        moment = thaw(pid)
        run.gone(pid, cap=5 * RECOVERY)
        run.flows(cap=5 * RECOVERY)
        assert run.pids()[other.worker] == other.pid, "the other worker was left alone"
        total = run.drain()
        assert (total.spout_lives, total.sink_lives) == (3, 3), "replaced once"
        for role in (SPOUT, SINK):
            for life in lives_of_process(run, role, pid):
                assert not life.after(moment, "E", "S"), "it emits nothing more"


def test_a_worker_frozen_for_less_than_its_timeout_goes_on(tmp_path: Path) -> None:
    with ledger_run(tmp_path, conf={"topology.worker.timeout.secs": 30}) as run:
        pids = run.pids()
        victim, _ = run.workers()
        pid = freeze(victim)
        time.sleep(3.5)  # longer than a silent link is kept, shorter than the timeout
        thaw(pid)
        run.flows(cap=5 * RECOVERY)
        assert run.pids() == pids
        assert run.drain().spout_lives == 2


def test_a_frozen_worker_whose_tasks_moved_emits_nothing_when_it_thaws_and_exits(
    tmp_path: Path,
) -> None:
    # Its supervisor is suspended too and cannot kill it: the worker itself must notice that its lease is over.
    with ledger_run(tmp_path, ON_THEIR_OWN) as run:
        victim, other = run.workers()
        pids = run.pids()
        with silent_supervisor(run, victim):
            pid = freeze(victim)
            run.moved(pids, cap=5 * RECOVERY)
            run.flows(cap=5 * RECOVERY)
            moment = run.thawed[pid] = thaw(pid)
            run.wait_for(lambda: ended(pid), "the end of the thawed worker")
            run.flows(cap=5 * RECOVERY)
        assert run.pids()[other.worker] == other.pid, "the other worker was left alone"
        total = run.drain()
        assert total.spout_lives == 3
        for life in lives_of_process(run, SPOUT, pid):
            # Nothing leaves the process; the run of calls in which it was frozen may continue until it checks the clock.
            assert len(life.after(moment, "E")) <= QUICK["topology.max.spout.pending"], (
                "at most one run of calls emits"
            )


def test_a_worker_without_its_supervisor_for_longer_than_the_lease_exits_by_itself(tmp_path: Path) -> None:
    with ledger_run(tmp_path, ON_THEIR_OWN) as run:
        victim, _ = run.workers()
        pids = run.pids()
        with silent_supervisor(run, victim):
            run.wait_for(
                lambda: leaks.state_of(victim.pid or 0) in (None, "Z"),
                "the end of the lease",
                cap=5 * RECOVERY,
            )
            run.moved(pids, cap=5 * RECOVERY)
            run.flows(cap=5 * RECOVERY)
