"""A topology comes back from the directory of its bundle, or the damage is reported; it is never unpickled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.cluster.blobs import BadBlob, get_bundle, put_bundle, read_bundle, write_bundle
from squall.cluster.memory import InMemoryStore
from topology_api.topology import ComponentSpec, StreamSpec, Topology

#: A name that is too long for a file once it is quoted.
ODD = "a%2Fb *?" + "ü" * 123


def a_topology() -> Topology:
    lines = ComponentSpec("lines", "spout", 2, {"my.key": [1, None]}, {"default": StreamSpec(("line",))})
    odd = ComponentSpec(ODD, "spout", 1, {}, {"default": StreamSpec(("line",))})
    return Topology("words", {}, (lines, odd), {"lines": b"no pickle", ODD: bytes(range(256)) * 4096})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    store = InMemoryStore()
    put_bundle(store, "words-1-0", a_topology())
    write_bundle(store, "words-1-0", tmp_path)
    return tmp_path


def test_a_topology_comes_back_as_from_the_store(written: Path) -> None:
    store = InMemoryStore()
    put_bundle(store, "words-1-0", a_topology())
    from_store, found = get_bundle(store, "words-1-0"), read_bundle(written)
    assert found.describe() == from_store.describe() == a_topology().describe()
    assert found.pickles == from_store.pickles == a_topology().pickles


def test_it_can_be_written_over_an_incomplete_one(tmp_path: Path) -> None:
    (tmp_path / "0001.pickle").write_bytes(b"half")
    store = InMemoryStore()
    put_bundle(store, "words-1-0", a_topology())
    write_bundle(store, "words-1-0", tmp_path)
    assert read_bundle(tmp_path).pickles["lines"] == b"no pickle"


def test_a_topology_that_is_not_in_the_store_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadBlob, match="never written"):
        write_bundle(InMemoryStore(), "words-1-0", tmp_path)
    with pytest.raises(BadBlob, match="holds no topology"):
        read_bundle(tmp_path)


@pytest.mark.parametrize("name", ["description.json", "0001.pickle", "0002.pickle", "manifest.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "longer", "empty"])
def test_damage_anywhere_is_noticed(written: Path, name: str, damage: str) -> None:
    path = written / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(data) // 2
        changed = {
            "cut": data[:middle],
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "longer": data + b"x",
            "empty": b"",
        }
        path.write_bytes(changed[damage])
    with pytest.raises(BadBlob):
        read_bundle(written)


@pytest.mark.parametrize(
    "manifest",
    [[], {}, {"files": {}}, {"files": {}, "pickles": {}}, {"files": 3, "pickles": {}}, {"files": {"x": 1}, "pickles": {}}],
)  # fmt: skip
def test_an_invalid_manifest_is_noticed(written: Path, manifest: object) -> None:
    (written / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBlob):
        read_bundle(written)
