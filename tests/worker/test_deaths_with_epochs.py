"""A tuple that kills its worker becomes a dead letter of its bolt in a topology with state at a path."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rewinding_spout import FromPosition
from tests.worker.deadly_story import (
    APART,
    CONF,
    COUNT,
    KILLER,
    TOGETHER,
    Dies,
    DiesInABatch,
    DiesInAThread,
    DiesLater,
    DiesRich,
    Story,
)
from topology_api import Fields, Replay
from topology_api.tuples import UNTRACKED
from worker.epochs.parking import Parked
from worker.tasks.parked_verdicts import replay_before
from worker.tracking.ids import first_root
from worker.tracking.replay_policy import Replays


class SixtyAgain(FromPosition):
    """60 numbers, by position."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=1.0, max_delay=1.0)

    def next_tuple(self) -> float:
        if self.at < COUNT:
            self.emit((self.at,), message_id=self.at)
            self.at += 1
        if self.at == COUNT:
            self.finish()
        return 0.01


def with_epochs(kind: Any, hosts: dict[str, list[str]], path: Path) -> Story:
    conf = {**CONF, "topology.state.path": f"file://{path}", "topology.epoch.secs": 0.3}
    return Story(kind(), hosts, conf, SixtyAgain())


@pytest.mark.parametrize(
    ("kind", "deaths"), [(Dies, 3), (DiesInAThread, 3), (DiesRich, 3), (DiesLater, 3), (DiesInABatch, 4)]
)
@pytest.mark.parametrize("hosts", [TOGETHER, APART], ids=["together", "apart"])
def test_a_tuple_that_kills_its_worker_is_a_letter_of_its_bolt(
    tmp_path: Path, kind: Any, deaths: int, hosts: dict[str, list[str]]
) -> None:
    story = with_epochs(kind, hosts, tmp_path)
    story.run()
    story.net.run(5.0)
    story.net.stop_coroutines()
    assert story.settled and story.deaths == deaths
    [letter] = story.letters.letters.values()
    assert (letter.component, letter.values, letter.failure.reason) == ("store", (KILLER,), "lost")
    assert str(letter.failure.error).startswith("died of SIGSEGV")
    [report] = story.reports()
    assert "has not executed a tuple" in report and f"number={KILLER}" in report


def test_whether_a_tuple_is_given_up_is_said_by_the_spout_of_its_tree() -> None:
    spouts = {"sure": Replay(max_attempts=None), "some": Replay(max_attempts=3)}
    epochs = SimpleNamespace(replays=Replays.of(spouts), names={4: "sure/0", 7: "some/1", 9: "store/0"})
    task: Any = SimpleNamespace(epochs=epochs, trying=None)

    def attempts(root: int, source: str, parked: Parked | None = None) -> int | None:
        tup: Any = SimpleNamespace(_root=root, _source=SimpleNamespace(component=source))
        task.tries = {} if parked is None else {id(tup): parked}
        return replay_before(task, tup).max_attempts

    assert attempts(first_root(4, 1), "split") is None
    assert attempts(first_root(7, 1), "split") == 3
    assert attempts(UNTRACKED, "some") == 3
    assert attempts(UNTRACKED, "split") is None, "of several spouts, the one with the most attempts"
    again = Parked(["split", 2, "default", b"", {"spout": "some"}], 1, 0.0)
    assert attempts(UNTRACKED, "split", again) == 3
    task.trying = again
    assert attempts(UNTRACKED, "split") == 3
