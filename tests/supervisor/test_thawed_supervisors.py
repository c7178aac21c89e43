"""A supervisor starts workers by the store's present content, even if it was suspended or cut off and has old values cached."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall.cluster.identity import OtherCluster
from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Cancel, Watch
from supervisor.agent import Supervisor
from supervisor.store_view import PATIENCE
from tests.flaky_store import FlakyStore
from tests.supervisor.hosts import Hosts, fake_command
from tests.supervisor.programs import runs, until

#: Seconds for which it was suspended: longer than Nimbus waits for it.
STOOD_STILL = 60.0


class RememberingStore(FlakyStore):
    """Reads are cached, as those of ZooKeeper are. While it is `deaf` no change has been reported; that comes with the next
    answer of the store itself, before it.
    """

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store)
        self.deaf = False
        self._known: dict[tuple[str, str], Any] = {}

    def get(self, path: str) -> tuple[bytes, int] | None:
        return self._remembered("get", path, super().get)  # type: ignore[no-any-return]

    def children(self, path: str) -> list[str]:
        return self._remembered("children", path, super().children)  # type: ignore[no-any-return]

    def owns(self, path: str) -> bool:
        found = super().owns(path)
        self.deaf = False
        return found

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        return super().watch(prefix, lambda path: None if self.deaf else callback(path))

    def _remembered(self, kind: str, path: str, read: Callable[[str], Any]) -> Any:
        if not self.deaf or (kind, path) not in self._known:
            self._known[kind, path] = read(path)
        return self._known[kind, path]


class Still:
    """A supervisor whose worker died while it was suspended, and whose topology may have been killed meanwhile."""

    def __init__(self, hosts: Hosts, workers: int = 1) -> None:
        self.hosts = hosts
        self.store = RememberingStore(hosts.store)
        self.starts = 0
        #: Whether the store is another cluster's, or came back empty.
        self.other = False
        self.supervisor: Supervisor = hosts.make(
            "thawed", store=self.store, command=self.command, admit=self.admit
        )
        hosts.supervisors[:] = [self.supervisor]
        hosts.submit(workers=workers)
        hosts.until(lambda: all(hosts.opened(f"w{number + 1}") for number in range(workers)))
        self.now = hosts.clock.now()

    def command(self, directory: Path) -> list[str]:
        self.starts += 1
        return fake_command(directory)

    def admit(self) -> None:
        if self.other:
            raise OtherCluster("this is none that one knows")

    def kill_workers(self) -> None:
        for pid in self.hosts.pids().values():
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not runs(pid))  # type: ignore[misc]

    def look(self, seconds: float) -> None:
        """Let it run for this long, as often as it wants."""
        end = self.now + seconds
        while self.now < end:
            self.supervisor.sync(self.now)
            self.now = max(self.supervisor.next_time(self.now), self.now + 0.001)


@pytest.fixture
def still(make_hosts: Callable[..., Hosts]) -> Still:
    return Still(make_hosts(supervisors=0))


def test_no_worker_is_started_from_old_knowledge_before_the_store_has_answered(still: Still) -> None:
    still.store.away = True  # its session has expired, and its connection is closed
    still.kill_workers()
    still.hosts.nimbus.kill("words", wait_secs=0)
    still.now += STOOD_STILL
    still.look(PATIENCE - 1.0)
    still.store.away = False
    still.look(2.0)
    assert still.starts == 1 and still.hosts.pids() == {}
    assert still.supervisor.workers() == [], "it knows by now that it is not wanted"


@pytest.mark.parametrize("workers", [1, 2])
def test_nor_from_cached_values_before_the_change_is_reported(
    make_hosts: Callable[..., Hosts], workers: int
) -> None:
    still = Still(make_hosts(supervisors=0), workers)
    still.look(0.5)
    still.store.deaf = True
    still.kill_workers()
    still.hosts.nimbus.kill("words", wait_secs=0)
    still.look(0.5)
    assert still.starts == workers and still.hosts.pids() == {}
    assert not still.store.deaf, "it has asked the store itself"


def test_a_store_that_does_not_answer_delays_a_start_by_some_seconds_at_most(still: Still) -> None:
    still.store.away = True
    still.kill_workers()
    still.now += STOOD_STILL
    still.look(PATIENCE - 1.0)
    assert still.starts == 1
    still.look(2.0)
    assert still.starts == 2 and set(still.hosts.pids()) == {"w1"}


def test_while_the_store_is_known_to_be_away_a_worker_is_restarted_at_once(still: Still) -> None:
    still.store.away = True
    still.look(PATIENCE + 2.0)
    still.kill_workers()
    still.look(0.01)
    assert still.starts == 2 and set(still.hosts.pids()) == {"w1"}


def test_a_store_that_came_back_empty_does_not_prevent_a_restart(still: Still) -> None:
    still.other = True
    still.kill_workers()
    still.look(PATIENCE + 2.0)
    assert still.starts == 2 and set(still.hosts.pids()) == {"w1"}


def test_with_an_answering_store_a_worker_is_restarted_at_once(still: Still) -> None:
    still.kill_workers()
    still.look(0.01)
    assert still.starts == 2 and set(still.hosts.pids()) == {"w1"}
