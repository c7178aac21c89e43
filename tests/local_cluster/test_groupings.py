"""Groupings in running topologies: counts are exact, and every tuple reaches the right tasks, also over links and codec."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.gathering import (
    GATHERED,
    WAYS,
    Gather,
    Gathered,
    Rows,
    gathered,
    run,
)
from topology_api import (
    Bolt,
    Context,
    EmitError,
    Fields,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
)

__all__ = ["gathered"]

ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "the",
    "cow",
    "jumps",
    "over",
    "the",
    "moon",
]


def sentences(count: int, seed: int = 1) -> list[tuple[str]]:
    """Sentences of random words."""
    random = Random(seed)
    return [(" ".join(random.choices(WORDS, k=random.randint(0, 12))),) for _ in range(count)]


class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup: Tuple) -> None:
        for word in tup["value"].split():
            self.emit((word,))


class Count(Bolt):
    outputs = Fields("word", "count")

    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1

    def end_of_input(self) -> None:
        for word, count in self.counts.items():
            self.emit((word, count))


def one_bolt(
    grouping: str, rows: Sequence[tuple[Any, ...]], *args: Any, tasks: int = 6, spouts: int = 2
) -> Topology:
    """spout "rows" -> bolt "gather" by this grouping."""
    builder = TopologyBuilder("one-bolt")
    builder.set_spout("rows", Rows(rows), parallelism=spouts)
    getattr(builder.set_bolt("gather", Gather(), parallelism=tasks), grouping)("rows", *args)
    return builder.build()


@pytest.mark.parametrize("way", WAYS)
def test_word_count_over_fields_and_global_grouping_is_exact(way: dict[str, Any], gathered: Gathered) -> None:
    lines = sentences(300)
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", Rows(lines), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=3).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=4).fields_grouping("split", "word")
    builder.set_bolt("total", Gather(), parallelism=3).global_grouping("count")
    status = run(builder.build(), **way)
    plain = Counter(word for (line,) in lines for word in line.split())
    counted = [row for _, row in gathered["total"]]
    assert sorted(counted) == sorted(plain.items())
    assert {task for task, _ in gathered["total"]} == {min(gathered["total tasks"])}
    assert sorted(gathered["lines acked"]) == list(range(300))
    assert status.components["lines"].acked == 300 and status.components["lines"].failed == 0
    assert status.components["count"].executed == sum(plain.values())


@pytest.mark.parametrize("way", WAYS)
def test_all_grouping_reaches_each_of_6_tasks_exactly_once(way: dict[str, Any], gathered: Gathered) -> None:
    run(one_bolt("all_grouping", [(number,) for number in range(50)]), **way)
    wanted = Counter({(task, (number,)): 1 for task in gathered["gather tasks"] for number in range(50)})
    assert len(wanted) == 300
    assert Counter(gathered["gather"]) == wanted
    assert sorted(gathered["rows acked"]) == list(range(50))


class AcksOnTick(Gather):
    """Keeps its tuples; task number n acks them at the n-th tick after they came."""

    auto_ack = False
    tick_interval = 1.0

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.ticks_left = context.index + 1
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.kept.append(tup)

    def tick(self) -> None:
        self.ticks_left -= 1
        if self.ticks_left == 0:
            for tup in self.kept:
                self.ack(tup)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_ack_waits_for_all_six_tasks_of_an_all_grouping(workers: int, gathered: Gathered) -> None:
    builder = TopologyBuilder("six", {"topology.workers": workers})
    builder.set_spout("rows", Rows([("a",)]))
    builder.set_bolt("gather", AcksOnTick(), parallelism=6).all_grouping("rows")
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(5.5)
        assert len(gathered["gather"]) == 6
        status = cluster.status("six").components
        assert status["gather"].acked == 5 and status["rows"].pending == 1
        assert gathered["rows acked"] == []
        cluster.advance(1)
        assert gathered["rows acked"] == [0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grouping", ["shuffle_grouping", "none_grouping"])
def test_shuffle_counts_differ_by_at_most_1_per_sender(
    grouping: str, way: dict[str, Any], gathered: Gathered
) -> None:
    run(one_bolt(grouping, [(number,) for number in range(203)], spouts=1), **way)
    counts = Counter(task for task, _ in gathered["gather"])
    assert sorted(counts.values()) == [33, 34, 34, 34, 34, 34]


#: Rows of equal keys: (key, name of the key's row).
KEYS: list[tuple[Any, int]] = [
    (key, number)
    for number, row in enumerate[list[Any]](
        [[None], [1, 1.0, True], [-0.0, 0, False], ["a"], [b"a"], [("a", 1), ("a", 1.0)]]
    )
    for key in row
]


@pytest.mark.parametrize("way", WAYS)
def test_equal_keys_meet_in_one_task_whichever_task_sends_them(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("keys")
    builder.set_spout("one", Rows(KEYS * 5, ("key", "name")), parallelism=3)
    builder.set_spout("two", Rows(KEYS, ("name", "key")))
    builder.set_bolt("pass", Gather(("key", "name")), parallelism=3).shuffle_grouping("one")
    declarer = builder.set_bolt("gather", Gather(), parallelism=5)
    declarer.fields_grouping("one", "key").fields_grouping("pass", "key")
    run(builder.build(), **way)
    reached: dict[int, set[int]] = {}
    for task, (_, name) in gathered["gather"]:
        reached.setdefault(name, set()).add(task)
    assert len(gathered["gather"]) == 10 * len(KEYS)
    assert [len(tasks) for tasks in reached.values()] == [1] * 6


SCRIPT = """
from tests.local_cluster.gathering import GATHERED, run
from tests.local_cluster.test_groupings import KEYS, one_bolt, run
run(one_bolt("fields_grouping", [("k%d" % number,) for number in range(60)], "value"))
print(sorted(GATHERED["gather"]))
"""


def test_a_key_reaches_the_same_task_in_every_process(gathered: Gathered) -> None:
    answers = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        answers.add(done.stdout.strip())
    run(one_bolt("fields_grouping", [(f"k{number}",) for number in range(60)], "value"))
    assert answers == {str(sorted(gathered["gather"]))}


class EmitsSets(Bolt):
    """Emits a set as a key, for the row "bad"."""

    outputs = Fields("number", "word")

    def execute(self, tup: Tuple) -> None:
        word = tup["value"]
        self.emit((1, {word} if word == "bad" else word))


@pytest.mark.parametrize("grouping", ["fields_grouping", "partial_key_grouping"])
def test_any_other_key_fails_the_tuple_and_the_error_names_component_stream_and_field(
    grouping: str, gathered: Gathered
) -> None:
    builder = TopologyBuilder("bad-key")
    builder.set_spout("rows", Rows([("fine",), ("bad",), ("fine",)]))
    builder.set_bolt("sets", EmitsSets()).shuffle_grouping("rows")
    getattr(builder.set_bolt("gather", Gather(), parallelism=3), grouping)("sets", "number", "word")
    status = run(builder.build())
    assert sorted(gathered["rows acked"]) == [0, 2]
    [(message_id, failure)] = gathered["rows failed"]
    assert message_id == 1 and failure.component == "sets"
    for name in ("'word'", "'default'", "'sets'"):
        assert name in failure.error
    assert status.components["sets"].errors == 1 and status.components["sets"].emitted == 2


class TriesBadKeys(Rows):
    """A spout that catches the error of a bad key and goes on."""

    def next_tuple(self) -> None:
        keys: list[Any] = [{}, "good"]
        for key in keys:
            try:
                self.emit((key,), message_id=str(key))
            except EmitError as error:
                self.failure = str(error)
        self.emit((self.failure,), message_id="text")
        self.finish()


def test_a_spout_that_emits_a_bad_key_gets_an_emit_error_and_opens_no_tree(gathered: Gathered) -> None:
    builder = TopologyBuilder("bad-key")
    builder.set_spout("rows", TriesBadKeys([]))
    builder.set_bolt("gather", Gather(), parallelism=3).fields_grouping("rows", "value")
    status = run(builder.build())
    assert sorted(gathered["rows acked"]) == ["good", "text"]
    texts = [values[0] for _, values in gathered["gather"] if values[0] != "good"]
    assert "'value'" in texts[0] and "'rows'" in texts[0]
    assert status.components["rows"].emitted == 2 and status.components["rows"].errors == 0


@pytest.mark.parametrize("way", WAYS)
def test_partial_key_gives_each_key_two_tasks_and_balances_them(
    way: dict[str, Any], gathered: Gathered
) -> None:
    rows = [("hot" if number % 2 else f"key{number % 20}",) for number in range(1200)]
    run(one_bolt("partial_key_grouping", rows, "value", spouts=1), **way)
    reached: dict[str, Counter[int]] = {}
    for task, (key,) in gathered["gather"]:
        reached.setdefault(key, Counter())[task] += 1
    assert all(len(tasks) <= 2 for tasks in reached.values())
    assert len(reached["hot"]) == 2 and min(reached["hot"].values()) > 200
    assert sum(sum(tasks.values()) for tasks in reached.values()) == 1200


class Directs(Bolt):
    """Sends each number to the task of "gather" with that index, then makes two mistakes."""

    outputs = {"straight": Stream(Fields("value"), direct=True), "default": Fields("value")}

    def prepare(self, context: Context) -> None:
        self.targets = context.tasks("gather")

    def execute(self, tup: Tuple) -> None:
        number = tup["value"]
        self.emit_direct(self.targets[number % len(self.targets)], (number,), stream="straight")
        mistakes: list[Callable[[], None]] = [
            lambda: self.emit_direct(999, (number,), stream="straight"),
            lambda: self.emit((number,), stream="straight"),
            lambda: self.emit_direct(self.targets[0], (number,)),
            lambda: self.emit_direct(self.targets[0], (number, 2), stream="straight"),
        ]
        for mistake in mistakes:
            try:
                mistake()
            except EmitError as error:
                self.emit((str(error),))


@pytest.mark.parametrize("way", WAYS)
def test_direct_grouping_reaches_the_task_that_the_sender_names(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("rows", Rows([(number,) for number in range(12)]))
    builder.set_bolt("directs", Directs()).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather(), parallelism=4).direct_grouping("directs", stream="straight")
    builder.set_bolt("errors", Gather()).shuffle_grouping("directs")
    run(builder.build(), **way)
    tasks = sorted(gathered["gather tasks"])
    assert sorted(gathered["gather"]) == sorted((tasks[number % 4], (number,)) for number in range(12))
    assert sorted(gathered["rows acked"]) == list(range(12))
    texts = [text for _, (text,) in gathered["errors"]][:4]
    assert "task 999 does not read stream 'straight'" in texts[0] and str(tasks) in texts[0]
    assert "stream 'straight' is direct" in texts[1]
    assert "'default' is not a direct stream" in texts[2]
    assert "1 field(s) (value), but 2 value(s)" in texts[3]
    assert all("'directs'" in text for text in texts)


class NamesWorker(Gather):
    """Records which worker it runs in, identified by the resources that its tasks share."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.resources = context.resources

    def execute(self, tup: Tuple) -> None:
        gathered_name = f"{self.name} of {id(self.resources)}"
        GATHERED.add(gathered_name, tup.values)
        super().execute(tup)


