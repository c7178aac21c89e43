"""A map or a list of very many entries under one key: snapshots encode it in slices, and of what has changed only that."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from topology_api import ListState, MapState, StatefulBolt
from worker.epochs.snapshot_chain import SnapshotChain
from worker.epochs.snapshot_files import SnapshotLink, TaskSnapshot
from worker.loop.rescale import KeyShare
from worker.state import build, contents
from worker.state.history import StateHistory
from worker.state.merging import merged
from worker.state.saved import load_parts
from worker.state.saving import MOST_CELLS, StateSaving
from worker.state.table import MarkingTable, StateHandle
from worker.state.timers import KeyTimers
from worker.tasks.snapshot_slices import SnapshotSlices

MANY = 3_000


class Long(StatefulBolt):
    key = "user"
    seen = MapState(str, int)
    texts = ListState(str)
    rows = ListState(dict[str, int])
    brief = ListState(int, ttl=100)


class Task:
    """One task. What its snapshots hold is `chain`."""

    def __init__(self, chain: tuple[list[dict[str, Any]], ...] = ()) -> None:
        self.table = MarkingTable("component 'long' (task 1)", lambda: 0.0)
        self.states: dict[str, Any] = build.handles(self.table, Long)
        self.timers = KeyTimers(self.table)
        self.chain = list(chain)
        load_parts(self.states, self.timers, [part for parts in chain for part in parts], lambda time: time)

    @property
    def handles(self) -> list[StateHandle]:
        return [*self.states.values(), self.timers]

    def call(
        self, change: Callable[[dict[str, Any]], object], *, returns: bool = True, key: str = "u"
    ) -> None:
        self.table.begin(key)
        change(self.states)
        if returns:
            self.table.commit()
        else:
            self.table.undo()
        self.table.end()

    def save(self, whole: bool = False, meanwhile: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        """Take a snapshot, in which `meanwhile` is called now and then, and return its parts."""
        parts: list[bytes] = []
        saving = StateSaving(self.handles, whole, lambda time: time, lambda data, _: parts.append(data))
        step = 0
        while not saving.step():
            step += 1
            if step % 9 == 8:
                meanwhile()
        found = list(map(msgspec.msgpack.decode, parts))
        self.chain = [*([] if whole else self.chain), found]
        assert all(entries(part) <= MOST_CELLS for part in found)
        return found

    def read(self, key: str = "u") -> dict[str, Any]:
        return contents.read(self.states, key)

    def restored(self) -> dict[str, Any]:
        """What a task has that begins with the snapshots."""
        found = Task(tuple(self.chain)).read()
        assert found == read_by_people(self.chain)
        return found


def entries(part: dict[str, Any]) -> int:
    """How many values or elements a part has."""
    return sum(
        sum(type(each) is bytes for each in value) if part["kind"] == "ListState" else 1
        for value in part["values"]
    ) + len(pickle.loads(part["gone"]) if part["gone"] else ())


def read_by_people(chain: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The same, from one snapshot in which the parts are merged, without the bolt's types."""
    parts = [part for each in chain for part in each]
    states = merged({}, parts, lambda packed, count: pickle.loads(packed) if packed else [])["states"]
    found: dict[str, Any] = {"seen": {}, "texts": [], "rows": [], "brief": []}
    decode = msgspec.msgpack.decode
    for name, each in states.items():
        for key, value in zip(each["keys"], each["values"]):
            assert key == "u"
            found[name] = (
                {decode(item): decode(data) for item, data in value}
                if name == "seen"
                else list(map(decode, value))
            )
    return found


def fill(states: dict[str, Any]) -> None:
    states["seen"].update({f"page-{number}": number for number in range(MANY)})
    for name in ("texts", "rows", "brief"):
        make: dict[str, Callable[[int], Any]] = {
            "texts": str,
            "rows": lambda number: {"n": number},
            "brief": int,
        }
        states[name].extend(map(make[name], range(MANY)))


@pytest.fixture(scope="module")
def whole() -> list[dict[str, Any]]:
    """A snapshot of long states."""
    task = Task()
    task.call(fill)
    parts = task.save(whole=True)
    assert sum(map(entries, parts)) == 4 * MANY
    return parts


def append(states: dict[str, Any]) -> None:
    states["texts"].append("new")
    states["rows"].append({"n": -1})
    states["brief"].append(-1)
    states["seen"]["page-7"] = -7
    states["seen"]["page-new"] = -1


