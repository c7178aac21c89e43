"""How far Spark is, by its own status: stages and tasks of every job since the watch began.

Spark discovers work as it goes: a stage is known when its job begins, so the number of tasks grows.
Must not know: tables, terminals.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    """What has been done of the known work."""

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    running: int = 0
    failed: int = 0
    """Tasks that failed, and were tried again or will be."""

    def __str__(self) -> str:
        facts = [f"stage {min(self.stages_done + 1, self.stages)} of {self.stages}"]
        facts.append(f"{self.tasks_done:,} of {self.tasks:,} tasks")
        if self.running:
            facts.append(f"{self.running:,} running")
        if self.failed:
            facts.append(f"{self.failed:,} failed")
        return ", ".join(facts) if self.stages else "planning"


def progress_of(active: Iterable[Stage], ended: Iterable[Stage]) -> JobProgress:
    """Return the sum over the stages of running jobs, and of finished ones: their incomplete stages were not needed.

    A skipped stage counts as done, so that the number of stages never shrinks.
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


class Watch(Protocol):
    """Watches what Spark is doing. Any thread may call."""

    def poll(self) -> JobProgress:
        """Return the current progress."""

    def cancel(self) -> None:
        """Make Spark give up all work of this session."""

    def close(self) -> None:
        """Stop watching."""


def watch(session: SparkSession) -> Watch:
    """Watch a session from now on."""
    return _Connected(session) if getattr(session, "_sc", None) is None else _Classic(session)


class _Classic:
    """Polls the driver's status tracker."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._tracker = self._context.statusTracker()
        #: The stages of each job that was seen, by their numbers, as they were when they were last seen.
        self._jobs: dict[int, dict[int, Stage]] = {}

    def poll(self) -> JobProgress:
        """Return the progress of the running jobs. Jobs that came and went between two polls are missed."""
        running = set(self._tracker.getActiveJobsIds())
        for job in running | self._jobs.keys():
            info = self._tracker.getJobInfo(job)
            if info is not None:
                seen = self._jobs.setdefault(job, {})
                seen.update((stage, found) for stage in info.stageIds if (found := self._stage(stage)))
        active = [stage for job in running for stage in self._jobs.get(job, {}).values()]
        ended = [stage for job, seen in self._jobs.items() if job not in running for stage in seen.values()]
        return progress_of(active, ended)

    def _stage(self, number: int) -> Stage | None:
        info = self._tracker.getStageInfo(number)
        if info is None:
            return None
        return Stage(info.numTasks, info.numCompletedTasks, info.numActiveTasks, info.numFailedTasks)

    def cancel(self) -> None:
        """Cancel all jobs."""
        self._context.cancelAllJobs()

    def close(self) -> None:
        """There is nothing to give back."""


class _Connected:
    """Receives progress from the client of a Spark Connect server."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        #: By operation: its stages, and whether it runs.
        self._operations: dict[str, tuple[list[Stage], bool]] = {}
        session.registerProgressHandler(self._received)  # type: ignore[arg-type]

    def _received(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        found = [Stage(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()]
        if found:
            last = found[-1]
            found[-1] = Stage(last.tasks, last.done, inflight_tasks)
        with self._lock:
            before, _ = self._operations.get(operation_id or "", ([], True))
            self._operations[operation_id or ""] = (found or before, not done)

    def poll(self) -> JobProgress:
        """Return the last progress received."""
        with self._lock:
            operations: Mapping[str, tuple[list[Stage], bool]] = dict(self._operations)
        active = [stage for stages, runs in operations.values() if runs for stage in stages]
        ended = [stage for stages, runs in operations.values() if not runs for stage in stages]
        return progress_of(active, ended)

    def cancel(self) -> None:
        """Have the server interrupt all operations of the session."""
        self._session.interruptAll()

    def close(self) -> None:
        """Stop receiving progress."""
        self._session.removeProgressHandler(self._received)  # type: ignore[arg-type]
