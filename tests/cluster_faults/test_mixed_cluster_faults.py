"""Faults of all kinds on a real cluster, each made before the last one is over: daemons, workers and ways to ZooKeeper.

The topology has every kind of bolt. `--soak N` lets the faults last N times as long, with seeds that the usual run has not.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.daemon_processes import Daemon
from tests.faults import ledger
from tests.faults.mixed_topology import mixed_problems
from tests.faults.proxy import Proxy
from tests.killable import freeze
from tests.zookeeper_servers import ZooKeeperServer
from topology_api import SquallError

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

#: Seconds of faults, and between two of them.
FAULTS_SECS, STEP_SECS = 20.0, 0.8
NIMBUSES = SUPERVISORS = 2
#: Upper limit in seconds for all that a fault has to be recovered from: a lease, a session, and a start of everything.
RECOVERY = 120.0


class ClusterChance:
    """Makes one random fault after another."""

    def __init__(self, run: ClusterRun, proxies: list[Proxy], seed: int) -> None:
        self.run = run
        self.proxies = proxies
        self.random = random.Random(seed)
        self.done: list[str] = []
        #: Suspended workers.
        self.frozen: set[int] = set()
        #: When each suspended worker was resumed (`time.monotonic_ns`).
        self.resumed: dict[int, int] = {}

    @property
    def daemons(self) -> list[Daemon]:
        return [*self.run.daemons.nimbuses, *self.run.daemons.supervisors]

    def step(self) -> None:
        """Make a fault, and heal the earlier ones now and then."""
        if self.random.random() < 0.3:
            self.heal()
        fault: Callable[[], None] = self.random.choice(
            [
                *[self.kill_a_worker, self.freeze_a_worker, self.terminate_a_worker],
                *[self.kill_a_daemon, self.freeze_a_daemon, self.terminate_a_daemon],
                *[self.cut_off_a_daemon, self.break_a_connection, self.rebalance, self.pause],
            ]
        )
        self.done.append(fault.__name__)
        with suppress(
            ProcessLookupError, SquallError
        ):  # it has ended meanwhile, or its state does not allow this
            fault()

    def heal(self) -> None:
        """Let everything run again."""
        for proxy in self.proxies:
            proxy.heal()
        for pid in self.frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                self.resumed[pid] = time.monotonic_ns()
        self.frozen.clear()
        for daemon in self.daemons:
            if daemon.runs:
                daemon.thaw()
            else:
                daemon.start()

    def a_worker(self) -> int:
        pids = sorted(self.run.pids() - self.frozen)
        if not pids:
            raise ProcessLookupError
        return self.random.choice(pids)

    def a_daemon(self) -> Daemon:
        running = [daemon for daemon in self.daemons if daemon.runs]
        if not running:
            raise ProcessLookupError
        return self.random.choice(running)

    def kill_a_worker(self) -> None:
        os.kill(self.a_worker(), signal.SIGKILL)

    def terminate_a_worker(self) -> None:
        os.kill(self.a_worker(), signal.SIGTERM)

    def freeze_a_worker(self) -> None:
        pid = self.a_worker()
        self.frozen.add(pid)
        freeze(pid)

    def kill_a_daemon(self) -> None:
        self.a_daemon().kill()

    def terminate_a_daemon(self) -> None:
        daemon = self.a_daemon()
        daemon.thaw()
        daemon.stop()

    def freeze_a_daemon(self) -> None:
        self.a_daemon().freeze()

    def cut_off_a_daemon(self) -> None:
        self.random.choice(self.proxies).cut()

    def break_a_connection(self) -> None:
        self.random.choice(self.proxies).break_off()

    def rebalance(self) -> None:
        tasks = {kind: self.random.randint(1, 3) for kind in ("rich", "batch", "threaded", "async")}
        self.ask("rebalance", {"workers": self.random.randint(1, 3), "parallelism": tasks})

    def pause(self) -> None:
        self.ask("deactivate", {})

    def ask(self, command: str, body: dict[str, object]) -> None:
        """Ask the leader for a change, if there is one."""
        self.run.daemons.client.post(f"topologies/{self.run.name}/{command}", body)

    def thawed(self) -> dict[int, int]:
        """The suspended workers whose tasks had moved elsewhere when they were resumed: a later life had begun."""
        lives = ledger.lives_of(ledger.read(self.run.books), ledger.SPOUT)
        return {
            life.pid: self.resumed[life.pid]
            for life in lives
            if life.pid in self.resumed
            and any(
                life.began < other.began < self.resumed[life.pid]
                for other in lives
                if other.index == life.index
            )
        }


@contextmanager
def mixed_cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[tuple[ClusterRun, list[Proxy]]]:
    """A cluster in which each daemon reaches ZooKeeper through a proxy of its own."""
    host, _, port = zookeeper.servers.partition(":")
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy((host, int(port)))) for _ in range(NIMBUSES + SUPERVISORS)]
        ways = [f"{proxy.address[0]}:{proxy.address[1]}" for proxy in proxies]
        run = stack.enter_context(
            ledger_cluster(
                tmp_path,
                ways,
                direct=zookeeper.servers,
                nimbuses=NIMBUSES,
                supervisors=SUPERVISORS,
                slots=4,
                kinds="mixed",
                rate=100,
            )
        )
        yield run, proxies


@pytest.mark.parametrize("seed", [1, 2])
def test_any_faults_of_a_cluster_lose_double_or_reorder_nothing(
    tmp_path: Path, zookeeper: ZooKeeperServer, seed: int, soak: float
) -> None:
    with mixed_cluster(tmp_path, zookeeper) as (run, proxies):
        chance = ClusterChance(run, proxies, seed if soak == 1 else seed + round(1000 * soak))
        end = time.monotonic() + FAULTS_SECS * soak
        while time.monotonic() < end:
            chance.step()
            time.sleep(STEP_SECS)
        chance.heal()
        run.is_whole()
        run.wait_for(lambda: activated(run), f"work after {chance.done}", cap=RECOVERY)
        run.flows(cap=RECOVERY)
        run.thawed.update(chance.thawed())
        run.drain(cap=RECOVERY)
        assert mixed_problems(run.books) == [], chance.done


def activated(run: ClusterRun) -> bool:
    """Whether the topology is active; if not, it is asked to be."""
    state = run.state()
    if state == "INACTIVE":
        run.daemons.asked(lambda: run.daemons.client.post(f"topologies/{run.name}/activate", {}))
    return state == "ACTIVE"
