"""A task that lives returns to a commit in memory: without reading, and as if it had read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chained_snapshots import chained_snapshots
from tests.checked_returns import Returns, checked_returns
from tests.local_cluster.keeping_words import Gathers
from tests.local_cluster.words_with_state import WORDS, Count, Pass, Words
from tests.worker.lossy_carrier import Faults
from tests.worker.network_of_workers import InMemory, Net
from tests.worker.test_epochs_over_links import HOSTS, WORD_LIST, net_of, problems_of, reassign, run
from topology_api import (
    Context,
    ListState,
    MapState,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.epochs.snapshot_chain import SnapshotChain
from worker.loop.epoch_worker import EpochWorker
from worker.loop.epochs import Epochs
from worker.loop.threaded_tasks import ThreadedTasks
from worker.state import contents
from worker.state.keys import canonical
from worker.tasks.stateful_bolt import StatefulBoltTask


def test_only_the_tasks_of_the_process_that_has_died_read_their_snapshots(
    tmp_path: Path, returns: Returns
) -> None:
    net = net_of(tmp_path, InMemory(), total=400)
    net.start()
    net.run(1)
    for _ in range(2):
        net.kill("b")
        net.restart("b")
        net.run(1)
    run(net, 20, 400)
    assert sorted(returns.read) == sorted(2 * HOSTS["b"])
    assert sorted(returns.in_memory) == sorted(2 * (HOSTS["a"] + HOSTS["c"]))


def test_a_task_that_has_read_its_snapshot_returns_to_it_in_memory(tmp_path: Path, returns: Returns) -> None:
    """Two processes die between two commits."""
    net = net_of(tmp_path, InMemory(), total=500, conf={"topology.epoch.secs": 2.0})
    net.start()
    net.run(2.5)
    for name in "bcb":
        net.kill(name)
        net.restart(name)
        net.run(0.3)
    run(net, 30, 500)
    assert sorted(returns.read) == sorted(2 * HOSTS["b"] + HOSTS["c"])


def test_after_another_assignment_only_the_tasks_read_that_were_moved(
    tmp_path: Path, returns: Returns
) -> None:
    """A host is lost, and another one gets its tasks."""
    net = net_of(tmp_path, InMemory(), total=400)
    net.start()
    net.run(1)
    reassign(net, {"a": HOSTS["a"], "b": HOSTS["b"], "d": HOSTS["c"]}, Random(0))
    run(net, 20, 400)
    assert sorted(returns.read) == sorted(HOSTS["c"])
    assert sorted(returns.in_memory) == sorted(HOSTS["a"] + HOSTS["b"])


def test_a_component_with_another_number_of_tasks_reads_and_the_others_do_not(
    tmp_path: Path, returns: Returns
) -> None:
    """From two tasks to three: the file of the first one is still all that it needs, and has too many keys. Then back to two,
    before another commit: what was held before is still right, and what was changed for three when it was read is not."""
    net = net_of(tmp_path, InMemory(), total=400, conf={"topology.epoch.secs": 2.0})
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(400, 200), parallelism=2)
    builder.set_bolt("pass", Pass(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("count", Count(), parallelism=3).fields_grouping("pass", "word")
    two, three = net.topology, builder.build()
    more = {**HOSTS, "b": [*HOSTS["b"], "count/2"]}
    net.start()
    net.run(2.5)

    def place(topology: Topology, hosts: dict[str, list[str]]) -> None:
        net.topology = topology
        net.number_tasks(topology)
        reassign(net, hosts, Random(0))
        net.run(0.2)

    place(three, more)
    assert sorted(returns.read) == ["count/0", "count/1", "count/2"]
    assert sorted(returns.in_memory) == ["pass/0", "pass/1", "words/0", "words/1"]
    net.kill("c")
    net.restart("c")
    net.run(0.2)
    returns.read.clear()
    returns.in_memory.clear()
    place(two, HOSTS)
    assert sorted(returns.read) == ["count/0", "count/1", "words/1"]
    assert sorted(returns.in_memory) == ["pass/0", "pass/1", "words/0"]
    run(net, 20, 400)


def test_what_is_read_for_an_assignment_that_is_no_more_is_of_no_use(tmp_path: Path) -> None:
    """The store is slow, and meanwhile the tasks are placed again: each begins with what was read for it last, and once."""
    net = net_of(tmp_path, InMemory(), total=400, between=Gathers(1000))
    net.start()
    net.run(1)
    with held_reads() as late:
        reassign(net, {"a": HOSTS["a"], "d": HOSTS["b"], "c": HOSTS["c"]}, Random(0))
        net.run(1)
    assert len(late) == len(HOSTS["b"])
    net.version += 1
    for name in ("d", "a", "c"):
        net.tell_one(name)
        net.nodes[name].worker.replan(net.plan(name, net.incarnations[name]))
        while late:
            late.pop()()
    run(net, 20, 400)


@contextmanager
def held_reads() -> Iterator[list[Callable[[], None]]]:
    """Keep back what was read of the store, and yield what delivers it."""
    late: list[Callable[[], None]] = []
    real = Epochs.snapshots_read

    def held(self: Epochs, task: int, rewind: int, found: list[Any], in_memory: bool = False) -> None:
        if in_memory or not found:
            real(self, task, rewind, found, in_memory)
        else:
            late.append(partial(real, self, task, rewind, found))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Epochs, "snapshots_read", held)
        yield late


class KeepsAll(StatefulBolt):
    """Keeps each number of a word in every kind of state, and sums up those whose timer has fired."""

    key = ("word",)
    numbers = ListState(int)
    pairs = ListState(list[int])
    newest = MapState(int, list[int])
    last = ValueState(dict[str, int], default={})
    recent = ListState(int, ttl=0.3)
    passing = MapState(int, int, ttl=0.3)
    fired = ValueState(int, default=0)

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        self.numbers.append(number)
        self.pairs.append([number, 0])
        self.pairs[-1][1] += 1
        self.newest.setdefault(number % 3, []).append(number)
        if number % 50 == 7:
            self.newest.clear()
            self.pairs.reverse()
        self.last.value["number"] = number
        self.recent.append(number)
        self.passing[number] = number
        if number % 11 == 0:
            del self.recent[0]
        self.timer_after(0.05 * (number % 7), name=f"of {number}")
        self.cancel_timer(name=f"of {number - 49}")
        if self.random.random() < 0.05:
            raise ValueError("tried again")

    def on_timer(self, name: str, time: float) -> None:
        self.fired.value += int(name.partition(" ")[2])


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_every_kind_of_state_returns_in_memory_as_it_would_by_reading(
    tmp_path: Path, returns: Returns, seed: int
) -> None:
    draw = Random(f"every kind/{seed}")
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(300, 200), parallelism=2)
    builder.set_bolt("keep", KeepsAll(), parallelism=2).fields_grouping("words", "word")
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    hosts = {"a": ["words/0", "keep/0"], "b": ["words/1"], "c": ["keep/1"]}
    net = Net(builder.build(), hosts, InMemory(), Faults(draw, lose=0.01), conf)
    net.start()
    for _ in range(6):
        net.run(draw.uniform(0.1, 0.6))
        name = draw.choice("abbc")
        net.kill(name)
        net.restart(name)
    twice = {word: 2 * [number for number in range(300) if WORDS[number] == word] for word in WORD_LIST}
    wanted = {word: sorted(numbers) for word, numbers in twice.items()}
    net.run(30, lambda: bool(problems_of(net)) or numbers_of(net) == wanted)
    assert problems_of(net) == []
    assert numbers_of(net) == wanted
    assert {task for task in returns.in_memory if "keep" in task}


def numbers_of(net: Net) -> dict[str, list[int]]:
    """The numbers of each word that `KeepsAll` has kept."""
    found: dict[str, list[int]] = {}
    for node in net.nodes.values():
        for task in node.worker.tasks.values():
            if isinstance(task, StatefulBoltTask):
                for word in WORD_LIST:
                    if contents.has_state(task.states, canonical(word)):
                        found[word] = sorted(contents.read(task.states, word)["numbers"])
    return found


class Reminds(StatefulBolt):
    """Sets a timer far ahead for the first number of each word, and counts."""

    key = ("word",)
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        if not self.times.value:
            self.timer_after(10_000.0)
        self.times.value += 1


def test_a_wall_clock_that_is_moved_moves_no_timer(tmp_path: Path) -> None:
    """It is moved after a commit, then a task returns to this commit in memory. The next snapshot builds upon its files."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(1000, 100))
    builder.set_bolt("remind", Reminds()).fields_grouping("words", "word")
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.3}
    net = Net(builder.build(), {"a": ["words/0", "remind/0"]}, InMemory(), None, conf)
    with chained_snapshots(100):
        net.start()
        worker: Any = net.nodes["a"].worker
        assert isinstance(worker, EpochWorker)
        ahead = [0.0]
        worker.environment.time_of = lambda moment: moment + ahead[0]

        def rewind() -> None:
            rewinds = worker.epochs.rewind
            worker.frames_gone(rewinds)
            assert net.run(5, lambda: worker.epochs.rewind > rewinds and worker.epochs.running)

        net.run(1)
        rewind()  # the new tasks have the wall clock that is moved
        net.run(1)
        ahead[0] = 3600.0
        rewind()
        net.run(1)
        with checked_returns() as returns:
            rewind()
    assert problems_of(net) == []
    assert sorted(returns.in_memory) == ["remind/0", "words/0"]
    bolt: Any = worker.bolts[0]
    chain: SnapshotChain = bolt.epochs.chain
    assert len(chain.links) > 1, "the last snapshot was whole: nothing is tested"
    assert all(9_000 < time < 10_100 for names in bolt.timers.times.values() for time in names.values())


def test_threaded_tasks_are_closed_at_the_same_time() -> None:
    """A rewind waits for the longest of their calls, not for one after the other."""
    together = threading.Barrier(3, timeout=10)
    threads = ThreadedTasks("words", links=None, wake=lambda: None)  # type: ignore[arg-type]
    tasks: list[Any] = [SimpleNamespace(id=task, close=together.wait) for task in range(3)]
    for task in tasks:
        threads.calls[task.id] = SimpleNamespace(stop=lambda: None, job=lambda job: job)  # type: ignore[assignment]
    threads.begin_to_finish(tasks)
    for task in tasks:
        threads.finish(task)
    assert not (together.broken or threads.left_behind or threads.calls or threads.runner.threads)
