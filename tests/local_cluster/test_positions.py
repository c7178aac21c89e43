"""Positions that cannot be kept: the topology fails, and says which component returned what, and what it may return."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import Count, Pass, Words, words
from topology_api import TopologyFailed


class Opaque:
    pass


class At(Words):
    """Has the position that a test gives."""

    def __init__(self, kind: str) -> None:
        super().__init__(100, 50)
        self.kind = kind

    def position(self) -> Any:
        kinds = {
            "object": Opaque(),
            "inside": {"at": [Opaque()]},
            "large": 2**70,
            "text": "\ud800",
        }
        return kinds[self.kind]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("object", r".* \(Opaque\), which is no msgpack value: TypeError: .* Opaque"),
        ("inside", r".* \(dict\), which is no msgpack value: TypeError: .* Opaque"),
        ("large", r"\d+ \(int\), which is no msgpack value: OverflowError"),
        ("text", r".* \(str\), which is no msgpack value: UnicodeEncodeError"),
    ],
)
def test_a_position_that_msgpack_cannot_hold_is_named_with_what_may_be_returned(
    tmp_path: Path, kind: str, found: str
) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(At(kind), Pass(), Count()), conf)
        cluster.advance(5)
        with pytest.raises(TopologyFailed) as raised:
            cluster.wait("words")
    text = str(raised.value)
    assert re.search(rf"component .words. \(task 1\): position\(\) returned {found}", text), text
    assert "Return numbers, text, bytes, None, or lists and dicts of these" in text, text
