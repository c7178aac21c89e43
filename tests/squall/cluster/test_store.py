"""The promises of every store about values, versions and watches."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from squall.cluster.store import MOST_BYTES, Conflict, Exists, Store, StoreError, TooBig, below, remove_tree
from tests.squall.cluster.store_sessions import seen_by
from tests.zookeeper_servers import eventually


def test_a_value_is_read_as_written(store: Store) -> None:
    store.put("/a/b", b"one")
    found = store.get("/a/b")
    assert found is not None and found[0] == b"one"


def test_an_unwritten_path_has_no_value_not_even_above_a_value(store: Store) -> None:
    store.put("/a/b", b"one")
    assert store.get("/a") is None
    assert store.get("/a/b/c") is None
    assert store.get("/elsewhere") is None


def test_each_put_gives_another_version_and_get_returns_it(store: Store) -> None:
    versions = [store.put("/a", data) for data in (b"one", b"two", b"two")]
    assert len(set(versions)) == 3
    assert store.get("/a") == (b"two", versions[-1])


def test_a_write_over_the_version_that_was_read_succeeds(store: Store) -> None:
    version = store.create("/a", b"one")
    newer = store.put("/a", b"two", expected=version)
    assert store.get("/a") == (b"two", newer)


def test_a_write_over_an_older_version_is_a_conflict_and_changes_nothing(store: Store) -> None:
    old = store.create("/a", b"one")
    current = store.put("/a", b"two")
    with pytest.raises(Conflict) as caught:
        store.put("/a", b"three", expected=old)
    assert (caught.value.path, caught.value.expected, caught.value.found) == ("/a", old, current)
    with pytest.raises(Conflict):
        store.delete("/a", expected=old)
    assert store.get("/a") == (b"two", current)


def test_a_version_expected_of_a_missing_value_is_a_conflict(store: Store) -> None:
    with pytest.raises(Conflict):
        store.put("/a", b"one", expected=0)
    with pytest.raises(Conflict):
        store.delete("/a", expected=0)
    assert store.get("/a") is None


def test_only_the_first_create_succeeds(store: Store) -> None:
    version = store.create("/a", b"one")
    with pytest.raises(Exists) as caught:
        store.create("/a", b"two")
    assert caught.value.path == "/a"
    assert store.get("/a") == (b"one", version)


def test_deleting_frees_the_path_and_leaves_what_is_below(store: Store) -> None:
    store.put("/a", b"one")
    store.put("/a/b", b"two")
    store.delete("/a")
    store.delete("/a")
    assert store.get("/a") is None
    assert store.children("/a") == ["b"]
    store.create("/a", b"again")


def test_children_are_the_names_that_lead_to_values_sorted(store: Store) -> None:
    for path in ("/a/z", "/a/b/c/d", "/a/b/e", "/ab"):
        store.put(path, b"x")
    assert store.children("/a") == ["b", "z"]
    assert store.children("/a/b") == ["c", "e"]
    assert store.children("/") == ["a", "ab"]
    assert store.children("/nowhere") == []
    store.delete("/a/b/c/d")
    assert store.children("/a/b") == ["e"]
    store.delete("/a/b/e")
    assert store.children("/a") == ["z"]


def test_remove_tree_removes_everything_below_and_nothing_beside(store: Store) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        store.put(path, b"x")
    remove_tree(store, "/a")
    assert store.children("/") == ["ab"]
    remove_tree(store, "/")
    assert store.children("/") == []


def test_a_watch_is_called_for_every_change_at_or_below_its_prefix(store: Store) -> None:
    told: list[str] = []
    before: list[str] = []
    store.watch("/a", before.append)
    store.put("/a/before", b"x")
    seen_by(before, "/a/before")
    store.watch("/a", told.append)
    store.create("/a", b"x")
    store.put("/a/b", b"x")
    store.put("/a/b", b"y")
    store.put("/ab", b"x")
    store.delete("/a/b")
    store.delete("/a/b")
    store.put("/a/last", b"x")
    assert seen_by(told, "/a/last") == ["/a", "/a/b", "/a/b", "/a/b"]


def test_a_watch_can_read_the_reported_change(store: Store) -> None:
    seen: list[bytes | None] = []

    def look(path: str) -> None:
        found = store.get(path)
        seen.append(None if found is None else found[0])

    store.watch("/", look)
    store.put("/a", b"one")
    assert eventually(lambda: seen) == [b"one"]
    store.delete("/a")
    assert eventually(lambda: seen[1:]) == [None]


def test_a_refused_write_calls_no_watch(store: Store) -> None:
    told: list[str] = []
    store.watch("/", told.append)
    store.put("/a", b"one")
    with pytest.raises(StoreError):
        store.create("/a", b"two")
    with pytest.raises(StoreError):
        store.put("/a", b"two", expected=99)
    store.put("/last", b"x")
    assert seen_by(told, "/last") == ["/a"]


def test_a_cancelled_watch_is_not_called_any_more_and_the_others_are(store: Store) -> None:
    one: list[str] = []
    other: list[str] = []
    cancel = store.watch("/", one.append)
    store.watch("/", other.append)
    store.put("/a", b"x")
    assert seen_by(one, "/a") == []
    cancel()
    cancel()
    store.put("/b", b"x")
    assert seen_by(other, "/b") == ["/a"]
    assert one == ["/a"]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b"])
def test_an_invalid_path_is_refused(store: Store, path: str) -> None:
    for call in (store.get, store.children, store.delete):
        with pytest.raises(ValueError, match="not a path"):
            call(path)
    for write in (store.put, store.create):
        with pytest.raises(ValueError, match="not a path"):
            write(path, b"x")
    with pytest.raises(ValueError, match="not a path"):
        store.watch(path, lambda changed: None)


@pytest.mark.parametrize(("path", "data"), [("/a", b""), ("/", b"x")])
def test_an_empty_value_and_one_at_the_root_are_refused(store: Store, path: str, data: bytes) -> None:
    for write in (store.put, store.create):
        with pytest.raises(ValueError, match="one byte or more"):
            write(path, data)
    assert store.children("/") == []


def test_of_many_creators_at_once_one_wins(store: Store) -> None:
    winners: list[int] = []
    start = threading.Barrier(8)

    def race(number: int) -> None:
        start.wait(timeout=30)
        try:
            store.create("/prize", str(number).encode())
        except Exists:
            return
        winners.append(number)

    run_together([lambda n=n: race(n) for n in range(8)])  # type: ignore[misc]
    found = store.get("/prize")
    assert len(winners) == 1
    assert found is not None and found[0] == str(winners[0]).encode()


def test_no_increment_is_lost_among_writers_that_name_the_version_they_read(store: Store) -> None:
    store.create("/sum", b"0")

    def add() -> None:
        for _ in range(50):
            while True:
                found = store.get("/sum")
                assert found is not None
                try:
                    store.put("/sum", str(int(found[0]) + 1).encode(), expected=found[1])
                    break
                except Conflict:
                    continue

    run_together([add] * 4)
    found = store.get("/sum")
    assert found is not None and found[0] == b"200"


def test_a_value_that_no_store_accepts_is_refused_and_the_biggest_is_accepted(store: Store) -> None:
    for write in (store.put, store.create):
        with pytest.raises(TooBig, match="1,000,001"):
            write("/a", b"x" * (MOST_BYTES + 1))
    assert store.get("/a") is None
    store.put("/a", b"x" * MOST_BYTES)
    found = store.get("/a")
    assert found is not None and len(found[0]) == MOST_BYTES


def test_a_version_of_a_missing_value_never_matches(store: Store) -> None:
    store.put("/a/b", b"x")
    for version in range(3):
        with pytest.raises(Conflict):
            store.put("/a", b"y", version)
        with pytest.raises(Conflict):
            store.delete("/a", version)
    assert store.children("/a") == ["b"]


def test_a_path_to_a_value_can_become_one_and_stop_being_one(store: Store) -> None:
    store.put("/a/b", b"x")
    version = store.create("/a", b"y")
    assert store.get("/a") == (b"y", version)
    with pytest.raises(Exists):
        store.create("/a", b"z")
    store.delete("/a", version)
    assert store.get("/a") is None
    assert store.children("/a") == ["b"]
    store.delete("/a/b")
    assert store.children("/") == []
    store.put("/a/b/c", b"x")
    store.delete("/a/b/c")
    store.create("/a/b", b"x", ephemeral=True)
    assert store.owns("/a/b")


def test_writers_and_removers_below_one_path_do_not_disturb_each_other(store: Store) -> None:
    def busy(name: str) -> None:
        for _ in range(25):
            store.create(f"/busy/{name}/x", b"x")
            store.delete(f"/busy/{name}/x")

    run_together([lambda name=name: busy(name) for name in "abcd"])  # type: ignore[misc]
    store.put("/busy/last", b"x")
    assert store.children("/busy") == ["last"]


def run_together(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_errors_of_a_store_travel_between_processes() -> None:
    for error in (Conflict("/a", 3, None), Conflict("/a", None, 4), Exists("/a")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


NAMES = st.sampled_from(["a", "b", "ab"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))


# One store for all examples: each begins by emptying it. A server needs a millisecond or two for a call.
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(writes=st.lists(st.tuples(st.sampled_from(["put", "create", "delete"]), PATHS), max_size=20))
def test_after_any_writes_a_store_has_the_content_of_a_dictionary(
    store: Store, writes: list[tuple[str, str]]
) -> None:
    remove_tree(store, "/")
    assert store.children("/") == []
    model: dict[str, bytes] = {}
    for number, (what, path) in enumerate(writes):
        data = str(number).encode()
        if what == "put":
            store.put(path, data)
            model[path] = data
        elif what == "delete":
            store.delete(path)
            model.pop(path, None)
        elif path not in model:
            store.create(path, data)
            model[path] = data
    for prefix in ("/", "/a", "/a/b", "/ab"):
        depth = 1 if prefix == "/" else prefix.count("/") + 1
        inside = {path for path in model if path != prefix and below(prefix, path)}
        assert store.children(prefix) == sorted({path.split("/")[depth] for path in inside})
    assert {path: found[0] for path in model if (found := store.get(path))} == model
