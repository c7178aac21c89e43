"""Whole lives of topologies over a store that fails once: at one write of Nimbus, in one of three ways.

Nimbus dies before that write (which is after the previous one), and another one takes over; or the store reports a timeout
although it may have done the write, and the client repeats its request to Nimbus. The hosts are simulated: they do what the
store asks of them and report it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from nimbus.files.housekeeping import kept_files, needed_files
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.progress import workers_of
from nimbus.lifecycle.replacing import ReplaceTerms
from nimbus.lifecycle.versions import earlier_versions
from nimbus.submission.repeated import chosen, repetition
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.blobs import get_bundle
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Unavailable
from tests.flaky_store import AFTER, BEFORE, Death, FlakyStore
from topology_api.errors import SquallError
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology

WORDS = Topology(
    "words",
    {},
    (ComponentSpec("lines", "spout", 3, {}, {"default": StreamSpec(("line",))}),),
    {"lines": b"no pickle"},
)
REPLACE_SECS: Final = 60.0
#: A time after which everything that was postponed has been tried again.
LONG: Final = 35.0
STEP: Final = 10.0


#: How a write fails: the exception, and whether the write was done.
WAYS: Final[dict[str, tuple[type[BaseException], str]]] = {
    "dies before": (Death, BEFORE),
    "not done, timeout": (Unavailable, BEFORE),
    "done, but timeout": (Unavailable, AFTER),
}


class Keys:
    """Keys that are in the store, so that a test notices if they stay there."""

    def __init__(self, store: FlakyStore) -> None:
        self.registry = Registry(store)

    def make(self, topology_id: str) -> None:
        self.registry.save_sealed_keys(topology_id, "nimbus", b"sealed")

    def seal_for(self, topology_id: str, supervisors: Iterable[SupervisorRecord]) -> None:
        for supervisor in supervisors:
            if self.registry.sealed_keys(topology_id, supervisor.id) is None:
                self.registry.save_sealed_keys(topology_id, supervisor.id, b"sealed")

    def forget(self, topology_id: str) -> None:
        self.registry.remove_keys(topology_id)


class Life:
    """A cluster in which one write fails."""

    def __init__(self, write: int = 0, way: str = "dies before") -> None:
        self.inner = InMemoryStore()
        self.registry = Registry(self.inner)  # time spent by clients and by hosts
        for name in ("s1", "s2"):
            self.registry.supervisors.put(SupervisorRecord(name, name, 3))
        self.clock = ManualClock()
        self.store = FlakyStore(self.inner)
        self.store.error, how = WAYS[way]
        self.closed_doors: set[str] = set()
        self.crashing: set[str] = set()
        #: Versions whose tuples all fail.
        self.failing: set[str] = set()
        if write:
            self.store.fail_write(write, how)
        self.nimbus = self._take_over()

    # Commands

    def submit(self, key: str, replace: bool = False) -> str:
        """Submit "words" (again); return its id."""
        ids: list[str] = []
        conf = defaults() | {"topology.workers": 3}
        self.does(
            lambda: ids.append(
                self.nimbus.submit(
                    Submission(WORDS, conf, {}, key=key, replace=replace, files={"code": key})
                ).id
            )
        )
        return ids[-1]

    def roll_back(self, key: str) -> str:
        """Let the version return that was replaced last; return the id of the new version."""
        present = self.record()
        version = chosen(present, earlier_versions(self.registry, "words", present.id), None)
        submission = structs.replace(repetition(version, get_bundle(self.inner, version.id)), key=key)
        ids: list[str] = []
        self.does(lambda: ids.append(self.nimbus.submit(submission).id))
        return ids[-1]

    def does(self, command: Callable[[], object]) -> None:
        """Carry out a request; if it fails, repeat it once to the present Nimbus."""
        try:
            command()
            return
        except Death:
            self.nimbus.close()
            self.nimbus = self._take_over()
        except Unavailable:
            pass
        with contextlib.suppress(SquallError):  # a change that was already made is refused, or harmless
            command()

    def _take_over(self) -> Nimbus:
        while True:
            try:
                return Nimbus(
                    self.store, self.clock, keyring=Keys(self.store), replacing=ReplaceTerms(REPLACE_SECS)
                )
            except (Death, Unavailable):
                continue

    # Time, and the hosts

    def passes(self, seconds: float) -> None:
        """Let time pass while the hosts do what they are asked."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.settle()
            self.clock.move_to(self.clock.now() + STEP)
            for name in ("s1", "s2"):
                self.does(lambda name=name: self.nimbus.heard(name))  # type: ignore[misc]
            self.does(self.nimbus.tick)
        self.settle()

    def settle(self) -> None:
        """The hosts do what they are asked until nothing changes any more."""
        for _ in range(30):
            writes = self.store.writes
            for record in self.registry.all_topologies():
                self._hosts_report(record)
            self.does(self.nimbus.tick)
            if self.store.writes == writes:
                return
        raise AssertionError("the cluster does not come to rest")

    def _hosts_report(self, record: TopologyRecord) -> None:
        asked = record.state.asks
        for placed in self._placements(record.id, leaving=False):
            self._say(record, placed, drained=asked == "drain")
        for placed in self._placements(record.id, leaving=True):
            self._say(record, placed, stopped=True)

    def _say(
        self, record: TopologyRecord, placed: Placement, drained: bool = False, stopped: bool = False
    ) -> None:
        report = WorkerReport(
            placed.worker,
            placed.incarnation,
            opened=record.id not in self.closed_doors,
            ended=False,
            drained=drained,
            stopped=stopped,
            crash="it crashed" if record.id in self.crashing else None,
        )
        if record.id in self.failing:
            counted = {"lines": ComponentCounters(emitted=9, attempts_failed=9)}
            self.nimbus.counters.count(record.id, placed.worker, placed.incarnation, WorkerCounters(counted))
        if self.registry.report(record.id, placed.worker) != report:
            self.does(lambda: self.nimbus.report(record.name, placed.worker, report))

    # Content of the store

    def record(self) -> TopologyRecord:
        """The record of the topology of that name."""
        record = self.registry.topologies.get("words")
        assert record is not None
        return record

    def running(self) -> list[int]:
        """The tasks that have a place."""
        placements = self._placements(self.record().id, leaving=False)
        return sorted(task for placed in placements for task in placed.tasks)

    def _placements(self, topology_id: str, leaving: bool) -> list[Placement]:
        placed = self.registry.leaving if leaving else self.registry.assignments
        return list(workers_of(placed.get(topology_id)))

    def runs(
        self, topology_id: str, state: str = "ACTIVE", earlier: tuple[str, ...] = (), tasks: int = 3
    ) -> None:
        """Check that the topology of that id has the name and is up completely, and that of no other version anything exists
        but the bundles of `earlier` (the one that ended last first), which a rollback needs."""
        self.settle()
        record = self.record()
        assert (record.id, record.state, record.deadline) == (topology_id, state, None)
        assert self.running() == list(range(1, tasks + 1))
        known = {topology_id, *earlier}
        if self.registry.known_ids() != known:  # left by a submission that was not known to have failed
            self.passes(LONG)
        assert self.registry.known_ids() == known
        assert self.registry.known_ids(paths.OF_RUNNING) == {topology_id}
        found = earlier_versions(self.registry, "words", topology_id)
        assert [each.id for each in found] == list(earlier)
        assert all(get_bundle(self.inner, each.id) == WORDS for each in found)

    def ends(self) -> None:
        """Kill all topologies, and check that nothing is left."""
        self.does(lambda: self.nimbus.kill("words"))
        self.passes(LONG)
        assert self.nimbus.registry.all_topologies() == []
        assert set(self.inner.children("/")) <= {"cluster", "counters", "drained", "ended", "supervisors"}
        assert kept_files(self.registry) == ({}, set())


