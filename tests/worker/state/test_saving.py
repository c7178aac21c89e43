"""A snapshot that is encoded in slices, and holds only what has changed, says the same as one that is taken at once. States
that begin with it, of which values stay bytes until they are touched, do the same as states that begin with all values. A task
that returns in memory holds the same as one that reads it.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.state.every_state import FAMILIES, KEYS, Clock, Everything, apply
from tests.worker.state.state_values import values_of
from tests.worker.state.whole_states import save_states, save_timers
from topology_api import StatefulBolt
from worker.routing.key_groups import GroupRange, group_of
from worker.state import build, contents, saving, shares
from worker.state.history import StateHistory, changes_of
from worker.state.keys import canonical
from worker.state.saved import load_parts, load_states, load_timers
from worker.state.saving import StateSaving, touched_cells
from worker.state.table import MarkingTable, StateHandle
from worker.state.timers import KeyTimers

#: Those of the only task.
GROUPS = GroupRange(0, 8, 8)
#: States and timers, and by how much the wall clock was ahead.
Oracle = tuple[Any, bytes, float]
#: The steps of lists.
OF_LISTS = [
    *("row.append", "row.append", "row.last", "row.pop", "row.set", "row.clear"),
    *("rows.append", "rows.change", "brief.append", "brief.reverse"),
]
TIMERS = st.tuples(st.just("timer"), st.sampled_from(["one", "two"]), st.integers(0, 5))


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rounds: what comes before a marker, whether the snapshot is whole, what comes while it is being encoded, and whether a
    rewind ends it or follows it. Few kinds of steps and few keys, so that a cell is often changed while it waits.
    """
    families = draw(st.lists(st.sampled_from([*FAMILIES.values(), (TIMERS,)]), min_size=1, max_size=2))
    kinds = [step for family in families for step in family]
    keys = draw(st.lists(KEYS, min_size=1, max_size=3))
    steps = st.lists(st.one_of(kinds), min_size=1, max_size=3)
    returns, seconds = st.sampled_from([True, True, True, False]), st.sampled_from([0, 0, 1, 3])
    call = st.tuples(st.just("call"), st.sampled_from(keys), steps, returns, seconds)
    sweep = st.tuples(st.just("sweep"), seconds)
    slices = st.tuples(st.just("slices"), st.integers(1, 3))
    before = st.lists(call | call | sweep, max_size=4)
    beside = st.lists(call | sweep | slices, max_size=4)
    marker = st.tuples(st.just("marker"), st.sampled_from([True, False, False, False]), st.integers(0, 2))
    rewinds = st.sampled_from([("rewind",), ("return",), ("return",)])
    end = st.sampled_from([("slices", 1000), ("slices", 1000), ("slices", 1000)]) | rewinds
    found: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(2, 5))):
        found += [*draw(before), draw(marker), *draw(beside), draw(end)]
        if draw(st.booleans()):
            found += [("commit",)] if draw(st.booleans()) else draw(st.lists(call, max_size=2))
            found.append(draw(rewinds))
    return found


class Task:
    """The states and timers of one task."""

    def __init__(self, clock: Clock, bolt: type[StatefulBolt] = Everything) -> None:
        self.table = MarkingTable("component 'everything' (task 1)", clock.now)
        self.states: dict[str, StateHandle] = build.handles(self.table, bolt)
        self.timers = KeyTimers(self.table)

    @property
    def handles(self) -> list[StateHandle]:
        return [*self.states.values(), self.timers]

    def call(self, key: Any, steps: list[tuple[Any, ...]], returns: bool) -> None:
        """A call of user code."""
        table, plain = self.table, canonical(key)
        table.begin(plain)
        table.for_all = True
        for step in steps:
            if step[0] != "timer":
                apply(self.states, step)
            elif step[2]:
                self.timers.set(plain, step[1], table.now() + step[2])
            else:
                self.timers.cancel(plain, step[1])
        if returns:
            table.commit()
        else:
            table.undo()
        table.end()

    def content(self) -> dict[str, Any]:
        """Everything that is held."""
        found: dict[str, Any] = {"timers": self.timers.times}
        for name, handle in self.states.items():
            expiry = handle.expiry  # type: ignore[attr-defined]
            found[name] = (
                values_of(handle),
                getattr(handle, "times", None),
                None if expiry is None else expiry.written,
            )
        return deepcopy(found)


