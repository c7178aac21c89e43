"""Bolts that read dead letters in topologies whose state is at a path: each letter reaches them once, with its epoch."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.cycle_of_words import Around
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Forward,
    Newest,
    Pass,
    Words,
    commits_at,
    eventually,
)
from topology_api import (
    BatchBolt,
    Bolt,
    InvalidConfig,
    Replay,
    Spout,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from topology_api.epoch_rules import epoch_problems

FEW = Replay(max_attempts=3, first_delay=0.1, max_delay=0.2)
POISON = frozenset({3, 50, 77})


class Graves(StagedRows):
    """Shows of each letter the bolt in which its tuple failed, and the number."""

    def row(self, tup: Tuple) -> list[object]:
        return [tup["failure"].component, tup["values"][-1]]


class Morgue(Bolt):
    """Writes its letters to a file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def execute(self, tup: Tuple) -> None:
        failure = tup["failure"]
        with open(Path(self.folder, "morgue"), "a") as file:
            file.write(
                f"{tup['values']!r} {tup['stream']} {failure.component} {failure.attempts} {failure.error.partition(' (')[0]}\n"
            )


def found_by_morgue(folder: Path) -> list[str]:
    try:
        return sorted((folder / "morgue").read_text().splitlines())
    except FileNotFoundError:
        return []


class PassAwaited(Pass):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        super().execute(tup)


class PassInThread(Pass):
    threaded = True


class PassInBatches(BatchBolt):
    outputs = Pass.outputs
    batch_size, batch_interval = 7, 0.1

    def __init__(self, failing: float = 0.0, poison: frozenset[int] = frozenset()) -> None:
        self.poison = poison

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            if tup["number"] in self.poison:
                raise ValueError(f"number {tup['number']}")


class PassAndAck(Pass):
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.ack(tup)


def spout_of(kind: type[Spout] = Words, count: int = 100, *more: int) -> Spout:
    spout = kind(count, *more)  # type: ignore[call-arg]
    spout.replay = FEW
    return spout


def topology_with(between: Bolt, reader: Bolt, spout: Spout, parallelism: int = 1) -> TopologyBuilder:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", spout)
    builder.set_bolt("pass", between, parallelism).shuffle_grouping(words)
    builder.set_bolt("count", Count(), parallelism).fields_grouping("pass", "word")
    builder.set_bolt("newest", Newest(), parallelism).fields_grouping("count", "word")
    builder.set_bolt("letters", reader, parallelism).dead_letters(words)
    return builder


def conf_of(folder: Path, **more: object) -> Mapping[str, object]:
    conf = {
        "topology.state.path": f"file://{folder}/state",
        "topology.epoch.secs": 0.2,
        "topology.on.outage": "give-up",
    }
    return conf | {name.replace("_", "."): value for name, value in more.items()}


@pytest.mark.parametrize("kind", [Pass, PassAwaited, PassInThread, PassInBatches, PassAndAck])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_letter_of_any_bolt_reaches_the_bolt_that_reads_letters(
    tmp_path: Path, kind: type[Pass], workers: int
) -> None:
    builder = topology_with(kind(poison=POISON), Morgue(str(tmp_path)), spout_of(), 2)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path, topology_workers=workers))
        cluster.advance(20)
        letters = sorted(letter.values[1] for letter in cluster.dead_letters("words"))
    assert letters == sorted(POISON)
    assert found_by_morgue(tmp_path) == sorted(
        f"('w{number % 7}', {number}) default pass 3 ValueError: number {number}" for number in POISON
    )


@pytest.mark.parametrize("spout", [Words, Forward])
def test_a_bolt_far_behind_the_spout_has_letters_too(tmp_path: Path, spout: type[Spout]) -> None:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", spout_of(spout))
    builder.set_bolt("first", Pass()).shuffle_grouping(words)
    builder.set_bolt("second", Pass(poison=POISON)).shuffle_grouping("first")
    builder.set_bolt("letters", Morgue(str(tmp_path))).dead_letters(words)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(20)
    assert len(found_by_morgue(tmp_path)) == len(POISON)


@pytest.mark.parametrize("seed", range(4))
def test_a_letter_is_shown_once_however_often_the_cluster_starts_again(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    poison = frozenset(draw.sample(range(400), 40))
    conf = conf_of(tmp_path, topology_workers=1 + seed % 3, topology_max_spout_pending=draw.choice([5, 1000]))
    for last in (False, False, False, False, True):
        sink = Graves(str(tmp_path))
        builder = topology_with(Pass(poison=poison), sink, spout_of(Words, 400, 100), 2)
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(40 if last else draw.uniform(0.2, 2.5))
    assert Counter(shown_rows(tmp_path)) == Counter(("pass", number) for number in poison)


@pytest.mark.parametrize("seed", range(3))
def test_a_letter_is_shown_once_however_tasks_are_moved(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    poison = frozenset(draw.sample(range(400), 40))
    builder = topology_with(Pass(poison=poison), Graves(str(tmp_path)), spout_of(Words, 400, 50), 2)
    with LocalCluster(simulated_time=True, seed=seed) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path, topology_workers=2))
        for _ in range(4):
            cluster.advance(draw.uniform(0.5, 2.0))
            counts = {bolt: draw.choice([1, 2, 3]) for bolt in ("pass", "letters")}
            cluster.rebalance("words", draw.choice([1, 2, 3]), counts)
        cluster.advance(40)
    assert Counter(shown_rows(tmp_path)) == Counter(("pass", number) for number in poison)


