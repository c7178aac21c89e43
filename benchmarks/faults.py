"""How long a topology over worker processes takes to recover from a fault: the seconds behind the limits in tests/faults.

Each round makes one fault in a cluster of two workers under a steady load, waits until tuples of the affected part are acked
again, and ends by checking the ledger: a run that lost an acked tuple fails, and prints no figure. It has the requirements of
the tests (`pip install -e '.[test]'`).

    python -m benchmarks faults [--rounds 5] [--only kill,cut]
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.child import machine, spread
from tests.faults.ledger import SPOUT, lives_of, read
from tests.faults.links import Links
from tests.faults.misbehaving import Hanging, lives
from tests.faults.running import Run, Surroundings, ledger_run

Figures = dict[str, float]
#: Seconds that a link stays cut.
CUT = 6.0


def since(moment: float) -> float:
    return time.monotonic() - moment


def hit_part_flows(run: Run, pid: int, began: float) -> float:
    """Seconds until the spout task of a new process (not among those of `pid`) gets its first ack."""

    def acked() -> bool:
        return any(
            life.pid == pid and next(life.of("A"), None) is not None
            for life in lives_of(read(run.books), SPOUT)
        )

    run.wait_for(acked, "an ack in the new process")
    return since(began)


def kill(folder: Path, number: signal.Signals = signal.SIGKILL) -> Figures:
    with ledger_run(folder, rate=100.0) as run:
        victim, _ = run.workers()
        began = time.monotonic()
        os.kill(victim.pid, number)
        pid = run.replaced(victim.worker, victim.pid)
        started = since(began)
        return {"new process": started, "its first ack": hit_part_flows(run, pid, began)}


def terminate(folder: Path) -> Figures:
    return kill(folder, signal.SIGTERM)


def lost(folder: Path) -> Figures:
    """From the kill of a worker until the tuples that it held fail, at a spout elsewhere."""
    with ledger_run(folder, spouts=1) as run:
        (tracker,) = run.hosts_of("numbers")
        other = next(one for one in run.workers() if one.worker != tracker.worker)
        began = time.monotonic()
        os.kill(other.pid, signal.SIGKILL)
        run.wait_for(lambda: run.tally.of("F") > 0, "the first failure")
        return {"first failure as lost": since(began)}


def freeze(folder: Path) -> Figures:
    with ledger_run(folder, rate=100.0) as run:
        victim, _ = run.workers()
        began = time.monotonic()
        os.kill(victim.pid, signal.SIGSTOP)
        pid = run.replaced(victim.worker, victim.pid)
        started = since(began)
        return {"new process": started, "its first ack": hit_part_flows(run, pid, began)}


def hang(folder: Path) -> Figures:
    conf = {"topology.bolt.hang.secs": 2}
    with ledger_run(folder, relay=Hanging(str(folder)), conf=conf, flowing=False) as run:
        run.wait_for(lambda: len(lives(folder)) >= 2, "the relays")
        began = max(lives(folder)[:2])
        run.wait_for(lambda: len(lives(folder)) >= 3, "another life of the relay")
        found = {"the relay's next life": lives(folder)[2] - began}
        run.flows(50)
        return found


def cut(folder: Path, both: bool = False) -> Figures:
    links = Links()
    with ledger_run(folder, Surroundings(links=links), conf={"topology.message.timeout.secs": 60}) as run:
        first, second = run.pids()
        connections = links.connections()
        began = time.monotonic()
        links.cut(first, second)
        if both:
            links.cut(second, first)
        run.wait_for(lambda: links.connections() > connections, "new connections")
        noticed = since(began)
        time.sleep(max(0.0, CUT - since(began)))
        healed = time.monotonic()
        links.heal()
        run.flows(50)
        flowing = since(healed)
        run.drain()
        return {
            "noticed": noticed,
            "flows after it healed": flowing,
            "all settled after it healed": since(healed),
        }


def cut_both_ways(folder: Path) -> Figures:
    return cut(folder, both=True)


def rebalance(folder: Path) -> Figures:
    with ledger_run(folder) as run:
        began = time.monotonic()
        run.cluster.rebalance(run.name, parallelism={"sink": 3})
        run.wait_for(lambda: run.status().state == "REBALANCING", "the rebalance")
        run.wait_for(lambda: run.status().state == "ACTIVE", "the end of the rebalance")
        active = since(began)
        run.flows(1)
        return {"active again": active, "first ack": since(began)}


SCENES: dict[str, tuple[str, Callable[[Path], Figures]]] = {
    "kill": ("SIGKILL of a worker", kill),
    "lost": ("SIGKILL of a worker, seen by a spout elsewhere", lost),
    "terminate": ("SIGTERM of a worker", terminate),
    "freeze": ("SIGSTOP of a worker, worker timeout 3 s", freeze),
    "hang": ("a bolt hangs, topology.bolt.hang.secs 2", hang),
    "cut": (f"a link cut one way for {CUT:g} s", cut),
    "cut-both": (f"a link cut both ways for {CUT:g} s", cut_both_ways),
    "rebalance": ("rebalance to another number of tasks", rebalance),
}


def main() -> None:
    """Measure each scenario `rounds` times and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(SCENES), help="names of scenes, with commas between them")
    options = parser.parse_args()
    print(machine())
    print("median (least to greatest), seconds from the fault unless it says otherwise")
    for name in options.only.split(","):
        title, scene = SCENES[name]
        rounds: list[Figures] = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(scene(Path(folder)))
        for what in rounds[0]:
            print(f"{title}: {what} {spread([figures[what] for figures in rounds], '.2f')}", flush=True)
