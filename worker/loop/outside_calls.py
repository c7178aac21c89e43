"""The calls that sinks make beside their tasks' threads: who runs them, and how their answers come back to the loop.

In simulated time, and for sinks without a thread, a call is made in its task's turn.
Must not know: what is called, what follows from an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from worker.tasks.gathering import GatheringTask
from worker.tasks.runners import OutsideThread
from worker.tasks.task import Task

if TYPE_CHECKING:
    from worker.loop.epoch_worker import EpochWorker


class OutsideCalls:
    """The threads of one worker's sinks."""

    def __init__(self, worker: EpochWorker) -> None:
        self.worker = worker
        #: The sinks that have a thread for such calls.
        self.sinks: list[GatheringTask] = []

    def prepare(self, task: Task) -> None:
        """A task was made: give it a thread if it is a threaded sink."""
        worker = self.worker
        if isinstance(task, GatheringTask) and task.threaded and not worker.inline:
            name = f"{worker.plan.topology.name}-{worker.name}-outside"
            task.outside = OutsideThread(name, task.id, worker.wake, worker.now)
            self.sinks.append(task)

    def call(self, task: GatheringTask, job: Callable[[], Any]) -> None:
        """Make a call of a sink, after its earlier ones."""
        if task.outside is None:
            self.worker.execute(task, job)
            return
        if (growth := self.worker.environment.growth) is not None:
            job = growth.begin(task, job)
        task.outside.submit(job)

    def follow(self) -> bool:
        """Follow the answers that have come; return whether there were any."""
        busy = False
        for sink in self.sinks:
            if sink.answers:
                busy = True
                self.worker.epochs.collect_answers(sink)
                if not sink.jobs:  # else the reports are taken after its run, to which others belong
                    self.worker.take_reports(sink.reports, sink.crash_on_error)
        return busy

    def forget(self) -> None:
        """All sinks are being closed, and others take their places."""
        self.sinks.clear()

    def stop(self) -> None:
        """The worker has stopped: nothing follows from the last answers, but errors are reported."""
        for sink in self.sinks:
            while sink.answers:
                sink.next_answer()
            self.worker.take_reports(sink.reports)
