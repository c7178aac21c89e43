"""States that begin with a snapshot decode their keys, and each value when a call touches it for the first time."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from topology_api import ListState, MapState, StateError, StatefulBolt, ValueState
from worker.epochs.snapshot_files import GROUPS
from worker.loop.rescale import KeyShare
from worker.routing.key_groups import range_of
from worker.state import build, contents
from worker.state.merging import merged
from worker.state.saved import load_parts, load_states, with_parts
from worker.state.saving import StateSaving, declared
from worker.state.table import MarkingTable, StateHandle
from worker.state.timers import KeyTimers

#: How many visits were decoded, and those that may not be.
DECODED: list[int] = []
REFUSED: set[int] = set()


@pytest.fixture(autouse=True)
def _nothing_decoded() -> Iterator[None]:
    DECODED.clear()
    yield
    REFUSED.clear()


class Visit(msgspec.Struct):
    """A value of a mutable type, made by the user's code."""

    at: int

    def __post_init__(self) -> None:
        if self.at in REFUSED:
            raise ValueError(f"no visit at {self.at}")
        DECODED.append(self.at)


class WiderVisit(msgspec.Struct):
    at: int
    page: str = "home"


class Visits(StatefulBolt):
    key = "user"
    last = ValueState(Visit)
    every = ListState(Visit)
    by_day = MapState(str, Visit)
    times = ValueState(int, default=0)
    brief = ValueState(str, ttl=5)
    pickled = ValueState(dict[str, Any], pickled=True)


class WiderVisits(StatefulBolt):
    key = "user"
    last = ValueState(WiderVisit)


class OtherVisits(StatefulBolt):
    key = "user"
    last = ValueState(int)


