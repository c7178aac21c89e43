"""Rows that the outside of the simulation refuses for good: dead letters of the task that shows them.

Must not know: which rows these are.
"""

from __future__ import annotations

from tests.epochs.epoch_tasks import SimulatedTask
from worker.epochs.parking import Parked
from worker.epochs.participant import TaskEffect
from worker.epochs.sinks import ShowAnswer, WriteRows


def shown(
    task: SimulatedTask, rewind: int, effect: TaskEffect, answer: ShowAnswer | list[int]
) -> list[TaskEffect]:
    """The outside has answered a call of a task; a list: the positions of the rows that it refuses."""
    participant = task.participant
    if isinstance(answer, ShowAnswer):
        return participant.shown(rewind, answer)
    if task.closed or not participant.is_current(rewind):
        return []
    assert isinstance(effect, WriteRows)
    for at in answer:
        participant.parking.give_up(Parked(tuple(effect.rows[at]), 1, task.line.now), "refused")
    return participant.rows_refused(rewind, answer)