class Ahead:
    """A wall clock that may be moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def to_wall(self, time: float) -> float:
        return time + self.seconds

    def from_wall(self, time: float) -> float:
        return time - self.seconds


class Story:
    """A task, its snapshots, and what they have to say."""

    def __init__(self) -> None:
        self.clock, self.wall = Clock(), Ahead()
        self.task = Task(self.clock)
        #: What `task` has to be: it begins with all values.
        self.eager = Task(self.clock)
        #: The keys of calls.
        self.met: list[Any] = []
        #: What whole snapshot and changes hold: parts, and by how much the wall clock was ahead.
        self.chain: list[tuple[list[bytes], float]] = []
        self.saving: StateSaving | None = None
        self.parts: list[bytes] = []
        #: The states, as a whole snapshot that was taken at once has them.
        self.begun: Oracle = ({}, b"", 0.0)
        self.oracle = self.begun
        self.history = StateHistory()
        #: What the task held at each marker; and, of those whose snapshot was encoded, the chain and the oracle.
        self.held: dict[int, dict[str, Any]] = {}
        self.chains: dict[int, tuple[list[tuple[list[bytes], float]], Oracle]] = {}
        self.epoch = 0

    def play(self, event: tuple[Any, ...]) -> None:
        what = event[0]
        if what == "call":
            self.clock.time += event[4]
            for task in (self.task, self.eager):
                task.call(*event[1:4])
            self.met.append(event[1])
            for key in self.met:
                assert contents.read(self.task.states, key) == contents.read(self.eager.states, key)
            assert contents.count_keys(self.task.states) == contents.count_keys(self.eager.states)
        elif what == "sweep":
            self.clock.time += event[1]
            for task in (self.task, self.eager):
                for handle in task.states.values():
                    if hasattr(handle, "sweep"):
                        handle.sweep(self.clock.time, 100)
        elif what == "slices" and self.saving is not None:
            for _ in range(event[1]):
                self.slice()
        elif what == "rewind" and self.chain:
            self.saving = None
            self.task, self.eager = self.restored(), self.expected()
            self.history.forget()
            self.history.begin(self.epoch, self.wall.seconds)
            self.held = {self.epoch: self.task.content()}
            self.chains = {self.epoch: (list(self.chain), self.oracle)}
        elif what == "commit" and self.saving is None:
            self.history.forget_before(self.epoch)
        elif what == "return":
            self.returns()
        elif what == "marker" and self.saving is None:
            self.wall.seconds += event[2]
            self.begin(event[1] or not self.chain)

    def begin(self, whole: bool) -> None:
        """A marker."""
        eager = self.eager
        self.begun = (
            save_states(eager.states, self.wall.to_wall),
            save_timers(eager.timers, self.wall.to_wall),
            self.wall.seconds,
        )
        self.parts = []
        changes = changes_of(self.task.handles)
        self.epoch = max([self.epoch, *self.held], default=0) + 1
        self.history.mark(self.epoch, self.wall.seconds, changes)
        self.held[self.epoch] = self.task.content()
        self.saving = StateSaving(self.task.handles, whole, self.wall.to_wall, self.take, GROUPS)

    def take(self, data: bytes, groups: GroupRange | None) -> None:
        """A part, whose keys have the groups that it says."""
        self.parts.append(data)
        part = msgspec.msgpack.decode(data)
        keys = pickle.loads(part["keys"]) if part["keys"] else []
        gone = pickle.loads(part["gone"]) if part["gone"] else []
        keys += [each[0] for each in gone] if part["kind"] == "MapState" else gone
        if part["kind"] == "BroadcastState":
            assert groups is None
            return
        assert groups is not None
        assert all(groups.first <= group_of(key, groups.groups) < groups.end for key in keys)

    def returns(self) -> None:
        """Return in memory, to the oldest marker to which that is possible."""
        self.history.leave(self.task.handles, {})
        known = [mark.epoch for mark in self.history.marks if mark.epoch in self.chains]
        assert all(map(self.history.can_return, known))
        if not known:
            self.history.left = None
            return
        self.saving = None
        self.task, self.epoch = Task(self.clock), known[0]
        mark = self.history.return_to(self.epoch, self.task.handles)
        assert touched_cells(self.task.handles) == 0 and not self.history.can_return(self.epoch)
        self.check_timers()
        chain, self.oracle = self.chains[self.epoch]
        self.chain = list(chain)
        self.wall.seconds = mark.ahead
        assert self.task.content() == self.held[self.epoch]
        self.eager = self.expected()
        read, returned = self.restored().content(), self.task.content()
        for content in (read, returned):  # after reading, a list was written last when its newest element was
            content["brief"] = content["brief"][:2]
        assert returned == read
        for name, handle in self.eager.states.items():  # so a sweep may drop it earlier
            if handle.expiry is not None:  # type: ignore[attr-defined]
                handle.expiry.written = dict(self.task.states[name].expiry.written)  # type: ignore[attr-defined]

    def check_timers(self) -> None:
        """All timers come to the front of the queue at their times, or earlier, from where they go on."""
        timers = self.task.timers
        for key, names in timers.times.items():
            for name, time in names.items():
                first = timers.entered.get((key, name), time)
                assert first <= time
                assert any(entry[0] == first and entry[2:] == (key, name) for entry in timers.queue)

    def slice(self) -> None:
        """The next slice; after the last one, the snapshots are compared."""
        if self.saving is None or not self.saving.step():
            return
        if self.saving.whole:
            self.chain.clear()
        self.chain.append((self.parts, self.wall.seconds))
        self.saving, self.oracle = None, self.begun
        self.chains[self.epoch] = list(self.chain), self.oracle
        assert self.restored().content() == self.expected().content()

    def expected(self) -> Task:
        """A task that begins with the last snapshot, taken at once, with all values."""
        states, timers, ahead = self.oracle
        expected = Task(self.clock)
        from_wall = Ahead().from_wall if ahead == 1000.0 else (lambda time: time - ahead)
        load_states(expected.states, states, from_wall)
        load_timers(expected.timers, timers, from_wall)
        return expected

    def restored(self) -> Task:
        """A task that begins with the chain."""
        task, newest = Task(self.clock), self.chain[-1][1]
        parts = []
        for packed, ahead in self.chain:
            for each in packed:
                parts.append({**msgspec.msgpack.decode(each), "shift": newest - ahead})
        load_parts(task.states, task.timers, parts, lambda time: time - newest, same_code=True)
        assert all(handle.keyed is False for handle in task.states.values() if handle.cells)  # type: ignore[attr-defined]
        assert touched_cells(task.handles) == 0
        return task


@given(stories(), st.sampled_from([1, 2, 256]))
@settings(max_examples=100, deadline=None)
def test_whole_snapshot_and_changes_say_what_was_there_at_the_last_marker(
    events: list[tuple[Any, ...]], cells: int
) -> None:
    story = Story()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "MOST_CELLS", cells)
        patch.setattr(saving, "MOST_DIVIDED", cells)
        patch.setattr(shares, "LEAST_LISTS", 2)
        for event in events:
            story.play(event)
        while story.saving is not None:
            story.slice()
        story.begin(not story.chain)
        while story.saving is not None:
            story.slice()


def test_a_list_whose_elements_are_all_over_is_gone() -> None:
    """Also if it was read since, so that it is empty. It could not be loaded before."""
    clock = Clock()
    task = Task(clock)
    task.call("x", [("brief.append", 1)], True)
    clock.time = 6.0
    task.call("x", [("brief.reverse", 0)], True)
    saved = save_states(task.states, lambda time: time)
    assert saved["brief"]["values"] == []
    saved["brief"] = {**saved["brief"], "keys": pickle.dumps(["x"]), "values": [[]], "times": [[]]}
    again = Task(clock)
    load_states(again.states, saved, lambda time: time)
    assert again.states["brief"].cells == {}  # type: ignore[attr-defined]


def test_a_marker_is_forgotten_only_when_a_later_one_is_committed() -> None:
    history = StateHistory()
    for epoch in (4, 5, 6):
        history.mark(epoch, 0.0, [{}])
    history.leave([], {})
    history.forget_before(4)
    assert history.can_return(4) and history.can_return(5)
    history.forget_before(6)
    assert [mark.epoch for mark in history.marks] == [6] and not history.can_return(4)


def test_a_task_that_is_closed_before_it_has_returned_leaves_what_it_was_to_get() -> None:
    clock, history = Clock(), StateHistory()
    first, second, third = (Task(clock) for _ in range(3))
    history.mark(1, 0.0, [{} for _ in first.handles])
    first.call("x", [("value", 2)], True)
    first.states["value"].begin_epoch()
    history.leave(first.handles, {})
    history.leave(second.handles, {})
    history.return_to(1, third.handles)
    assert third.states["value"].current() == {"x": 2}  # type: ignore[attr-defined]


def test_appending_keeps_no_copy_of_the_list() -> None:
    """What a list was is its length, until the call may change more than its end."""
    task = Task(Clock())
    for number in range(3):
        task.call("x", [("rows.append", number)], True)
    rows = task.states["rows"]
    rows.touched = {}
    task.call("x", [("rows.append", 3)], True)
    assert rows.touched["x"] == (3, [], [], None)
    task.call("x", [("rows.change", 1)], True)
    first, rest, _, _ = rows.touched["x"]
    assert first == 0 and len(rest) == 3 and all(type(each) is bytes for each in rest)


def test_a_return_brings_back_bytes_that_no_call_had_touched() -> None:
    """A value that is swept after the marker is not decoded to be kept."""
    clock, first = Clock(), Task(Clock())
    first.call("x", [("short", 1), ("brief.append", 1), ("brief.append", 2), ("passing.set", "a", 1)], True)
    parts: list[bytes] = []
    written = StateSaving(first.handles, True, lambda time: time, lambda data, _: parts.append(data))
    while not written.step():
        pass
    task, again, history = Task(clock), Task(clock), StateHistory()
    load_parts(
        task.states, task.timers, map(msgspec.msgpack.decode, parts), lambda time: time, same_code=True
    )
    history.begin(1, 0.0)
    raw = {name: deepcopy(handle.raw) for name, handle in task.states.items()}
    assert sum(map(bool, raw.values())) == 3
    clock.time = 100.0
    for handle in task.states.values():
        if hasattr(handle, "sweep"):
            handle.sweep(clock.time, 100)
    assert not any(handle.raw for handle in task.states.values())
    task.call("x", [("short", 2), ("brief.append", 3), ("passing.set", "a", 2)], True)
    history.leave(task.handles, {})
    history.return_to(1, again.handles)
    assert {name: handle.raw for name, handle in again.states.items()} == raw
    assert not any(handle.cells for handle in again.states.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_lists_return_to_each_of_several_markers(seed: int) -> None:
    """Their ends are cut and grow between two markers, and what was kept at both tells what they were at the first."""
    draw = Random(seed)
    for _ in range(100):
        clock, history = Clock(), StateHistory()
        task = Task(clock)
        held: dict[int, dict[str, Any]] = {}
        for epoch in range(draw.randint(2, 5)):
            history.mark(epoch, 0.0, changes_of(task.handles))
            for handle in task.handles:
                handle.begin_epoch()
            held[epoch] = task.content()
            for _ in range(draw.randint(0, 4)):
                clock.time += draw.choice([0, 0, 2])
                steps = [(draw.choice(OF_LISTS), draw.randint(-3, 3)) for _ in range(draw.randint(1, 3))]
                task.call("x", steps, draw.random() < 0.8)
        epoch, again = draw.choice(list(held)), Task(clock)
        history.leave(task.handles, {})
        history.return_to(epoch, again.handles)
        assert again.content() == held[epoch]


def test_a_list_that_was_reversed_is_swept_when_its_newest_element_is_over() -> None:
    clock = Clock()
    task = Task(clock)
    task.call("x", [("brief.append", 1)], True)
    clock.time = 3.0
    task.call("x", [("brief.append", 2), ("brief.reverse", 0)], True)
    saved = save_states(task.states, lambda time: time)
    again = Task(clock)
    load_states(again.states, saved, lambda time: time)
    clock.time = 6.0
    again.states["brief"].sweep(clock.time, 100)  # type: ignore[attr-defined]
    assert contents.read(again.states, "x")["brief"] == [2]
