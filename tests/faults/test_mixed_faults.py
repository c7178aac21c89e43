"""Faults of all kinds, each made before the last one is over, under as much load as possible."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.links import Links
from tests.faults.running import Run, Surroundings, ledger_run
from topology_api import SquallError

pytestmark = pytest.mark.faults

RECOVERY = 30.0


class Chance:
    """Makes one random fault after another."""

    def __init__(self, run: Run, links: Links, seed: int) -> None:
        self.run = run
        self.links = links
        self.random = random.Random(seed)
        self.frozen: list[int] = []
        self.done: list[str] = []

    def step(self, _: int) -> None:
        """Make a fault, and heal some of the earlier ones."""
        if self.random.random() < 0.4:
            self.heal()
        fault: Callable[[], object] = self.random.choice(
            [self.kill, self.freeze, self.terminate, self.cut, self.break_off, self.rebalance, self.pause]
        )
        self.done.append(fault.__name__)
        with suppress(
            ProcessLookupError, SquallError
        ):  # it has ended meanwhile, or this is not allowed in its state
            fault()

    def heal(self) -> None:
        self.links.heal()
        while self.frozen:
            with suppress(ProcessLookupError):
                os.kill(self.frozen.pop(), signal.SIGCONT)
        with suppress(SquallError):
            self.run.cluster.activate(self.run.name)

    def signal(self, number: signal.Signals) -> int | None:
        workers = self.run.workers()
        if not workers:
            return None
        pid = self.random.choice(workers).pid
        os.kill(pid, number)
        return pid

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def freeze(self) -> None:
        pid = self.signal(signal.SIGSTOP)
        if pid is not None:
            self.frozen.append(pid)

    def cut(self) -> None:
        names = [one.worker for one in self.run.workers()]
        if len(names) >= 2:
            self.links.cut(*self.random.sample(names, 2))

    def break_off(self) -> None:
        names = [one.worker for one in self.run.workers()]
        if len(names) >= 2:
            self.links.break_off(*self.random.sample(names, 2))

    def rebalance(self) -> None:
        tasks = {"relay": self.random.randint(1, 3), "sink": self.random.randint(1, 3)}
        self.run.cluster.rebalance(self.run.name, workers=self.random.randint(1, 3), parallelism=tasks)

    def pause(self) -> None:
        self.run.cluster.deactivate(self.run.name)


@pytest.mark.parametrize("seed", [1])
def test_any_faults_in_any_order_lose_no_acked_tuple(tmp_path: Path, seed: int, soak: float) -> None:
    links = Links()
    conf = {"topology.max.spout.pending": 200, "topology.message.timeout.secs": 5}
    with ledger_run(tmp_path, Surroundings(slots=3, links=links), rate=400.0, conf=conf) as run:
        chance = Chance(run, links, round(seed * soak))
        run.last_for(12.0 * soak, 0.7, chance.step)
        chance.heal()
        began = time.monotonic()
        run.wait_for(lambda: run.status().state == "ACTIVE", f"work after {chance.done}", cap=5 * RECOVERY)
        run.flows(cap=5 * RECOVERY - (time.monotonic() - began))
        run.drain()
