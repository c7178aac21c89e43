"""Dead letters of bolts in topologies whose state is at a path: their message ids, where the bolt can know them."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import Words
from topology_api import Bolt, Fields, Replay, Topology, TopologyBuilder, Tuple
from worker.loop.epoch_worker import EpochWorker
from worker.loop.letters_again import LetterAgain

CONF = {"topology.epoch.secs": 0.2, "topology.on.outage": "give-up"}


class Numbered(Words):
    """Emits numbers with ids of a kind."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=0.1, max_delay=0.1)

    def __init__(self, count: int, kind: str = "text", delay: float = 0.1) -> None:
        super().__init__(count)
        self.kind = kind
        self.replay = Replay(max_attempts=3, first_delay=delay, max_delay=delay)

    def id_of(self, number: int) -> Any:
        return {"text": f"id{number}", "pair": ("file", number), "lock": threading.Lock(), "none": None}[
            self.kind
        ]

    def next_tuple(self) -> float | None:
        if self.at < self.count:
            self.at += 1
            self.emit((self.at,), message_id=self.id_of(self.at))
        return 0.01


class Pass(Bolt):
    outputs = Fields("number")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"],))


class Fails(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("never")


class FailsInThread(Fails):
    threaded = True


class Reads(Bolt):
    """Writes the message ids of letters."""

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        with open(self.path, "a") as file:
            file.write(f"{tup['message_id']!r}\n")


def topology(
    spout: Numbered, folder: Path, fails: Bolt | None = None, direct: bool = False, tasks: int = 1
) -> Topology:
    builder = TopologyBuilder("ids")
    numbers = builder.set_spout("numbers", spout)
    builder.set_bolt("pass", Pass(), tasks).shuffle_grouping(numbers)
    builder.set_bolt("fail", fails or Fails(), tasks).shuffle_grouping(numbers if direct else "pass")
    builder.set_bolt("letters", Reads(str(folder / "ids"))).dead_letters(numbers)
    return builder.build()


def conf_of(folder: Path, workers: int = 1) -> dict[str, object]:
    return {**CONF, "topology.state.path": f"file://{folder}/state", "topology.workers": workers}


def read(folder: Path) -> list[str]:
    return sorted((folder / "ids").read_text().splitlines())


@pytest.mark.parametrize("fails", [Fails, FailsInThread])
@pytest.mark.parametrize("direct", [True, False])
def test_a_letter_has_the_message_id_of_its_tree(tmp_path: Path, direct: bool, fails: type[Bolt]) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(3), tmp_path, fails(), direct), conf_of(tmp_path))
        cluster.advance(20)
        letters = sorted(letter.message_id for letter in cluster.dead_letters("ids"))
    assert letters == read(tmp_path) == ["'id1'", "'id2'", "'id3'"]


def test_a_reader_gets_the_id_itself(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(1, "pair"), tmp_path), conf_of(tmp_path))
        cluster.advance(20)
        (letter,) = cluster.dead_letters("ids")
    assert (letter.message_id, read(tmp_path)) == ("('file', 1)", ["('file', 1)"])


def test_an_id_that_cannot_be_kept_is_its_text(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(1, "lock"), tmp_path), conf_of(tmp_path))
        cluster.advance(20)
        (letter,) = cluster.dead_letters("ids")
    assert letter.message_id.startswith("<unlocked _thread.lock object")
    assert read(tmp_path) == [repr(letter.message_id)]


def test_a_tuple_without_message_id_has_none(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(1, "none"), tmp_path), conf_of(tmp_path))
        cluster.advance(20)
        (letter,) = cluster.dead_letters("ids")
    assert (letter.message_id, read(tmp_path)) == ("", ["None"])


def test_a_parked_tuple_keeps_its_message_id_when_the_cluster_starts_again(tmp_path: Path) -> None:
    for secs in (2, 30):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(Numbered(2, delay=4.0), tmp_path), conf_of(tmp_path))
            cluster.advance(secs)
            letters = sorted(letter.message_id for letter in cluster.dead_letters("ids"))
    assert letters == read(tmp_path) == ["'id1'", "'id2'"]


def test_a_bolt_in_another_worker_than_the_spout_does_not_know_the_id(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(12), tmp_path, tasks=3), conf_of(tmp_path, 3))
        cluster.advance(20)
        letters = cluster.dead_letters("ids")
        plan = next(iter(cluster._host.workers("ids"))).plan
        home = plan.worker_of[plan.tasks_of["numbers"][0]]
    assert len(letters) == 12
    for letter in letters:
        known = f"'id{letter.values[0]}'" if plan.worker_of[letter.task] == home else ""
        assert letter.message_id == known
    assert {letter.message_id == "" for letter in letters} == {True, False}


def test_a_letter_that_is_sent_again_keeps_its_message_id(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Numbered(1, "pair"), tmp_path), conf_of(tmp_path))
        cluster.advance(20)
        (letter,) = cluster.dead_letters("ids")
        [worker] = cluster._host.workers("ids")
        assert isinstance(worker, EpochWorker)
        worker.again.found.append((letter.task, LetterAgain(letter, partial(tuple, letter.values))))
        cluster.advance(20)
        again = cluster.dead_letters("ids")[-1]
    assert (again.resent, again.message_id) == (1, "('file', 1)")
