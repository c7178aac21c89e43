"""Dead letters of bolts with epochs: sent again, each enters its bolt and counts once, whatever fails meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.letter import DeadLetter
from tests.local_cluster.words_with_state import Count, Words, counts, expected, words
from topology_api import (
    Bolt,
    Fields,
    ListState,
    Replay,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.loop.epoch_worker import EpochWorker
from worker.loop.letters_again import LetterAgain
from worker.tasks.epoch_bolt import EpochBoltTask

TOTAL = 100
POISON = frozenset({3, 50})


class Gated(Bolt):
    """Fails for some numbers while the gate is shut."""

    outputs = Fields("word", "number")

    def __init__(self, folder: Path) -> None:
        self.gate = folder / "open"

    def execute(self, tup: Tuple) -> None:
        if tup["number"] in POISON and not self.gate.exists():
            raise ValueError("not yet")
        self.emit(tup.values)


class GatedCount(Count):
    """The same with state of the tuple's key."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.gate = folder / "open"

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup["number"] in POISON and not self.gate.exists():
            raise ValueError("not yet")


def topology(folder: Path, keyed: bool) -> Topology:
    spout = Words(TOTAL)
    spout.replay = Replay(max_attempts=2, first_delay=0.01, max_delay=0.1)
    between, count = (Pass(), GatedCount(folder)) if keyed else (Gated(folder), Count())
    return words(spout, between, count)


class Pass(Bolt):
    """Passes tuples on."""

    outputs = Fields("word", "number")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


def conf_at(folder: Path) -> dict[str, object]:
    return {
        "topology.state.path": f"file://{folder / 'state'}",
        "topology.epoch.secs": 0.2,
        "topology.on.outage": "give-up",
    }


def submit_again(cluster: LocalCluster, built: Topology, folder: Path) -> None:
    """Let another version go on from the last commit."""
    cluster.kill(built.name, 0)
    cluster.advance(1)
    cluster.submit(built, conf_at(folder))
    cluster.advance(2)


@contextmanager
def given_up(folder: Path, built: Topology) -> Iterator[tuple[LocalCluster, list[DeadLetter]]]:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(built, conf_at(folder))
        cluster.advance(5)
        yield cluster, cluster.dead_letters(built.name)


def worker_of(cluster: LocalCluster, name: str = "words") -> EpochWorker:
    [worker] = cluster._host.workers(name)
    assert isinstance(worker, EpochWorker)
    return worker


def resend(cluster: LocalCluster, letters: list[DeadLetter], task: int | None = None) -> None:
    """What the heartbeat's thread does with letters that it finds."""
    for letter in letters:
        worker = worker_of(cluster, letter.topology)
        worker.again.found.append((task or letter.task, LetterAgain(letter, partial(tuple, letter.values))))


@pytest.mark.parametrize("keyed", [False, True])
def test_a_letter_enters_its_bolt_again_and_counts_once(tmp_path: Path, keyed: bool) -> None:
    with given_up(tmp_path, topology(tmp_path, keyed)) as (cluster, letters):
        assert sorted(letter.values[1] for letter in letters) == sorted(POISON)
        (tmp_path / "open").touch()
        resend(cluster, letters)
        resend(cluster, letters)  # found twice
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))
        assert cluster.dead_letters("words") == []
        resend(cluster, letters)  # its file was found once more
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))


class Swapped(Bolt):
    """Passes tuples on with the fields in another order."""

    outputs = Fields("number", "word")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"], tup["word"], "en")[: len(self.outputs)])


class Extended(Swapped):
    """With one more field."""

    outputs = Fields("number", "word", "language")


def test_a_letter_is_matched_with_the_fields_of_now_by_their_names(tmp_path: Path) -> None:
    with given_up(tmp_path, topology(tmp_path, True)) as (cluster, letters):
        assert [letter.fields for letter in letters] == [("word", "number")] * 2
        (tmp_path / "open").touch()
        submit_again(cluster, words(Words(TOTAL), Extended(), GatedCount(tmp_path)), tmp_path)
        worker = worker_of(cluster)
        task = worker.epochs.tasks[worker.plan.tasks_of["count"][0]]
        assert isinstance(task, EpochBoltTask)
        why = worker.again.enter(task, LetterAgain(letters[0], partial(tuple, letters[0].values)))
        assert why.endswith("are now (number, word, language), of which the letter has no 'language'")
        submit_again(cluster, words(Words(TOTAL), Swapped(), GatedCount(tmp_path)), tmp_path)
        resend(cluster, letters, worker_of(cluster).plan.tasks_of["count"][0])
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))


def test_a_letter_goes_to_the_task_that_owns_its_key(tmp_path: Path) -> None:
    with given_up(tmp_path, topology(tmp_path, True)) as (cluster, letters):
        (tmp_path / "open").touch()
        tasks = worker_of(cluster).plan.tasks_of["count"]
        assert len(tasks) > 1
        for letter in letters:
            resend(cluster, [letter], next(task for task in tasks if task != letter.task))
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))


def test_a_letter_that_fails_again_is_one_letter_that_tells_its_history(tmp_path: Path) -> None:
    with given_up(tmp_path, topology(tmp_path, False)) as (cluster, letters):
        before = {letter.id for letter in letters}
        resend(cluster, letters)
        cluster.advance(3)
        again = cluster.dead_letters("words")
        assert sorted(letter.values for letter in again) == sorted(letter.values for letter in letters)
        assert {(letter.resent, letter.attempts, letter.failure.attempts) for letter in again} == {(1, 4, 2)}
        assert not before & {letter.id for letter in again}
        (tmp_path / "open").touch()
        resend(cluster, again)
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))
        assert cluster.dead_letters("words") == []


