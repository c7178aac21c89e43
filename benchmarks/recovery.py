"""How long a cluster with default settings takes to recover from each fault: the seconds behind the table in docs/cluster.md.

Each round starts a cluster of its own on this machine: a real ZooKeeper with its usual tick, two Nimbuses, two supervisors with
two slots each. A topology of two workers acks 100 tuples a second. Then one fault is made, and the seconds until the cluster
has recovered are read from the topology's own record of its acks, so that this process's pace does not count. A round ends
with the checks of the tests: a run that lost an acked tuple, or left a process or a record behind, fails and prints no figure.
It has the requirements of the tests (`pip install -e '.[dev]'`, and Java).

    python -m benchmarks recovery [--rounds 3] [--only worker-killed,host-lost]

Must not know: what the documents promise (tests/repository/promised_bounds.py).
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.child import machine
from squall.cluster.zookeeper.server import ServerPlan
from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.daemon_processes import QUICK
from tests.faults.ledger import SPOUT, lives_of, read
from tests.killable import freeze
from tests.zookeeper_servers import ZooKeeperServer, free_ports
from topology_api.options import OPTIONS

Figures = dict[str, float]
#: The daemons' options that tests shorten, as a site has them that sets none.
DEFAULTS = {name: OPTIONS[name].default for name in QUICK}
#: Tuples a second of each of the two spout tasks: little, so that the machine's speed does not decide.
RATE = 50
#: How long a store, ZooKeeper or a supervisor is away.
AWAY = 10.0
#: The same in `store-away-long`, which runs only if it is named.
LONG_AWAY = 600.0
#: The longest wait for one recovery. The slowest by default takes the 30 s after which a silent host is given up.
CAP = 120.0


@dataclass
class Scene:
    """A cluster in which one fault is made."""

    run: ClusterRun
    zookeeper: ZooKeeperServer
    #: While this file exists, the topology's relay raises, as a bolt does whose store is away.
    away: Path

    def now(self) -> int:
        """The clock of the topology's record, in nanoseconds."""
        return time.monotonic_ns()

    def victim(self) -> tuple[int, int]:
        """A worker's process, and the supervisor that runs it."""
        for number in range(len(self.run.daemons.supervisors)):
            for started in self.run.daemons.processes(number).values():
                return started.pid, number
        raise AssertionError("no worker runs")

    def spouts_in(self, pids: Iterable[int]) -> list[int]:
        """Which spout tasks ran in these processes."""
        wanted = set(pids)
        found = [life.index for life in lives_of(read(self.run.books), SPOUT) if life.pid in wanted]
        assert found, "no spout task ran there"
        return found

    def acks_of(self, index: int, since: int) -> list[int]:
        """When a spout task got its acks, from a moment on."""
        lives = lives_of(read(self.run.books), SPOUT, index)
        return sorted(entry.at for life in lives for entry in life.of("A") if entry.at > since)

    def reborn(self, pids: list[int], fault: int) -> float:
        """Seconds from the fault until each spout task of these processes has its first ack in another process."""
        indices = self.spouts_in(pids)

        def firsts() -> list[int]:
            lives = [life for life in lives_of(read(self.run.books), SPOUT) if life.began > fault]
            acks = (
                [entry.at for life in lives if life.index == each for entry in life.of("A")]
                for each in indices
            )
            return [min(each) for each in acks if each]

        self.run.wait_for(lambda: len(firsts()) == len(indices), "acks in a new process", CAP, pace=0.2)
        return (max(firsts()) - fault) / 1e9

    def longest_pause(self, since: int) -> float:
        """The longest time that a spout task was without an ack, from a moment until now."""
        until = self.now()
        return max(
            (later - earlier) / 1e9
            for index in {life.index for life in lives_of(read(self.run.books), SPOUT)}
            for earlier, later in pairwise([since, *self.acks_of(index, since), until])
        )

    def lasts(self, seconds: float) -> None:
        """Let the fault last; it is what is measured."""
        time.sleep(seconds)

    def submit(self, name: str) -> str:
        """Run `squall submit`; return why it was refused, "" if it was accepted."""
        (self.run.books.with_name(name)).mkdir(exist_ok=True)
        books = f"books={self.run.books.with_name(name)}"
        done = self.run.daemons.squall("submit", str(self.run.file), "--", books, f"name={name}", cap=CAP)
        return done.stderr if done.returncode else ""


