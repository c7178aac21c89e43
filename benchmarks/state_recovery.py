"""How long after the death of a worker the state of a topology is committed again.

Two workers count 1,000 tuples a second in state of many keys, with an epoch a second and a local store. One of them gets
SIGKILL. The time ends when the log of the state has the next commit: by then the supervisor has started a process, all tasks
have returned to the last commit, and have gone on. At the end the counts must add up.

    python -m benchmarks state_recovery [--keys 1000000] [--rounds 3]
    python -m benchmarks state_recovery --keys 10000000 --rounds 1
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import paced_state
from benchmarks.child import answer, ask, core, machine
from benchmarks.goals import Goal, print_goals
from benchmarks.notes import find
from local_cluster import LocalCluster
from worker.epochs.records import CommitRecord
from worker.loop.epoch_store import SNAPSHOTS, EpochFiles

GOALS = {1_000_000: 4.0, 10_000_000: 10.0}
"""Keys, and the seconds that are wanted."""
PATIENCE = 1_800.0
"""Seconds after which a run is given up."""
RATE = 1_000
HALF_EPOCH = 0.5
"""Seconds after a commit at which the worker is killed."""


def main() -> None:
    """Run the rounds and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        answer(measure(options.keys))
        return
    print(f"{machine()}; core: {core()}")
    print(
        f"{options.keys:,} keys, {RATE:,} tuples/s, two workers, an epoch a second, {options.rounds} rounds",
        flush=True,
    )
    arguments = ("--keys", options.keys, "--once")
    rounds = [ask(__name__, *arguments, timeout=PATIENCE + 60) for _ in range(options.rounds)]
    print_goals(
        [
            Goal(
                "snapshots of an epoch",
                [each["bytes"] / 1e6 for each in rounds],
                form=",.0f",
                unit=" MB",
            ),
            Goal(
                "kill until the next commit",
                [each["seconds"] for each in rounds],
                GOALS.get(options.keys),
                unit=" s",
            ),
        ]
    )


def measure(keys: int) -> dict[str, float]:
    """Return one round."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        job = paced_state.Job(folder, keys, RATE, workers=2)
        log = Log(job)
        with LocalCluster(processes=True, slots=2) as cluster:
            cluster.submit(paced_state.build(job))
            wait_for(lambda: len(find(folder, "begun")) == 2)
            before = log.read()
            wait_for(lambda: log.read() >= before + 2)
            size = (
                sum(path.stat().st_size for path in Path(job.state, paced_state.NAME, SNAPSHOTS).iterdir())
                / 2
            )
            victim = find(folder, "task")[-1]["pid"]
            time.sleep(HALF_EPOCH)
            rewind = log.rewind
            os.kill(victim, signal.SIGKILL)
            killed = time.perf_counter()
            wait_for(lambda: log.read() > 0 and log.rewind > rewind)
            seconds = time.perf_counter() - killed
            job.stop.touch()
            cluster.wait(paced_state.NAME, timeout=PATIENCE)
        paced_state.check_counts(job)
        return {"seconds": seconds, "bytes": size}


class Log:
    """The log of a job's state, as it grows."""

    def __init__(self, job: paced_state.Job) -> None:
        self.files = EpochFiles(f"file://{job.state}", paced_state.NAME)
        self.records = self.commits = 0
        #: The rewind number of the last commit.
        self.rewind = 0

    def read(self) -> int:
        """Read on; return the number of commits."""
        for record in self.files.records_after(self.records):
            self.records += 1
            if isinstance(record, CommitRecord):
                self.commits += 1
                self.rewind = record.rewind
        return self.commits


def wait_for(reached: Callable[[], bool]) -> None:
    """Wait until something is true."""
    until = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > until:
            raise TimeoutError("the topology does not go on")
        time.sleep(0.005)
