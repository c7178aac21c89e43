"""Holds each return in memory against the same return by reading: the oracle of rewinds."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest


class Returns:
    """How often tasks have returned to a commit so far."""

    def __init__(self) -> None:
        #: Names of tasks.
        self.in_memory: list[str] = []
        self.read: list[str] = []


@contextmanager
def checked_returns() -> Iterator[Returns]:
    """Each task that returns in memory has to be as one that reads its snapshot. The tasks run in the worker's loop."""
    from worker.loop.epochs import Epochs
    from worker.loop.rescale import Rescale
    from worker.tasks.epoch_bolt import EpochBoltTask

    returns, real = Returns(), Epochs.snapshots_read

    def checked(self: Any, task: int, rewind: int, found: list[Any], in_memory: bool = False) -> None:
        participant = self.participants[task]
        current = task in self.tasks and participant.rewind == rewind
        if current and found:
            (returns.in_memory if in_memory else returns.read).append(participant.task)
        if not (current and in_memory):
            real(self, task, rewind, found, in_memory)
            return
        read = read_again(self, participant)
        parts, read.parts = read.parts, []
        [held] = copied = [deepcopy(each) for each in found]
        if participant.outdated:
            held = Rescale(self.plan, self.counts, self.groups).begin(participant.task, copied)
        assert opened(held) == opened(read)
        real(self, task, rewind, found, in_memory)
        made = self.tasks[task]
        if isinstance(made, EpochBoltTask):
            assert contents_of(made) == contents_read(made, msgspec.structs.replace(read, parts=parts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Epochs, "snapshots_read", checked)
        yield returns


@pytest.fixture
def returns() -> Iterator[Returns]:
    """See `checked_returns`."""
    with checked_returns() as found:
        yield found


def read_again(epochs: Any, participant: Any) -> Any:
    """The snapshot with which a task would begin that reads."""
    from worker.epochs.participant import ReadSnapshots
    from worker.loop.rescale import Rescale

    name = participant.task
    found = epochs.read(name, ReadSnapshots(participant.rewind, participant.files))
    return Rescale(epochs.plan, epochs.counts, epochs.groups).begin(name, found)


def opened(snapshot: Any) -> Any:
    """What a snapshot says, with the rows in its outboxes."""
    found = msgspec.to_builtins(snapshot)
    found["outboxes"] = [
        (target, stream, pickle.loads(packed)) for target, stream, [packed] in snapshot.outboxes
    ]
    return found


def contents_read(task: Any, snapshot: Any) -> dict[str, Any]:
    """What a task would hold that had read a snapshot."""
    from worker.state import build
    from worker.state.history import StateHistory
    from worker.state.table import MarkingTable
    from worker.state.timers import KeyTimers
    from worker.tasks.snapshot_slices import load_contents

    table = MarkingTable("read", task.now)
    setup = SimpleNamespace(
        from_wall=task.epochs.from_wall,
        to_wall=task.epochs.to_wall,
        history=StateHistory(),
        chain=task.epochs.chain,
    )
    twin: Any = SimpleNamespace(
        states=build.handles(table, type(task.instance)),
        timers=KeyTimers(table),
        epochs=setup,
        context=task.context,
        spec=task.spec,
        instance=task.instance,
        slices=SimpleNamespace(),
    )
    load_contents(twin, snapshot)
    return contents_of(twin)


def contents_of(task: Any) -> dict[str, Any]:
    """States, times of writing, timers."""
    from tests.worker.state.state_values import values_of
    from worker.state.lists import ListHandle

    found: dict[str, Any] = {
        "": {
            key: {name: round(time, 6) for name, time in names.items()}
            for key, names in task.timers.times.items()
        }
    }
    for name, handle in task.states.items():
        written = None
        if handle.expiry is not None and not isinstance(handle, ListHandle):
            written = {cell: round(time, 6) for cell, time in handle.expiry.written.items()}
        times = getattr(handle, "times", {})
        rounded = {key: [round(time, 6) for time in each] for key, each in times.items()}
        found[name] = values_of(handle), written, rounded
    return {**found, "undeclared": task.undeclared}
