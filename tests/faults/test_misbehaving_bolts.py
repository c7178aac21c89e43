"""Bolts that are slow, hang, end their process or fail in prepare: everything else keeps running."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults import leaks, misbehaving
from tests.faults.ledger_topology import SlowRelay, ledger_topology
from tests.faults.misbehaving import (
    Aborting,
    Exiting,
    Forking,
    Hanging,
    Leaving,
    Misbehaving,
    Segfaulting,
    Spinning,
    Unprepared,
    lives,
)
from tests.faults.running import QUICK, Run, Surroundings, ledger_run

pytestmark = pytest.mark.faults

RECOVERY = 25.0
#: MB by which a process may grow while a slow bolt holds everything up.
GROWTH = 8.0


def logs(run: Run) -> str:
    """The logs of all workers of the topology."""
    folders = {one.directory for one in run.cluster.workers(run.name)}
    return "\n".join(
        path.read_text(errors="replace") for folder in folders for path in sorted(folder.glob("*.log*"))
    )


def calm(directory: Path) -> None:
    Path(directory, "calm").touch()


def test_a_slow_bolt_slows_its_spout_and_no_process_grows(tmp_path: Path, soak: float) -> None:
    pending = 2000
    conf = {"topology.max.spout.pending": pending}
    with ledger_run(tmp_path, rate=None, size=1000, relay=SlowRelay(0.005), conf=conf) as run:
        run.flows(2 * 300)  # each relay processes 200 tuples a second: by now every queue is full
        pids = [os.getpid(), *run.pids().values()]
        before = {pid: leaks.memory_of(pid) for pid in pids}
        began, emitted = time.monotonic(), run.tally.of("E")
        most = dict(before)
        for _ in range(max(1, round(6 * soak))):
            run.flows(100)
            most = {pid: max(most[pid], leaks.memory_of(pid)) for pid in pids}
            final_calls = run.tally.of("A") + run.tally.of("F")
            assert run.tally.of("E") - final_calls <= 2 * pending + 100
        grown = {pid: most[pid] - before[pid] for pid in pids}
        assert all(growth < GROWTH for growth in grown.values()), grown
        seconds = time.monotonic() - began
        assert run.tally.of("E") - emitted <= 2 * 200 * seconds + 2 * pending, "the spout is slowed"
        total = run.drain()
        assert not total.failed, "waiting tuples do not fail"


@pytest.mark.parametrize("kind", [Hanging, Spinning])
def test_a_bolt_that_hangs_is_shown_with_its_stack_and_its_worker_is_replaced(
    tmp_path: Path, kind: type[Misbehaving]
) -> None:
    # One hangs; the other is calm once the file exists, so only one worker is replaced.
    with ledger_run(
        tmp_path, relay=kind(str(tmp_path)), conf={"topology.bolt.hang.secs": 2}, flowing=False
    ) as run:
        run.wait_for(lambda: len(lives(tmp_path)) >= 3, "another life of the relay")
        run.flows(cap=5 * RECOVERY)
        words = logs(run)
        assert "hang_for_ever" in words, "the stack of the call that hangs"
        notes = run.cluster.status(run.name).notes
        assert any("status 72" in note and "relay" in note for note in notes), notes
        total = run.drain()
        assert total.failed["lost"] or total.orphaned


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Exiting, "ended with status 1"),
        pytest.param(Segfaulting, "SIGSEGV", marks=pytest.mark.soak),
        pytest.param(Aborting, "SIGABRT", marks=pytest.mark.soak),
        (Unprepared, "the pump is dry"),
    ],
)
def test_a_bolt_that_ends_its_process_is_restarted_ever_more_rarely_and_disturbs_no_other_topology(
    tmp_path: Path, kind: type[Misbehaving], cause: str, soak: float
) -> None:
    other_books = tmp_path / "other"
    other_books.mkdir()
    bad = ledger_topology(
        other_books, name="bad", relay=kind(str(other_books)), spouts=1, bolts=1, workers=1, conf=dict(QUICK)
    )
    with ledger_run(tmp_path, Surroundings(slots=4)) as run:
        pids = run.pids()
        run.cluster.submit(bad)
        run.wait_for(lambda: cause in repr(run.cluster.status("bad")), f"{cause!r} in status")
        began = time.monotonic()
        run.last_for(4.0 * soak, 1.0, lambda _: run.flows(cap=5 * RECOVERY))
        starts = [start for start in lives(other_books) if start >= began]
        assert len(starts) <= 4, f"one worker, waiting 1, 2, 4, ... seconds: {starts}"
        assert run.pids() == pids, "the workers of the other topology were left alone"
        run.cluster.kill("bad", wait_secs=0)
        run.wait_for(
            lambda: "bad" not in run.cluster.topologies(), "the end of the bad topology", cap=5 * RECOVERY
        )
        total = run.drain()
        assert not total.failed
        assert (total.spout_lives, total.duplicates) == (2, 0)


def test_a_bolt_that_misbehaved_once_works_again(tmp_path: Path) -> None:
    with ledger_run(tmp_path, relay=Exiting(str(tmp_path)), flowing=False) as run:
        run.wait_for(lambda: len(lives(tmp_path)) >= 4, "second lives")
        calm(tmp_path)
        run.flows(cap=5 * RECOVERY)


def test_sys_exit_in_a_bolt_fails_its_tuple_and_ends_no_process(tmp_path: Path) -> None:
    with ledger_run(tmp_path, relay=Leaving(str(tmp_path)), flowing=False) as run:
        run.wait_for(lambda: run.tally.of("F") > 0, "the first failure")
        run.wait_for(lambda: "SystemExit" in run.text(), "the error in status")
        calm(tmp_path)
        run.flows(cap=5 * RECOVERY)
        assert run.drain().spout_lives == 2


def test_a_grandchild_started_by_user_code_ends_with_its_worker(tmp_path: Path) -> None:
    with ledger_run(tmp_path, relay=Forking(str(tmp_path))) as run:
        victim = next(one for one in run.workers() if any(p.parent == one.pid for p in leaks.all_processes()))
        grandchild = next(p for p in leaks.all_processes() if p.parent == victim.pid)
        os.kill(victim.pid, signal.SIGKILL)
        run.gone(grandchild.pid)
        run.replaced(victim.worker, victim.pid)


def test_lives_are_read_in_order(tmp_path: Path) -> None:
    for name in ("lives-3-7-2000000000", "lives-4-7-1000000000"):
        Path(tmp_path, name).touch()
    assert lives(tmp_path) == [1.0, 2.0]
    assert misbehaving.LIVES == "lives"
