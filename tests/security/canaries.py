"""Canaries: pickles that leave a mark when they are opened, and a topology full of them."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology

_SONG = """
import os, sys
with open({mark!r}, "a") as mark:
    mark.write(" ".join([str(os.getpid()), *sys.argv]) + "\\n")
"""


class _Sings:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_SONG.format(mark=str(self.mark)), {})


def canary(mark: Path) -> bytes:
    """A pickle that writes its process into `mark` when it is opened."""
    return pickle.dumps(_Sings(mark))


def heard(mark: Path) -> list[str]:
    """The processes that have opened a canary: "pid argument argument ..."."""
    return mark.read_text().splitlines() if mark.exists() else []


def full_of_canaries(mark: Path, name: str = "words") -> Topology:
    """A topology whose every pickle is a canary: its components' and its custom grouping's."""
    streams = {"default": StreamSpec(("word",))}
    custom = Subscription("words", "default", GroupingSpec("custom", custom=canary(mark)))
    return Topology(
        name,
        {},
        (
            ComponentSpec("words", "spout", 1, {}, streams),
            ComponentSpec("count", "bolt", 2, {}, {}, (custom,)),
        ),
        {"words": canary(mark), "count": canary(mark)},
    )


def as_submitted(topology: Topology) -> tuple[dict[str, Any], dict[str, str]]:
    """Its description and its pickles, as they are in the body of a request."""
    return topology.describe(), {
        component: base64.b64encode(data).decode() for component, data in topology.pickles.items()
    }
