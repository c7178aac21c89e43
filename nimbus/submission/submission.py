"""A submission as a value.

Must not know: requests, the life cycle of a topology.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from squall.cluster.records import SetOptions
from squall.packages.versions import minor
from topology_api.topology import Topology


class Submission(msgspec.Struct, frozen=True):
    """A topology to run. In `conf` and in each of `component_confs`, all layers of settings are already merged.

    key: chosen by the submitter; requests with the same key are the same submission ("": no key). files: the topology's files,
    kind -> SHA-256. versions: the versions of "python", "cloudpickle" and "squall" with which the topology was packed. replace:
    if another topology has the name, this topology takes the name over once the other topology has drained. wait_secs: how many
    seconds that drain may take (None: the message timeout of the other topology). options: what `-o` has set, which `conf`
    contains; the next version keeps it. reset_options: with `replace`, what was set for the other topology is forgotten.
    by: the credentials and the address of the submitter, as far as they are known. repeats: for a rollback, the id of the
    version that is submitted again. state_start: the epoch with which the topology begins, as `StateStart` writes it; "": with
    the last commit.
    """

    topology: Topology
    conf: Mapping[str, object]
    component_confs: Mapping[str, Mapping[str, object]]
    active: bool = True
    key: str = ""
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    versions: Mapping[str, str] = msgspec.field(default_factory=dict)
    replace: bool = False
    wait_secs: float | None = None
    options: SetOptions = msgspec.field(default_factory=SetOptions)
    reset_options: bool = False
    by: str = ""
    repeats: str = ""
    state_start: str = ""

    @property
    def python(self) -> str:
        """The Python version that packed the topology, such as "3.11"; "" if the topology stays within one process."""
        return minor(self.versions.get("python", ""))
