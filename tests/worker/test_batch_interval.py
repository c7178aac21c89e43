"""The worker's loop checks a batch's interval while the task's own thread may start the batch."""

from __future__ import annotations

from worker.tasks.batch_bolt import BatchBoltTask


def test_a_batch_that_starts_while_the_loop_checks_its_interval_does_no_harm() -> None:
    task = BatchBoltTask.__new__(BatchBoltTask)
    task.deadline, task.probing = 1.0, None

    def now() -> float:
        task.deadline = None  # the task's thread has taken the batch
        return 2.0

    task.now = now

    task.overdue()
    assert not task.overdue()
