"""The stores, for the tests of promises that every store keeps. Another store joins by another branch of `session`.

A watch may be called by another thread, later, and also for the nodes on the way to a value: so tests wait until it has got the
expected calls, and know that all earlier ones have arrived when it gets that of a last write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.cluster.memory import InMemoryStore
from squall.cluster.sqlite import SqliteStore
from squall.cluster.store import Store
from squall.cluster.zookeeper import ZooKeeperStore
from tests.squall.cluster.store_sessions import Open, Session
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer

STORES = ["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.slow)]


@pytest.fixture(params=STORES)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    """Opens sessions over the same values; all end with the test."""
    opened: list[SqliteStore | ZooKeeperStore] = []
    if request.param == "zookeeper":
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        root: str = request.getfixturevalue("zookeeper_root")

        def open_session() -> Store:
            store = ZooKeeperStore(server.servers, root=root, session_secs=4)
            store.start(PATIENCE_SECS)
            opened.append(store)
            return store

    elif request.param == "sqlite":
        file = SqliteStore(tmp_path / "store.sqlite")
        opened.append(file)
        open_session = file.session
    else:
        open_session = InMemoryStore().session
    yield open_session
    for store in reversed(opened):
        store.close()


@pytest.fixture
def store(session: Session) -> Store:
    return session()


@pytest.fixture
def opened(zookeeper_root: str) -> Iterator[Open]:
    """Opens stores at a server, in the root of this test; they are closed with the test."""
    stores: list[ZooKeeperStore] = []

    def opener(servers: str, **options: object) -> ZooKeeperStore:
        store = ZooKeeperStore(servers, **{"root": zookeeper_root, "session_secs": 4.0, **options})  # type: ignore[arg-type]
        stores.append(store)
        store.start(PATIENCE_SECS)
        return store

    yield opener
    for store in stores:
        store.close()