@pytest.mark.parametrize("seed", range(2))
def test_a_letter_of_a_cycle_of_bolts_is_shown_once(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for last in (False, False, False, True):
        builder = TopologyBuilder("words")
        words = builder.set_spout("words", spout_of(Words, 300, 100))
        around = builder.set_bolt("around", Around(poison=55), 2).fields_grouping(words, "word")
        around.fields_grouping("around", "word", stream="again")
        builder.set_bolt("letters", Graves(str(tmp_path))).dead_letters(words)
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(builder.build(), conf_of(tmp_path, topology_workers=1 + seed))
            cluster.advance(30 if last else draw.uniform(0.4, 1.5))
    assert shown_rows(tmp_path) == [("around", 1)]  # its last value: how many rounds were left


def test_a_topology_with_a_reader_of_letters_completes(tmp_path: Path) -> None:
    builder = topology_with(Pass(poison=POISON), Graves(str(tmp_path)), spout_of(Finite))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(20)
        cluster.wait("words")
    assert shown_rows(tmp_path) == sorted(("pass", number) for number in POISON)
    assert commits_at(tmp_path / "state" / "words")


class Forgets(Pass):
    auto_ack = False


def test_what_a_bolt_has_forgotten_is_a_letter_too(tmp_path: Path) -> None:
    builder = topology_with(Forgets(), Graves(str(tmp_path)), spout_of(Finite, 10))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(60)
        cluster.wait("words")
    assert shown_rows(tmp_path) == [("pass", number) for number in range(10)]


def test_whichever_of_two_workers_is_killed_each_letter_is_shown_once(tmp_path: Path) -> None:
    poison = frozenset(range(0, 1_200, 50))
    builder = topology_with(Pass(poison=poison), Graves(str(tmp_path)), spout_of(Words, 1_200, 300), 2)
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path, topology_workers=2))
        for turn in range(2):
            before = len(shown_rows(tmp_path))
            eventually(lambda before=before: len(shown_rows(tmp_path)) > before)  # type: ignore[misc]
            eventually(lambda: len([each for each in cluster.workers("words") if each.pid]) == 2)
            worker = sorted(cluster.workers("words"), key=lambda each: each.worker)[turn]
            assert worker.pid
            os.kill(worker.pid, signal.SIGKILL)
        eventually(lambda: len(shown_rows(tmp_path)) >= len(poison))
    assert Counter(shown_rows(tmp_path)) == Counter(("pass", number) for number in poison)


class FailsAll(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("never")


def test_a_letter_goes_to_those_who_read_the_letters_of_its_spout(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        spout = spout_of(Words, 3)
        words = builder.set_spout(name, spout)
        builder.set_bolt(f"letters of {name}", Morgue(str(tmp_path / name))).dead_letters(words)
    builder.set_bolt("of one", FailsAll()).shuffle_grouping("one")
    builder.set_bolt("pass", Pass()).shuffle_grouping("one").shuffle_grouping("two")
    builder.set_bolt("of both", FailsAll()).shuffle_grouping("pass")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(20)
    bolts = {
        name: Counter(
            "of one" if " of one " in line else "of both" for line in found_by_morgue(tmp_path / name)
        )
        for name in ("one", "two")
    }
    assert bolts == {"one": {"of one": 3, "of both": 3}, "two": {"of both": 3}}


class Untracked(Words):
    def next_tuple(self) -> None:
        if self.at < self.count:
            self.at += 1
            self.emit(("w0", self.at))


def test_a_bolt_that_reads_the_letters_of_two_spouts_gets_each_once(tmp_path: Path) -> None:
    """The spout of a tuple without message id is not known behind a bolt."""

    builder = TopologyBuilder("words")
    reader = builder.set_bolt("letters", Morgue(str(tmp_path)))
    between = builder.set_bolt("pass", Pass())
    for name in ("one", "two"):
        words = builder.set_spout(name, spout_of(Untracked, 3))
        reader.dead_letters(words)
        between.shuffle_grouping(words)
    builder.set_bolt("fail", FailsAll()).shuffle_grouping("pass")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(20)
    assert len(found_by_morgue(tmp_path)) == 6


class FailsLater(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.timer_after(0.1, name="late")

    def on_timer(self, name: str, time: float) -> None:
        raise ValueError("a timer")


def test_a_timer_that_is_given_up_is_a_letter_too(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", spout_of(Words, 1))
    builder.set_bolt("timers", FailsLater()).fields_grouping(words, "word")
    builder.set_bolt("letters", Morgue(str(tmp_path))).dead_letters(words)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(60)
    (line,) = found_by_morgue(tmp_path)
    assert line.startswith("('w0', 'late', ") and " timers 3 " in line


def test_what_fails_in_the_reader_itself_is_its_own_letter_and_does_not_return_to_it(tmp_path: Path) -> None:
    builder = topology_with(Pass(poison=POISON), FailsAll(), spout_of())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path))
        cluster.advance(30)
        components = Counter(letter.component for letter in cluster.dead_letters("words"))
        assert cluster.status("words").components["letters"].executed == 3 * len(POISON)
    assert components == {"pass": 3, "letters": 3}


def test_letters_that_could_return_to_their_reader_are_refused(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", spout_of())
    builder.set_bolt("repair", Pass()).dead_letters(words)
    builder.set_bolt("pass", Pass()).shuffle_grouping(words).shuffle_grouping("repair")
    topology = builder.build()
    (problem,) = epoch_problems(topology, {"topology.state.path": f"file://{tmp_path}"})
    assert "'repair' reads the dead letters of 'words', and what it emits reaches 'pass'" in problem
    assert list(epoch_problems(topology, {})) == []
    with LocalCluster(simulated_time=True) as cluster, pytest.raises(InvalidConfig, match="dead letters"):
        cluster.submit(topology, conf_of(tmp_path))
