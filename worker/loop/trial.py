"""What a worker does differently while the version of its topology is on trial.

Must not know: how a trial ends.
"""

from __future__ import annotations

from worker.loop.worker import Worker
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.spout import SpoutTask


def set_on_trial(worker: Worker, on_trial: bool, heir: str = "") -> None:
    """While the version is on trial, no failure uses up a tuple's attempts. `heir`: the version that gets the pending trees,
    since this one is rolled back."""
    worker.on_trial = on_trial
    for task in worker.tasks.values():
        if isinstance(task, SpoutTask | EpochBoltTask):
            task.outages.on_trial = on_trial
    for spout in worker.spouts:
        spout.letters.heir = heir
