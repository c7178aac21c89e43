"""`self.times.value += 1` of a stateful bolt beside `self.counts[word] += 1` of a plain one, as the worker executes them.

One task executes the same batches of words: with an `execute` that only reads the word, and with one that counts it. The
difference is the cost of counting. For the stateful bolt it includes finding the key's state and what would undo the call.

    python -m benchmarks state_access [--tuples 400000] [--keys 1000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from benchmarks.child import machine
from squall.clock import RealClock
from squall.transport.frames import Batch
from squall.values import TaskRow
from topology_api import Bolt, Context, Fields, Spout, StatefulBolt, TopologyBuilder, Tuple, ValueState
from topology_api.core_choice import CHOICE
from topology_api.options import defaults
from topology_api.tuples import Source
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.tasks.bolt import BoltTask
from worker.tasks.simulated_async import SimulatedAsync

FRAME = 200


class Words(Spout):
    outputs = Fields("word")

    def next_tuple(self) -> float:
        return 3600.0


class Reads(Bolt):
    def execute(self, tup: Tuple) -> None:
        word = tup["word"]  # noqa: F841


class Counts(Bolt):
    def prepare(self, context: Context) -> None:
        self.counts = dict.fromkeys(WORDS, 0)

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] += 1


class ReadsWithState(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]  # noqa: F841


class CountsInState(ReadsWithState):
    def execute(self, tup: Tuple) -> None:
        word = tup["word"]  # noqa: F841
        self.times.value += 1


WORDS: list[str] = []
BOLTS = (Reads, Counts, ReadsWithState, CountsInState)


def task_of(bolt: Bolt) -> tuple[BoltTask, Source]:
    """Return a task of this bolt, in a worker that does not run, and the source of its words."""
    builder = TopologyBuilder("state-access")
    builder.set_spout("words", Words())
    builder.set_bolt("bolt", bolt).fields_grouping("words", "word")
    topology = builder.build()
    rows = (TaskRow(1, "words", 0), TaskRow(2, "bolt", 0))
    plan = WorkerPlan(
        worker="w",
        topology=topology,
        tasks=rows,
        worker_of={1: "other", 2: "w"},
        conf=defaults(),
        component_confs={},
        directory="",
    )
    clock = RealClock()
    worker = Worker(plan, clock, lambda *frame: None, SimulatedAsync(clock.now), lambda: None, inline=True)
    worker.start()
    return worker.bolts[0], plan.source("words", 1, "default")


def batch_of(source: Source, words: list[str]) -> Batch:
    """Return a batch of words for the task."""
    return Batch(source, 2, [(word,) for word in words], [0] * len(words), [0] * len(words))


def seconds(bolt: Bolt, tuples: int) -> float:
    """Return the seconds that a task of this bolt needs for `tuples` tuples."""
    task, source = task_of(bolt)
    batches = [
        batch_of(source, [WORDS[number % len(WORDS)] for number in range(start, start + FRAME)])
        for start in range(0, tuples, FRAME)
    ]
    began = time.process_time()
    for batch in batches:
        task.execute_rows(batch, FRAME, 10_000)
    return time.process_time() - began


def main() -> None:
    """Measure the four bolts in turn, and print the medians and ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks state_access", description=__doc__)
    parser.add_argument("--tuples", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    WORDS[:] = [f"word-{number}" for number in range(args.keys)]
    rounds = [
        [seconds(bolt(), args.tuples) / args.tuples * 1e9 for bolt in BOLTS] for _ in range(args.rounds)
    ]
    print(
        f"{machine()}; core: {CHOICE}; {args.tuples:,} tuples, {args.keys:,} keys, medians of {args.rounds}"
    )
    for name, column in zip(
        ("reads", "counts in a dict", "reads, stateful", "counts in state"), zip(*rounds)
    ):
        print(f"  {name:18} {median(column):6.0f} ns a tuple")
    plain = [counts - reads for reads, counts, _, _ in rounds]
    state = [counts - reads for _, _, reads, counts in rounds]
    print(f"  self.counts[word] += 1   {median(plain):6.0f} ns")
    print(
        f"  self.times.value += 1    {median(state):6.0f} ns, {median(s / p for s, p in zip(state, plain)):.2f} times"
    )
    whole = median(row[3] / row[1] for row in rounds)
    print(f"  whole execution          {whole:.2f} times")