# The lives


def rebalanced(life: Life) -> None:
    """Submitted, deactivated, activated, rebalanced; it loses a host, and ends."""
    first = life.submit("one")
    life.settle()
    life.does(lambda: life.nimbus.deactivate("words"))
    life.does(lambda: life.nimbus.activate("words"))
    life.does(lambda: life.nimbus.rebalance("words", workers=2))
    life.runs(first)
    life.does(lambda: life.registry.supervisors.drop("s2"))
    life.runs(first)
    life.registry.supervisors.put(SupervisorRecord("s2", "s2", 3))
    life.ends()


def replaced(life: Life) -> None:
    """Another version takes over and runs."""
    first = life.submit("one")
    life.settle()
    second = life.submit("two", replace=True)
    assert first != second
    life.passes(3 * REPLACE_SECS)  # its source is silent; a Nimbus that takes over waits for that time again
    life.runs(second, earlier=(first,))
    assert set(needed_files(life.registry)[0]) == {"two"}
    assert set(kept_files(life.registry)[0]) == {"one", "two"}
    life.ends()


def returned(life: Life) -> None:
    """Another version takes over, and the first one returns by a rollback."""
    first = life.submit("one")
    life.does(lambda: life.nimbus.rebalance("words", parallelism={"lines": 2}))
    life.settle()
    second = life.submit("two", replace=True)
    life.passes(3 * REPLACE_SECS)
    third = life.roll_back("three")
    life.passes(3 * REPLACE_SECS)
    assert (life.record().repeats, life.record().files) == (first, {"code": "one"})
    life.runs(third, earlier=(second, first), tasks=2)
    life.ends()