class Task:
    """The states of one task, and its snapshots. Its clock is the wall clock."""

    def __init__(self, bolt: type[StatefulBolt] = Visits) -> None:
        self.time = 0.0
        self.table = MarkingTable("component 'visits' (task 1)", lambda: self.time)
        self.states: dict[str, Any] = build.handles(self.table, bolt)
        self.timers = KeyTimers(self.table)

    def at(self, key: Any) -> dict[str, Any]:
        """Begin a call for a key."""
        self.table.commit()
        self.table.begin(key)
        return self.states

    def saved(self, whole: bool = True) -> list[dict[str, Any]]:
        """Return the parts of a snapshot."""
        self.table.commit()
        self.table.end()
        parts: list[bytes] = []
        handles: list[StateHandle] = [*self.states.values(), self.timers]
        saving = StateSaving(handles, whole, lambda time: time, lambda data, _: parts.append(data))
        while not saving.step():
            pass
        return list(map(msgspec.msgpack.decode, parts))

    def load_further(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts of states that the bolt does not declare."""
        return load_parts(self.states, self.timers, parts, lambda time: time)

    def load(self, parts: list[dict[str, Any]], same_code: bool = True) -> Task:
        load_parts(self.states, self.timers, parts, lambda time: time, same_code=same_code)
        return self


def filled(keys: int = 5) -> Task:
    task = Task()
    for number in range(keys):
        states = task.at(f"u{number}")
        states["last"].value = Visit(number)
        states["every"].append(Visit(number))
        states["every"].append(Visit(-number))
        states["by_day"]["mon"] = Visit(number)
        states["by_day"]["tue"] = Visit(-number)
        states["times"].value = number
        states["brief"].value = str(number)
        states["pickled"].value = {"n": number}
    return task


def test_a_start_decodes_no_value_and_a_first_touch_that_value_only() -> None:
    saved = filled().saved()
    DECODED.clear()
    task = Task().load(saved)
    assert DECODED == []
    assert contents.count_keys(task.states) == 5
    assert set(contents.keys_of(task.states)) == {f"u{number}" for number in range(5)}
    assert task.at("u3")["last"].value == Visit(3)
    assert task.at("u2")["by_day"]["tue"] == Visit(-2)
    DECODED.clear()
    assert len(task.at("u1")["by_day"]) == 2 and "mon" in task.states["by_day"]
    assert len(task.states["every"]) == 2
    task.states["every"].append(Visit(7))
    assert DECODED == [7]  # by this test
    assert [visit.at for visit in task.states["every"]] == [1, -1, 7]
    assert task.states["times"].value == 1
    assert task.states["pickled"].value == {"n": 1}


def test_a_snapshot_has_the_bytes_of_values_that_no_call_has_touched() -> None:
    saved = filled().saved()
    task = Task().load(saved)
    DECODED.clear()
    again = task.saved()
    assert DECODED == []
    assert contents_of(again) == contents_of(saved)


def contents_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What snapshots hold, without the bolt."""

    def keys_of(packed: bytes, count: int) -> list[Any]:
        return pickle.loads(packed) if packed else []

    states = merged({}, parts, keys_of)["states"]
    return {
        name: {
            key: (value, time)
            for key, value, time in zip(each["keys"], each["values"], each["times"] or each["keys"])
        }
        for name, each in states.items()
    }


def test_a_first_touch_is_no_change() -> None:
    task = Task().load(filled().saved())
    assert task.at("u1")["times"].value == 1
    assert task.saved(whole=False) == []


def test_an_undone_first_touch_leaves_the_value() -> None:
    task = Task().load(filled().saved())
    states = task.at("u1")
    states["times"].value = 9
    states["last"].value.at = 9
    states["by_day"].clear()
    states["every"].append(Visit(9))
    del states["every"][0]
    task.table.undo()
    states = task.at("u1")
    assert (states["times"].value, states["last"].value) == (1, Visit(1))
    assert dict(states["by_day"].items()) == {"mon": Visit(1), "tue": Visit(-1)}
    assert list(states["every"]) == [Visit(1), Visit(-1)]


def test_a_value_that_does_not_fit_fails_at_its_first_touch_by_name_and_stays() -> None:
    saved = filled().saved()
    REFUSED.add(2)
    task = Task().load(saved)
    assert task.at("u1")["last"].value == Visit(1)
    for state in ("last", "every", "by_day"):
        with pytest.raises(StateError, match=f"'{state}', key 'u2', cannot be read as Visit: no visit at 2"):
            value = task.at("u2")[state]
            value.value if state == "last" else list(value) if state == "every" else value["mon"]
        task.table.undo()
    with pytest.raises(StateError, match="key 'u2', cannot be read as Visit"):
        task.at("u2")["last"].value = Visit(1)  # it would be gone
    task.table.undo()
    assert contents_of(task.saved()) == contents_of(saved)


def test_values_of_another_declaration_are_decoded_at_the_start() -> None:
    """So that what does not fit is refused there, and the next snapshot says all as the new version has it."""
    saved = [part for part in filled().saved() if part["state"] == "last"]
    task = Task(WiderVisits).load(saved)
    assert not task.states["last"].raw
    [part] = task.saved()
    assert part["declared"] == declared(task.states["last"])
    assert msgspec.msgpack.decode(part["values"][0])["page"] == "home"
    with pytest.raises(StateError, match="state 'last' was saved as"):
        Task(OtherVisits).load(saved)


def test_values_of_classes_are_decoded_at_the_start_of_other_code() -> None:
    """The same declaration may come with a class that refuses more. Numbers and texts fit whatever the code does."""
    saved = filled().saved()
    REFUSED.add(2)
    with pytest.raises(StateError, match="saved values of state 'last' do not fit its type: no visit at 2"):
        Task().load(saved, same_code=False)
    REFUSED.clear()
    task = Task().load(saved, same_code=False)
    assert {name for name, handle in task.states.items() if handle.raw} == {"times", "brief"}


def test_parts_that_do_not_say_what_they_were_declared_as_are_decoded_at_the_start() -> None:
    saved = filled().saved()
    for part in saved:
        del part["declared"]
    assert not any(handle.raw for handle in Task().load(saved).states.values())


def test_a_task_that_reads_some_groups_of_a_snapshot_decodes_no_value_either() -> None:
    """Each part that a task may read alone says what its values are declared as."""
    task, found = filled(1000), list[tuple[dict[str, Any], Any]]()
    task.table.end()
    handles: list[StateHandle] = [*task.states.values(), task.timers]
    every = range_of(0, 1, 64)
    saving = StateSaving(
        handles,
        True,
        lambda time: time,
        lambda data, groups: found.append((msgspec.msgpack.decode(data), groups)),
        every,
    )
    while not saving.step():
        pass
    DECODED.clear()
    for index in range(3):
        own = range_of(index, 3, 64)
        share = KeyShare(index, 3, 64)
        parts = [share.part({**part, GROUPS: groups}) for part, groups in found if own.meets(groups)]
        states = Task().load(parts).states
        assert {name for name, handle in states.items() if handle.raw and not handle.cells} == {*states}
    assert DECODED == []


def test_states_without_a_ttl_that_a_version_does_not_declare_survive_other_numbers_of_tasks() -> None:
    """Of some tasks each map had one item, and of others several: neither has times of writing."""

    class Sums(StatefulBolt):
        key = "user"
        sums = MapState(int, int)

    saved: list[dict[str, Any]] = []
    for first in (0, 10):
        task = Task(Sums)
        for number in range(first, first + 10):
            task.at(f"u{number}")["sums"].update(dict.fromkeys(range(1 if first else 3), number))
        saved.append(with_parts({}, Task(OtherVisits).load_further(task.saved())))
    assert not any(each["sums"]["times"] for each in saved)
    for order in (saved, saved[::-1]):
        shares = [KeyShare(index, 2, 64).states([KeyShare(0, 1, 64).states(order)]) for index in (0, 1)]
        found: dict[str, dict[int, int]] = {}
        for share in shares:
            task = Task(Sums)
            load_states(task.states, share, lambda time: time)
            found |= task.states["sums"].cells
        assert found == {f"u{at}": dict.fromkeys(range(1 if at >= 10 else 3), at) for at in range(20)}


def test_untouched_values_are_forgotten_when_their_time_is_over() -> None:
    task = Task().load(filled().saved())
    task.time = 5.0
    assert task.at("u1")["brief"].value is None
    task.states["brief"].sweep(5.0, 100)
    assert not task.states["brief"].raw
    [part] = task.saved(whole=False)
    assert (part["state"], part["values"]) == ("brief", [])


def test_a_map_keeps_the_keys_that_were_saved() -> None:
    """Not those by which its items are asked for, which may be equal and of another type."""

    class Ratios(StatefulBolt):
        key = "user"
        ratios = MapState(float, int)
        numbers = MapState(int, int)

    task = Task(Ratios)
    states = task.at("u")
    states["ratios"][2.0] = 1
    states["numbers"][1] = 1
    task = Task(Ratios).load(task.saved())
    states = task.at("u")
    assert (states["ratios"][2], states["numbers"][True]) == (1, 1)
    assert repr([*states["ratios"], *states["numbers"]]) == "[2.0, 1]"


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("through", ["del", "pop"])
def test_an_undone_deletion_brings_back_the_key_that_the_map_had(through: str, saved: bool) -> None:
    class Numbers(StatefulBolt):
        key = "user"
        numbers = MapState(int, int)
        lists = MapState(int, list[int])
        ratios = MapState(float, int)

    task = Task(Numbers)
    states = task.at("u")
    states["numbers"][2], states["lists"][2], states["ratios"][2.0] = 1, [1], 1
    states["numbers"][3] = 1
    if saved:
        task = Task(Numbers).load(task.saved())
    states = task.at("u")
    for name, asked in (("numbers", 2.0), ("numbers", Decimal(3)), ("lists", 2.0), ("ratios", 2)):
        if through == "del":
            del states[name][asked]
        else:
            states[name].pop(asked)
    assert not any(states[name] for name in states)
    task.table.undo()
    assert repr({name: dict(states[name]) for name in states}) == (
        "{'numbers': {3: 1, 2: 1}, 'lists': {2: [1]}, 'ratios': {2.0: 1}}"
    )
