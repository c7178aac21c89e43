"""Spark's progress according to Spark itself: stages and tasks of every job since the watch began.

Spark discovers work step by step. A stage is known only when its job begins, so the number of tasks grows.
Must not know: tables, terminals.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from squall_io.spark.session.request import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Stage:
    """One stage of a job. A stage that Spark skips, because its output exists already, never completes a task."""

    tasks: int
    done: int
    running: int = 0
    failed: int = 0


@dataclass(frozen=True)
class JobProgress:
    """How much of the known work is done."""

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    running: int = 0
    #: Tasks that failed; Spark has tried them again or will do so.
    failed: int = 0

    def __str__(self) -> str:
        facts = [f"stage {min(self.stages_done + 1, self.stages)} of {self.stages}"]
        facts.append(f"{self.tasks_done:,} of {self.tasks:,} tasks")
        if self.running:
            facts.append(f"{self.running:,} running")
        if self.failed:
            facts.append(f"{self.failed:,} failed")
        return ", ".join(facts) if self.stages else "planning"


def progress_of(active: Iterable[Stage], ended: Iterable[Stage]) -> JobProgress:
    """Return the sum over the stages of running and finished jobs.

    If a finished job has an incomplete stage, Spark did not need the stage. Such a stage counts as done, so that the number of
    stages never shrinks.
    """
    stages = [*active, *(Stage(stage.done, stage.done, 0, stage.failed) for stage in ended)]
    return JobProgress(
        len(stages),
        sum(stage.done >= stage.tasks for stage in stages),
        sum(stage.tasks for stage in stages),
        sum(stage.done for stage in stages),
        sum(stage.running for stage in stages),
        sum(stage.failed for stage in stages),
    )


class Watch:
    """Watches what Spark is doing. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: For each job: its stages by number, as last seen, and whether the job is running.
        self._jobs: dict[object, tuple[dict[int, Stage], bool]] = {}

    def poll(self) -> JobProgress:
        """Return the current progress."""
        with self._lock:
            jobs = list(self._jobs.values())
        active = [stage for stages, runs in jobs if runs for stage in stages.values()]
        return progress_of(active, [stage for stages, runs in jobs if not runs for stage in stages.values()])

    def cancel(self) -> None:
        """Cancel all of Spark's work for this session."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching."""


def watch(session: SparkSession) -> Watch:
    """Watch a session from now on."""
    return _Classic(session) if is_classic(session) else _Connected(session)


class _Classic(Watch):
    """Polls the driver's status tracker."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._context = session.sparkContext
        self._tracker = self._context.statusTracker()

    def poll(self) -> JobProgress:
        """Return the progress of the running jobs. Jobs that began and ended between two polls are missed."""
        running = set(self._tracker.getActiveJobsIds())
        for job in running | self._jobs.keys():
            stages, _ = self._jobs.get(job, ({}, True))
            if (info := self._tracker.getJobInfo(job)) is not None:  # type: ignore[arg-type]
                stages.update((stage, found) for stage in info.stageIds if (found := self._stage(stage)))
            self._jobs[job] = stages, job in running
        return super().poll()

    def _stage(self, number: int) -> Stage | None:
        if (info := self._tracker.getStageInfo(number)) is None:
            return None
        return Stage(info.numTasks, info.numCompletedTasks, info.numActiveTasks, info.numFailedTasks)

    def cancel(self) -> None:
        """Cancel all jobs."""
        self._context.cancelAllJobs()


class _Connected(Watch):
    """Receives progress from the client of a Spark Connect server."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._session = session
        session.registerProgressHandler(self._received)  # type: ignore[arg-type]

    def _received(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        if found := [Stage(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()]:
            found[-1] = replace(found[-1], running=inflight_tasks)
        with self._lock:
            before, _ = self._jobs.get(operation_id, ({}, True))
            self._jobs[operation_id] = dict(enumerate(found)) or before, not done

    def cancel(self) -> None:
        """Let the server interrupt all operations of the session."""
        self._session.interruptAll()

    def close(self) -> None:
        """Stop receiving progress."""
        self._session.removeProgressHandler(self._received)  # type: ignore[arg-type]
