"""A snapshot that is encoded in slices, and holds only what has changed, says the same as one that is taken at once; and states
that begin with it, of which values stay bytes until they are touched, do the same as states that begin with all values.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.state.every_state import FAMILIES, KEYS, Clock, Everything, apply
from tests.worker.state.whole_states import save_states, save_timers
from topology_api import StatefulBolt
from worker.routing.key_groups import GroupRange, group_of
from worker.state import build, contents, saving, shares
from worker.state.keys import canonical
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.saved import load_parts, load_states, load_timers
from worker.state.saving import StateSaving, touched_cells
from worker.state.table import MarkingTable, StateHandle
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: Those of the only task.
GROUPS = GroupRange(0, 8, 8)
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
    end = st.sampled_from([("slices", 1000), ("slices", 1000), ("slices", 1000), ("rewind",)])
    found: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(2, 5))):
        found += [*draw(before), draw(marker), *draw(beside), draw(end)]
        if draw(st.integers(0, 3)) == 0:
            found.append(("rewind",))
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


def values_of(handle: StateHandle) -> dict[Any, Any]:
    """The values of each key, of which none is touched."""
    cells: dict[Any, Any] = handle.cells  # type: ignore[attr-defined]
    if isinstance(handle, ValueHandle):
        assert cells.keys().isdisjoint(handle.raw)
        return {**cells, **{key: handle.codec.decode(data) for key, data in handle.raw.items()}}
    assert isinstance(handle, MapHandle | ListHandle)
    return {key: handle.peek(key) for key in cells.keys() | handle.raw.keys()}


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
        self.begun: tuple[Any, bytes, float] = ({}, b"", 0.0)
        self.oracle = self.begun

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

    def slice(self) -> None:
        """The next slice; after the last one, the snapshots are compared."""
        if self.saving is None or not self.saving.step():
            return
        if self.saving.whole:
            self.chain.clear()
        self.chain.append((self.parts, self.wall.seconds))
        self.saving, self.oracle = None, self.begun
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
@settings(max_examples=200, deadline=None)
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
