"""The cost of Squall before it does anything: imports, the time to the first tuple, and the CPU of an idle topology.

The time to the first tuple counts from just before the process is started, for `squall run` as a person at a terminal would
type it. `--workers 2` measures a topology over two worker processes: see `start_workers`.

    python -m benchmarks start [--workers 2 [--supervisors 2]] [--rounds 7] [--idle-seconds 10]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.child import ROOT, environment, machine, spread
from benchmarks.start_workers import print_workers

STARTED = "SQUALL_BENCHMARK_STARTED"
"""Name of the variable that says when the child was started, on the clock that all processes share."""

IMPORT = """
import time
started = time.perf_counter()
import topology_api
print(time.perf_counter() - started)
"""

FIRST_TUPLE = """
import os, sys, time
from topology_api import Bolt, Spout, TopologyBuilder

class One(Spout):
    outputs = "number"
    def next_tuple(self):
        self.emit((1,), message_id=1)
        self.finish()

class Show(Bolt):
    def execute(self, tup):
        print("first tuple after", time.monotonic() - float(os.environ["SQUALL_BENCHMARK_STARTED"]), file=sys.stderr)

def topology():
    builder = TopologyBuilder("first-tuple")
    builder.set_spout("one", One())
    builder.set_bolt("show", Show()).shuffle_grouping("one")
    return builder.build()
"""

BY_HAND = """
from local_cluster import LocalCluster
with LocalCluster() as cluster:
    cluster.submit(topology())
    cluster.wait("first-tuple", timeout=60)
"""

IDLE = """
import json, sys, time
from local_cluster import LocalCluster
from topology_api import Bolt, Spout, TopologyBuilder

class Nothing(Spout):
    outputs = "number"
    def next_tuple(self):
        return {wait}

class Ignore(Bolt):
    def execute(self, tup):
        pass

builder = TopologyBuilder("idle")
builder.set_spout("nothing", Nothing())
builder.set_bolt("ignore", Ignore(), parallelism=4).shuffle_grouping("nothing")
with LocalCluster() as cluster:
    cluster.submit(builder.build())
    time.sleep(1.0)
    started, cpu = time.monotonic(), time.process_time()
    time.sleep({seconds})
    print(json.dumps([time.process_time() - cpu, time.monotonic() - started]))
"""


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="2: worker processes")
    parser.add_argument("--supervisors", type=int, choices=(1, 2), default=1, help="of the worker processes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    options = parser.parse_args()
    rounds = range(options.rounds)
    print(machine())
    if options.workers > 1:
        print_workers(options.rounds, options.idle_seconds, options.supervisors)
        return
    print("median (least to greatest), milliseconds")
    print(f"python -c pass:              {spread([empty_process() for _ in rounds], '.0f')}")
    imports = [float(output("-c", IMPORT)) * 1e3 for _ in rounds]
    print(f"import topology_api:         {spread(imports, '.0f')}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "first.py")
        file.write_text(
            FIRST_TUPLE + "\nif __name__ == '__main__':\n    " + BY_HAND.strip().replace("\n", "\n    ")
        )
        ways = [("first tuple, script:         ", [str(file)])]
        if (ROOT / "squall_cli" / "commands" / "run.py").exists():
            ways.append(("first tuple, squall run:     ", ["-m", "squall_cli", "run", str(file)]))
        for name, command in ways:
            print(f"{name}{spread([first_tuple(command) for _ in rounds], '.0f')}")
    for name, wait in (("idle, next_tuple gives None: ", "None"), ("idle, next_tuple gives 1.0:  ", "1.0")):
        cpu, wall = json.loads(output("-c", IDLE.format(wait=wait, seconds=options.idle_seconds)))
        print(f"{name}{cpu / wall:.2%} of a core ({cpu:.3f} s in {wall:.1f} s)")


def output(*command: str) -> str:
    """Return the output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout


def empty_process() -> float:
    """Milliseconds of an interpreter that does nothing."""
    started = time.monotonic()
    output("-c", "pass")
    return (time.monotonic() - started) * 1e3


def first_tuple(command: list[str]) -> float:
    """Milliseconds from just before the process is started to its first execute."""
    begun = {**environment(), STARTED: str(time.monotonic())}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=begun, capture_output=True, text=True, timeout=60
    )
    marks = [line for line in done.stderr.splitlines() if line.startswith("first tuple after")]
    if done.returncode or not marks:
        raise AssertionError(f"{command}: exit {done.returncode}{os.linesep}{done.stdout}{done.stderr}")
    return float(marks[0].split()[-1]) * 1e3
