"""How long a worker that lives takes to return to the last commit: in memory, beside by reading its snapshots.

Two workers count at a fixed rate in state of many keys. When a tenth of the keys has changed since a commit, one worker gets
SIGKILL. Measured is the other one: from when the order to rewind comes, until all of its tasks are ready. Then the same again,
but the worker is made to read. At the end the counts must add up. `--alone` measures states without workers, by CPU:
those of one task, undone in memory, beside read and decoded from bytes that are in memory as well.
A tenth changes in some seconds by default, however many keys there are, so that a round of 1,000,000 ends within minutes.

    python -m benchmarks state_rewind [--keys 1000000] [--rounds 3] [--rate 40000]
    python -m benchmarks state_rewind --alone [--keys 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import paced_state
from benchmarks.child import answer, ask, core, machine
from benchmarks.goals import Goal, print_goals
from benchmarks.notes import find, leave
from benchmarks.state_recovery import PATIENCE, Log, wait_for
from local_cluster import LocalCluster
from topology_api import Context, Fields, StatefulBolt, TopologyBuilder, Tuple, ValueState
from worker.epochs.in_memory import InMemory
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import SnapshotData, TaskSnapshot, decode_snapshot
from worker.loop.rewind_times import RewindTimes
from worker.state import build
from worker.state.history import StateHistory
from worker.state.saved import load_parts
from worker.state.saving import StateSaving
from worker.state.table import MarkingTable, StateHandle
from worker.state.timers import KeyTimers

MOST = 0.1
"""Seconds beyond the longest running call; the calls of this benchmark take microseconds."""
CHANGED = 0.1
"""The part of the keys that changes between commit and kill."""
CHANGING = 5.0
"""Seconds in which it changes, unless a rate is given."""
AFTER = 3.0
"""Seconds from then until the epoch ends: the kill comes before."""
WAYS = ("memory", "reading")


def main() -> None:
    """Run the rounds and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of each worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, help="tuples a second, of both workers")
    parser.add_argument("--alone", action="store_true", help="states without workers")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rate = options.rate or round(CHANGED * 2 * options.keys / CHANGING)
    if options.once:
        answer(measure_alone(options.keys) if options.alone else measure(options.keys, options.rate))
        return
    what = "states alone" if options.alone else f"two workers, {options.rate:,} tuples/s"
    print(f"{machine()}; core: {core()}")
    print(f"{options.keys:,} keys, a tenth changed; {what}; {options.rounds} rounds", flush=True)
    arguments = ["--keys", options.keys, "--rate", options.rate, "--once", *["--alone"] * options.alone]
    rounds = [ask(__name__, *arguments, timeout=PATIENCE + 60) for _ in range(options.rounds)]
    print_goals(
        [
            Goal("changed keys", [each["changed"] for each in rounds], form=",.0f"),
            Goal(
                "order until ready, in memory",
                [each["memory"] * 1e3 for each in rounds],
                MOST * 1e3,
                unit=" ms",
            ),
            *loop_cpu(rounds),
            Goal("order until ready, by reading", [each["reading"] * 1e3 for each in rounds], unit=" ms"),
        ]
    )


def loop_cpu(rounds: list[dict[str, float]]) -> list[Goal]:
    """Return the row of what the loop of a worker used: on a busy machine it had to wait for the rest."""
    used = [each["cpu"] * 1e3 for each in rounds if "cpu" in each]
    return [Goal("CPU of that, in the loop", used, unit=" ms")] if used else []


def measure(keys: int, rate: int) -> dict[str, float]:
    """Return one round with workers."""
    until_changed = CHANGED * 2 * keys / rate
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        job = paced_state.Job(folder, 2 * keys, rate, workers=2, epoch=until_changed + AFTER)
        with LocalCluster(processes=True, slots=2) as cluster:
            builder = TopologyBuilder(paced_state.NAME, conf=paced_state.build(job).conf)
            builder.set_spout("words", paced_state.Words(job), parallelism=2)
            builder.set_bolt("count", Watched(job), parallelism=2).fields_grouping("words", "word")
            cluster.submit(builder.build())
            wait_for(lambda: len(find(folder, "begun")) == 2)
            log = Log(job)
            found = {}
            for way in WAYS:
                note = rewound(job, log, way, until_changed)
                found[way] = note["seconds"]
                found.setdefault("changed", note["changed"])
                found.setdefault("cpu", note["cpu"])
            job.stop.touch()
            cluster.wait(paced_state.NAME, timeout=PATIENCE)
        paced_state.check_counts(job)
        return found


