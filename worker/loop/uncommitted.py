"""What one worker keeps until a commit, or until the outside has taken what is committed: bounded in bytes, over all its tasks.

Values and message ids of spouts, rows of committing sinks, what their snapshots have made of these, and dead letters. At the
limit the coordinator lets all spouts pause, in all workers: they make what this one keeps. It is looked at ten times a second,
so what comes in a tenth of a second may be more than the limit. What is to be emitted again after a rewind does not count: only
emitting it frees its memory.
Must not know: how spouts pause, the coordinator.
"""

from __future__ import annotations

from typing import Final

from worker.epochs.kept_bytes import MB, KeptBound, memory_of
from worker.epochs.messages import HoldWanted
from worker.epochs.participant import Participant, SendToCoordinator
from worker.loop.epoch_tasks import EpochTask
from worker.loop.epochs import Epochs
from worker.tasks.gathering import GatheringTask

#: The name of the option.
UNCOMMITTED_MB: Final = "topology.epoch.uncommitted.mb"
#: Seconds between two looks.
LOOK_SECONDS: Final = 0.1


class Uncommitted:
    """What the tasks of one worker keep."""

    def __init__(self, worker: str, limit_mb: int, epochs: Epochs) -> None:
        self.worker, self.limit_mb, self.epochs = worker, limit_mb, epochs
        self.bound = KeptBound(limit_mb * MB)
        self.measured_next = 0.0

    def restart(self) -> None:
        """A rewind begins: no spout pauses."""
        self.bound.full = False

    def measure(self, now: float) -> None:
        """Say to the coordinator whether the spouts are to pause, and what has to happen before they go on."""
        self.measured_next = now + LOOK_SECONDS
        epochs = self.epochs
        opened, rest = {}, 0
        most, most_bytes = "", -1
        for task in epochs.tasks.values():
            participant = epochs.participants[task.id]
            opened[task.id] = of_open_epoch(task, participant)
            before = before_open_epoch(task, participant)
            rest += before
            if before + opened[task.id] > most_bytes:
                most, most_bytes = f"{task.spec.id}[{task.id}]", before + opened[task.id]
        in_open = sum(opened.values())
        task = next(iter(epochs.tasks.values()))
        participant = epochs.participants[task.id]
        if self.bound.changed(in_open + rest):
            why = self.why(in_open + rest, most) if self.bound.full else ""
            epochs.perform(task, [SendToCoordinator(HoldWanted(participant.rewind, why, "commit"))])
        if self.bound.full and 2 * in_open >= self.bound.limit:
            # The rest alone would let the spouts go on: it waits for the store or the outside, and no epoch frees it.
            epochs.perform(task, participant.needs_commit())

    def next_time(self) -> float | None:
        """Return when to look although nothing happens: spouts that pause are to go on."""
        return self.measured_next if self.bound.full else None

    def why(self, kept: int, most: str) -> str:
        """Return why the spouts pause."""
        return (
            f"about {kept // MB:,} MB in worker {self.worker} wait for their commit, or for being shown after it, most of them "
            f"in {most} ({UNCOMMITTED_MB}: {self.limit_mb:,})"
        )


def of_open_epoch(task: EpochTask, participant: Participant) -> int:
    """Return how many bytes a task keeps of the open epoch."""
    kept = memory_of(participant.emissions.open) + memory_of(participant.parking.letters)
    kept += memory_of(participant.parking.others)
    if isinstance(task, GatheringTask):
        kept += max(memory_of(task.rows), memory_of(task.tuples))  # they mostly share their values
    return kept


def before_open_epoch(task: EpochTask, participant: Participant) -> int:
    """Return how many bytes a task keeps of epochs that have ended."""
    kept = sum(map(memory_of, participant.emissions.closed.values()))
    kept += sum(memory_of(outcome.value) for outcome in participant.after_commit.outcomes)
    return kept + memory_of(task.unstaged) if isinstance(task, GatheringTask) else kept
