"""What is submitted, as a value.

Must not know: requests, the life cycle of a topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topology_api.topology import Topology


@dataclass(frozen=True)
class Submission:
    """A topology to run. `conf` and `component_confs` are merged: they hold every option of Squall's.

    key: the submitter's own; a request with the same key is the same submission ("": none). files: what it brings besides,
    kind -> SHA-256. versions: what it was packed with: "python", "cloudpickle", "squall". replace: when a topology has the
    name, this one takes over once that one has drained, within `wait_secs` seconds (None: its message timeout).
    """

    topology: Topology
    conf: Mapping[str, object]
    component_confs: Mapping[str, Mapping[str, object]]
    active: bool = True
    key: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    wait_secs: float | None = None

    @property
    def python(self) -> str:
        """Python's minor version that packed it, "3.11"; "" in one process."""
        return ".".join(self.versions.get("python", "").split(".")[:2])
