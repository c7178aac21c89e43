"""Workers are killed by SIGKILL under load: each is replaced, and no acked tuple is lost."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults import leaks
from tests.faults.ledger_topology import AsyncRelay, BatchRelay, HoldingRelay, SlowRelay, ThreadedRelay
from tests.faults.running import Run, ledger_run
from topology_api import Bolt, Replay

pytestmark = pytest.mark.faults

EVERY = 3.0
#: More than the time in which a killed worker is replaced and takes tuples again.
RECOVERY = 25.0
LOADS: dict[str, dict[str, Any]] = {
    "steady": {},
    "replays of the runtime": {"replay": Replay(max_attempts=1000, first_delay=0.05, max_delay=1.0)},
    "deep backlog": {
        "rate": None,
        "relay": SlowRelay(0.0005),
        "conf": {"topology.max.spout.pending": 5000},
    },
}


def kill_one(run: Run, chance: random.Random, component: str | None = None) -> None:
    """SIGKILL to a running worker (one with tasks of a component, if named)."""
    workers = run.workers() if component is None else run.hosts_of(component)
    if workers:
        victim = chance.choice(workers)
        os.kill(victim.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        pytest.param("steady", 9.0, marks=pytest.mark.soak),
        pytest.param("replays of the runtime", 6.0, marks=pytest.mark.soak),
        ("deep backlog", 6.0),
    ],
)
def test_killing_a_random_worker_every_three_seconds_loses_no_acked_tuple(
    tmp_path: Path, load: str, seconds: float, soak: float
) -> None:
    chance = random.Random(load)
    with ledger_run(tmp_path, **LOADS[load]) as run:
        run.last_for(seconds * soak, EVERY, lambda _: kill_one(run, chance))
        run.flows(cap=5 * RECOVERY)
        total = run.drain()
        assert total.spout_lives > 2, "workers were replaced"
        assert total.orphaned or total.failed or load == "replays of the runtime", "tuples were in flight"


def test_the_unix_sockets_of_a_killed_worker_are_removed(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        victim, *_ = run.workers()
        left = leaks.listening_paths(victim.pid)
        assert len(left) == 2, "one for tuples, one for the rest"
        os.kill(victim.pid, signal.SIGKILL)
        again = run.replaced(victim.worker, victim.pid)
        run.flows(cap=5 * RECOVERY)
        assert not [path for path in left - leaks.listening_paths(again) if os.path.exists(path)]


def test_killing_the_worker_that_tracks_the_trees_loses_no_acked_tuple(tmp_path: Path, soak: float) -> None:
    chance = random.Random(1)
    with ledger_run(tmp_path, spouts=1) as run:
        assert len(run.hosts_of("numbers")) == 1
        run.last_for(6.0 * soak, EVERY, lambda _: kill_one(run, chance, "numbers"))
        run.flows(cap=5 * RECOVERY)
        total = run.drain()
        assert total.spout_lives >= 3
        assert total.sink_lives >= 4


def test_killing_a_worker_without_the_tracker_fails_the_tuples_it_held_at_once(tmp_path: Path) -> None:
    # Without the report of the lost worker all these trees would fail by the timeout, 20 seconds later; those of the few tuples
    # that it had executed, and whose outputs or acks had not left, still do.
    with ledger_run(
        tmp_path, spouts=1, relay=SlowRelay(0.005), rate=None, conf={"topology.message.timeout.secs": 20}
    ) as run:
        (tracker,) = run.hosts_of("numbers")
        other = next(one for one in run.workers() if one.worker != tracker.worker)
        os.kill(other.pid, signal.SIGKILL)
        run.wait_for(lambda: run.tally.of("F") > 0, "the first failure, long before the timeout")
        run.replaced(other.worker, other.pid)
        run.flows(cap=5 * RECOVERY)
        total = run.drain()
        assert set(total.failed) <= {"lost", "timeout"}
        assert total.failed["lost"] > 5 * total.failed["timeout"]
        assert total.spout_lives == 1, "the tracker's worker was not touched"


@pytest.mark.parametrize("relay", [ThreadedRelay(0.001), AsyncRelay(), BatchRelay(), HoldingRelay()])
def test_bolts_of_every_kind_may_be_killed_with_the_tuples_they_hold(
    tmp_path: Path, relay: Bolt, soak: float
) -> None:
    chance = random.Random(type(relay).__name__)
    # Tuples held by a bolt that died with its process fail by the timeout, if by nothing else.
    with ledger_run(tmp_path, relay=relay, conf={"topology.message.timeout.secs": 4}) as run:
        run.last_for(2.0 * soak, 2.0, lambda _: kill_one(run, chance))
        run.flows(cap=5 * RECOVERY)
        assert run.drain().spout_lives > 2


def test_both_workers_killed_at_once_come_back(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        pids = run.pids()
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for worker, pid in pids.items():
            run.replaced(worker, pid)
        run.flows(cap=5 * RECOVERY)
        assert run.drain().spout_lives == 4


def test_a_worker_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        (first, *_) = run.workers()
        os.kill(first.pid, signal.SIGKILL)
        young = run.replaced(first.worker, first.pid)
        os.kill(young, signal.SIGKILL)
        run.replaced(first.worker, young)
        run.flows(cap=5 * RECOVERY)


def test_the_report_of_a_killed_worker_names_the_signal(tmp_path: Path) -> None:
    with ledger_run(tmp_path) as run:
        (first, *_) = run.workers()
        os.kill(first.pid, signal.SIGKILL)
        run.wait_for(lambda: "SIGKILL" in run.text(), "the cause in status")
        assert f"{first.pid}" in run.text()
        run.flows(cap=5 * RECOVERY)
