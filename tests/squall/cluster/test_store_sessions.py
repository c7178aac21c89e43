"""The promises of every store about sessions, ephemeral values, and guarded writes."""

from __future__ import annotations

import pytest

from squall.cluster.store import Conflict, Deposed, Exists, Guard, Store, Unavailable
from tests.squall.cluster.store_sessions import Session, end, seen_by
from tests.zookeeper_servers import eventually


def test_sessions_see_the_same_values(session: Session) -> None:
    one, two = session(), session()
    one.put("/a", b"x")
    assert two.get("/a") == one.get("/a")
    told: list[str] = []
    two.watch("/", told.append)
    one.put("/a", b"y")
    seen_by(told, "/a")  # of this change, or still of the one before
    eventually(lambda: two.get("/a") == one.get("/a"))


def test_a_write_does_not_conflict_with_a_stale_read_of_this_session(session: Session) -> None:
    one, two = session(), session()
    version = one.create("/a", b"x")
    one.get("/a")
    version = two.put("/a", b"y", version)
    for _ in range(3):
        try:
            assert one.put("/a", b"z", version) != version
            break
        except Conflict:  # first from the cache; then it reads again
            found = one.get("/a")
            assert found is not None
            version = found[1]
    else:
        pytest.fail("a conflict is not read away")


def test_an_ephemeral_value_ends_with_its_session_and_others_stay(session: Session) -> None:
    one, two = session(), session()
    one.create("/e/one", b"x", ephemeral=True)
    one.create("/p/one", b"x")
    two.create("/e/two", b"x", ephemeral=True)
    told: list[str] = []
    two.watch("/e", told.append)
    end(one)
    eventually(lambda: "/e/one" in told)
    assert two.get("/e/one") is None
    assert two.children("/e") == ["two"]
    assert two.get("/p/one") is not None


def test_a_session_knows_its_own_ephemeral_values(session: Session) -> None:
    one, two = session(), session()
    one.create("/e", b"x", ephemeral=True)
    one.create("/p", b"x")
    assert one.owns("/e")
    assert not two.owns("/e")
    assert not one.owns("/p")
    assert not one.owns("/nowhere")
    one.put("/e", b"y")
    two.put("/e", b"z")
    assert one.owns("/e")
    with pytest.raises(Exists):
        two.create("/e", b"x", ephemeral=True)


def test_an_ephemeral_value_that_was_removed_is_a_plain_one_when_it_is_made_again(session: Session) -> None:
    one, two = session(), session()
    one.create("/e", b"x", ephemeral=True)
    two.delete("/e")
    assert not one.owns("/e")
    two.create("/e", b"y", ephemeral=True)
    end(one)
    assert two.owns("/e")
    assert two.get("/e") is not None


def test_a_session_that_has_ended_refuses_every_call(session: Session) -> None:
    store = session()
    store.put("/a", b"x")
    end(store)
    for call in (
        lambda: store.get("/a"),
        lambda: store.children("/"),
        lambda: store.owns("/a"),
        lambda: store.put("/a", b"y"),
        lambda: store.create("/b", b"y"),
        lambda: store.delete("/a"),
    ):
        with pytest.raises(Unavailable):
            call()


def test_a_write_whose_guard_holds_succeeds(store: Store) -> None:
    guard = Guard("/epoch", store.put("/epoch", b"1"))
    version = store.put("/a", b"one", guard=guard)
    assert store.put("/a", b"two", version, guard) != version
    store.create("/b/c", b"x", guard=guard)
    store.create("/e", b"x", ephemeral=True, guard=guard)
    assert store.owns("/e")
    store.delete("/b/c", guard=guard)
    store.delete("/nowhere", guard=guard)
    assert store.children("/") == ["a", "e", "epoch"]


def test_a_write_whose_guard_has_changed_is_refused_and_changes_nothing(store: Store) -> None:
    old = Guard("/epoch", store.put("/epoch", b"1"))
    store.put("/epoch", b"2")
    version = store.put("/a", b"x")
    for guard in (old, Guard("/nowhere", 0)):
        for write in (
            lambda: store.put("/a", b"y", guard=guard),  # noqa: B023 - called at once
            lambda: store.put("/a", b"y", version, guard),  # noqa: B023
            lambda: store.put("/a", b"y", 99, guard),  # noqa: B023
            lambda: store.put("/new/b", b"y", guard=guard),  # noqa: B023
            lambda: store.create("/new/b", b"y", guard=guard),  # noqa: B023
            lambda: store.create("/a", b"y", guard=guard),  # noqa: B023
            lambda: store.delete("/a", guard=guard),  # noqa: B023
            lambda: store.delete("/a", 99, guard),  # noqa: B023
            lambda: store.delete("/nowhere", guard=guard),  # noqa: B023
        ):
            with pytest.raises(Deposed):
                write()
    assert store.get("/a") == (b"x", version)
    assert store.children("/") == ["a", "epoch"]


def test_a_wrong_version_in_a_guarded_write_is_still_a_conflict(store: Store) -> None:
    guard = Guard("/epoch", store.put("/epoch", b"1"))
    store.put("/a", b"x")
    with pytest.raises(Conflict):
        store.put("/a", b"y", 99, guard)
    with pytest.raises(Conflict):
        store.delete("/a", 99, guard)
    with pytest.raises(Conflict):
        store.put("/nowhere", b"y", 0, guard)
    with pytest.raises(Exists):
        store.create("/a", b"y", guard=guard)
