"""A presence node exists as long as its owner keeps it, and no longer than that owner's session."""

from __future__ import annotations

import logging

import pytest

from squall.cluster.leadership import Presence
from squall.cluster.memory import InMemoryStore
from squall.cluster.store import StoreError
from tests.squall.cluster.short_sessions import SESSION, Session


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


def test_presence_exists_while_it_is_kept_and_ends_with_the_session(store: InMemoryStore) -> None:
    session = Session(store)
    presence = Presence(session, "/presence/s1", b"1")
    assert presence.keep(0.0)
    assert store.get("/presence/s1") == (b"1", 0)
    session.close()
    assert store.get("/presence/s1") is None
    assert not presence.keep(0.0)


def test_presence_is_made_again_as_soon_as_it_is_gone(store: InMemoryStore) -> None:
    presence = Presence(Session(store), "/presence/s1", b"1")
    presence.keep(0.0)
    presence.keep(0.0)
    assert presence.next_time(0.0) == SESSION / 2
    store.delete("/presence/s1")
    assert presence.next_time(0.0) == 0.0
    assert presence.keep(0.0)
    assert store.get("/presence/s1") == (b"1", 0)


def test_presence_replaces_that_of_the_previous_process(store: InMemoryStore) -> None:
    before, after = Session(store), Session(store)
    Presence(before, "/presence/s1", b"1").keep(0.0)
    assert Presence(after, "/presence/s1", b"2").keep(0.0)
    assert store.get("/presence/s1") == (b"2", 0)
    before.close()
    assert store.get("/presence/s1") == (b"2", 0)


def test_presence_whose_creation_got_no_answer_is_found_and_kept(store: InMemoryStore) -> None:
    session = Session(store)
    presence = Presence(session, "/presence/s1", b"1")
    session.lose_answer_of = "create"
    assert not presence.keep(0.0)
    session.calls.clear()
    assert presence.keep(SESSION)
    assert "create" not in session.calls


def test_presence_is_false_until_the_store_is_back(store: InMemoryStore) -> None:
    session = Session(store)
    presence = Presence(session, "/presence/s1", b"1")
    session.away = True
    assert not presence.keep(0.0)
    assert not presence.keep(0.1)  # the next check is not due yet
    session.away = False
    assert presence.keep(SESSION)


def test_presence_changes_its_value_on_request(store: InMemoryStore) -> None:
    session = Session(store)
    presence = Presence(session, "/nimbuses/n1", b"one")
    presence.keep(0.0)
    presence.change(b"two")
    assert presence.keep(0.0)
    assert store.get("/nimbuses/n1") == (b"two", 1)
    assert session.owns("/nimbuses/n1")


def test_leaving_removes_presence_at_once_and_only_its_own(store: InMemoryStore) -> None:
    mine, other = Session(store), Session(store)
    presence = Presence(mine, "/presence/s1", b"1")
    presence.keep(0.0)
    presence.leave()
    assert store.get("/presence/s1") is None
    assert not presence.keep(SESSION)
    other.create("/presence/s1", b"2", ephemeral=True)
    presence.leave()
    assert store.get("/presence/s1") == (b"2", 0)


def test_presence_refused_by_the_store_is_tried_again_later(
    store: InMemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(store)
    presence = Presence(session, "/nimbuses/one", b"one")

    def refused(path: str) -> bool:
        raise StoreError("not with these credentials")

    monkeypatch.setattr(session, "owns", refused)
    assert not presence.keep(1.0)
    assert presence.next_time(1.0) == 1.0 + SESSION / 6, "and not at once and repeatedly"
    assert "not with these credentials" in caplog.text
    monkeypatch.undo()
    assert presence.keep(1.0 + SESSION / 6)


def test_two_processes_of_one_name_replace_each_other_a_few_times_in_a_session_and_not_at_each_change(
    store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    both = [Presence(Session(store), "/nimbuses/n1", data) for data in (b"1", b"2")]
    for moment in range(200):
        for presence in both:
            presence.keep(moment * SESSION / 200)
    made_again = [record for record in caplog.records if "it is created again" in record.getMessage()]
    assert 2 <= len(made_again) <= 14
    assert caplog.text.count("another process of this name is registered") <= 14


def test_presence_waits_for_the_end_of_one_that_it_may_not_replace(store: InMemoryStore) -> None:
    other, session = Session(store), Session(store)
    assert Presence(other, "/presence/s1", b"theirs 1").keep(0.0)
    mine = Presence(session, "/presence/s1", b"ours 1", lambda data: data.startswith(b"ours"))
    assert not mine.keep(0.0) and mine.occupied
    assert not mine.keep(SESSION) and mine.occupied
    other.close()
    assert mine.next_time(SESSION) == SESSION, "it is notified"
    assert mine.keep(SESSION) and not mine.occupied
    after = Presence(Session(store), "/presence/s1", b"ours 2", lambda data: data.startswith(b"ours"))
    assert after.keep(SESSION), "the previous process is certainly gone"
