"""A running task shows what it has for a key, between two calls, in the forms of a committed epoch (`squall state get`)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall import worker_files
from squall.reports.live_state import LiveRow, StateQuestion, WorkerState
from tests.squall_cli.state_topologies import ODD_KEYS, conf_at, everything
from topology_api import (
    Bolt,
    Context,
    Fields,
    ListState,
    MapState,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles
from worker.loop.epoch_worker import EpochWorker
from worker.loop.worker import Worker
from worker.process.call_watch import CallWatch
from worker.process.state_answers import PATIENCE, StateAnswers
from worker.state.key_search import SLICE
from worker.state.live import MOST_BYTES, MOST_PARTS
from worker.state.readable import json_form
from worker.state.saved_rows import rows_of


class Asking:
    """Asks the workers of a topology, as their heartbeats' threads and loops do."""

    def __init__(self, workers: list[Worker], folder: Path) -> None:
        self.workers, self.folder, self.number, self.rounds = workers, folder, 0, 0
        self.answers = [
            StateAnswers(str(folder / worker.name), CallWatch(worker, dict), self, lambda time: time, list)
            for worker in workers
        ]
        for worker in workers:
            (folder / worker.name).mkdir(exist_ok=True)

    def on_new_orders(self) -> None:
        self.rounds += 1

    def begin(self, component: str, key: Any, state: str = "") -> None:
        self.number += 1
        for worker, answers in zip(self.workers, self.answers):
            question = StateQuestion(self.number, component, json.dumps(key), state)
            worker_files.write(self.folder / worker.name, worker_files.STATE_QUESTION, question)
            answers.check(worker.now())

    def end(self, waited: float = 0.0, rounds: int = 100) -> list[WorkerState]:
        for worker, answers in zip(self.workers, self.answers):
            for _ in range(rounds):
                answers.ask_tasks()
            answers.check(worker.now() + waited)
        found = [worker_files.read_live_state(self.folder / worker.name) for worker in self.workers]
        assert all(each is not None and each.number == self.number for each in found)
        return [each for each in found if each is not None]

    def rows(self, component: str, key: Any, state: str = "") -> list[LiveRow]:
        self.begin(component, key, state)
        return [row for each in self.end() for task in each.tasks for row in task.rows]

    def refusal(self, component: str, key: Any, state: str = "") -> str:
        self.begin(component, key, state)
        return next((each.refusal for each in self.end() if each.refusal), "")


@contextmanager
def asking(
    topology: Topology, folder: Path, conf: Mapping[str, object], seconds: float = 5.0
) -> Iterator[tuple[LocalCluster, Asking]]:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf)
        cluster.advance(seconds)
        yield cluster, Asking(cluster._host.workers(topology.name), folder)


def test_a_running_task_shows_what_a_commit_will_show(tmp_path: Path) -> None:
    with asking(everything(ODD_KEYS), tmp_path, conf_at(tmp_path / "state"), 20) as (cluster, live):
        keys = [*ODD_KEYS[:3], ["a", 1], {"repr": repr(b"\x00")}, None, 2.5]
        found = {json.dumps(key): live.rows("count", key) for key in keys}
        cluster.advance(3)
        content = CommittedState(EpochFiles(f"file://{tmp_path / 'state'}", "things")).read(None, "count")
        committed = [row for _, _, each in content.snapshots() if each for row in rows_of(each.state)]
        keyed = [row for row in committed if row.kind != "BroadcastState"]
        assert len(keyed) == sum(map(len, found.values())) == 8 * len(keys)
        for row in keyed:
            [same] = [each for each in found[json.dumps(row.key)] if each.state == row.state]
            assert (same.kind, json.loads(same.value)) == (row.kind, row.value)
            assert (same.written, same.expires, same.omitted) == (row.written, row.expires, "")


@dataclass(frozen=True)
class Seat:
    """A key that JSON does not have."""

    room: str
    row: int


class Gate(Enum):
    """As `Seat`."""

    NORTH = "n"


class Once(Spout):
    """Emits each key once, with its number."""

    outputs = Fields("key", "number")

    def __init__(self, keys: list[Any]) -> None:
        self.keys = keys

    def open(self, context: Context) -> None:
        self.left = list(enumerate(self.keys, 1))

    def next_tuple(self) -> None:
        if self.left:
            number, key = self.left.pop()
            self.emit((key, number))


