"""A Nimbus and the rights in its store: it leads, and hands out secrets, only while strangers have no access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from nimbus.security.access import AGAIN_SECS, PAUSE_SECS, StoreAccess
from nimbus.security.keyring import KeyRing
from nimbus.security.secrets import Secrets
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.store import OpenToStrangers, Store, Unavailable
from squall.security.sealing import KeyPair
from tests.flaky_store import FlakyStore

OPEN = "/squall/nimbuses in the ZooKeeper at zk:1 is open to everybody"


class SharedStore(FlakyStore):
    """A store in a service that others use, too. `open_pages`: the pages on which a walk finds a stranger's entry."""

    def __init__(self, store: Store, pages: int = 3) -> None:
        super().__init__(store)
        self.pages = pages
        self.open_page: int | None = None
        self.walked = 0
        self.on_page: Callable[[int], object] = lambda page: None

    def walk_access(self) -> Iterator[int]:
        for page in range(self.pages):
            self.on_page(page)
            if self.away:
                raise Unavailable("/: away")
            if page == self.open_page:
                raise OpenToStrangers(OPEN)
            self.walked += 1
            yield 100


class Desk:
    """A Nimbus's control loop with real secrets, over a shared store; rounds are run by hand."""

    def __init__(self, store: InMemoryStore, clock: ManualClock, folder: Path) -> None:
        session = store.session()
        session.session_secs = 6.0
        self.clock = clock
        self.store = SharedStore(session)
        self.pair = KeyPair.make()
        self.secrets = Secrets(
            self.store,
            self.pair,
            "n1",
            dict,
            clock,
            folder,
            (),
            {"HOME": str(folder)},
            {},
        )
        self.control = LeaderLoop(
            self.store,
            NimbusRecord("n1", "http://n1", "n1", self.pair.public),
            clock,
            lambda store: Nimbus(store, clock),
            self.secrets,
            self.secrets.lacks,
            lambda: None,
            lambda: self.secrets.aside,
        )

    def rounds(self, seconds: float = 0.0) -> None:
        until = self.clock.now() + seconds
        for _ in range(2000):
            self.control.round()
            due = self.control.next_time()
            if due is None or due > until:
                break
            self.clock.move_to(max(due, self.clock.now()))
        else:
            raise AssertionError("it never rests")
        self.clock.move_to(until)
        self.control.round()

    def sealed(self) -> list[str]:
        """Who has a copy of the operators' token."""
        return self.store.children(paths.keys(paths.OPERATOR))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def desk(clock: ManualClock, tmp_path: Path) -> Desk:
    return Desk(InMemoryStore(), clock, tmp_path)


def test_every_value_is_checked_before_the_first_secret_is_sealed(desk: Desk) -> None:
    seen: list[list[str]] = []
    desk.store.on_page = lambda page: seen.append(desk.sealed())
    desk.rounds()
    assert desk.control.leading
    assert seen == [[], [], []] and desk.sealed() == ["n1"]


def test_a_nimbus_that_finds_strangers_never_leads_and_seals_nothing(desk: Desk) -> None:
    desk.store.open_page = 2
    desk.rounds(60)
    assert not desk.control.leading
    assert desk.sealed() == [] and desk.store.get(paths.LEADER) is None
    assert desk.control.why_not_leading == OPEN


def test_it_leads_soon_after_the_tree_is_closed(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.store.open_page = 0
    desk.rounds(30)
    desk.store.open_page = None
    desk.rounds(AGAIN_SECS + 1.0)
    assert desk.control.leading and desk.control.why_not_leading is None
    assert caplog.text.count(OPEN) == 2, "once when the term ended, once as the reason not to lead"


def test_a_find_in_the_middle_of_a_term_ends_it_and_no_secret_is_sealed_afterwards(desk: Desk) -> None:
    desk.rounds()
    assert desk.control.leading
    desk.store.open_page = 1
    desk.rounds(PAUSE_SECS + 5.0)
    assert not desk.control.leading
    stranger = NimbusRecord("n2", "http://n2", "n2", KeyPair.make().public)
    desk.secrets._registry.nimbuses.put(stranger)
    desk.rounds(10)
    assert desk.sealed() == ["n1"]


def test_a_nimbus_that_registers_in_the_round_of_the_find_gets_nothing(desk: Desk) -> None:
    desk.rounds()
    desk.store.open_page = 0
    stranger = NimbusRecord("n2", "http://n2", "n2", KeyPair.make().public)
    desk.store.on_page = lambda page: desk.secrets._registry.nimbuses.put(stranger)
    desk.rounds(PAUSE_SECS + 5.0)
    assert not desk.control.leading and desk.sealed() == ["n1"]


def test_the_walk_goes_on_a_page_at_a_time_and_begins_again_after_a_pause(desk: Desk) -> None:
    desk.store.pages = 40
    desk.rounds()
    assert desk.store.walked == 40
    per_round: list[int] = []
    desk.store.on_page = lambda page: per_round.append(page)
    desk.rounds(PAUSE_SECS - 1.0)
    assert per_round == []
    before = desk.clock.now()
    while not per_round or per_round[-1] < 39:
        walked = len(per_round)
        desk.control.round()
        assert len(per_round) - walked <= 1
        due = desk.control.next_time()
        assert due is not None
        desk.clock.move_to(max(due, desk.clock.now()))
    assert per_round == list(range(40))
    assert 9.0 < desk.clock.now() - before < 20.0
    assert desk.control.leading


def test_a_store_that_goes_away_during_a_walk_has_it_begun_again(desk: Desk) -> None:
    desk.store.away = True
    desk.rounds(5)
    desk.store.away = False
    desk.rounds(5)
    assert desk.control.leading and desk.store.walked == 3
    desk.store.on_page = lambda page: setattr(desk.store, "away", page == 1)
    desk.rounds(PAUSE_SECS + 1.0)
    desk.store.on_page, desk.store.away, desk.store.open_page = (lambda page: None), False, 0
    desk.rounds(PAUSE_SECS)
    assert not desk.control.leading


def test_a_walk_that_outlasts_the_term_ends_without_a_leader(desk: Desk) -> None:
    def slow(page: int) -> None:
        desk.clock.move_to(desk.clock.now() + 5.0)
        desk.store.away = page > 0

    desk.store.on_page = slow
    desk.control.round()
    assert not desk.control.leading and desk.store.store.children(paths.keys(paths.OPERATOR)) == []


def test_a_store_of_this_cluster_alone_has_nothing_to_check() -> None:
    access = StoreAccess(InMemoryStore())
    access.check_all(0.0, lambda: True)
    access.tick(0.0)
    assert access.problem is None and access.why_not(0.0) is None and access.next_time(0.0) == float("inf")


def test_a_new_recipient_of_the_token_is_not_served_by_a_key_ring_out_of_a_term(desk: Desk) -> None:
    desk.store.open_page = 0
    desk.rounds(5)
    assert isinstance(desk.secrets.ring, KeyRing) and desk.secrets.token is None
