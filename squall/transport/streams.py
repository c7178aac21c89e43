"""Numbers for the streams of a topology: on the wire, a batch names its source by the task and the stream's number.

Must not know: messages, links.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.transport.errors import BadFrame
from topology_api import Topology
from topology_api.tuples import Source


class Streams:
    """All streams of a topology, numbered in the order of declaration, so that all processes agree."""

    def __init__(self, topology: Topology, component_of: Mapping[int, str]) -> None:
        """`component_of`: the component of each task, which may change."""
        self.component_of = component_of
        self._all = [
            (spec.id, stream, declared.fields)
            for spec in topology.components
            for stream, declared in spec.outputs.items()
        ]
        self.numbers = {
            (component, stream): number for number, (component, stream, _) in enumerate(self._all)
        }
        self._sources: dict[tuple[int, int], Source] = {}

    def source(self, task: int, number: int) -> Source:
        """Return the source of a task's stream, the same object each time. Raises `BadFrame` if there is no such stream."""
        found = self._sources.get((task, number))
        if found is None:
            if number >= len(self._all) or task not in self.component_of:
                raise BadFrame(f"a batch of stream {number} of task {task}, which does not exist")
            component, stream, fields = self._all[number]
            found = self._sources[task, number] = Source(component, task, stream, fields)
        return found