@pytest.mark.parametrize("after", [0.0, 0.1, 0.21, 0.45])
def test_a_rewind_at_any_moment_counts_a_letter_once(tmp_path: Path, after: float) -> None:
    with given_up(tmp_path, topology(tmp_path, True)) as (cluster, letters):
        (tmp_path / "open").touch()
        resend(cluster, letters)
        cluster.advance(after)
        worker = worker_of(cluster)
        worker.frames_gone(worker.epochs.rewind)  # all tasks return to the last commit
        left = {letter.id for letter in cluster.dead_letters("words")}
        resend(
            cluster, [letter for letter in letters if letter.id in left]
        )  # as the heartbeat's thread finds them
        cluster.advance(3)
        assert counts(cluster) == expected(list(range(TOTAL)))
        assert cluster.dead_letters("words") == []
        assert cluster.status("words").epoch.rewinds >= 1  # type: ignore[union-attr]


def test_ids_of_letters_survive_another_number_of_tasks(tmp_path: Path) -> None:
    with given_up(tmp_path, topology(tmp_path, True)) as (cluster, letters):
        (tmp_path / "open").touch()
        resend(cluster, letters)
        cluster.advance(2)
        cluster.rebalance("words", parallelism={"count": 3})
        cluster.advance(5)
        kept = worker_of(cluster).environment.letters(1)
        for letter in letters:
            kept.letters[letter.id] = letter  # type: ignore[attr-defined]
        for task in worker_of(cluster).plan.tasks_of["count"]:
            resend(cluster, letters, task)  # a host came back with the files
        cluster.advance(2)
        assert counts(cluster) == expected(list(range(TOTAL)))


def test_a_letter_that_does_not_fit_stays_and_says_why(tmp_path: Path) -> None:
    with given_up(tmp_path, topology(tmp_path, False)) as (cluster, letters):
        worker = worker_of(cluster)
        resend(cluster, letters[:1], worker.plan.tasks_of["count"][0])
        cluster.advance(1)
        [note] = [letter.note for letter in cluster.dead_letters("words") if letter.note]
        assert "belongs to count now, and not to pass" in note
        assert counts(cluster) == expected([number for number in range(TOTAL) if number not in POISON])


class Timed(StatefulBolt):
    """Sets a timer for each word, which fails for one of them while the gate is shut."""

    key = "word"
    fired = ValueState(int, default=0)
    times = ListState(float)

    def __init__(self, folder: Path) -> None:
        self.gate = folder / "open"

    def execute(self, tup: Tuple) -> None:
        if tup["number"] < 7:
            self.timer_after(1.0, name="late")

    def on_timer(self, name: str, time: float) -> None:
        self.fired.value += 1
        self.times.append(time)
        if self.current_key == "w3" and not self.gate.exists():
            raise ValueError("not yet")


def test_a_timer_that_was_given_up_fires_once_at_its_own_time(tmp_path: Path) -> None:
    builder = TopologyBuilder("timed")
    spout = Words(TOTAL)
    spout.replay = Replay(max_attempts=2, first_delay=0.01, max_delay=0.1)
    builder.set_spout("words", spout)
    builder.set_bolt("timed", Timed(tmp_path), 2).fields_grouping("words", "word")
    with given_up(tmp_path, builder.build()) as (cluster, letters):
        [letter] = letters
        assert (letter.fields, letter.values[:2], letter.source) == (
            ("key", "timer", "time"),
            ("w3", "late"),
            "",
        )
        (tmp_path / "open").touch()
        tasks = worker_of(cluster, "timed").plan.tasks_of["timed"]
        resend(cluster, letters, next(task for task in tasks if task != letter.task))
        cluster.advance(2)
        found = {word: cluster.state("timed", "timed", word) for word in ("w2", "w3")}
        assert {word: each["fired"] for word, each in found.items()} == {"w2": 1, "w3": 1}
        assert found["w3"]["times"] == [pytest.approx(letter.values[2])]
        assert cluster.dead_letters("timed") == []
        resend(cluster, letters)
        cluster.advance(2)
        assert cluster.state("timed", "timed", "w3")["fired"] == 1


class Locks(Bolt):
    """Emits a lock, which pickle cannot carry."""

    outputs = Fields("word", "lock")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], threading.Lock() if tup["number"] == 3 else None))


class Refuses(StatefulBolt):
    """Fails for a lock."""

    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        if tup["lock"] is not None:
            raise ValueError("bad \ud800 lock")


def test_a_value_that_pickle_cannot_carry_becomes_its_text_in_a_letter_and_the_topology_goes_on(
    tmp_path: Path,
) -> None:
    builder = TopologyBuilder("locks")
    builder.set_spout("words", Words(TOTAL))
    builder.set_bolt("locks", Locks()).shuffle_grouping("words")
    builder.set_bolt("refuses", Refuses()).fields_grouping("locks", "word")
    with given_up(tmp_path, builder.build()) as (cluster, letters):
        [letter] = letters
        assert (letter.component, letter.values[0], letter.as_text) == ("refuses", "w3", (1,))
        assert letter.values[1].startswith("<unlocked _thread.lock object")
        assert "ValueError: bad ? lock" in (letter.failure.error or "")
        assert letter.why_no_values.startswith("component 'refuses' (task ")
        assert "its values cannot be kept: field 'lock' is " in letter.why_no_values
        status = cluster.status("locks")
        assert (status.state, status.components["refuses"].failed) == ("ACTIVE", 1)
        assert any("is not tried again, and is a dead letter" in error.text for error in status.errors)
