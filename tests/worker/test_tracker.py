"""The tracker makes one final call per tree, and the same one that a set of unacked tuples would give."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from threading import get_ident
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import worker.tracking.tracker
from squall.transport.frames import DEADLY, DIED, HUNG
from topology_api import EmitError, Failure
from topology_api.tuples import SETTLED, Source, Tuple
from worker.routing.outbox import Outbox
from worker.routing.router import StreamOutput
from worker.tasks.bolt import make_tuple
from worker.tasks.emitter import BoltEmitter, SpoutEmitter
from worker.tracking.ack_batch import AckBatch, AckColumns
from worker.tracking.ids import GENERATION_BITS, MAX_SLOTS, first_root, next_root
from worker.tracking.tracker import Emission, Tracker

SPOUTS = (1, 2)
TIMEOUT = 10.0
#: Few slots, so that each is used many times.
FEW_SLOTS = 5
FAILURE = Failure("failed", "bolt", 9, None, 0)
CHOICES = st.lists(st.integers(0, 1000), min_size=1, max_size=4)


def tracker_with(slots: int, task: int = 1) -> Tracker:
    """A tracker whose table starts with `slots` slots."""
    tracker = Tracker(task, TIMEOUT, 0.0)
    tracker.add_slots([-first_root(task, slot) for slot in range(slots)])
    return tracker


def outputs_of(task: int) -> dict[str, StreamOutput]:
    """Streams "0" to "3", each with its number of reading tasks."""
    found = {}
    for readers in range(4):
        source = Source("component", task, str(readers), ("value",))
        found[str(readers)] = StreamOutput(source, is_direct=False)
        found[str(readers)].fixed = [Outbox(source, 100 + number) for number in range(readers)]
    return found


def tuples_in(outputs: dict[str, StreamOutput]) -> list[Tuple]:
    """The contents of the outboxes, as the bolts would get them."""
    batches = [box.dequeue(1000) for output in outputs.values() for box in output.fixed if box.rows]
    return [make_tuple(batch, at) for batch in batches for at in range(len(batch))]


@dataclass(eq=False)
class Node:
    """A tuple in flight, and the message ids of its trees."""

    tup: Tuple
    trees: frozenset[int]


@dataclass
class Tree:
    """The model of a tree: the tuples whose ack has not reached the tracker."""

    spout: int
    waiting: set[Node] = field(default_factory=set)
    #: None while it is open, otherwise "acked" or a failure's reason.
    final_call: str | None = None


@dataclass
class Message:
    """A message for a tracker: XORs with the tuples that they ack, or a failure of these trees."""

    spout: int
    columns: AckColumns = ((), ())
    acks: tuple[Node, ...] = ()
    failed_root: int = 0
    fails: int = -1


class TreesInAnyOrder(RuleBasedStateMachine):
    """Real emitters, ack batches and trackers against sets; messages in flight arrive in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.trackers = {task: tracker_with(FEW_SLOTS, task) for task in SPOUTS}
        self.spouts = {}
        for task in SPOUTS:
            emitter = SpoutEmitter("spout", task, outputs_of(task), Random(task), self.trackers[task])
            emitter.open_for(get_ident())
            self.spouts[task] = emitter
        self.bolt = BoltEmitter("bolt", 9, outputs_of(9), Random(9))
        self.bolt.open_for(get_ident())
        self.trees: list[Tree] = []
        self.roots: dict[int, int] = {}
        self.nodes: list[Node] = []
        self.messages: list[Message] = []
        self.delivered: list[Message] = []
        self.final_calls: list[tuple[int, str]] = []

    def picked(self, choices: list[int]) -> list[Node]:
        """Some of the open tuples; one may be picked twice."""
        return [self.nodes[choice % len(self.nodes)] for choice in choices]

    @rule(spout=st.sampled_from(SPOUTS), readers=st.integers(0, 3))
    def the_spout_emits(self, spout: int, readers: int) -> None:
        if not self.trackers[spout].free:
            return
        message_id = len(self.trees)
        tree = Tree(spout, final_call=None if readers else "acked")
        self.trees.append(tree)
        emitter = self.spouts[spout]
        emitter.emit((message_id,), message_id=message_id, stream=str(readers))
        for tup in tuples_in(emitter.outputs):
            node = Node(tup, frozenset([message_id]))
            self.roots[message_id] = tup._root
            self.nodes.append(node)
            tree.waiting.add(node)

    @precondition(lambda self: self.nodes)
    @rule(choices=CHOICES, readers=st.integers(0, 3))
    def a_bolt_emits(self, choices: list[int], readers: int) -> None:
        anchors = self.picked(choices)
        before = [node.tup._xor for node in anchors]
        self.bolt.emit(("value",), anchors=[node.tup for node in anchors], stream=str(readers))
        trees = frozenset().union(*(node.trees for node in anchors))
        made = tuples_in(self.bolt.outputs)
        assert len(made) == readers
        assert readers or before == [node.tup._xor for node in anchors]
        for tup in made:
            node = Node(tup, trees)
            assert {tup._root, *(root for root, _ in tup._more)} == {self.roots[tree] for tree in trees}
            self.nodes.append(node)
            for tree in trees:
                self.trees[tree].waiting.add(node)

    @precondition(lambda self: self.nodes)
    @rule(choices=CHOICES)
    def tuples_are_acked(self, choices: list[int]) -> None:
        batch = AckBatch()
        acked = list(dict.fromkeys(self.picked(choices)))
        for node in acked:
            batch.add_tuple(node.tup)
            node.tup._root = SETTLED
            self.nodes.remove(node)
        for spout, columns in batch.by_tracker().items():
            self.messages.append(Message(spout, columns, tuple(acked)))

    @precondition(lambda self: self.nodes)
    @rule(choice=st.integers(0, 1000))
    def a_tuple_fails(self, choice: int) -> None:
        node = self.nodes.pop(choice % len(self.nodes))
        for tree in node.trees:
            spout = self.trees[tree].spout
            self.messages.append(Message(spout, failed_root=self.roots[tree], fails=tree))

    @precondition(lambda self: self.messages)
    @rule(choices=CHOICES)
    def messages_arrive(self, choices: list[int]) -> None:
        chosen = [self.messages.pop(choice % len(self.messages)) for choice in choices[: len(self.messages)]]
        for spout in SPOUTS:
            roots: list[int] = []
            xors: list[int] = []
            for message in chosen:
                if message.spout == spout:
                    roots += message.columns[0]
                    xors += message.columns[1]
            self.trackers[spout].merge(roots, xors)
        for message in chosen:
            for node in message.acks:
                for tree in node.trees:
                    if self.trees[tree].spout == message.spout:
                        self.trees[tree].waiting.discard(node)
        for open_tree in self.trees:
            if open_tree.final_call is None and not open_tree.waiting:
                open_tree.final_call = "acked"
        for message in chosen:
            if message.failed_root:
                self.fail_arrives(message)
        self.delivered += chosen

    def fail_arrives(self, message: Message) -> None:
        """A failure reaches its tracker."""
        self.trackers[message.spout].fail(message.failed_root, FAILURE)
        tree = self.trees[message.fails]
        if tree.final_call is None:
            tree.final_call = "failed"

    @precondition(lambda self: self.delivered)
    @rule(choice=st.integers(0, 1000))
    def a_message_comes_again_after_its_trees_have_ended(self, choice: int) -> None:
        message = self.delivered[choice % len(self.delivered)]
        if message.failed_root:
            self.fail_arrives(message)
        elif all(self.trees[tree].final_call for node in message.acks for tree in node.trees):
            self.trackers[message.spout].merge(*message.columns)

    @precondition(lambda self: any(tree.final_call is None for tree in self.trees))
    @rule()
    def the_timeout_passes(self) -> None:
        self.now += 1.1 * TIMEOUT
        for tracker in self.trackers.values():
            tracker.expire(self.now)
        for tree in self.trees:
            tree.final_call = tree.final_call or "timeout"

    @invariant()
    def each_tree_has_the_final_call_of_the_model_and_only_one(self) -> None:
        for tracker in self.trackers.values():
            self.final_calls += [(emission[0], "acked") for emission in tracker.completed]
            self.final_calls += [(each[0], failure.reason) for each, failure in tracker.failed if each]
            tracker.completed, tracker.failed = [], []
        wanted = [(number, tree.final_call) for number, tree in enumerate(self.trees) if tree.final_call]
        assert sorted(self.final_calls) == wanted

    @invariant()
    def the_open_trees_are_those_of_the_model(self) -> None:
        for spout, tracker in self.trackers.items():
            wanted = [
                self.roots[number]
                for number, tree in enumerate(self.trees)
                if tree.spout == spout and tree.final_call is None
            ]
            assert sorted(tracker.open_roots()) == sorted(wanted)
            assert tracker.pending == len(wanted)
            assert len(tracker.free) == FEW_SLOTS - len(wanted)
            assert sum(emission is not None for emission in tracker.emissions) == len(wanted)


