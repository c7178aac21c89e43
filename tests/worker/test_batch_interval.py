"""A batch's interval is looked at by the worker's loop while the batch may go in the task's own thread."""

from __future__ import annotations

from worker.tasks.batch_bolt import BatchBoltTask


def test_a_batch_that_goes_while_the_loop_looks_whether_it_is_overdue_does_no_harm() -> None:
    task = BatchBoltTask.__new__(BatchBoltTask)
    task.deadline = 1.0

    def now() -> float:
        task.deadline = None  # the task's thread has handed the batch over
        return 2.0

    task.now = now

    task.overdue()
    assert not task.overdue()
