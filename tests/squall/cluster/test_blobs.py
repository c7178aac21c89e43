"""A blob comes back complete or not at all; a topology comes back from its bundle without being unpickled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.cluster import paths
from squall.cluster.blobs import (
    CHUNK_BYTES,
    BadBlob,
    get_blob,
    get_bundle,
    get_description,
    put_blob,
    put_bundle,
)
from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Exists, Unavailable
from tests.flaky_store import BEFORE, FlakyStore
from topology_api import Bolt, Spout, TopologyBuilder, Tuple
from topology_api.topology import Topology


class Lines(Spout):
    outputs = "line"

    def next_tuple(self) -> None:
        self.finish()


class Print(Bolt):
    def execute(self, tup: Tuple) -> None:
        """Read and forgotten."""

    def __setstate__(self, state: object) -> None:
        raise AssertionError("no instance was requested")


def lines() -> Topology:
    builder = TopologyBuilder("lines")
    builder.set_spout("lines", Lines())
    builder.set_bolt("print", Print(), parallelism=3).shuffle_grouping("lines")
    return builder.build()


@given(st.binary(max_size=64))
def test_a_blob_comes_back_unchanged(data: bytes) -> None:
    store = InMemoryStore()
    put_blob(store, "/blob", data)
    assert get_blob(store, "/blob") == data


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_blob_of_several_chunks_comes_back_and_no_value_is_larger_than_a_chunk(extra: int) -> None:
    store = InMemoryStore()
    data = (bytes(range(251)) * (2 * CHUNK_BYTES // 251 + 2))[: 2 * CHUNK_BYTES + extra]
    put_blob(store, "/blob", data)
    assert get_blob(store, "/blob") == data
    values = [store.get(f"/blob/{name}") for name in store.children("/blob")]
    assert all(value is not None and len(value[0]) <= CHUNK_BYTES for value in values)


def test_a_missing_blob_is_an_error() -> None:
    with pytest.raises(BadBlob, match="no blob at /blob"):
        get_blob(InMemoryStore(), "/blob")


def test_a_blob_is_written_once() -> None:
    store = InMemoryStore()
    put_blob(store, "/blob", b"one")
    with pytest.raises(Exists):
        put_blob(store, "/blob", b"two")


def test_a_blob_does_not_exist_before_its_last_byte() -> None:
    for write in (1, 2, 3):
        store = FlakyStore(InMemoryStore())
        store.fail_write(write, BEFORE)
        with pytest.raises(Unavailable):
            put_blob(store, "/blob", bytes(CHUNK_BYTES + 1))
        with pytest.raises(BadBlob, match="there is no blob at /blob"):
            get_blob(store, "/blob")


def test_a_bundle_does_not_exist_before_its_last_pickle() -> None:
    store = FlakyStore(InMemoryStore())
    put_bundle(store, "lines-1-0", lines())
    for write in range(1, store.writes + 1):
        store = FlakyStore(InMemoryStore())
        store.fail_write(write, BEFORE)
        with pytest.raises(Unavailable):
            put_bundle(store, "lines-1-0", lines())
        with pytest.raises(BadBlob, match=r"there is no blob at .*description"):
            get_bundle(store, "lines-1-0")


def test_a_lost_a_changed_and_a_foreign_chunk_are_noticed() -> None:
    store = InMemoryStore()
    put_blob(store, "/blob", b"some bytes")
    store.put("/blob/0000", b"other byte")
    with pytest.raises(BadBlob, match="damaged"):
        get_blob(store, "/blob")
    store.delete("/blob/0000")
    with pytest.raises(BadBlob, match="lacks chunk 0 of 1"):
        get_blob(store, "/blob")
    for foreign in (b"[]", b'{"chunks": 1e999, "size": 1, "sha256": "0"}', b"[" * 100_000):
        store.put("/blob", foreign)
        with pytest.raises(BadBlob, match="is not a blob"):
            get_blob(store, "/blob")


def test_a_topology_comes_back_from_its_bundle_without_being_unpickled() -> None:
    store = InMemoryStore()
    topology = lines()
    put_bundle(store, "lines-1-0", topology)
    again = get_bundle(store, "lines-1-0")
    assert again == topology
    assert get_description(store, "lines-1-0") == topology.describe()


def test_a_bundle_without_a_description_is_no_topology() -> None:
    store = InMemoryStore()
    put_blob(store, paths.pickle("lines-1-0", "lines"), b"anything")
    with pytest.raises(BadBlob, match="description"):
        get_bundle(store, "lines-1-0")