class NamesOwnWorker(Rows):
    """Emits numbers with the identity of the worker it runs in."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.left = [(number, (id(context.resources),)) for number, _ in self.left]


@pytest.mark.parametrize("encode", [False, True])
def test_local_or_shuffle_stays_in_the_senders_worker(encode: bool, gathered: Gathered) -> None:
    builder = TopologyBuilder("local", {"topology.workers": 3})
    builder.set_spout("rows", NamesOwnWorker([(number,) for number in range(60)]), parallelism=3)
    builder.set_bolt("gather", NamesWorker(), parallelism=6).local_or_shuffle_grouping("rows")
    run(builder.build(), encode=encode)
    assert len(gathered["gather"]) == 60
    assert len({task for task, _ in gathered["gather"]}) == 6
    crossed = [
        name
        for name in list(gathered.lists)
        if name.startswith("gather of ") and {row[0] for row in gathered[name]} != {int(name.split()[-1])}
    ]
    assert crossed == []


def test_local_or_shuffle_without_a_task_in_the_senders_worker_shuffles(gathered: Gathered) -> None:
    topology = one_bolt("local_or_shuffle_grouping", [(number,) for number in range(30)], tasks=1, spouts=3)
    run(topology, conf={"topology.workers": 4}, encode=True)
    assert len(gathered["gather"]) == 30
