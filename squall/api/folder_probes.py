"""What Nimbus asks supervisors to find out whether their hosts share a folder: one puts a probe, an empty file with a random
name, and the others look for it.

Must not know: who asks, how files are made.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

#: The steps, in order: parts of the paths of the requests.
PUT, LOOK, REMOVE = "put", "look", "remove"
#: What names of probes begin with; the rest is the number of the probe.
PREFIX = ".squall-probe-"


class FolderProbe(Struct, frozen=True, forbid_unknown_fields=True):
    """A probe. `folder`: the folder of a topology's state, as an absolute path; when it is looked for, where it was put."""

    folder: Annotated[str, Meta(max_length=4_096)]
    number: Annotated[str, Meta(max_length=32, pattern="^[0-9a-f]{32}$")]


class ProbeSeen(Struct, frozen=True):
    """`folder`: where the probe was put or looked for. `seen`: whether it is there. `problem`: why that is not known, or ""."""

    folder: str
    seen: bool
    problem: str = ""
