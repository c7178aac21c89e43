"""Spark's progress: the sum over the stages of its jobs, and its text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from squall_io.spark.results.progress import JobProgress, Stage, progress_of, watch


@pytest.mark.parametrize(
    ("active", "ended", "said"),
    [
        ([], [], "planning"),
        ([Stage(8, 0)], [], "stage 1 of 1, 0 of 8 tasks"),
        ([Stage(8, 3, running=2, failed=1)], [], "stage 1 of 1, 3 of 8 tasks, 2 running, 1 failed"),
        ([Stage(8, 8), Stage(1_000, 5, running=4)], [], "stage 2 of 2, 13 of 1,008 tasks, 4 running"),
        ([Stage(2, 1)], [Stage(5, 5), Stage(200, 0)], "stage 3 of 3, 6 of 7 tasks"),
        ([], [Stage(5, 2, running=1)], "stage 1 of 1, 2 of 2 tasks"),
        ([], [Stage(5, 5), Stage(3, 3)], "stage 2 of 2, 8 of 8 tasks"),
    ],
    ids=["nothing", "begun", "in-the-middle", "two-stages", "left-out", "cancelled", "done"],
)
def test_stages_of_ended_jobs_count_as_far_as_they_were_needed(
    active: list[Stage], ended: list[Stage], said: str
) -> None:
    assert str(progress_of(active, ended)) == said


class Tracker:
    """Spark's status tracker with given jobs: their stages, and each stage's (tasks, done, running, failed)."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.jobs: dict[int, list[int]] = {}
        self.stages: dict[int, tuple[int, int, int, int]] = {}

    def getActiveJobsIds(self) -> list[int]:
        return self.running

    def getJobInfo(self, job: int) -> Any:
        return SimpleNamespace(stageIds=self.jobs[job]) if job in self.jobs else None

    def getStageInfo(self, stage: int) -> Any:
        if stage not in self.stages:
            return None
        tasks, done, running, failed = self.stages[stage]
        return SimpleNamespace(
            numTasks=tasks, numCompletedTasks=done, numActiveTasks=running, numFailedTasks=failed
        )


def test_a_session_is_watched_from_job_to_job_though_spark_forgets_the_first() -> None:
    tracker = Tracker()
    cancelled: list[bool] = []
    context = SimpleNamespace(statusTracker=lambda: tracker, cancelAllJobs=lambda: cancelled.append(True))
    seen = watch(SimpleNamespace(_jsc=object(), sparkContext=context))  # type: ignore[arg-type]
    assert seen.poll() == JobProgress()

    tracker.running, tracker.jobs, tracker.stages = [0], {0: [0, 1]}, {0: (4, 1, 2, 0)}
    assert seen.poll() == JobProgress(stages=1, tasks=4, tasks_done=1, running=2)
    tracker.stages[0] = (4, 4, 0, 1)
    tracker.running = []
    assert seen.poll() == JobProgress(stages=1, stages_done=1, tasks=4, tasks_done=4, failed=1)
    tracker.running, tracker.jobs, tracker.stages = [7], {7: [9]}, {9: (10, 0, 0, 0)}
    assert seen.poll() == JobProgress(stages=2, stages_done=1, tasks=14, tasks_done=4, failed=1)

    seen.cancel()
    seen.close()
    assert cancelled == [True]


def test_a_spark_connect_server_reports_its_operations() -> None:
    handlers: list[Any] = []
    interrupted: list[bool] = []
    session = SimpleNamespace(
        registerProgressHandler=handlers.append,
        removeProgressHandler=handlers.remove,
        interruptAll=lambda: interrupted.append(True),
    )
    seen = watch(session)  # type: ignore[arg-type]
    [tell] = handlers
    stage = SimpleNamespace(num_tasks=6, num_completed_tasks=2)

    tell(stages=[stage], inflight_tasks=3, operation_id="a", done=False)
    assert seen.poll() == JobProgress(stages=1, tasks=6, tasks_done=2, running=3)
    stage.num_completed_tasks = 6
    tell(stages=[stage], inflight_tasks=0, operation_id="a", done=False)
    tell(stages=None, inflight_tasks=0, operation_id="a", done=True)
    assert seen.poll() == JobProgress(stages=1, stages_done=1, tasks=6, tasks_done=6)

    seen.cancel()
    seen.close()
    assert (handlers, interrupted) == ([], [True])
