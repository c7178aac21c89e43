"""What a worker does differently while the version of its topology is on trial.

Must not know: how a trial ends.
"""

from __future__ import annotations

from worker.loop.kinds import epoch_bolt
from worker.loop.worker import Worker


def set_on_trial(worker: Worker, on_trial: bool, heir: str = "") -> None:
    """While the version is on trial, no failure uses up a tuple's attempts. `heir`: the version that gets the pending trees,
    since this one is rolled back."""
    worker.on_trial = on_trial
    for task in worker.tasks.values():
        if (bolt := epoch_bolt(worker, task)) is not None:  # it judges failures itself
            bolt.outages.on_trial = on_trial
    for spout in worker.spouts:
        spout.outages.on_trial = on_trial
        spout.letters.heir = heir
