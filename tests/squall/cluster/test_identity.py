"""A daemon acts on its own cluster, and on no other."""

from __future__ import annotations

import json

import pytest

from squall.cluster import identity, paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import REPEATING
from squall.cluster.store import Unavailable
from tests.flaky_store import AFTER, FlakyStore


def test_a_cluster_has_one_id_from_its_first_leader_on() -> None:
    store = InMemoryStore()
    assert identity.check(store, None) == ""
    made = identity.establish(store)
    assert made and identity.establish(store) == identity.check(store, None) == made
    assert identity.check(store, made) == made
    assert json.loads(store.get(paths.CLUSTER)[0]) == {"id": made, "format": REPEATING}  # type: ignore[index]
    assert identity.establish(InMemoryStore()) != made


def test_the_store_of_another_cluster_is_refused() -> None:
    store = InMemoryStore()
    made = identity.establish(store)
    with pytest.raises(
        identity.OtherCluster, match=f"holds cluster {made}, but this daemon belongs to .* mine"
    ):
        identity.check(store, "mine")


def test_an_emptied_store_is_refused_by_daemons_that_remember_it() -> None:
    with pytest.raises(
        identity.OtherCluster, match=r"is empty, .* cluster mine: .*squall nimbus --new-cluster"
    ):
        identity.check(InMemoryStore(), "mine")


@pytest.mark.parametrize(
    "data", [b"nonsense", b"[]", b'{"id": 7, "format": 3}', b'{"id": "", "format": 3}', b"{}"]
)
def test_an_invalid_id_is_refused(data: bytes) -> None:
    store = InMemoryStore()
    store.put(paths.CLUSTER, data)
    with pytest.raises(identity.OtherCluster, match=r"/cluster holds .* instead of a cluster's id"):
        identity.check(store, None)
    with pytest.raises(identity.OtherCluster, match=r"/cluster holds .* instead of a cluster's id"):
        identity.establish(store)


def test_a_cluster_of_a_newer_release_is_refused_by_name() -> None:
    store = InMemoryStore()
    store.put(paths.CLUSTER, json.dumps({"id": "x", "format": REPEATING + 1}).encode())
    with pytest.raises(
        identity.OtherCluster, match=f"of format {REPEATING + 1}, this Squall reads format {REPEATING}"
    ):
        identity.check(store, "x")


def test_of_two_ids_given_at_once_the_first_counts_for_both() -> None:
    store = InMemoryStore()

    def meanwhile() -> str:
        identity.establish(store, lambda: "first")
        return "second"

    assert identity.establish(store, meanwhile) == "first" == identity.check(store, None)


def test_an_id_written_by_a_call_that_timed_out_is_used() -> None:
    store = FlakyStore(InMemoryStore())
    store.fail_write(1, AFTER)
    with pytest.raises(Unavailable):
        identity.establish(store)
    assert identity.establish(store) == identity.check(store.store, None)