def tuples_fail(life: Life) -> None:
    """Another version takes over, and all its tuples fail."""
    first = life.submit("one")
    life.settle()
    second = life.submit("two", replace=True)
    life.failing.add(second)
    life.passes(3 * REPLACE_SECS)
    life.runs(first, earlier=(second,))
    assert any("its tuples fail" in note.text for note in life.record().notes)
    life.ends()


def rolled_back(life: Life) -> None:
    """Another version takes over and crashes."""
    first = life.submit("one")
    life.settle()
    second = life.submit("two", replace=True)
    life.crashing.add(second)
    life.passes(5)
    life.runs(first, earlier=(second,))
    assert any("it crashed" in note.text for note in life.record().notes)
    life.ends()


def not_up_in_time(life: Life) -> None:
    """Another version takes over and never opens its tasks."""
    first = life.submit("one")
    life.does(lambda: life.nimbus.deactivate("words"))
    life.settle()
    second = life.submit("two", replace=True)
    life.closed_doors.add(second)
    life.passes(REPLACE_SECS / 2)
    assert life.record().id == second
    life.passes(2 * REPLACE_SECS)  # a Nimbus that takes over waits for that time again
    life.runs(first, "INACTIVE", earlier=(second,))
    assert any("was not up within 60 s" in note.text for note in life.record().notes)
    life.ends()


def killed_while_it_waits(life: Life) -> None:
    """Killed while another version waits for its drain."""
    life.submit("one")
    life.submit("two", replace=True)
    life.ends()


def killed_while_it_proves_itself(life: Life) -> None:
    """Killed when the other version has taken over and is not up yet."""
    life.submit("one")
    second = life.submit("two", replace=True)
    life.closed_doors.add(second)
    life.settle()
    life.ends()


def drained(life: Life) -> None:
    """Its host is drained."""
    first = life.submit("one")
    life.settle()
    life.does(lambda: life.nimbus.drain("s1"))
    life.runs(first)
    assert {placed.supervisor for placed in life._placements(first, leaving=False)} == {"s2"}
    life.does(lambda: life.nimbus.drain("s1", on=False))
    assert life.nimbus.registry.drained_supervisors() == set()
    life.ends()


LIVES: Final[dict[str, Callable[[Life], None]]] = {
    life.__name__: life
    for life in (
        rebalanced,
        replaced,
        returned,
        rolled_back,
        tuples_fail,
        not_up_in_time,
        killed_while_it_waits,
        killed_while_it_proves_itself,
        drained,
    )
}
