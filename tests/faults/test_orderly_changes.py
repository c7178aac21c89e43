"""SIGTERM, rebalance, activate and deactivate under load: orderly changes make no tuple fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.ledger import SPOUT, lives_of, owner_changes, read
from tests.faults.running import Run, ledger_run

pytestmark = pytest.mark.faults

CHANGE = 20.0
KEYS = 64


def state_is(run: Run, *states: str) -> bool:
    return run.status().state in states


def settled(run: Run) -> None:
    """Wait until a rebalance is over."""
    run.wait_for(lambda: state_is(run, "ACTIVE"), "the end of the rebalance", cap=5 * CHANGE)


def paused(run: Run, times: int) -> None:
    """Wait until spouts were asked to pause this often."""
    run.wait_for(lambda: run.tally.of("P") >= times, "the spouts to pause", cap=5 * CHANGE)


def test_sigterm_of_each_worker_in_turn_drains_it_and_fails_nothing(tmp_path: Path, soak: float) -> None:
    with ledger_run(tmp_path) as run:
        for _ in range(max(1, round(2 * soak))):
            for name in list(run.pids()):
                victim = run.worker(name)
                os.kill(victim.pid, signal.SIGTERM)
                run.replaced(name, victim.pid, cap=5 * CHANGE)
                run.flows(cap=5 * CHANGE)
        total = run.drain()
        assert not total.failed, "drained: nothing failed"
        assert not total.orphaned, "drained: nothing was left open"
        assert not total.duplicates


def test_rebalances_of_workers_and_tasks_under_load_fail_nothing_and_give_each_key_one_owner(
    tmp_path: Path, soak: float
) -> None:
    changes: list[dict[str, Any]] = [
        {"workers": 1},
        {"parallelism": {"sink": 3}},
        {"workers": 3, "parallelism": {"relay": 3}},
        {"parallelism": {"sink": 2, "relay": 1}},
        {"workers": 2},
        {"parallelism": {"numbers": 3, "sink": 4}},
    ]
    with ledger_run(tmp_path, keys=KEYS) as run:

        def change(number: int) -> None:
            run.flows(10, cap=5 * CHANGE)
            run.cluster.rebalance(run.name, **changes[number % len(changes)])
            settled(run)

        run.last_for(12.0 * soak, 2.0, change)
        run.flows(cap=5 * CHANGE)
        total = run.drain()
        assert not total.failed
        assert not total.orphaned
        assert not total.duplicates
        most = round(6 * soak) + 1
        assert max(owner_changes(read(run.books), KEYS).values(), default=0) <= most


def test_a_rebalance_keeps_workers_whose_tasks_do_not_move(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        before = run.pids()
        run.cluster.rebalance(run.name, parallelism={"sink": 2})
        settled(run)
        run.flows(cap=5 * CHANGE)
        assert run.pids() == before
        assert not run.drain().failed


def test_deactivate_and_activate_under_load_fail_nothing(tmp_path: Path, soak: float) -> None:
    with ledger_run(tmp_path) as run:
        for cycle in range(1, 1 + max(1, round(4 * soak))):
            run.cluster.deactivate(run.name)
            paused(run, 2 * cycle)
            emitted = run.tally.of("E")
            run.wait_for(
                lambda: run.status().components["numbers"].pending == 0, "what is in flight", cap=5 * CHANGE
            )
            assert state_is(run, "INACTIVE")
            assert run.tally.of("E") == emitted
            run.cluster.activate(run.name)
            run.flows(cap=5 * CHANGE)
        total = run.drain()
        assert not total.failed
        assert (total.spout_lives, total.duplicates) == (2, 0), "no process was replaced"


def test_a_kill_with_time_to_drain_leaves_nothing_open(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        run.cluster.kill(run.name, wait_secs=60)
        run.wait_for(
            lambda: run.name not in run.cluster.topologies(), "the end of the topology", cap=5 * CHANGE
        )
        run.add_up()
        assert not run.total.failed
        assert not run.total.orphaned


def test_tuples_left_open_by_a_kill_without_time_fail_as_stopped(tmp_path: Path) -> None:
    with ledger_run(tmp_path, rate=None) as run:
        run.cluster.kill(run.name, wait_secs=0)
        run.wait_for(
            lambda: run.name not in run.cluster.topologies(), "the end of the topology", cap=5 * CHANGE
        )
        run.add_up()
        assert set(run.total.failed) <= {"stopped"}
        assert len(lives_of(read(run.books), SPOUT)) == 2
