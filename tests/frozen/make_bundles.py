"""Submissions and bundles of a topology, to freeze: its description, the body of the submission, bundles, archives.

Must not know: how they are read.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.frozen import current_api
from tests.frozen.bundle_readers import SAID, archive_values, built, reader_of_body, reader_of_folder
from tests.frozen.current_code import described
from tests.frozen.frozen_data import as_text
from tests.frozen.make_store import small_chunks, topology
from tests.frozen.mutations import tabulate
from tests.frozen.old_code import old
from tests.frozen.plain_values import plain
from topology_api import Topology


def small() -> Topology:
    """A topology of two components."""
    module = old("topology_api.topology")
    spout = module.ComponentSpec("lines", "spout", 1, {"a": 1}, {"default": module.StreamSpec(("line",))})
    reads = module.Subscription("lines", "default", module.GroupingSpec("fields", ("line",)))
    bolt = module.ComponentSpec("count", "bolt", 2, {}, {}, (reads,))
    found: Topology = module.Topology(
        "small", {"topology.workers": 1}, (spout, bolt), {"lines": b"1", "count": b"2"}
    )
    return found


def frozen_bundles() -> dict[str, Any]:
    """Descriptions, bodies, and folders of bundles; with the values read from them."""
    found: dict[str, Any] = {}
    for name, made in {"small": small(), "with all": topology(), "built": built()}.items():
        description = json.dumps(made.describe()).encode()
        pickles = {each: base64.b64encode(data).decode() for each, data in made.pickles.items()}
        read = plain(current_api.read_description(description, made.pickles))
        found[name] = {
            "description": description.decode(),
            "pickles": pickles,
            "told": read,
            "bodies": {each: _body(made, said) for each, said in SAID.items()},
            "folder": _folder(made),
        }
    return found


def _body(made: Topology, said: dict[str, Any]) -> dict[str, Any]:
    body = current_api.body_of(made, **said)
    if "lines" not in body["pickles"]:
        body["component_confs"] = {}
    return {"body": body, "told": plain(current_api.read_body(json.dumps(body).encode()))}


def _folder(made: Topology) -> dict[str, str]:
    """The folder of a worker's bundle: its files as texts."""
    store, blobs = old("squall.cluster.memory").InMemoryStore(), old("squall.cluster.blobs")
    with TemporaryDirectory() as folder, small_chunks():
        blobs.put_bundle(store, "a", made)
        blobs.write_bundle(store, "a", folder)
        assert plain(current_api.read_bundle(Path(folder))) == plain(described(made))
        return {path.name: as_text(path.read_bytes()) for path in sorted(Path(folder).iterdir())}


def mutated_bundles() -> dict[str, Any]:
    """The outcomes of invalid descriptions, bodies and manifests."""
    made = small()
    description = json.dumps(made.describe()).encode()
    files = {name: text.encode("latin-1") for name, text in _folder(made).items()}
    body = {**current_api.body_of(made, **SAID["least"]), "squall": "0", "python": "3.11", "cloudpickle": "3"}
    body["description"] = {}  # those are tried separately
    body["wait_secs"], body["conf"] = 1.5, {"topology.workers": 1}
    return {
        "description": tabulate(lambda data: current_api.read_description(data, made.pickles), description),
        "manifest of a bundle": tabulate(reader_of_folder(files), files["manifest.json"]),
        "submission": tabulate(reader_of_body(description), json.dumps(body).encode()),
    }


# Archives


def frozen_archives() -> dict[str, Any]:
    """Archives, valid and invalid: their bytes, and their contents."""
    found = {}
    for name, data in _archives().items():
        found[name] = {"data": base64.b64encode(data).decode(), "told": archive_values(data)}
    return found


def _archives() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        program = Path(folder) / "run.sh"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        target = Path(folder) / "a.tar.gz"
        files = {
            "words.py": b"WORD = 1\n",
            "data/wörter.txt": b"\xff\x00",
            "empty": b"",
            "bin/run.sh": program,
        }
        files["x" * 200 + "/" + "y" * 90] = b"a long name"
        old("squall.archives").pack(files, target)
        sound = target.read_bytes()
        old("squall.archives").pack({}, target)
        empty = target.read_bytes()
    made = {name: _tar(*members) for name, members in _WRONG.items()}
    return {
        "sound": sound, "empty": empty, **made, "no archive": b"no archive", "nothing": b"", "cut": sound[:-20],
        "changed": sound[:60] + bytes([sound[60] ^ 1]) + sound[61:], "twice": sound + sound, "with more": sound + b"more",
    }  # fmt: skip


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"x", **fields: Any
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


_WRONG: Final[dict[str, tuple[tuple[tarfile.TarInfo, bytes], ...]]] = {
    "one file": (_member("a"),),
    "with an owner and a time": (_member("a", uid=1, mtime=5, mode=0o4777),),
    "absolute": (_member("/a"),),
    "above": (_member("../a"),),
    "above in the middle": (_member("a/../b"),),
    "a dot": (_member("./a"),),
    "a folder": (_member("a", tarfile.DIRTYPE), _member("a/b")),
    "a link": (_member("a", tarfile.SYMTYPE, linkname="/etc/passwd"),),
    "a hard link": (_member("b"), _member("a", tarfile.LNKTYPE, linkname="b")),
    "a device": (_member("a", tarfile.CHRTYPE),),
    "a pipe": (_member("a", tarfile.FIFOTYPE),),
    "twice the same": (_member("a"), _member("a")),
    "the same but for case": (_member("a"), _member("A")),
    "a file and a folder": (_member("a"), _member("a/b")),
    "a folder and a file": (_member("a/b"), _member("a")),
    "a control character": (_member("a\nb"),),
    "a backslash": (_member("a\\b"),),
    "a colon": (_member("c:a"),),
    "no name": (_member(""),),
    "too large": (_member("a", data=bytes(10_000_001)),),
    "hidden": (_member(".a"),),
    "ends in a slash": (_member("a/"),),
    "two slashes": (_member("a//b"),),
}  # fmt: skip


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()
