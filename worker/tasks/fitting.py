"""Whether what a bolt task has saved fits the bolt that begins with it, which may be of another version of the topology.

Must not know: how a task loads a snapshot.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Final

from squall.unreadable import loads
from topology_api import StateError
from topology_api.state_types import keeping_problems, keeps_of
from worker.errors.reports import failure_text

if TYPE_CHECKING:
    from worker.epochs.snapshot_files import TaskSnapshot
    from worker.tasks.epoch_bolt import EpochBoltTask

#: What helps where a snapshot does not fit the topology.
ANOTHER_PATH: Final = (
    "submit the topology as it was, remove its state (kill it, then `squall state drop NAME`), or set another "
    "topology.state.path"
)


def check_inputs(task: EpochBoltTask, ended: Set[int]) -> None:
    """Raise StateError if the input has ended, and another version of the topology has given the bolt further inputs."""
    new = sorted(task.epochs.names[source] for source in task.sources - ended)
    if task.end_called and new:
        raise StateError(
            f"{task.emitter.where()}: its input had ended, and now it reads {', '.join(new)} too: give the bolt a new name"
        )


def check_key(task: EpochBoltTask, key: list[str], timers: bool) -> None:
    """Raise StateError if state was saved for a key of other fields, or timers for a bolt that has none any more."""
    known = {"key": key, "states": {"timers": None} if timers else {}}
    own = {**keeps_of(task.instance)}
    if "states" in own:
        own["states"] = {}
    for problem in keeping_problems(task.context.topology, task.spec.id, known, own):
        raise StateError(problem)


def check_parked(task: EpochBoltTask, snapshot: TaskSnapshot) -> None:
    """Raise StateError for parked tuples that this version of the bolt cannot get."""
    for item, _, _ in snapshot.parked:
        component, _, stream, values = item[:4]
        fields = task.fields_of.get((component, stream))
        place = task.emitter.where()
        where = (
            f"{place} has a tuple of stream {stream!r} of component {component!r} that waits for its next try"
        )
        if fields is None:
            raise StateError(f"{where}, and does not read this stream any more: {ANOTHER_PATH}")
        if len(loads(values)[0]) != len(fields):
            raise StateError(
                f"{where}, and the stream has other fields now ({', '.join(fields)}): {ANOTHER_PATH}"
            )


def unreadable(where: str, epoch: int, error: Exception) -> StateError:
    """Return the error for a snapshot that does not fit its task."""
    if isinstance(error, StateError):
        return error
    return StateError(f"{where} cannot read its snapshot of epoch {epoch}: {failure_text(error)}")
