"""Operations on sessions and watches for the tests of stores."""

from __future__ import annotations

from collections.abc import Callable

from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Store, Unavailable
from squall.cluster.zookeeper import ZooKeeperStore
from tests.zookeeper_servers import eventually

Session = Callable[[], Store]
#: Opens a store at servers, with options of `ZooKeeperStore`.
Open = Callable[..., ZooKeeperStore]


def end(store: Store) -> None:
    """End a session, as the death of its process would."""
    assert isinstance(store, (InMemoryStore, ZooKeeperStore))
    store.close()


def seen_by(told: list[str], last: str) -> list[str]:
    """The calls of a watch before that of the last write."""
    eventually(lambda: told and told[-1] == last)
    return told[:-1]


def tried(call: Callable[[], object]) -> bool:
    """Whether a call got an answer."""
    try:
        call()
    except Unavailable:
        return False
    return True
