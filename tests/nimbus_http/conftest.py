"""A Nimbus that leads over a store in memory, and its clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client
from tests.nimbus_http.nimbuses import Cluster, PlayedSupervisor, client_of


@pytest.fixture
def store() -> InMemoryStore:
    """The store that all daemons of a test share; each gets a session of its own, or this one."""
    return InMemoryStore()


@pytest.fixture
def cluster(store: InMemoryStore, tmp_path: Path) -> Iterator[Cluster]:
    """Starts Nimbuses, which end with the test."""
    found = Cluster(store, tmp_path)
    yield found
    found.stop()


@pytest.fixture
def leader(cluster: Cluster) -> NimbusDaemon:
    """A Nimbus that leads."""
    return cluster.start_leader()


@pytest.fixture
def client(leader: NimbusDaemon) -> Iterator[Client]:
    """An operator's client of it."""
    found = client_of(leader)
    yield found
    found.close()


@pytest.fixture(scope="module")
def shared_leader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NimbusDaemon]:
    """A leading Nimbus, for all tests of a module that leave nothing behind in it."""
    found = Cluster(InMemoryStore(), tmp_path_factory.mktemp("shared"))
    yield found.start_leader()
    found.stop()


@pytest.fixture
def shared_client(shared_leader: NimbusDaemon) -> Iterator[Client]:
    """An operator's client of it."""
    found = client_of(shared_leader)
    yield found
    found.close()


@pytest.fixture
def supervisor(store: InMemoryStore, leader: NimbusDaemon) -> PlayedSupervisor:
    """A supervisor with two slots that the leader knows."""
    return PlayedSupervisor(store, leader)