class Tally(StatefulBolt):
    """Keeps the number of each key."""

    key = "key"
    number = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.number.value = tup["number"]


def tally(keys: list[Any]) -> Topology:
    builder = TopologyBuilder("tally")
    builder.set_spout("once", Once(keys))
    builder.set_bolt("count", Tally(), 2).fields_grouping("once", "key")
    return builder.build()


UNPLAIN_KEYS: list[Any] = [
    Seat("hall", 1), Seat("hall", 2), Gate.NORTH, ("a", Gate.NORTH), frozenset({3}), float("nan"),
    dt.timedelta(seconds=5), b"\xff", ("1",) * 10, Decimal("7.50"), 2, "2",
]  # fmt: skip


def test_whatever_an_export_writes_as_a_key_finds_the_key_in_the_running_task(tmp_path: Path) -> None:
    keys = [*UNPLAIN_KEYS, *(Seat("stand", row) for row in range(2 * SLICE))]
    with asking(tally(keys), tmp_path, conf_at(tmp_path / "state"), 10) as (_, live):
        content = CommittedState(EpochFiles(f"file://{tmp_path / 'state'}", "tally")).read(None, "count")
        committed = [row for _, _, each in content.snapshots() if each for row in rows_of(each.state)]
        exported = {json.dumps(row.key): row.value for row in committed}
        assert len(exported) == len(keys)
        asked = [*(json.dumps(json_form(key)) for key in UNPLAIN_KEYS), json.dumps(json_form(keys[-1]))]
        for form in asked:
            [row] = live.rows("count", json.loads(form))
            assert (row.key, json.loads(row.value)) == (form, exported[form])


def test_a_text_does_not_find_a_number(tmp_path: Path) -> None:
    with asking(tally([7, 2.5]), tmp_path, {}, 3) as (_, live):
        assert [row.value for row in live.rows("count", 7.0)] == ["1"]
        assert live.rows("count", "7") == live.rows("count", "2.5") == []


def test_a_search_that_takes_too_long_says_how_far_it_came(tmp_path: Path) -> None:
    keys = [Seat("stand", row) for row in range(4 * SLICE)]
    with asking(tally(keys), tmp_path, {}, 10) as (_, live):
        live.begin("count", json_form(Seat("hall", 1)))
        [answer] = live.end(PATIENCE, rounds=1)
        assert "compared 1,000 of" in answer.tasks[0].why and "within 2 s" in answer.tasks[0].why


class Ticks(Spout):
    """Emits a number each tenth of a second."""

    outputs = Fields("room", "row", "number")

    def open(self, context: object) -> None:
        self.number = 0

    def next_tuple(self) -> float:
        self.number += 1
        self.emit(("hall", 7, self.number))
        return 0.1