TestTreesInAnyOrder = TreesInAnyOrder.TestCase
TestTreesInAnyOrder.settings = settings(max_examples=60, stateful_step_count=60)


def emission(message_id: object = "id") -> Emission:
    """An emission that opens a tree."""
    output: Any = None
    return (message_id, ("value",), output, 0, 1, 0.0, None)


def test_a_tree_without_readers_is_complete_at_once() -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    tracker.start(tracker.open(emission()), 0)
    assert [done[0] for done in tracker.completed] == ["id"]
    assert tracker.pending == 0


def test_a_tree_whose_value_is_zero_in_the_middle_of_a_batch_is_not_complete() -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    root = tracker.open(emission())
    tracker.start(root, 5)
    tracker.merge([root, root], [5, 6])
    assert tracker.completed == [] and tracker.pending == 1
    tracker.merge([root], [6])
    assert tracker.pending == 0


def test_messages_for_an_earlier_use_of_a_slot_change_nothing() -> None:
    tracker = tracker_with(slots=1)
    old = tracker.open(emission("old"))
    tracker.start(old, 5)
    tracker.fail(old, FAILURE)
    new = tracker.open(emission("new"))
    tracker.start(new, 7)
    assert new != old
    tracker.merge([old, old], [7, 5])
    tracker.fail(old, FAILURE)
    tracker.keep_alive((old,), 1.0, "bolt", 9)
    assert tracker.open_roots() == [new]
    assert len(tracker.failed) == 1 and tracker.holders == {}
    tracker.merge([new], [7])
    assert [done[0] for done in tracker.completed] == ["new"]


