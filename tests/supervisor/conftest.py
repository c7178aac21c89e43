"""Fixtures shared by the tests of the supervisor: hosts that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.hosts import Hosts
from tests.supervisor.supervisor_daemons import Cluster, cluster_in


@pytest.fixture
def make_hosts(tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    """Makes clusters of supervisors with fake workers."""
    made: list[Hosts] = []

    def make(**options: Any) -> Hosts:
        made.append(Hosts(tmp_path / f"cluster-{len(made)}", **options))
        return made[-1]

    yield make
    for hosts in made:
        hosts.end()


@pytest.fixture
def hosts(make_hosts: Callable[..., Hosts]) -> Hosts:
    """One supervisor with two slots."""
    return make_hosts()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A Nimbus that answers over HTTP, and supervisor daemons."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    with cluster_in(tmp_path / "states") as made:
        yield made
