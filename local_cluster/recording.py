"""Records a run while it happens: every emission, every ack and fail, and whether values were changed.

A recording is an observer of a local cluster (`worker.tasks.hooks`): each task gets its own recorder, and all recorders write
to one `Recording`.
Must not know: how the run is driven, how the record is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from local_cluster.mutation import MutationWatch
from local_cluster.scripted import Row, near_or_all
from local_cluster.state_watch import StateWatch
from topology_api import Context, Failure, Hook, SquallError, Topology, Tuple
from topology_api.topology import ComponentSpec, StreamSpec
from topology_api.wording import listed, shown
from worker.state.table import StateTable


class Recording:
    """The record of one run of a topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.specs = {spec.id: spec for spec in topology.components}
        self.rows: dict[tuple[str, str], list[Row]] = {
            (spec.id, stream): [] for spec in topology.components for stream in spec.outputs
        }
        self.acked: dict[str, list[Any]] = {spec.id: [] for spec in topology.spouts}
        self.failed: dict[str, list[tuple[Any, Failure]]] = {spec.id: [] for spec in topology.spouts}
        self.mutations = MutationWatch()

    def for_task(self, context: Context) -> TaskRecorder:
        """Return the recorder of one task; called when the task is made."""
        return TaskRecorder(self, context.component)

    def watch_states(self, table: StateTable) -> StateWatch:
        """Return what checks the states of one task; called when the task is made."""
        return StateWatch(table, self.mutations.keep_first)

    def emitted(self, component: str, stream: str) -> list[Row]:
        """Return the values that a component emitted on a stream; raise SquallError for unknown names."""
        spec = self._known(component, tuple(self.specs))
        own = [name for name in spec.outputs if not name.startswith("__")]
        if stream not in own:
            raise SquallError(
                f"{spec.kind} {component!r} of topology {self.topology.name!r} has no output stream {shown(stream)}"
                f"{near_or_all(stream, own)}"
            )
        return list(self.rows[component, stream])

    def final_calls(self, spout: str) -> tuple[list[Any], list[tuple[Any, Failure]]]:
        """Return the acked and the failed message ids of a spout. Raises SquallError if the component is not a spout."""
        spec = self._known(spout, tuple(self.acked))
        return list(self.acked[spec.id]), list(self.failed[spec.id])

    def _known(self, component: str, known: Sequence[str]) -> ComponentSpec:
        if component in known:
            return self.specs[component]
        if component in self.specs:
            raise SquallError(
                f"{component!r} is a bolt of topology {self.topology.name!r}: message ids are acked and failed at "
                f"spouts (there are: {listed(known)})"
            )
        raise SquallError(
            f"topology {self.topology.name!r} has no {shown(component)}{near_or_all(component, known)}"
        )


class TaskRecorder(Hook):
    """Records the events of one task."""

    def __init__(self, recording: Recording, component: str) -> None:
        self.recording = recording
        self.component = component
        self.streams: Mapping[str, StreamSpec] = recording.specs[component].outputs
        self.mutations = recording.mutations

    def emitted(self, task: int, stream: str, values: Row, targets: Sequence[int]) -> None:
        self.recording.rows[self.component, stream].append(values)
        self.mutations.emitted(self.component, stream, self.streams[stream].fields, values)

    def executing(self, tup: Tuple) -> None:
        self.mutations.executing(self.component, tup)

    def executed(self, tup: Tuple) -> None:
        self.mutations.executed(self.component, tup)

    def spout_acked(self, message_id: Any) -> None:
        self.recording.acked[self.component].append(message_id)

    def spout_failed(self, message_id: Any, failure: Failure) -> None:
        self.recording.failed[self.component].append((message_id, failure))