def test_the_last_generation_of_a_slot_is_followed_by_the_first() -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    last = first_root(1, 0) + ((1 << GENERATION_BITS) - 1) * MAX_SLOTS
    tracker.add_slots([-last])
    root = tracker.open(emission())
    assert root == next_root(last) == first_root(1, 0)
    tracker.start(root, 3)
    tracker.merge([last, root], [3, 3])
    assert tracker.pending == 0 and len(tracker.completed) == 1


def test_roots_of_no_tree_change_nothing() -> None:
    tracker = tracker_with(slots=2)
    root = tracker.open(emission())
    tracker.start(root, 5)
    for strange in (first_root(1, 1), first_root(1, 4000), first_root(2, 0), 0, -root):
        tracker.merge([strange], [5])
        tracker.fail(strange, FAILURE)
        tracker.keep_alive((strange,), 0.0)
    assert tracker.open_roots() == [root] and tracker.failed == []


def test_a_slot_is_used_again_only_after_all_others() -> None:
    tracker = tracker_with(slots=3)
    used = []
    for _ in range(9):
        root = tracker.open(emission())
        tracker.start(root, 0)
        used.append(root & (MAX_SLOTS - 1))
    assert used == [0, 1, 2] * 3


def test_the_table_grows_while_trees_are_open_and_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.tracking.tracker, "MIN_SLOTS", 2)
    tracker = Tracker(1, TIMEOUT, 0.0)
    roots = [tracker.open(emission(number)) for number in range(9)]
    for number, root in enumerate(roots):
        tracker.start(root, number + 1)
    assert tracker.open_roots() == roots and len(tracker.roots) == 16
    tracker.merge(roots, [number + 1 for number in range(9)])
    assert [done[0] for done in tracker.completed] == list(range(9))
    assert len(tracker.roots) == 16


