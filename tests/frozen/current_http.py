"""The present code of the product, by the names of the fixtures: a Nimbus that answers over HTTP, and a simulated supervisor.

See `current_code.py`. Must not know: the contents of the fixtures.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nimbus.daemon import NimbusDaemon
from squall.cluster import paths
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.reports.error_reports import ErrorReport
from squall.reports.histogram import LatencyHistogram
from squall.security.sealing import SUPERVISOR_TO_NIMBUS, daemon_header
from tests.nimbus_http import nimbuses
from tests.nimbus_http.nimbuses import PlayedSupervisor, until

Daemon = NimbusDaemon
BOOM = ErrorReport(
    "words",
    "count",
    2,
    "execute",
    "ValueError: boom",
    "words.py:7, in execute",
    ("a frame",),
    "(word='a')",
    1.5,
    3,
)


def new_store() -> InMemoryStore:
    """The store of a new cluster."""
    return InMemoryStore()


def put_garbage(store: InMemoryStore, name: str) -> None:
    """An unreadable record of a topology."""
    store.put(paths.topology(name), b"no record at all")


def submission(**changes: Any) -> dict[str, Any]:
    """The body of a submission of a topology "words"; the same each time except for its key."""
    return nimbuses.submission(**{"submission": "a key", **changes})


class Cluster:
    """Nimbuses over one store."""

    def __init__(self, store: InMemoryStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._cluster = nimbuses.Cluster(store, folder)

    def start_leader(self) -> Daemon:
        """A Nimbus that leads."""
        return self._cluster.start_leader()

    def start_standby(self) -> Daemon:
        """A standby Nimbus."""
        return self._cluster.start_standby("standby", self._store.session())

    def names(self) -> Mapping[str, str]:
        """The random names of this run, and their replacements."""
        found = {str(self._folder): "<folder>", socket.gethostname(): "<host>"}
        for number, daemon in enumerate(self._cluster.running):
            found |= {daemon.url: f"<url {number}>", daemon.me.id: f"<nimbus {number}>"}
            found[daemon.views.cluster_id() or "no id"] = "<cluster>"
        return found

    def stop(self) -> None:
        """End all of them."""
        self._cluster.stop()


class Supervisor(PlayedSupervisor):
    """A supervisor that makes the given reports."""

    def __init__(self, store: InMemoryStore, daemon: Daemon, **fields: Any) -> None:
        super().__init__(store, daemon, "s1", **fields)

    def header(self) -> dict[str, str]:
        """Its identity."""
        [nimbus] = self.registry.all_nimbuses()
        token = self.pair.token_with(nimbus.public_key, SUPERVISOR_TO_NIMBUS)
        return {"Authorization": daemon_header(self.id, token)}

    def wait_for(self, name: str, state: str) -> None:
        """Wait until a topology is in a state and has its workers."""

        def there() -> bool:
            record = self.registry.topologies.get(name)
            if record is None or record.state != state:
                return False
            return state != "ACTIVE" or self.registry.assignments.get(record.id) is not None

        until(there, f"{name} in the state {state}")

    def count(self) -> None:
        """The worker has counted."""
        latency = LatencyHistogram()
        for number in range(1, 50):
            latency.add(number / 10)
        lines = ComponentCounters(
            7, 0, 5, 2, 1, 0, 3, latency, {"seen": 8, "sizes": latency}, {"timeout": 2}, (1.5, "why"), 4,
            {"max pending": 1}, {"depth": 0.5, "why": "it raised"},
        )  # fmt: skip
        counted = WorkerCounters(
            {"lines": lines, "count": ComponentCounters(executed=9, errors=3)}, (BOOM,), 1
        )
        [row] = nimbuses.counters_of(self, 0)
        self.send(counters=[{**row, "counters": json.loads(counted.to_bytes())}])
