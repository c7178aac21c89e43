"""A Nimbus that dies between any two of its writes leaves a store from which another one goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from nimbus.master import Nimbus
from squall.clock import ManualClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Placement, SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from topology_api.errors import SquallError
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology

WORDS = Topology(
    "words",
    {},
    (ComponentSpec("lines", "spout", 3, {}, {"default": StreamSpec(("line",))}),),
    {"lines": b"no pickle"},
)


class Death(Exception):
    """The Nimbus that was writing is no more."""


class MortalStore(InMemoryStore):
    """Lets its user die instead of making one write, the `last`-th from now."""

    last = -1

    def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        self._live()
        return super().put(path, data, expected_version)

    def create(self, path: str, data: bytes) -> int:
        self._live()
        return super().create(path, data)

    def delete(self, path: str, expected_version: int | None = None) -> None:
        self._live()
        super().delete(path, expected_version)

    def _live(self) -> None:
        self.last -= 1
        if self.last == -1:
            raise Death


class Life:
    """A topology from its submission to its end; whenever Nimbus dies, another one takes over."""

    def __init__(self, writes: int) -> None:
        self.store = MortalStore()
        self.registry = Registry(self.store)
        for name in ("s1", "s2"):
            self.registry.save_supervisor(SupervisorRecord(name, name, 2))
        self.clock = ManualClock()
        self.nimbus = Nimbus(self.store, self.clock)
        self.store.last = writes

    def live(self) -> None:
        self.does(lambda: self.nimbus.submit(WORDS, defaults() | {"topology.workers": 3}, {}))
        self.does(lambda: self.nimbus.rebalance("words", workers=2))
        self.does(lambda: self.workers_say(drained=True))
        self.does(self.workers_that_are_to_go_stop)
        assert self.tasks_that_run() == [1, 2, 3]
        assert self.nimbus.topology("words").state == "ACTIVE"
        self.does(lambda: self.registry.remove_supervisor("s2"))
        self.does(lambda: self.nimbus.tick())
        assert self.tasks_that_run() == [1, 2, 3]
        self.does(lambda: self.nimbus.kill("words"))
        self.does(lambda: self.workers_say(drained=True))
        self.does(self.workers_that_are_to_go_stop)

    def does(self, something: Callable[[], object]) -> None:
        try:
            something()
            return
        except Death:
            self.nimbus.close()
            self.nimbus = Nimbus(self.store, self.clock)
            self.nimbus.tick()
        with contextlib.suppress(SquallError):  # said again: what was done already is refused, or harmless
            something()

    def workers_say(self, drained: bool) -> None:
        for placed in list(self.placements(leaving=False)):
            report = WorkerReport(placed.worker, placed.incarnation, True, False, drained, False, None)
            self.nimbus.report("words", placed.worker, report)

    def workers_that_are_to_go_stop(self) -> None:
        for placed in list(self.placements(leaving=True)):
            report = WorkerReport(placed.worker, placed.incarnation, True, False, True, True, None)
            self.nimbus.report("words", placed.worker, report)

    def placements(self, leaving: bool) -> Iterator[Placement]:
        record = self.registry.topology("words")
        if record is not None:
            read = self.registry.leaving if leaving else self.registry.assignment
            assignment = read(record.id)
            yield from () if assignment is None else assignment.placements

    def tasks_that_run(self) -> list[int]:
        return sorted(task for placed in self.placements(leaving=False) for task in placed.tasks)


def writes_of_a_whole_life() -> int:
    life = Life(writes=10_000)
    life.live()
    return 10_000 - life.store.last


@pytest.mark.parametrize("writes", range(writes_of_a_whole_life()))
def test_whichever_write_nimbus_dies_at_another_one_brings_the_topology_to_its_end(writes: int) -> None:
    life = Life(writes)
    life.live()
    assert life.store.last < 0, "it died"
    assert life.nimbus.topologies() == []
    # Bytes that were shipped for a record that was never written may stay; nothing else does.
    assert set(life.store.children("/")) <= {"counters", "supervisors", "blobs"}
    assert "words-2-0" not in life.store.children("/blobs")
