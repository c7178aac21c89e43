"""Housekeeping removes files that belong to no topology, and nothing while it cannot be sure of that."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from nimbus.counters.counting import Counters
from nimbus.files.housekeeping import UNUSED_SECS, Housekeeping
from nimbus.files.stored_files import FileStore
from nimbus.leader.master import Nimbus
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, TopologyRecord
from squall.http.client import Client
from squall.values import Incarnation
from tests.nimbus.transcripts import a_topology
from topology_api.options import defaults

NOW = 1_000_000.0


class House:
    """The housekeeping of the only Nimbus."""

    def __init__(self, folder: Path) -> None:
        self.store, self.clock = InMemoryStore(), ManualClock()
        self.nimbus = Nimbus(self.store, self.clock)
        self.files = FileStore(folder / "files", 100, 1000, lambda: NOW)
        self.counters = Counters()
        me = NimbusRecord("n1", "http://n1", "n1")
        self.keeping = Housekeeping(
            self.store, self.files, self.counters, folder / "counters", me, self.ask, self.clock
        )

    def ask(self, other: NimbusRecord) -> Client:
        raise AssertionError("there is no other")

    def file(self, data: bytes, age: float) -> str:
        """A file that came this many seconds ago."""
        name = sha256(data).hexdigest()
        incoming = self.files.receive(name)
        incoming.write(data)
        incoming.finish()
        os.utime(self.files.directory / name, (NOW - age, NOW - age))
        return name

    def submit(self, name: str, **files: str) -> TopologyRecord:
        record = self.nimbus.submit(Submission(a_topology(name, 1), defaults(), {}, files=files))
        self.counters.count(
            record.id, "w1", Incarnation(1, 0), WorkerCounters({"lines": ComponentCounters(emitted=7)})
        )
        return record

    def emitted(self, of: TopologyRecord) -> int:
        return self.counters.status(of, (("lines", "spout"),), {}, 0.0).components["lines"].emitted


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_an_old_unused_file_is_removed_and_the_others_stay(house: House) -> None:
    needed, old = house.file(b"needed", 2 * UNUSED_SECS), house.file(b"old", UNUSED_SECS + 1)
    young = house.file(b"young", UNUSED_SECS - 1)
    house.submit("words", code=needed)
    house.keeping._collect()
    assert house.files.names() == {needed, young}, old


@pytest.mark.parametrize(
    "path", [paths.topology("words"), paths.replacement("words"), paths.replaced("words")]
)
def test_while_a_record_is_unreadable_no_file_is_removed(house: House, path: str) -> None:
    old = house.file(b"old", 2 * UNUSED_SECS)
    house.store.put(path, b"nonsense")
    house.keeping._collect()
    assert house.files.names() == {old}
    house.store.delete(path)
    house.keeping._collect()
    assert house.files.names() == set()


def test_counters_of_a_removed_topology_are_removed_one_round_later(house: House) -> None:
    """Reads of the store may be some seconds old."""
    stays, goes = house.submit("stays"), house.submit("goes")
    house.keeping._collect()
    house.store.delete(paths.topology("goes"))
    house.keeping._collect()
    assert house.emitted(goes) == 7
    house.keeping._collect()
    assert (house.emitted(goes), house.emitted(stays)) == (0, 7)
