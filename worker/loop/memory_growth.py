"""By how much the memory of a worker process has grown in the calls of each task: an estimate that names a task that leaks.

The resident memory is read before and after some of a task's runs, chosen at random, so that all runs together are measured
about a hundred times a second. Each measured run stands for those since the one before it. Of what grows meanwhile in other
threads, a run gets no part: the growth is divided in proportion to the pages that each thread has touched for the first time.
What grows outside of measured runs goes to the asynchronous tasks, and to tasks that have been in one run for more than a
second, in proportion to their time in calls.
Must not know: how memory is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.task import Task

#: Seconds between two measured runs of a task, for each task of the worker. A measured run costs about 10 µs.
PERIOD: Final = 0.01
#: The most runs for which a measured run stands. If fewer come, the next run after `STALE` seconds is measured.
MOST_RUNS: Final = 10_000
STALE: Final = 2.0
#: A run of more seconds is not measured at its end: what grows in it is seen while it lasts.
LONG_RUN: Final = 1.0
#: Less is not worth sharing out: the reading is that much off.
LEAST: Final = 2**20


class Memory(NamedTuple):
    """A reading: bytes of resident memory; the pages that the reading thread, and all threads, have touched first."""

    resident: int
    own_pages: int = 0
    all_pages: int = 0


def growth_between(before: Memory, after: Memory) -> float:
    """Return by how many bytes the process has grown in the thread that made both readings."""
    touched = after.all_pages - before.all_pages
    share = (after.own_pages - before.own_pages) / touched if touched > 0 else 1.0
    return (after.resident - before.resident) * share


class Measured:
    """What is known of one task."""

    __slots__ = ("at", "drawn", "grown", "left", "spent", "usual", "weight")

    def __init__(self, now: float) -> None:
        #: The time of the last measured run.
        self.at = now
        #: How many runs are left until the next measured one, and how many there were after the last one.
        self.left = self.drawn = 1
        #: The mean number of runs from one measured run to the next.
        self.usual = 1.0
        #: The number of runs for which the next measured run stands.
        self.weight = 1.0
        self.grown = 0.0
        #: Seconds in calls when growth was last shared out.
        self.spent = 0.0


class MemoryGrowth:
    """The growth of one process, by task."""

    def __init__(self, read: Callable[[], Memory], random: Random) -> None:
        self.read = read
        self.random = random
        self.tasks: dict[int, Measured] = {}
        self.at_start = self.latest = read().resident
        #: Bytes that no task has got.
        self.nobodys = 0.0

    def begin(self, task: Task, job: Callable[[], Any]) -> Callable[[], Any]:
        """Return the job of a run, or a job that measures it. This is called for each run."""
        measured = self.tasks.get(task.id)
        if measured is None:
            measured = self.tasks[task.id] = Measured(task.now())
        measured.left -= 1
        return job if measured.left > 0 else partial(self.measure, measured, task.now, job)

    def measure(self, measured: Measured, now: Callable[[], float], job: Callable[[], Any]) -> None:
        """Run the job in this thread, and add what grew."""
        began, before = now(), self.read()
        job()
        after, ended = self.read(), now()
        if ended - began < LONG_RUN:
            measured.grown += growth_between(before, after) * measured.weight
        # The pause is counted in runs, since the next run after a pause in seconds may always be of the same kind.
        took = max(ended - measured.at, 1e-6)
        fitting = max(1, measured.drawn) * PERIOD * len(self.tasks) / took
        usual = measured.usual = min(max(fitting, measured.usual / 2, 1.0), measured.usual * 2, MOST_RUNS)
        measured.at, measured.weight = ended, usual
        measured.left = measured.drawn = self.random.randint(1, max(1, round(2 * usual) - 1))

    def share_out(self, tasks: Iterable[Task], running: Task | None, now: float) -> None:
        """Share out what has grown outside of measured runs. Call this about once a second. `running`: the task that the loop
        runs."""
        self.latest = self.read().resident
        times: dict[int, float] = {}
        for task in tasks:
            measured = self.tasks.get(task.id)
            if measured is None:
                continue
            if now - measured.at > STALE and measured.left > 1:
                measured.weight = measured.usual = max(1.0, float(measured.drawn - measured.left))
                measured.left = 1
            here = task is running or (task.threaded and task.jobs > 0)
            present = now - task.busy_since if here else 0.0
            outside = getattr(task, "outside", None)  # a sink's thread beside its own
            if outside is not None and outside.busy:
                present = max(present, now - outside.since)
            spent = task.work.seconds + present
            if isinstance(task, AsyncBoltTask) or present >= LONG_RUN:
                times[task.id] = max(0.0, spent - measured.spent)
            measured.spent = spent
        rest = self.latest - self.at_start - sum(each.grown for each in list(self.tasks.values()))
        total = sum(times.values())
        if total > 0 and rest - self.nobodys >= LEAST:
            for number, seconds in times.items():
                self.tasks[number].grown += (rest - self.nobodys) * seconds / total
        elif not times:
            self.nobodys = rest

    def of(self, task: int) -> int:
        """Return by how many bytes memory has grown in calls of a task, in whole megabytes. All tasks together never have more
        than the process."""
        measured = self.tasks.get(task)
        total = sum(max(0.0, each.grown) for each in list(self.tasks.values()))
        if measured is None or total <= 0:
            return 0
        known = max(0.0, float(self.latest - self.at_start))
        return int(max(0.0, measured.grown) * min(1.0, known / total)) // LEAST * LEAST

    def most(self) -> tuple[int, int] | None:
        """Return the task that has more than half of the growth, and its bytes; None: there is none."""
        grown = {task: self.of(task) for task in list(self.tasks)}
        task = max(grown, key=grown.__getitem__, default=None)
        return None if task is None or 2 * grown[task] <= sum(grown.values()) else (task, grown[task])