def rewound(job: paced_state.Job, log: Log, way: str, until_changed: float) -> dict[str, Any]:
    """Kill a worker some time after a commit; return the note of the other one's return."""
    if way == "reading":
        reads(job).touch()
    commits, rewind = log.read(), log.rewind
    wait_for(lambda: log.read() > commits)
    time.sleep(until_changed)
    live, victim = (note["pid"] for note in find(job.folder, "task"))
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: log.read() > 0 and log.rewind > rewind)
    note = [note for note in find(job.folder, "rewind") if note["live"] == live][-1]
    assert (note["in_memory"] == note["tasks"]) is (way == "memory"), note
    return note


def reads(job: paced_state.Job) -> Path:
    """While this file exists, workers read their snapshots."""
    return Path(job.folder, "read")


class Watched(paced_state.Counts):
    """Notes how its worker returns to commits. Else it does nothing but count: a rewind closes it, too."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        if not WATCHED:
            WATCHED.append(True)
            watch(self.job)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1

    def cleanup(self) -> None:
        if self.job.stop.exists():
            super().cleanup()


WATCHED: list[bool] = []
"""Whether this process is watched."""


def watch(job: paced_state.Job) -> None:
    """Leave a note of each rewind of this worker, and let it read its snapshots while it is to."""
    begin, returned = RewindTimes.begin, RewindTimes.returned
    back_to, return_to = InMemory.back_to, StateHistory.return_to
    changed: list[int] = []
    cpu = [0.0]

    def begun(self: RewindTimes, now: float) -> None:
        begin(self, now)
        cpu[0] = time.thread_time()

    def noted(self: RewindTimes, task: int, epoch: int, tasks: int, now: float) -> None:
        returned(self, task, epoch, tasks, now)
        if len(self.ready) == tasks:
            seconds, held = now - self.since, len(self.in_memory)
            number = len(find(job.folder, "rewind"))
            leave(
                job.folder, "rewind", number, live=os.getpid(), seconds=seconds, in_memory=held, tasks=tasks,
                changed=sum(changed), cpu=time.thread_time() - cpu[0],
            )  # fmt: skip

    def reading(self: InMemory, epoch: int, files: Any, before: Any = None) -> TaskSnapshot | None:
        if reads(job).exists():
            self.forget()
        return back_to(self, epoch, files, before)

    def counted(self: StateHistory, epoch: int, handles: list[StateHandle]) -> Any:
        changed[:] = [len(handle.touched or ()) for handle in self.left or ()]
        return return_to(self, epoch, handles)

    RewindTimes.begin, RewindTimes.returned = begun, noted  # type: ignore[method-assign]
    InMemory.back_to, StateHistory.return_to = reading, counted  # type: ignore[method-assign]


# States alone.


class Counted(StatefulBolt):
    """One state."""

    key = "word"
    outputs = Fields()
    times = ValueState(int, default=0)


def measure_alone(keys: int) -> dict[str, float]:
    """Return one round of states without workers."""
    handles = new_handles()
    words = [f"word-{number}" for number in range(keys)]
    for word in words:
        count(handles[0], word)
    data, history = SnapshotData(), StateHistory()
    saving = StateSaving(handles, True, lambda moment: moment, data.add)
    history.mark(1, 0.0, [{} for _ in handles])
    while not saving.step():
        pass
    data.finish(TaskSnapshot("count/0", 1, 1, 0))
    file = data.file()
    changed = words[:: round(1 / CHANGED)]
    for word in changed:
        count(handles[0], word)
    gc.collect()
    again = new_handles()
    began = time.process_time()
    history.leave(handles, {})
    history.return_to(1, again)
    in_memory = time.process_time() - began
    began = time.process_time()
    read = read_again(file, bytes(data.data))
    reading = time.process_time() - began
    if not values_of(again[0]) == values_of(read[0]) == dict.fromkeys(words, 1):
        raise AssertionError("the states do not hold what they held at the marker")
    return {"memory": in_memory, "reading": reading, "changed": len(changed)}


def values_of(handle: Any) -> dict[Any, Any]:
    """Return the value of each key, also of those that no call has touched."""
    return {**handle.current(), **{key: handle.codec.decode(data) for key, data in handle.raw.items()}}


def new_handles() -> list[StateHandle]:
    """Return the handles of a task that holds nothing."""
    table = MarkingTable("count[1]", time.perf_counter)
    return [*build.handles(table, Counted).values(), KeyTimers(table)]


def count(handle: Any, word: str) -> None:
    """A call of a task."""
    table = handle.table
    table.begin(word)
    handle.value += 1
    table.commit()


def read_again(file: SnapshotFile, data: bytes) -> list[StateHandle]:
    """Return handles that hold what a file says."""
    *states, timers = found = new_handles()
    parts = decode_snapshot(file, data).parts
    load_parts({"times": states[0]}, timers, parts, lambda time: time)  # type: ignore[arg-type]
    return found


if __name__ == "__main__":
    main()
