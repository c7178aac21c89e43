"""Several workers with one state, over a network that loses messages, with processes that die: each tuple counts once. Tasks
that live return to a commit in memory, and are as if they had read it.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from squall.values import Incarnation
from tests.local_cluster.cycle_of_words import Around, around, wanted_visits
from tests.local_cluster.keeping_words import Async, AsyncRich, Batches, Gathers
from tests.local_cluster.words_with_state import Count, Finite, Forward, Pass, Words, expected
from tests.worker.lossy_carrier import Faults
from tests.worker.network_of_workers import InMemory, Net, World
from topology_api import Bolt, Context, Spout, TopologyBuilder
from worker.loop.epoch_worker import EpochWorker
from worker.loop.task_table import TaskTable
from worker.state import contents
from worker.state.keys import canonical
from worker.tasks.stateful_bolt import StatefulBoltTask

pytestmark = pytest.mark.usefixtures("returns")

HOSTS = {"a": ["words/0", "count/0"], "b": ["pass/0", "pass/1"], "c": ["words/1", "count/1"]}
#: Nothing is sent to one of the workers.
SPOUT_ALONE = {"a": ["words/0", "pass/0"], "b": ["words/1"], "c": ["pass/1", "count/0", "count/1"]}
#: Seeds of each kind of story: those of the usual run, and those with `--soak`.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))]
WORD_LIST = sorted(expected([]))


class Ended(Exception):
    """What a worker has ended with."""


def net_of(
    path: Path,
    world: World,
    faults: Faults | None = None,
    total: int = 300,
    between: Bolt | None = None,
    hosts: dict[str, list[str]] | None = None,
    spout: Spout | None = None,
    conf: dict[str, Any] | None = None,
) -> Net:
    """A count of words over three workers."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout or Words(total, 200), parallelism=2)
    builder.set_bolt("pass", between or Pass(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("pass", "word")
    conf = {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.3, **(conf or {})}
    return Net(builder.build(), hosts or HOSTS, world, faults, conf)


def counts_of(net: Net) -> dict[str, tuple[int, int]]:
    """word -> (times, total), over the tasks of all workers."""
    found: dict[str, tuple[int, int]] = {}
    for node in net.nodes.values():
        for task in node.worker.tasks.values():
            if isinstance(task, StatefulBoltTask) and task.spec.id == "count":
                for word in WORD_LIST:
                    if contents.has_state(task.states, canonical(word)):
                        values = contents.read(task.states, word)
                        found[word] = (values["times"], values["total"])
    return found


def wanted(total: int) -> dict[str, tuple[int, int]]:
    """What a run without failures counts: both spout tasks emit all numbers."""
    return {word: (2 * values[0], 2 * values[1]) for word, values in expected(list(range(total))).items()}


def problems_of(net: Net) -> list[str]:
    """The errors with which workers have ended."""
    return [node.worker.crash.render() for node in net.nodes.values() if node.worker.crash]


def run(net: Net, seconds: float, total: int) -> None:
    """Let time pass until all is counted and committed."""

    def done() -> bool:
        leads = [node.worker.lead for node in net.nodes.values() if isinstance(node.worker, EpochWorker)]
        rests = any(lead is not None and lead.coordinator.view.newest is not None for lead in leads)
        return bool(problems_of(net)) or (rests and counts_of(net) == wanted(total))

    reached = net.run(seconds, done)
    assert problems_of(net) == []
    assert reached, (counts_of(net), wanted(total))


def test_three_workers_count_each_tuple_once(tmp_path: Path) -> None:
    net = net_of(tmp_path, InMemory())
    net.start()
    run(net, 20, 300)
    net.run(3)
    assert counts_of(net) == wanted(300)


def test_a_process_to_which_nothing_was_sent_begins_with_the_last_commit(tmp_path: Path) -> None:
    net = net_of(tmp_path, InMemory(), hosts=SPOUT_ALONE)
    net.start()
    net.run(1)
    net.kill("b")
    net.restart("b")
    run(net, 20, 300)
    assert counts_of(net) == wanted(300)


def test_what_comes_while_tasks_are_opened_for_a_rewind_is_not_executed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks with threads are opened while messages arrive; a worker that hears of the rewind later still sends tuples."""
    hosts = {"a": ["words/0"], "b": ["count/0"], "c": ["count/1"], "d": ["words/1", "pass/0", "pass/1"]}
    net = net_of(tmp_path, InMemory(), hosts=hosts)
    net.start()
    net.run(1)
    late, slow = net.nodes["d"].worker, net.nodes["b"].worker
    assert isinstance(slow, EpochWorker)
    before, tasks = slow.epochs.rewind, list(slow.tasks.values())
    of_old_tasks = property(lambda table: list(table.by_id.values()) == tasks)
    monkeypatch.setattr(slow.table, "__class__", type("SlowTable", (TaskTable,), {"opened": of_old_tasks}))
    monkeypatch.setattr(late, "take_messages", lambda: False)
    net.kill("c")
    net.restart("c")
    assert net.run(1, lambda: slow.epochs.rewind > before)
    executed = late.tasks[net.tasks[2].task].executed
    net.run(0.1)
    assert late.tasks[net.tasks[2].task].executed > executed, "nothing was sent meanwhile"
    monkeypatch.undo()
    run(net, 20, 300)
    net.run(3)
    assert counts_of(net) == wanted(300)


def test_what_comes_to_a_worker_that_follows_an_assignment_before_others_is_void(tmp_path: Path) -> None:
    """Its tasks are new objects already, and the rewind that begins the assignment comes when the coordinator follows it."""
    hosts = {"a": ["words/0"], "b": ["count/0", "count/1"], "d": ["words/1", "pass/0", "pass/1"]}
    net = net_of(tmp_path, InMemory(), hosts=hosts)
    net.start()
    net.run(1)
    net.version += 1
    for name in ("b", "d", "a"):
        net.tell_one(name)
        net.nodes[name].worker.replan(net.plan(name, net.incarnations[name]))
        net.run(0.1)
    run(net, 20, 300)
    net.run(3)
    assert counts_of(net) == wanted(300)


def test_no_two_lives_of_a_spout_have_the_same_trees(tmp_path: Path) -> None:
    """Acks of the life before may still come."""
    net = net_of(tmp_path, InMemory())
    net.start()
    roots: set[int] = set()
    for life in range(3):
        net.run(1)
        [spout] = net.nodes["a"].worker.spouts
        first = spout.tracker.open(())  # type: ignore[arg-type]
        assert first not in roots, life
        roots.add(first)
        net.kill("c")
        net.restart("c")


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", SEEDS)
def test_each_worker_may_die_and_messages_be_lost_and_each_tuple_counts_once(
    tmp_path: Path, seed: int
) -> None:
    draw = Random(seed)
    faults = Faults(draw, lose=draw.choice([0.0, 0.02]), double=0.02)
    conf = {"topology.queue.size": draw.choice([16, 4096])}
    hosts = draw.choice([HOSTS, SPOUT_ALONE])
    net = net_of(tmp_path, InMemory(), faults, 1000, hosts=hosts, conf=conf)
    net.start()
    for _ in range(6):
        net.run(draw.uniform(0.05, 0.9))
        name = draw.choice(sorted(net.hosts))
        net.kill(name)
        net.run(draw.uniform(0.0, 0.3))
        net.restart(name)
    run(net, 60, 1000)
    net.run(3)
    assert counts_of(net) == wanted(1000)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
@pytest.mark.parametrize("kind", ["acks itself", "batches", "async", "async and acks itself"])
def test_what_bolts_have_in_their_hands_when_a_worker_dies_counts_once(
    tmp_path: Path, kind: str, seed: int
) -> None:
    draw = Random(f"{kind}/{seed}")
    between: dict[str, Bolt] = {
        "acks itself": Gathers(draw.choice([7, 100]), 0.1),
        "batches": Batches(draw.choice([7, 100]), 0.4, 0.1),
        "async": Async(draw.choice([0.01, 0.3]), 0.1),
        "async and acks itself": AsyncRich(0.2, 0.1),
    }
    net = net_of(tmp_path, InMemory(), Faults(draw, lose=0.01), 300, between=between[kind])
    net.start()
    for _ in range(4):
        net.run(draw.uniform(0.3, 0.9))
        name = draw.choice(sorted(net.hosts))
        net.kill(name)
        net.run(draw.uniform(0.0, 0.3))
        net.restart(name)
    run(net, 60, 300)
    net.run(3)
    assert counts_of(net) == wanted(300)
    net.stop_coroutines()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
@pytest.mark.parametrize("through", [False, True], ids=["to itself", "two bolts"])
def test_each_round_of_a_cycle_counts_once_whichever_worker_dies(
    tmp_path: Path, through: bool, seed: int
) -> None:
    draw = Random(f"cycle/{through}/{seed}")
    conf: dict[str, Any] = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.1}
    conf |= {"topology.queue.size": draw.choice([16, 4096])}
    topology = around(Words(300, 600), Around(0.1), 2, through)
    hosts = {"a": ["words/0", "around/0"], "b": ["around/1"], "c": ["newest/0"]}
    if through:
        hosts["c"] += ["back/0", "back/1"]
    net = Net(topology, hosts, InMemory(), Faults(draw, lose=0.01), conf)
    net.start()
    for _ in range(3):
        net.run(draw.uniform(0.2, 0.5))
        name = draw.choice(sorted(net.hosts))
        net.kill(name)
        net.run(draw.uniform(0.0, 0.2))
        net.restart(name)
    rounds = {word: values[:2] for word, values in wanted_visits(300).items()}
    net.run(60, lambda: rounds_of_net(net) == rounds or bool(problems_of(net)))
    net.run(1)
    assert problems_of(net) == []
    assert rounds_of_net(net) == rounds


def rounds_of_net(net: Net) -> dict[str, tuple[int, int]]:
    """word -> (rounds, how many have left), over the tasks of all workers."""
    found: dict[str, tuple[int, int]] = {}
    for node in net.nodes.values():
        for task in node.worker.tasks.values():
            if isinstance(task, StatefulBoltTask) and task.spec.id == "around":
                for word in WORD_LIST:
                    if contents.has_state(task.states, canonical(word)):
                        values = contents.read(task.states, word)
                        found[word] = (values["rounds"], values["left"])
    return found


def reassign(net: Net, hosts: dict[str, list[str]], draw: Random) -> None:
    """Nimbus makes another assignment; its workers hear of it one after the other. Some processes are new."""
    net.version += 1
    for name in [name for name in net.nodes if name not in hosts]:
        net.kill(name)
    new = [name for name in hosts if name not in net.hosts]
    net.hosts = dict(hosts)
    net.incarnations = {
        name: Incarnation(net.version, 0) if name in new else net.incarnations[name] for name in hosts
    }
    for name in new:
        net.begin(name)
    names = sorted(hosts)
    draw.shuffle(names)
    for name in names:
        net.tell_one(name)
        if name not in new:
            net.nodes[name].worker.replan(net.plan(name, net.incarnations[name]))
        net.run(draw.uniform(0, 0.1))


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", SEEDS)
def test_tasks_that_move_take_their_state_with_them(tmp_path: Path, seed: int) -> None:
    """Without a stop of the spouts: a host is lost, or its tasks are moved while it is away."""
    draw = Random(f"moves/{seed}")
    net = net_of(tmp_path, InMemory(), Faults(draw, lose=0.01), 1000)
    net.start()
    tasks = [task for own in HOSTS.values() for task in own]
    for _ in range(4):
        net.run(draw.uniform(0.1, 1.0))
        draw.shuffle(tasks)
        workers = draw.sample(["a", "b", "c", "d"], draw.choice([1, 2, 3]))
        hosts = {name: tasks[at :: len(workers)] for at, name in enumerate(workers)}
        reassign(net, hosts, draw)
    run(net, 60, 1000)
    net.run(3)
    assert counts_of(net) == wanted(1000)


def test_a_spout_without_a_position_counts_once_while_its_worker_lives(tmp_path: Path) -> None:
    draw = Random("no position")
    hosts = {"a": ["words/0", "words/1"], "b": ["pass/0", "count/0"], "c": ["pass/1", "count/1"]}
    net = net_of(tmp_path, InMemory(), spout=Slowly(600), hosts=hosts)
    net.start()
    for _ in range(8):
        net.run(draw.uniform(0.1, 0.9))
        name = draw.choice(["b", "c"])
        net.kill(name)
        net.restart(name)
    run(net, 60, 600)
    acked = [len(set(task.instance.acked)) for task in net.spouts]
    net.run(3)
    assert counts_of(net) == wanted(600)
    assert [sorted(task.instance.acked) for task in net.spouts] == [list(range(600))] * 2, acked


class Slowly(Forward):
    """200 tuples a second, without a position."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.acked: list[object] = []

    def next_tuple(self) -> float:  # type: ignore[override]
        super().next_tuple()
        return 0.005

    def ack(self, message_id: object) -> None:
        self.acked.append(message_id)


def test_what_happens_in_a_worker_without_the_coordinator_is_committed(tmp_path: Path) -> None:
    """The coordinator's own tasks do nothing meanwhile."""
    hosts = {"a": ["words/0"], "b": ["words/1", "pass/0", "pass/1", "count/0", "count/1"]}
    net = net_of(tmp_path, InMemory(), spout=Fed(), hosts=hosts)
    FED.clear()
    net.start()
    for fed in ([1], [1, 2, 3]):
        net.run(5)
        lead = net.nodes["a"].worker.lead  # type: ignore[attr-defined]
        before = lead.coordinator.view.epoch
        net.run(5)
        assert lead.coordinator.view.epoch == before, "nothing is committed while nothing happens"
        FED[:] = fed
        net.run(1)
        assert before < lead.coordinator.view.epoch <= before + 2


FED: list[int] = []


class Fed(Words):
    """The second task emits what is in a list."""

    def __init__(self) -> None:
        super().__init__(0)

    def next_tuple(self) -> float:
        if self.context.index == 1:
            self.count = len(FED)
        return super().next_tuple() or 0.01


@pytest.mark.parametrize("phase", ["ENDING", "ENDED"])
def test_a_worker_that_dies_when_all_is_done_ends_again(tmp_path: Path, phase: str) -> None:
    net = net_of(tmp_path, InMemory(), spout=Finite(100, 200))
    net.start()
    leader: Any = net.nodes["a"].worker
    assert net.run(30, lambda: leader.lead is not None and leader.lead.coordinator.phase.name == phase)
    net.kill("b")
    net.run(0.2)
    net.restart("b")
    assert net.run(30, net.settled)
    assert problems_of(net) == []


def test_after_a_rewind_an_inactive_topology_is_still_inactive(tmp_path: Path) -> None:
    net = net_of(tmp_path, InMemory(), total=500)
    net.start()
    net.run(0.8)
    for node in net.nodes.values():
        node.worker.set_active(False)
    net.run(2)
    before = counts_of(net)
    assert 0 < sum(times for times, *_ in before.values()) < 500
    net.kill("b")
    net.restart("b")
    net.run(2)
    assert counts_of(net) == before
    for node in net.nodes.values():
        node.worker.set_active(True)
    run(net, 10, 500)


def test_each_task_is_opened_once_for_a_new_assignment(tmp_path: Path) -> None:
    OPENED.clear()
    net = net_of(tmp_path, InMemory(), between=Opens())
    net.start()
    net.run(1)
    assert len(OPENED) == 2
    reassign(net, {"a": HOSTS["a"], "b": [*HOSTS["b"], *HOSTS["c"]]}, Random(0))
    net.run(2)
    assert len(OPENED) == 4
    run(net, 20, 300)


OPENED: list[int] = []


class Opens(Pass):
    def prepare(self, context: Context) -> None:
        super().prepare(context)
        OPENED.append(context.task)
