"""Promises of Nimbus beside the transcripts: which keys and records it writes, when it looks, which requests it refuses."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nimbus.leader.master import Nimbus
from nimbus.leader.steps import SWEEP_AFTER
from nimbus.lifecycle.progress import ANSWER_SECS, workers_of
from nimbus.lifecycle.replacing import ReplacementWaits
from nimbus.lifecycle.states import IllegalTransition
from nimbus.placement.supervisors import NoSuchSupervisor
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.blobs import get_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Store, TooBig, Unavailable
from squall.values import Incarnation
from tests.flaky_store import BEFORE, FlakyStore, nothing_fails
from tests.nimbus.transcripts import a_topology
from topology_api.errors import InvalidConfig, NameTaken, NoSuchTopology
from topology_api.options import defaults
from topology_api.topology import Topology

ROOT = Path(__file__).parents[2]


def words(name: str = "words") -> Topology:
    """A spout, and a bolt of two tasks."""
    return a_topology(name, 1, count=2)


class PlainKeys:
    """Keeps the keys of topologies in the open."""

    def __init__(self, store: Store, keys: Iterable[dict[str, str]]) -> None:
        self.registry = Registry(store)
        self.keys = iter(keys)
        self.sealed: list[tuple[str, str]] = []
        self.forgotten: list[str] = []

    def make(self, topology_id: str) -> None:
        self.registry.save_sealed_keys(topology_id, "all", json.dumps(next(self.keys)).encode())

    def seal_for(self, topology_id: str, supervisors: Iterable[SupervisorRecord]) -> None:
        assert self.registry.sealed_keys(topology_id, "all"), "keys exist before an assignment does"
        self.sealed += [(topology_id, supervisor.id) for supervisor in supervisors]

    def forget(self, topology_id: str) -> None:
        self.registry.remove_keys(topology_id)
        self.forgotten.append(topology_id)


class CountingStore(InMemoryStore):
    """Counts how often it is read."""

    reads = 0

    def get(self, path: str) -> tuple[bytes, int] | None:
        self.reads += 1
        return super().get(path)

    def children(self, path: str) -> list[str]:
        self.reads += 1
        return super().children(path)


class Master:
    """A Nimbus with one supervisor and one topology, "words"."""

    def __init__(self, store: InMemoryStore | None = None) -> None:
        self.store = store or InMemoryStore()
        self.clock = ManualClock(1000.0)
        self.nimbus = Nimbus(self.store, self.clock)
        self.registry = Registry(self.store)
        self.registry.supervisors.put(SupervisorRecord("s1", "s1", 4))
        conf = defaults() | {"mine": [1, 2], "topology.message.timeout.secs": 10}
        self.submitted = self.nimbus.submit(
            Submission(words(), conf, {"lines": conf | {"own": 1}, "count": conf})
        )


@pytest.fixture
def master() -> Master:
    return Master()


def when_it_has_shipped(store: InMemoryStore, do: Callable[[], object]) -> None:
    """Run a function in the middle of the first submission, which has shipped its topology and not taken the name yet."""

    def meanwhile(path: str) -> None:
        if path.endswith("-1-0/description"):
            cancel()
            do()

    cancel = store.watch(paths.BLOBS, meanwhile)


def test_the_record_has_the_values_of_the_submission(master: Master) -> None:
    record = master.nimbus.topology("words")
    assert record == master.submitted
    assert (record.id, record.name, record.submitted) == ("words-1-1000", "words", 1000.0)
    assert record.tasks == ((1, "lines", 0), (2, "count", 0), (3, "count", 1))
    assert record.conf["mine"] == [1, 2]
    assert record.component_confs["lines"]["own"] == 1
    assert record.version == 1


def test_a_submission_ships_bytes_and_a_host_reads_the_same_topology_back(master: Master) -> None:
    assert get_bundle(master.store, master.submitted.id) == words()


def test_only_the_counters_are_left_in_the_store_when_a_topology_is_gone(master: Master) -> None:
    report = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
    assert master.nimbus.report("words", "w1", report)
    master.nimbus.kill("words", wait_secs=0)
    assert master.nimbus.report("words", "w1", replace(report, stopped=True))
    assert master.nimbus.registry.all_topologies() == []
    assert master.store.children("/") == ["cluster", "counters", "ended", "supervisors"]


def test_the_name_is_free_when_nothing_else_is_left(master: Master) -> None:
    left: list[set[str]] = []
    master.store.watch(paths.topology("words"), lambda path: left.append(Registry(master.store).known_ids()))
    master.registry.supervisors.drop("s1")
    master.nimbus.kill("words", wait_secs=0)
    assert master.nimbus.registry.all_topologies() == []
    assert left[-1] == set()


def test_keys_are_made_for_each_submission_and_removed_with_it_and_occur_nowhere_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    store, made = InMemoryStore(), [{"public": f"public{n}", "secret": f"topsecret{n}"} for n in range(2)]
    keys = PlainKeys(store, made)
    nimbus, registry = Nimbus(store, ManualClock(), keyring=keys), Registry(store)
    one, two = (nimbus.submit(Submission(words(name), defaults(), {})) for name in ("one", "two"))
    assert [_keys(registry, one.id), _keys(registry, two.id)] == made
    assert "topsecret" not in caplog.text + repr(nimbus.registry.all_topologies())
    assert [path for path in _paths(store) if b"topsecret" in (store.get(path) or (b"", 0))[0]] == [
        paths.sealed_keys(one.id, "all"),
        paths.sealed_keys(two.id, "all"),
    ]
    nimbus.kill("one", 0)
    assert _keys(registry, one.id) is None
    nimbus.kill("two", 0)
    assert store.children("/") == ["cluster", "counters", "ended"]
    assert keys.forgotten == [one.id, two.id], "they are forgotten, too"


def test_without_a_key_maker_there_are_no_keys(master: Master) -> None:
    assert master.store.children(paths.KEYS) == []


def test_a_submission_that_lost_its_name_leaves_no_keys() -> None:
    store, clock = InMemoryStore(), ManualClock()
    one, other = (Nimbus(store, clock, keyring=PlainKeys(store, [{"secret": "x"}])) for _ in range(2))
    when_it_has_shipped(store, lambda: other.submit(Submission(words(), defaults(), {})))
    with pytest.raises(NameTaken):
        one.submit(Submission(words(), defaults(), {}))
    assert store.children(paths.KEYS) == ["words-2-0"]


def test_the_keys_of_a_failed_submission_are_forgotten() -> None:
    store, clock = FlakyStore(InMemoryStore()), ManualClock()
    keys = PlainKeys(store, [{"secret": "x"}])
    nimbus = Nimbus(store, clock, keyring=keys)
    store.chooses = lambda call: (
        BEFORE if call.operation == "create" and call.path == paths.topology("words") else None
    )
    with pytest.raises(Unavailable):
        nimbus.submit(Submission(words(), defaults(), {}))
    store.chooses = nothing_fails
    clock.move_to(SWEEP_AFTER)
    nimbus.tick()
    assert keys.forgotten == ["words-1-0"]


def test_no_submission_id_is_given_twice(master: Master) -> None:
    other = master.nimbus.submit(Submission(words("other"), defaults(), {}))
    master.registry.supervisors.drop("s1")
    master.nimbus.kill("words")
    again = master.nimbus.submit(Submission(words(), defaults(), {}))
    assert len({master.submitted.id, other.id, again.id}) == 3


def test_of_two_nimbuses_that_take_one_name_at_once_one_wins_and_the_other_leaves_nothing() -> None:
    store = InMemoryStore()
    clock = ManualClock()
    one, other = Nimbus(store, clock), Nimbus(store, clock)
    when_it_has_shipped(store, lambda: other.submit(Submission(words(), defaults(), {})))
    with pytest.raises(NameTaken):
        one.submit(Submission(words(), defaults(), {}))
    assert [record.id for record in one.registry.all_topologies()] == ["words-2-0"]
    assert store.children(paths.BLOBS) == ["words-2-0"]


def test_an_unmerged_configuration_is_refused_before_anything_is_written() -> None:
    store = InMemoryStore()
    with pytest.raises(InvalidConfig, match="workers is not set"):
        Nimbus(store, ManualClock()).submit(Submission(words(), {"topology.message.timeout.secs": 5}, {}))
    assert store.children("/") == ["cluster"]


def test_a_record_without_room_for_later_changes_is_refused_before_anything_is_written() -> None:
    store = InMemoryStore()
    nimbus = Nimbus(store, ManualClock())
    with pytest.raises(TooBig, match=r"'words' is too large: .* bytes, but at most 920,000 are allowed"):
        nimbus.submit(Submission(words(), defaults() | {"mine": "x" * 920_000}, {}))
    assert not {"blobs", "keys", "topologies"}.intersection(store.children("/"))
    nimbus.submit(Submission(words(), defaults() | {"mine": "x" * 890_000}, {}))
    nimbus.kill("words", 1.23456789)
    assert nimbus.registry.all_topologies() == [], "it can be killed, and nothing is left of it"


def test_default_wait_of_a_kill_is_the_message_timeout(master: Master) -> None:
    master.nimbus.kill("words")
    assert master.nimbus.topology("words").deadline == 1010.0
    assert master.nimbus.due == 1000.0 + ANSWER_SECS


@pytest.mark.parametrize("wait_secs", [-1, float("nan"), float("inf")])
def test_an_invalid_wait_is_refused(master: Master, wait_secs: float) -> None:
    with pytest.raises(InvalidConfig, match=r"wait_secs is .*: give a number of seconds, at least 0"):
        master.nimbus.kill("words", wait_secs)
    assert master.nimbus.topology("words").state == "ACTIVE"


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "two"])
def test_an_invalid_number_of_workers_is_refused(master: Master, workers: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"workers is .*: give a whole number of workers from 1"):
        master.nimbus.rebalance("words", workers=workers)
    assert master.nimbus.topology("words").state == "ACTIVE"


def test_an_impossible_rebalance_is_refused_with_all_problems(master: Master) -> None:
    wrong: Any = {"cuont": 2, "lines": 0, "count": "2"}
    with pytest.raises(InvalidConfig) as caught:
        master.nimbus.rebalance("words", workers=0, parallelism=wrong)
    assert len(caught.value.problems) == 4
    assert "the rebalance of topology 'words'" in str(caught.value)
    assert "no component 'cuont'; did you mean 'count'?" in str(caught.value)
    assert master.nimbus.topology("words").state == "ACTIVE"


def test_a_worker_cannot_report_in_the_name_of_another(master: Master) -> None:
    with pytest.raises(ValueError, match="'w2' of 'words' sent the report of 'w1'"):
        master.nimbus.report(
            "words", "w2", WorkerReport("w1", Incarnation(1, 0), True, True, False, False, None)
        )
    assert master.registry.reports(master.submitted.id) == {}


def test_a_report_without_news_writes_nothing(master: Master) -> None:
    report = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
    assert master.nimbus.report("words", "w1", report)
    changes: list[str] = []
    master.store.watch("/", changes.append)
    assert master.nimbus.report("words", "w1", report)
    assert changes == []


def test_a_tick_without_news_reads_nothing() -> None:
    store = CountingStore()
    master = Master(store)
    before = store.reads
    for _ in range(100):
        master.nimbus.tick()
    assert store.reads == before
    master.nimbus.kill("words")
    before = store.reads
    master.nimbus.tick(1000.0 + ANSWER_SECS - 0.1)
    assert store.reads == before
    master.nimbus.tick(1000.0 + ANSWER_SECS)
    before = store.reads
    master.nimbus.tick(1009.9)
    assert store.reads == before
    master.nimbus.tick(1010.0)
    assert store.reads > before
    assert master.registry.assignments.get(master.submitted.id) is None
    assert master.nimbus.due is None


def test_a_closed_nimbus_does_not_listen_any_more(master: Master) -> None:
    master.nimbus.close()
    master.registry.supervisors.drop("s1")
    master.nimbus.tick()
    assert master.registry.assignments.get(master.submitted.id) is not None


def test_the_next_tick_makes_up_for_one_that_the_store_did_not_answer() -> None:
    store = FlakyStore(InMemoryStore())
    clock = ManualClock()
    nimbus, registry = Nimbus(store, clock), Registry(store.store)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 4))
    record = nimbus.submit(Submission(words(), defaults(), {}))
    registry.supervisors.drop("s1")
    store.away = True
    with pytest.raises(Unavailable):
        nimbus.tick()
    assert nimbus.due is not None
    store.away = False
    nimbus.tick()
    assert registry.assignments.get(record.id) is None


def test_a_store_lost_in_the_middle_of_a_tick_is_no_error_of_a_topology(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FlakyStore(InMemoryStore())
    nimbus, registry = Nimbus(store, ManualClock()), Registry(store.store)
    for name in ("one", "two"):
        nimbus.submit(Submission(words(name), defaults(), {}))
    registry.supervisors.put(SupervisorRecord("s1", "s1", 4))
    store.chooses = lambda call: BEFORE if call.write else None
    with pytest.raises(Unavailable):
        nimbus.tick()
    assert len(store.failed) == 1, "the second would fail as well"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    store.chooses = nothing_fails
    nimbus.tick()
    assert all(registry.assignments.get(record.id) for record in nimbus.registry.all_topologies())


def test_leaving_workers_are_recorded_first_and_new_ones_last(master: Master) -> None:
    """A Nimbus that continues at any point knows which workers to wait for, and that the numbers do not agree yet."""
    written: list[str] = []
    master.store.watch("/", written.append)
    master.nimbus.rebalance("words", workers=2, wait_secs=0)
    begun = written.index(paths.leaving(master.submitted.id))
    of_topologies = ("/leaving", "/topologies", "/assignments")
    assert [path for path in written[begun:] if path.startswith(of_topologies)][:3] == [
        paths.leaving(master.submitted.id),
        paths.topology("words"),
        paths.assignment(master.submitted.id),
    ]


def test_a_counter_that_was_set_back_never_repeats_a_version_of_this_topology(master: Master) -> None:
    before = master.nimbus.topology("words").version
    master.store.put(paths.counter("assignments"), b"0")
    master.nimbus.rebalance("words", workers=2, wait_secs=0)
    assert master.nimbus.topology("words").version > before


def test_a_supervisor_has_its_copy_of_the_keys_before_it_has_workers() -> None:
    store = InMemoryStore()
    keys = PlainKeys(store, [{"secret": "x"}])
    nimbus, registry = Nimbus(store, ManualClock(), keyring=keys), Registry(store)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 4))
    registry.supervisors.put(SupervisorRecord("s2", "s2", 4))
    sealed: list[list[tuple[str, str]]] = []
    store.watch(paths.ASSIGNMENTS, lambda path: sealed.append(list(keys.sealed)))
    record = nimbus.submit(Submission(words(), defaults(), {}))
    assert sealed == [[(record.id, "s1")]]


def test_the_places_of_withdrawn_workers_stay_known(master: Master) -> None:
    assignment = master.registry.assignments.get(master.submitted.id)
    report = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, "boom")
    assert master.nimbus.report("words", "w1", report)
    assert master.registry.assignments.get(master.submitted.id) is None
    assert master.registry.former.readable(master.submitted.id) == assignment is not None


def test_reports_of_a_worker_are_forgotten_when_it_is_gone(master: Master) -> None:
    report = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
    assert master.nimbus.report("words", "w1", report)
    master.nimbus.rebalance("words", workers=2, wait_secs=0)
    assert master.registry.reports(master.submitted.id) == {"w1": report}
    assert master.nimbus.report("words", "w1", replace(report, stopped=True))
    assert master.registry.reports(master.submitted.id) == {}


def test_nimbus_has_no_way_to_unpickle() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "nimbus").rglob("*.py")]
    assert len(sources) > 4
    ways = re.compile(r"import (cloud)?pickle|from (cloud)?pickle|pickle\.load|Unpickler|marshal|shelve")
    assert not any(ways.search(text) for text in sources)
    code = "import sys, nimbus.leader.master; print('cloudpickle' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout.strip() == "False"


def _keys(registry: Registry, topology_id: str) -> object:
    sealed = registry.sealed_keys(topology_id, "all")
    return None if sealed is None else json.loads(sealed)


def _paths(store: InMemoryStore, above: str = "") -> list[str]:
    """Every path with a record at or below it."""
    found = [f"{above}/{name}" for name in store.children(above or "/")]
    return sorted([*found, *(path for inner in found for path in _paths(store, inner))])


NAMES = st.sampled_from(["one", "two"])
WORKERS = st.sampled_from(["w1", "w2", "w3"])
FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.none() | st.just("boom"))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["submit", "replace"]), NAMES),
    st.tuples(st.just("drain"), st.sampled_from(["s1", "s2"]), st.booleans()),
    st.tuples(st.sampled_from(["kill", "activate", "deactivate", "rebalance"]), NAMES),
    st.tuples(st.just("rebalance_tasks"), NAMES, st.integers(1, 4)),
    st.tuples(st.just("heard"), st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("report"), NAMES, WORKERS, FLAGS),
    st.tuples(st.just("supervisor"), st.sampled_from(["s1", "s2"]), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("another")),
)


REFUSALS = (NameTaken, NoSuchTopology, NoSuchSupervisor, IllegalTransition, ReplacementWaits)


@given(st.lists(STEPS, max_size=25))
def test_no_slot_is_shared_no_task_runs_twice_and_everything_can_be_ended(
    steps: list[tuple[Any, ...]],
) -> None:
    store, clock = InMemoryStore(), ManualClock()
    registry = Registry(store)
    nimbus = Nimbus(store, clock)
    do: dict[str, Callable[..., object]] = {
        "submit": lambda name: nimbus.submit(
            Submission(words(name), defaults() | {"topology.workers": 2}, {})
        ),
        "replace": lambda name: nimbus.submit(Submission(words(name), defaults(), {}, replace=True)),
        "rebalance_tasks": lambda name, count: nimbus.rebalance(name, parallelism={"count": count}),
        "report": lambda name, worker, flags: _report(nimbus, registry, name, worker, flags),
        "supervisor": lambda name, slots: registry.supervisors.put(SupervisorRecord(name, name, slots)),
        "lose": registry.supervisors.drop,
        "wait": lambda seconds: clock.move_to(clock.now() + seconds),
    }
    for what, *arguments in steps:
        if what == "another":
            nimbus.close()
            nimbus = Nimbus(store, clock)
        else:
            with contextlib.suppress(*REFUSALS):
                do.get(what, getattr(nimbus, what, None))(*arguments)  # type: ignore[misc]
        nimbus.tick()
        _check_placements(registry)
    for supervisor in registry.all_supervisors():
        registry.supervisors.drop(supervisor.id)
    nimbus.tick()
    for record in nimbus.registry.all_topologies():
        nimbus.kill(record.name)
    nimbus.tick()
    assert nimbus.registry.all_topologies() == []
    assert set(store.children("/")) <= {"cluster", "counters", "drained", "ended"}


def _report(nimbus: Nimbus, registry: Registry, name: str, worker: str, flags: tuple[Any, ...]) -> None:
    record = registry.topologies.get(name)
    if record is None:
        return
    for placed in (
        *workers_of(registry.assignments.get(record.id)),
        *workers_of(registry.leaving.get(record.id)),
    ):
        if placed.worker == worker:
            ended, drained, stopped, crash = flags
            report = WorkerReport(worker, placed.incarnation, True, ended, drained, stopped, crash)
            assert nimbus.report(name, worker, report)
            return


def _check_placements(registry: Registry) -> None:
    slots: list[tuple[str, int]] = []
    there = {record.id: record.slots for record in registry.all_supervisors()}
    for record in registry.all_topologies():
        placements = workers_of(registry.assignments.get(record.id))
        slots += [(placed.supervisor, placed.slot) for placed in placements]
        tasks = [task for placed in placements for task in placed.tasks]
        assert not tasks or sorted(tasks) == [task for task, _, _ in record.tasks]
        if record.state in ("ACTIVE", "INACTIVE"):
            assert all(placed.slot < there.get(placed.supervisor, 0) for placed in placements)
        elif record.state in ("COMPLETED", "FAILED"):
            assert not placements
    assert len(set(slots)) == len(slots)