def test_what_was_appended_or_set_is_all_that_the_next_snapshot_has(whole: list[dict[str, Any]]) -> None:
    task = Task((whole,))
    task.call(append)
    task.call(append, returns=False)
    assert {part["state"]: entries(part) for part in task.save()} == {
        "seen": 2,
        "texts": 1,
        "rows": 1,
        "brief": 1,
    }
    task.call(append)
    assert sum(map(entries, task.save())) == 5
    assert task.save() == []
    assert task.restored() == task.read()


def test_an_end_that_was_removed_or_replaced_is_saved_as_such(whole: list[dict[str, Any]]) -> None:
    task = Task((whole,))
    task.call(lambda states: (states["texts"].pop(), states["texts"].pop(), states["brief"].pop()))
    assert sum(map(entries, task.save())) == 0
    assert task.restored() == task.read()
    task.call(lambda states: states["texts"].__setitem__(-3, "other"))
    assert sum(map(entries, task.save())) == 3
    task.call(lambda states: (states["texts"].clear(), states["texts"].append("first")))
    assert sum(map(entries, task.save())) == 1
    task.call(lambda states: states["brief"].clear())
    task.save()
    assert task.restored() == task.read()


def change(states: dict[str, Any]) -> None:
    append(states)
    for name in ("texts", "brief"):
        states[name][-3] = states[name][0]
        del states[name][1]
    states["rows"][5]["n"] = -5
    states["seen"].pop("page-9", None)


@pytest.mark.parametrize("meanwhile", [append, change, lambda states: states["texts"].clear()])
@pytest.mark.parametrize("touched", [True, False])
def test_a_snapshot_says_what_was_there_when_it_began(
    whole: list[dict[str, Any]], meanwhile: Callable[[dict[str, Any]], None], touched: bool
) -> None:
    task = Task((whole,))
    if touched:
        task.call(lambda states: [list(handle) for handle in states.values()])
    before = task.read()
    task.save(whole=True, meanwhile=lambda: task.call(meanwhile))
    assert task.restored() == before
    after = task.read()
    assert before != after
    task.call(lambda states: states["texts"].insert(0, "undone"), returns=False)
    task.save(meanwhile=lambda: task.call(append))
    assert task.restored() == after
    task.save()
    assert task.restored() == task.read()


def setup_of(chain: SnapshotChain) -> Any:
    return SimpleNamespace(chain=chain, to_wall=lambda time: time, history=StateHistory())


def test_one_entry_more_does_not_make_the_next_snapshot_whole(whole: list[dict[str, Any]]) -> None:
    task, chain = Task((whole,)), SnapshotChain()
    slices = SnapshotSlices(setup_of(chain), lambda: 0.0, lambda error: pytest.fail(str(error)))
    chain.links = [SnapshotLink("whole", "", 1_000)]
    chain.cells = sum(len(part["values"]) for part in whole)
    task.call(append)
    slices.begin(TaskSnapshot("long/0", 1, 1, 1), task.handles)
    assert chain.links and slices.data.cells == 5


def test_between_two_calls_no_more_is_encoded_than_fits_a_slice(whole: list[dict[str, Any]]) -> None:
    """Each look at the clock takes a millisecond here, and each part one look."""
    task, times = Task((whole,)), iter(range(1, 1_000_000))
    slices = SnapshotSlices(setup_of(SnapshotChain()), lambda: next(times) / 1000, lambda error: None)
    slices.begin(TaskSnapshot("long/0", 1, 1, 1), task.handles)
    saving, counts = slices.saving, []
    assert saving is not None
    while slices.saving is not None:
        before = saving.cells
        slices.encode()
        counts.append(saving.cells - before)
    assert len(counts) > MANY // MOST_CELLS
    assert max(counts) <= 3 * MOST_CELLS


def test_pieces_of_lists_follow_their_keys_when_a_commit_is_divided(whole: list[dict[str, Any]]) -> None:
    task = Task((whole,))
    task.call(append)
    task.save()
    shares = [
        [[KeyShare(index, 3).part(part) for part in parts] for parts in task.chain] for index in range(3)
    ]
    found = [read_by_people(share) for share in shares]
    assert [each for each in found if each["texts"]] == [task.read()]


def test_a_long_key_with_many_items_is_once_in_a_part() -> None:
    task, key = Task(), "k" * 10_000
    task.call(
        lambda states: states["seen"].update({f"item-{number}": number for number in range(100)}), key=key
    )
    parts = [part for part in task.save(whole=True) if part["state"] == "seen"]
    assert [set(pickle.loads(part["keys"])) for part in parts] == [{key}]
    assert len(parts[0]["keys"]) < 2 * len(key)