def since(fault: int) -> float:
    return (time.monotonic_ns() - fault) / 1e9


def worker_killed(scene: Scene) -> Figures:
    pid, _ = scene.victim()
    fault = scene.now()
    os.kill(pid, signal.SIGKILL)
    return {"first ack of its tasks": scene.reborn([pid], fault)}


def worker_frozen(scene: Scene) -> Figures:
    pid, _ = scene.victim()
    fault = scene.now()
    freeze(pid)
    return {"first ack of its tasks": scene.reborn([pid], fault)}


def host_lost(scene: Scene) -> Figures:
    daemons = scene.run.daemons
    _, lost = scene.victim()
    pids = [started.pid for started in daemons.processes(lost).values()]
    others = set(daemons.processes(1 - lost))
    fault = scene.now()
    daemons.supervisors[lost].kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    scene.run.wait_for(lambda: set(daemons.processes(1 - lost)) - others, "workers on the other host", CAP)
    placed = since(fault)
    acked = scene.reborn(pids, fault)
    daemons.supervisors[lost].start()
    scene.run.is_whole()
    return {"a worker elsewhere": placed, "first ack of its tasks": acked}


def supervisor_killed(scene: Scene) -> Figures:
    _, lost = scene.victim()
    workers = scene.run.pids()
    daemon = scene.run.daemons.supervisors[lost]
    fault = scene.now()
    daemon.kill()
    scene.lasts(AWAY)
    daemon.start()
    scene.run.is_whole()
    scene.run.flows()
    assert scene.run.pids() == workers, "a worker did not outlive its supervisor"
    assert not scene.run.failed(), "tuples failed"
    return {f"longest pause between two acks (away for {AWAY:g} s)": scene.longest_pause(fault)}


def leader_killed(scene: Scene) -> Figures:
    daemons = scene.run.daemons
    scene.run.is_whole()
    began = scene.now()
    assert not (why := scene.submit("before")), why
    usual = since(began)
    leader = daemons.leader()
    assert leader is not None
    fault, killed_at = scene.now(), datetime.now()
    daemons.nimbuses[leader].kill()
    assert daemons.squall("list").returncode == 0
    listed = since(fault)
    assert not (why := scene.submit("after")), f"the submit gave up: {why}"
    accepted = since(fault)
    led = began_to_lead(daemons.nimbuses[1 - leader].text()) - killed_at
    pause = scene.longest_pause(fault)
    assert not scene.run.failed(), "tuples failed"
    daemons.nimbuses[leader].start()
    end_others(scene.run, "before", "after")
    return {
        "another Nimbus leads": led.total_seconds(),
        "`squall list` answered": listed,
        "`squall submit` accepted": accepted,
        "(`squall submit` without a fault)": usual,
        "longest pause between two acks": pause,
    }


def began_to_lead(log: str) -> datetime:
    """When a Nimbus last began to lead, by its log."""
    line = next(line for line in reversed(log.splitlines()) if "leads (epoch" in line)
    return datetime.strptime(" ".join(line.split()[:2]), "%Y-%m-%d %H:%M:%S,%f")


def zookeeper_killed(scene: Scene) -> Figures:
    fault = scene.now()
    scene.zookeeper.kill()
    began = scene.now()
    assert scene.submit("during"), "accepted without ZooKeeper"
    refused = since(began)
    scene.lasts(max(0.0, AWAY - since(fault)))
    back = scene.now()
    scene.zookeeper.start(wait=False)
    scene.run.wait_for(lambda: not scene.submit("after"), "an accepted submit", CAP)
    accepted = since(back)
    pause = scene.longest_pause(fault)
    assert not scene.run.failed(), "tuples failed"
    end_others(scene.run, "after")
    return {
        "`squall submit` refused while it is away": refused,
        "`squall submit` accepted, from its start": accepted,
        "longest pause between two acks": pause,
    }


