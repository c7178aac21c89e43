"""Blobs: big values in a store of small values, in chunks and checked by digest. A topology's bundle consists of blobs.

The store of a cluster accepts values of about a megabyte at most, so a blob is cut into chunks below its path, and its manifest
(size, number of chunks, digest) is written last: a blob is complete, or it does not exist. A bundle is the part of a topology
that `submit` puts into the store: its typed description and one pickle per component. This module only carries bundles and
never unpickles. A supervisor writes a bundle into a directory for its workers:

```
<directory>/
  manifest.json      the file of each component's pickle; size and digest of each file; written last
  description.json
  0001.pickle ...
```
Must not know: who reads a blob, when it may be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from squall.atomic_files import sync_tree, write_bytes
from squall.cluster import paths
from squall.cluster.store import Store
from squall.file_digests import checked_digests, damage_in
from squall.guarded_files import DamagedFile, read_guarded
from topology_api.errors import InvalidTopology, SquallError
from topology_api.topology import Topology

#: Half of ZooKeeper's default limit for one message, which leaves room for the path and the framing.
CHUNK_BYTES = 512 * 1024


MANIFEST: Final = "manifest.json"
DESCRIPTION: Final = "description.json"
#: The most bytes of the manifest in a directory: a line for each component.
MOST_MANIFEST: Final = 16 * 1024 * 1024


class BadBlob(SquallError):
    """A blob that is missing or damaged."""


def put_blob(store: Store, path: str, data: bytes) -> None:
    """Write a blob to an unused path; readers see it only when it is complete."""
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    for number, piece in enumerate(pieces):
        store.put(_chunk(path, number), piece)
    manifest = {"size": len(data), "chunks": len(pieces), "sha256": hashlib.sha256(data).hexdigest()}
    store.create(path, json.dumps(manifest).encode())


def get_blob(store: Store, path: str) -> bytes:
    """Return a blob's bytes; raise `BadBlob` if it is missing or damaged."""
    if (found := store.get(path)) is None:
        raise BadBlob(f"there is no blob at {path}: it was never written, or its topology is gone")
    try:
        manifest = json.loads(found[0])
        chunks, size, digest = int(manifest["chunks"]), int(manifest["size"]), str(manifest["sha256"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadBlob(f"{path} is not a blob: {found[0][:80]!r}") from error
    pieces = []
    for number in range(chunks):
        if (piece := store.get(_chunk(path, number))) is None:
            raise BadBlob(f"the blob at {path} lacks chunk {number} of {chunks}")
        pieces.append(piece[0])
    data = b"".join(pieces)
    _check(f"the blob at {path}", data, size, digest)
    return data


def put_bundle(store: Store, topology_id: str, topology: Topology) -> None:
    """Write a topology's bundle: its description and its pickles."""
    for component, pickle in topology.pickles.items():
        put_blob(store, paths.pickle(topology_id, component), pickle)
    put_blob(store, paths.description(topology_id), json.dumps(topology.describe()).encode())


def get_description(store: Store, topology_id: str) -> dict[str, Any]:
    """Return the typed description from a topology's bundle."""
    return _object(get_blob(store, paths.description(topology_id)), f"the description of {topology_id}")


def get_bundle(store: Store, topology_id: str) -> Topology:
    """Return the topology of a bundle, its components still pickled."""
    return Topology.from_description(get_description(store, topology_id), _pickles(store, topology_id))


def write_bundle(store: Store, topology_id: str, directory: Path | str) -> None:
    """Write a topology's bundle into an existing directory, the manifest last. The bundle survives a power failure. A damaged
    bundle is overwritten file by file, so that a worker that is just starting finds each file complete. Raises `BadBlob`, the
    errors of the store, and `OSError`."""
    folder = Path(directory)
    contents: dict[str, bytes] = {DESCRIPTION: get_blob(store, paths.description(topology_id))}
    files: dict[str, str] = {}
    for number, (component, pickle) in enumerate(sorted(_pickles(store, topology_id).items()), 1):
        files[component] = f"{number:04}.pickle"
        contents[files[component]] = pickle
    for name, data in contents.items():
        write_bytes(folder, name, data)
    sync_tree(folder)
    manifest = {
        "files": {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in contents.items()},
        "pickles": files,
    }
    write_bytes(folder, MANIFEST, json.dumps(manifest).encode(), durable=True)


def damage_of_bundle(directory: Path | str) -> str | None:
    """Return what is wrong with a bundle in a directory; None: it is complete, and every file is as it was written. Raises
    `OSError` if this process can open no file."""
    path = Path(directory) / MANIFEST
    try:
        data = read_guarded(path, MOST_MANIFEST)
        if data is None:
            return f"{path} is missing"
        return damage_in(Path(directory), checked_digests(json.loads(data)["files"]))
    except (DamagedFile, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"{path} is damaged: {error}"


def read_bundle(directory: Path | str) -> Topology:
    """Return the topology in a directory that `write_bundle` filled, its components still pickled; raise `BadBlob`."""
    folder = Path(directory)
    try:
        manifest = _object((folder / MANIFEST).read_bytes(), f"{folder}/{MANIFEST}")
        contents = {name: (folder / name).read_bytes() for name in manifest["files"]}
        for name, (size, digest) in manifest["files"].items():
            _check(str(folder / name), contents[name], size, digest)
        pickles = {component: contents[name] for component, name in manifest["pickles"].items()}
        description = _object(contents[DESCRIPTION], f"{folder}/{DESCRIPTION}")
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBlob(f"{folder} holds no topology: {error!r}") from error
    try:
        return Topology.from_description(description, pickles)
    except InvalidTopology as error:
        raise BadBlob(f"{folder} holds no sound topology: {error}") from error


def _pickles(store: Store, topology_id: str) -> Mapping[str, bytes]:
    names = map(paths.unquoted, store.children(paths.pickles(topology_id)))
    return {name: get_blob(store, paths.pickle(topology_id, name)) for name in names}


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadBlob(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadBlob(f"{what} is not an object: {value!r:.80}")
    return value


def _check(what: str, data: bytes, size: int, digest: str) -> None:
    if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
        raise BadBlob(f"{what} is damaged: its {len(data)} bytes are not the {size} that were written")


def _chunk(path: str, number: int) -> str:
    return f"{path}/{number:04}"
