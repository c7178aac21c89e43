"""The cost of two worker processes before they do anything: the time to the first ack, their memory, and their CPU when idle.

`python -m benchmarks start --workers 2` prints it. The first tree goes to a bolt task in each of the workers, so that its ack
shows that both run and are connected. Moments are on the clock that all processes share. Memory is read in a worker by the
first call of the user's code: that of Python, Squall and its libraries. Components have no file of their own (they travel by
value), so no user module is included. Linux only. It must not import Squall.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.child import ROOT, environment, spread

__all__ = ["print_workers"]

MARK = """
import os, sys, time
from topology_api import Bolt, Spout, TopologyBuilder

def mark(folder, what, *values):
    with open(os.path.join(folder, what), "a") as file:
        print(os.getpid(), time.monotonic(), *values, file=file)
"""
"""A line in a file: which process, when, and values."""

FIRST_ACK = (
    MARK
    + """
def born():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()

class One(Spout):
    outputs = "number"
    def __init__(self, folder):
        self.folder = folder
    def next_tuple(self):
        mark(self.folder, "emit")
        self.emit((1,), message_id=1)
        self.finish()
    def ack(self, message_id):
        mark(self.folder, "ack")

class Show(Bolt):
    def __init__(self, folder):
        self.folder = folder
    def prepare(self, context):
        mark(self.folder, "prepare", born())
    def execute(self, tup):
        mark(self.folder, "execute")

def topology(folder):
    builder = TopologyBuilder("first-ack", conf={"topology.workers": 2})
    builder.set_spout("one", One(folder))
    builder.set_bolt("show", Show(folder), parallelism=2).all_grouping("one")
    mark(folder, "built")
    return builder.build()
"""
)

BY_HAND = """
if __name__ == "__main__":
    from local_cluster import LocalCluster
    with LocalCluster(processes=True, supervisors=int(sys.argv[2]), slots=2) as cluster:
        cluster.submit(topology(sys.argv[1]))
        cluster.wait("first-ack", timeout=60)
        mark(sys.argv[1], "completed")
    mark(sys.argv[1], "over")
"""

IDLE = (
    MARK
    + """
from local_cluster import LocalCluster

def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = [line.split() for line in file][1:]
    kilobytes = {name: int(size) for name, size, *_ in lines}
    private = kilobytes["Private_Clean:"] + kilobytes["Private_Dirty:"]
    return kilobytes["Rss:"] / 1e3, kilobytes["Pss:"] / 1e3, private / 1e3

def cpu(pid):
    threads = os.listdir(f"/proc/{pid}/task")
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in threads) / 1e9

class Nothing(Spout):
    outputs = "number"
    def next_tuple(self):
        return WAIT

class Ignore(Bolt):
    def __init__(self, folder):
        self.folder = folder
    def prepare(self, context):
        mark(self.folder, "memory", *memory("self"))
    def execute(self, tup):
        pass

folder, supervisors, wait, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
WAIT = None if wait == "None" else float(wait)
builder = TopologyBuilder("idle", conf={"topology.workers": 2})
builder.set_spout("nothing", Nothing(), parallelism=2)
builder.set_bolt("ignore", Ignore(folder), parallelism=2).shuffle_grouping("nothing")
with LocalCluster(processes=True, supervisors=supervisors, slots=2) as cluster:
    cluster.submit(builder.build())
    until = time.monotonic() + 60
    open(os.path.join(folder, "memory"), "a").close()
    pids = set()
    while len(pids) < 2:
        if time.monotonic() > until:
            raise SystemExit("after 60 s there are not two workers with a bolt task that is prepared")
        time.sleep(0.05)
        pids = {int(line.split()[0]) for line in open(os.path.join(folder, "memory"))}
    time.sleep(3.0)
    started, before, own = time.monotonic(), [cpu(pid) for pid in pids], time.process_time()
    time.sleep(seconds)
    taken = time.monotonic() - started
    for pid, first in zip(pids, before):
        mark(folder, "idle", (cpu(pid) - first) / taken, *memory(pid))
    mark(folder, "control", (time.process_time() - own) / taken)