class Seats(StatefulBolt):
    """Has a key of two fields, and states of a thousand parts and more."""

    key = ("room", "row")
    times = ValueState(int, default=0)
    short = ListState(int, ttl=1)
    many = MapState(int, int)
    long = ListState(str)
    large = ValueState(str)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.short.append(tup["number"])
        if tup["number"] == 1:
            self.many.update({number: number for number in range(MOST_PARTS + 3)})
            self.long.extend(["x" * (MOST_BYTES // 4)] * 6)
            self.large.value = "y" * MOST_BYTES


class Pass(Bolt):
    """Has no state."""

    def execute(self, tup: Tuple) -> None: ...


def seats() -> Topology:
    builder = TopologyBuilder("seats")
    builder.set_spout("ticks", Ticks())
    builder.set_bolt("seats", Seats()).fields_grouping("ticks", "room", "row")
    builder.set_bolt("pass", Pass()).shuffle_grouping("ticks")
    return builder.build()


def test_an_answer_tells_the_last_commit_and_sees_what_came_since(tmp_path: Path) -> None:
    conf = {**conf_at(tmp_path / "state"), "topology.epoch.secs": 1.0}
    with asking(seats(), tmp_path, conf) as (cluster, live):
        live.begin("seats", ["hall", 7], "times")
        [task] = live.end()[0].tasks
        [worker] = live.workers
        assert isinstance(worker, EpochWorker)
        assert task.epoch == worker.epochs.participants[task.task].epoch > 0
        before = json.loads(task.rows[0].value)
        cluster.advance(0.3)
        assert [json.loads(row.value) for row in live.rows("seats", ["hall", 7], "times")] == [before + 3]


def test_without_a_state_path_tasks_answer_too(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, {}) as (_, live):
        live.begin("seats", ["hall", 7], "times")
        [task] = live.end()[0].tasks
        assert (task.epoch, json.loads(task.rows[0].value)) == (None, 51)


def test_large_states_are_bounded_and_say_what_is_left_out(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, {}) as (_, live):
        found = {row.state: row for row in live.rows("seats", ["hall", 7])}
        many = json.loads(found["many"].value)
        assert (len(many["items"]), found["many"].omitted) == (MOST_PARTS, "3 further items")
        assert (len(json.loads(found["long"].value)), found["long"].omitted) == (3, "3 further elements")
        assert json.loads(found["large"].value) is None
        assert found["large"].omitted == f"the value, which has more than {MOST_BYTES:,} bytes"
        # What is over is not shown.
        short = found["short"]
        assert json.loads(short.value) == list(range(41, 52))
        assert isinstance(short.written, list) and isinstance(short.expires, list)
        assert len(short.written) == len(short.expires) == 11
        assert sum(len(row.value) for row in found.values()) < 2 * MOST_BYTES


@pytest.mark.parametrize(
    ("component", "key", "state", "text"),
    [
        ("pass", "x", "", "pass is no StatefulBolt: it has no state"),
        ("gone", "x", "", "no task of 'gone' runs in worker"),
        (
            "seats",
            "hall",
            "",
            'a key of seats has 2 fields (room, row), and "hall" has not: give each a KEY',
        ),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(
    tmp_path: Path, component: str, key: Any, state: str, text: str
) -> None:
    with asking(seats(), tmp_path, {}) as (_, live):
        assert text in live.refusal(component, key, state)


def test_a_bolt_without_state_says_so_where_state_survives(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, {"topology.state.path": f"file://{tmp_path}/state"}) as (_, live):
        assert live.refusal("pass", "x", "") == "pass is no StatefulBolt: it has no state"


def test_a_broadcast_state_belongs_to_no_key(tmp_path: Path) -> None:
    with asking(everything(["a"]), tmp_path, {}) as (_, live):
        assert "count.rate is a BroadcastState" in live.refusal("count", "a", "rate")


def test_a_key_without_state_and_an_unknown_state_have_no_rows(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, {}) as (_, live):
        live.begin("seats", ["hall", 8])
        [answer] = live.end()
        assert [task.rows for task in answer.tasks] == [()]
        assert answer.states == ("times", "short", "many", "long", "large")
        assert live.rows("seats", ["hall", 7], "tims") == []


def test_a_task_in_a_long_call_is_named_after_a_bounded_wait(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, {}) as (_, live):
        [worker] = live.workers
        [task] = [each for each in worker.tasks.values() if each.spec.id == "seats"]
        task.jobs, worker.running, task.busy_since = 1, task, worker.now() - 3.0
        live.begin("seats", ["hall", 7])
        assert live.rounds == 1 and worker_files.read_live_state(live.folder / worker.name) is None
        [answer] = live.end(waited=PATIENCE)
        assert f"seats[{task.id}] is in a call that has run for" in answer.tasks[0].why
        assert f"`squall stack seats --task {task.id}`" in answer.tasks[0].why
        task.jobs, worker.running = 0, None
        assert live.rows("seats", ["hall", 7], "times")


def test_tasks_that_return_to_a_commit_answer_when_they_run(tmp_path: Path) -> None:
    with asking(seats(), tmp_path, conf_at(tmp_path / "state")) as (_, live):
        [worker] = live.workers
        assert isinstance(worker, EpochWorker)
        resumed = set(worker.epochs.resumed)
        worker.epochs.resumed.clear()
        live.begin("seats", ["hall", 7], "times")
        live.answers[0].ask_tasks()
        assert worker_files.read_live_state(live.folder / worker.name) is None
        worker.epochs.resumed.update(resumed)
        assert [task.why for task in live.end()[0].tasks] == [""]
        worker.epochs.resumed.clear()
        live.begin("seats", ["hall", 7], "times")
        assert "returns to the last commit" in live.end(waited=PATIENCE)[0].tasks[0].why