def test_a_full_table_is_an_error_that_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.tracking.tracker, "MIN_SLOTS", 2)
    monkeypatch.setattr(worker.tracking.tracker, "MAX_SLOTS", 4)
    tracker = Tracker(3, TIMEOUT, 0.0)
    for _ in range(4):
        tracker.start(tracker.open(emission()), 1)
    with pytest.raises(EmitError, match=r"task 3 has 4 trees open.*topology\.max\.spout\.pending"):
        tracker.open(emission())
    assert tracker.pending == 4


def test_a_tree_fails_between_1_and_1_1_timeouts_after_its_last_keep_alive() -> None:
    for late in (0.0, 0.1, 0.26, 0.49):
        tracker = Tracker(1, TIMEOUT, 0.0)
        root = tracker.open(emission())
        tracker.start(root, 5)
        tracker.keep_alive((root,), 4.0 + late, "slow", 7)
        tracker.expire(13.99 + late)
        assert tracker.pending == 1
        tracker.expire(15.0 + late)
        [(_, failure)] = tracker.failed
        assert (failure.reason, failure.component, failure.task) == ("timeout", "slow", 7)
        assert tracker.pending == 0 and tracker.holders == {}


def test_a_tree_that_times_out_after_a_worker_has_ended_may_be_lost_unless_it_was_heard_of_since() -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    silent, alive = (tracker.open(emission(name)) for name in ("silent", "alive"))
    tracker.start(silent, 5)
    tracker.start(alive, 5)
    tracker.peer_ended = True
    tracker.expire(3.0)
    tracker.keep_alive((alive,), 6.0)
    tracker.expire(30.0)
    reasons = {each[0]: (failure.reason, failure.attempts) for each, failure in tracker.failed if each}
    assert reasons == {"silent": ("timeout", silent), "alive": ("timeout", 0)}


def test_a_tuple_that_was_not_executed_for_its_deaths_is_no_loss_like_any_other() -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    root = tracker.open(emission())
    tracker.start(root, 5)
    tracker.fail(root, Failure("lost", "slow", 7, "died of SIGSEGV", DEADLY))
    assert [failure.attempts for _, failure in tracker.failed] == [DEADLY] and tracker.pending == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reason", [DIED, HUNG])
def test_a_death_in_a_call_follows_the_loss_whichever_is_heard_of_first(known: bool, reason: str) -> None:
    tracker = Tracker(1, TIMEOUT, 0.0)
    root = tracker.open(emission())
    tracker.start(root, 5)
    if known:
        tracker.fail(root, Failure("lost", "slow", 7, "its worker is gone", 0))
    tracker.fail(root, Failure(reason, "slow", 7, "died of SIGSEGV", 0))
    tracker.fail(root, Failure("lost", "slow", 7, "its worker is gone", 0))
    assert [(failure.reason, failure.attempts) for _, failure in tracker.failed] == [
        ("lost", root),
        (reason, root),
    ]
    assert tracker.pending == 0


def test_without_timeouts_no_tree_expires() -> None:
    tracker = Tracker(1, None, 0.0)
    root = tracker.open(emission())
    tracker.start(root, 5)
    tracker.keep_alive((root,), 1.0)
    tracker.expire(1e9)
    assert tracker.open_roots() == [root]


def test_a_reused_slot_gets_the_whole_timeout() -> None:
    tracker = tracker_with(slots=1)
    tracker.start(tracker.open(emission("first")), 5)
    assert tracker.wheel is not None
    tracker.wheel.set_time(9.0)
    tracker.merge(tracker.open_roots(), [5])
    tracker.start(tracker.open(emission("second")), 5)
    tracker.expire(18.9)
    assert tracker.pending == 1
    tracker.expire(20.0)
    assert [failed[0] for failed, _ in tracker.failed if failed] == ["second"]