def end_others(run: ClusterRun, *names: str) -> None:
    """Kill the topologies that a scene submitted."""
    for name in names:
        run.obey("kill", name, "-w", "0", "--wait")


def store_away(scene: Scene, seconds: float = AWAY) -> Figures:
    scene.away.touch()
    scene.lasts(seconds)
    scene.away.unlink()
    back = scene.now()
    lives = lives_of(read(scene.run.books), SPOUT)
    waiting = {entry.emission for life in lives for entry in life.of("E") if entry.at < back}

    def acked() -> dict[tuple[int, int], int]:
        lives = lives_of(read(scene.run.books), SPOUT)
        return {entry.emission: entry.at for life in lives for entry in life.of("A")}

    scene.run.wait_for(lambda: waiting <= acked().keys(), "the acks of what waited", CAP, pace=0.5)
    times = [at for emission, at in acked().items() if emission in waiting and at > back]
    assert not scene.run.failed(), "tuples failed"
    return {
        "first ack, from its return": (min(times) - back) / 1e9,
        "all that waited acked, from its return": (max(times) - back) / 1e9,
    }


SCENES: dict[str, tuple[str, Callable[[Scene], Figures]]] = {
    "worker-killed": ("a worker is killed", worker_killed),
    "worker-frozen": ("a worker is frozen (SIGSTOP)", worker_frozen),
    "host-lost": ("a supervisor and its workers are killed", host_lost),
    "supervisor-killed": ("a supervisor alone is killed, and started again", supervisor_killed),
    "leader-killed": ("the leading Nimbus is killed", leader_killed),
    "zookeeper-killed": (f"ZooKeeper is killed, and started again after {AWAY:g} s", zookeeper_killed),
    "store-away": (f"a bolt's store is away for {AWAY:g} s", store_away),
    "store-away-long": (
        f"a bolt's store is away for {LONG_AWAY:g} s",
        partial(store_away, seconds=LONG_AWAY),
    ),
}


@contextmanager
def a_scene(folder: Path) -> Iterator[Scene]:
    """A cluster with default settings whose tuples flow; afterwards its ledger must add up, and nothing of it may be left."""
    away = folder / "the-store-is-away"
    plan = ServerPlan(folder / "zk", "127.0.0.1", free_ports(1)[0])
    with (
        ZooKeeperServer(folder, plan=plan) as zookeeper,
        ledger_cluster(
            folder / "run",
            zookeeper.servers,
            site=DEFAULTS,
            nimbuses=2,
            liveness="default",
            rate=RATE,
            away=away,
        ) as run,
    ):
        run.is_whole()
        yield Scene(run, zookeeper, away)


def main() -> None:
    """Measure each scenario `rounds` times and print the results as a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only",
        default=",".join(name for name in SCENES if name != "store-away-long"),
        help=f"names of scenes, with commas between them: {', '.join(SCENES)}",
    )
    options = parser.parse_args()
    print(f"{machine()}; {options.rounds} rounds")
    print("\n| fault | seconds until | median | least | greatest |\n|---|---|---|---|---|")
    for name in options.only.split(","):
        title, scene = SCENES[name]
        rounds: list[Figures] = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "run").mkdir()
                with a_scene(Path(folder)) as staged:
                    rounds.append(scene(staged))
        for what in rounds[0]:
            values = [figures[what] for figures in rounds]
            print(
                f"| {title} | {what} | {median(values):.1f} | {min(values):.1f} | {max(values):.1f} |",
                flush=True,
            )
    print(f"\nload average afterwards: {', '.join(f'{value:.1f}' for value in os.getloadavg())}")
