"""Two Nimbuses have one id because a state directory was copied: the second waits, reports it, and disturbs nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from nimbus.security.secrets import Secrets
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from tests.flaky_store import FlakyStore
from tests.nimbus_http.nimbuses import Cluster, until

SESSION = 6.0


class Office:
    """Does nothing."""

    def begin(self, store: Store) -> None: ...
    def tick(self, now: float) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def next_time(self, now: float) -> float:
        return float("inf")


class One:
    """A Nimbus called n1, with a session of its own and the mark of its state directory."""

    def __init__(self, store: InMemoryStore, clock: ManualClock, mark: str, host: str) -> None:
        self.session = store.session()
        self.session.session_secs = SESSION
        self.store = FlakyStore(self.session)
        self.clock = clock
        self.control = LeaderLoop(
            self.store,
            NimbusRecord("n1", f"http://{host}", host),
            clock,
            lambda store: Nimbus(store, clock),
            cast(Secrets, Office()),
            lambda: None,
            lambda: None,
            mark=mark,
        )

    @property
    def leads(self) -> bool:
        return self.control.leading


def rounds(*all: One, seconds: float = 0.0) -> None:
    """Run a round of each every half second."""
    clock = all[0].clock
    end = clock.now() + seconds
    while True:
        for each in all:
            each.control.round()
        if clock.now() >= end:
            return
        clock.move_to(clock.now() + 0.5)


@pytest.fixture
def start() -> Callable[[str, str], One]:
    store, clock = InMemoryStore(), ManualClock(1000.0)
    return lambda mark, host: One(store, clock, mark, host)


def hosts(one: One) -> list[str]:
    return [record.host for record in Registry(one.session).all_nimbuses()]


def test_the_second_nimbus_of_one_id_neither_leads_nor_ends_the_term_of_the_first(
    start: Callable[[str, str], One], caplog: pytest.LogCaptureFixture
) -> None:
    first, copy = start("boot/1:1", "alpha"), start("boot/1:2", "beta")
    rounds(first)
    epoch = first.session.get(paths.EPOCH)
    rounds(first, copy, seconds=5 * SESSION)
    assert first.leads and not copy.leads
    assert first.session.get(paths.EPOCH) == epoch, "the same term"
    assert hosts(first) == ["alpha"]
    told = [
        each.getMessage() for each in caplog.records if "remove the files `id` and `key`" in each.getMessage()
    ]
    assert len(told) == 1 and "the id n1 is that of another running Nimbus" in told[0]


def test_the_second_takes_over_when_the_first_is_gone(start: Callable[[str, str], One]) -> None:
    first, copy = start("boot/1:1", "alpha"), start("boot/1:2", "beta")
    rounds(first, copy)
    first.session.close()
    rounds(copy, seconds=SESSION)
    assert copy.leads and hosts(copy) == ["beta"]


def test_a_nimbus_that_stops_makes_room_at_once(start: Callable[[str, str], One]) -> None:
    first, copy = start("boot/1:1", "alpha"), start("boot/1:2", "beta")
    rounds(first, copy)
    first.control.stop()
    rounds(copy, seconds=SESSION)
    assert copy.leads and copy.session.children(paths.PRESENCE) == ["n1"]


def test_a_restarted_nimbus_leads_although_its_old_session_has_not_ended(
    start: Callable[[str, str], One],
) -> None:
    before = start("boot/1:1", "alpha")
    rounds(before)
    again = start("boot/1:1", "alpha")
    rounds(again)
    assert again.leads


def test_a_leader_whose_id_another_nimbus_has_by_now_steps_aside(start: Callable[[str, str], One]) -> None:
    first, copy = start("boot/1:1", "alpha"), start("boot/1:2", "beta")
    rounds(first)
    first.session.delete(paths.presence("n1"))
    rounds(copy, first)
    assert not first.leads
    rounds(copy, first, seconds=SESSION)
    assert copy.leads and hosts(copy) == ["beta"]


def test_a_store_that_is_unavailable_for_a_moment_ends_no_term(
    start: Callable[[str, str], One], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = start("boot/1:1", "alpha")
    rounds(first)
    first.store.away = True
    rounds(first, seconds=1.5)
    first.store.away = False
    rounds(first, seconds=1.5)
    assert first.leads and "leads no more" not in caplog.text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(InMemoryStore(), tmp_path)
    yield found
    found.stop()


def test_a_daemon_with_a_copied_state_directory_is_found(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = cluster.store
    assert isinstance(store, InMemoryStore)
    first = cluster.start_leader("first", store.session())
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    copy: NimbusDaemon = cluster.start("copy", store.session())
    assert copy.me.id == first.me.id
    until(lambda: "remove the files `id` and `key`" in caplog.text, "that it says what is wrong")
    assert first.leading and not copy.leading
    first.stop()
    until(lambda: copy.leading, "the lead of the one that is left")


def test_the_second_waits_without_busy_rounds(start: Callable[[str, str], One]) -> None:
    first, copy = start("boot/1:1", "alpha"), start("boot/1:2", "beta")
    rounds(first, copy, seconds=1.0)
    due = copy.control.next_time()
    assert due is None or due > copy.clock.now()
