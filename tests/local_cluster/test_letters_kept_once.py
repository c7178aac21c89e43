"""Each dead letter of a bolt is kept once, also if its topology returns to the commit that has made it visible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from topology_api import (
    FailTuple,
    Fields,
    Replay,
    RewindableSpout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.tracking.dead_letters import GivenUp, MemoryLetters

ROWS = 60
BAD = (5, 25, 26)
SPOILS = 35


class Numbers(RewindableSpout):
    """Emits ten numbers in a second."""

    outputs = Fields("word", "number")
    replay = Replay(max_attempts=1)

    def position(self) -> int:
        return self.at

    def rewind(self, position: int | None) -> None:
        self.at = position or 0

    def next_tuple(self) -> float:
        if self.at < ROWS:
            self.emit((f"w{self.at % 3}", self.at))
            self.at += 1
        return 0.1


class Count(StatefulBolt):
    """Refuses bad numbers, and for one number spoils its state, so that all tasks return to the last commit."""

    key = "word"
    text = ValueState(str)

    def __init__(self, spoils: int | None) -> None:
        self.spoils = spoils

    def execute(self, tup: Tuple) -> None:
        if tup["number"] in BAD:
            raise FailTuple("bad")
        if tup["number"] == self.spoils:
            self.text.value = "\ud800"


def topology(spoils: int | None) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("count", Count(spoils)).fields_grouping("numbers", "word")
    return builder.build()


def conf(folder: Path) -> dict[str, object]:
    return {"topology.state.path": f"file://{folder}", "topology.epoch.secs": 1.0}


def test_letters_are_kept_once_if_all_tasks_return_to_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    keep = MemoryLetters.keep

    def keep_and_note(self: MemoryLetters, given_up: Sequence[GivenUp]) -> int:
        kept.extend(each.row[1] for each in given_up)
        return keep(self, given_up)

    monkeypatch.setattr(MemoryLetters, "keep", keep_and_note)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(SPOILS), conf(tmp_path))
        cluster.advance(30)
        epoch = cluster.status("words").epoch
        assert epoch is not None and epoch.rewinds == 1
    assert sorted(kept) == sorted((*BAD, SPOILS))


def test_letters_are_kept_once_if_there_was_room_for_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    rooms = [1]
    keep = MemoryLetters.keep

    def keep_some(self: MemoryLetters, given_up: Sequence[GivenUp]) -> int:
        some = given_up[: rooms.pop(0)] if len(given_up) == 2 and rooms else given_up
        kept.extend(each.row[1] for each in some)
        return keep(self, some)

    monkeypatch.setattr(MemoryLetters, "keep", keep_some)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(None), conf(tmp_path))
        cluster.advance(30)
    assert sorted(kept) == sorted(BAD)