"""
)


@dataclass(frozen=True)
class Mark:
    """A line of a file: the process that wrote it, the time, and the event."""

    pid: int
    at: float
    values: tuple[float, ...]


def marks(folder: str, what: str) -> list[Mark]:
    """Return the lines of a file; none if it does not exist."""
    path = Path(folder, what)
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Mark(int(pid), float(at), tuple(map(float, values))) for pid, at, *values in lines]


def print_workers(rounds: int, idle_seconds: float, supervisors: int) -> None:
    """Measure everything and print it."""
    print("two workers: median (least to greatest), milliseconds")
    if find_spec("worker.process.daemon"):
        imports = [imported("worker.process.daemon") for _ in range(rounds)]
        print(f"import worker.process.daemon:             {spread(imports, '.0f')}")
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        file = Path(folder, "first_ack.py")
        file.write_text(FIRST_ACK + BY_HAND)
        print_starts("script", [[str(file), "FOLDER", str(supervisors)]] * rounds)
        command = ["-m", "squall_cli", "run", str(file), "--workers", "2", "--", "FOLDER"]
        print_starts("squall run --workers 2", [command] * rounds)
    for wait in ("None", "1.0"):
        print_idle(wait, idle_seconds, supervisors)


def print_starts(name: str, commands: list[list[str]]) -> None:
    """The time from the start of the process to the first ack, and the steps of that since the topology was built."""
    runs = [first_ack(command) for command in commands]
    print(f"first ack, {name}: {spread([run['ack'] for run in runs], '.0f')} since the process's start")
    steps = [step for step in ("born", "prepared", "emit", "ack", "completed", "over") if step in runs[0]]
    names = {
        "born": "both workers' processes are there",
        "prepared": "both have prepared their bolt",
        "emit": "the spout emits",
        "ack": "and gets the ack",
        "completed": "wait() returns",
        "over": "shutdown() returns",
    }
    print("  since the topology was built, just before submit:")
    for step in steps:
        print(f"    {names[step]:<36}{spread([run[step] - run['built'] for run in runs], '.0f')}")


def first_ack(command: list[str]) -> dict[str, float]:
    """Milliseconds since just before the process was started."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, *(folder if part == "FOLDER" else part for part in command)],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=90,
        )
        prepared, acks = marks(folder, "prepare"), marks(folder, "ack")
        places = {mark.pid for mark in prepared}
        if done.returncode or len(acks) != 1 or len(places) != 2 or os.getpid() in places:
            raise AssertionError(
                f"{command}: exit {done.returncode}, {len(acks)} acks, prepared in {len(places)} processes\n"
                f"{done.stdout}{done.stderr}"
            )
        moments = {
            "born": max(mark.values[0] for mark in prepared),
            "prepared": max(mark.at for mark in prepared),
        }
        for what in ("built", "emit", "ack", "completed", "over"):
            if found := marks(folder, what):
                moments[what] = found[0].at
    return {what: (at - started) * 1e3 for what, at in moments.items()}


def imported(module: str) -> float:
    """Milliseconds that an import takes in a fresh interpreter."""
    code = (
        f"import time; started = time.perf_counter(); import {module}; print(time.perf_counter() - started)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout) * 1e3


def print_idle(wait: str, seconds: float, supervisors: int) -> None:
    """Memory and CPU of idle workers."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        command = [sys.executable, "-c", IDLE, folder, str(supervisors), wait, str(seconds)]
        subprocess.run(command, cwd=ROOT, env=environment(), check=True, timeout=seconds + 120)
        before, idle, control = (marks(folder, what) for what in ("memory", "idle", "control"))
    if len({mark.pid for mark in before}) != 2:
        raise AssertionError(f"two workers were to have a bolt task each: {before}")
    if wait == "None":
        print("memory of each worker, MB (its own part alone: private; shared pages by share: PSS; all: RSS)")
        for name, found, first in (
            ("before the user's code", before, 0),
            (f"after {seconds + 3:g} s", idle, 1),
        ):
            texts = []
            for at, kind in enumerate(("RSS", "PSS", "private"), first):
                texts.append(f"{kind} {spread([mark.values[at] for mark in found], '.1f')}")
            print(f"  {name:<24}{', '.join(texts)}")
    workers = ", ".join(f"{mark.values[0]:.2%}" for mark in idle)
    print(
        f"idle, next_tuple gives {wait + ':':<6}{workers} of a core; Nimbus and supervisors: {control[0].values[0]:.2%}"
    )
