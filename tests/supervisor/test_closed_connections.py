"""Connections that a supervisor closes because there are too many are counted where Nimbus sees them, and seldom written."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from supervisor.store_view import CLOSED_SECS, StoreView
from tests.supervisor.supervisor_daemons import Cluster


def test_a_count_is_in_the_store_a_while_later_however_fast_it_grows() -> None:
    store = InMemoryStore()
    registry = Registry(store.session())
    view = StoreView(registry, SupervisorRecord("s1", "host", 2), lambda: None, lambda: None)
    written: list[int] = []
    # Each look at the store finds more connections closed.
    for tenth in range(301):
        now = tenth / 10
        view.set_closed({"address": tenth + 1}, now)
        view.changed = True
        view.refresh(now, {})
        [record] = registry.all_supervisors()
        written.append(record.connections_closed["address"])
        assert now - (written[-1] - 1) / 10 <= CLOSED_SECS
    assert len(set(written)) == 4, "at 0, 10, 20 and 30 seconds"


def test_a_daemon_counts_the_connections_that_its_port_closes(cluster: Cluster) -> None:
    daemon = cluster.start(per_address=4)
    assert cluster.registry.all_supervisors()[0].connections_closed == {}
    place = urlsplit(daemon.url)
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(socket.create_connection(("127.0.0.1", place.port or 0), timeout=30))
        cluster.until(lambda: sum(cluster.registry.all_supervisors()[0].connections_closed.values()))
