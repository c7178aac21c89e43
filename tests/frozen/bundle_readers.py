"""Readers of bundles, submissions and archives for comparison, and a topology that is built again each time.

Must not know: the earlier results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.frozen import current_api
from tests.frozen.plain_values import plain
from tests.frozen.user_components import ByLength, Count, Gather, Words
from topology_api import Topology, TopologyBuilder

#: The two submissions: with only the required fields, and with all fields.
SAID: Final[dict[str, dict[str, Any]]] = {
    "least": {"conf": {}, "component_confs": {}},
    "full": {
        "conf": {"topology.workers": 2, "db.password": "x", "mine": [1, {"a": None}]},
        "component_confs": {"lines": {"topology.max.spout.pending": 7}},
        "active": False,
        "replace": True,
        "wait_secs": 2.5,
    },
}


def built() -> Topology:
    """A topology of users' components, as made by the builder."""
    builder = TopologyBuilder("built", {"topology.workers": 2})
    builder.set_spout("lines", Words(["to", "be"]), parallelism=2)
    counts: Any = builder.set_bolt("count", Count(), parallelism=3)
    counts.fields_grouping("lines", "word")
    counts.direct_grouping("lines", stream="straight")
    gather: Any = builder.set_bolt("gather", Gather())
    gather.custom_grouping("count", ByLength(3)).local_or_shuffle_grouping("lines")
    return builder.build()


def reader_of_folder(files: dict[str, bytes]) -> Callable[[bytes], object]:
    """A reader of a bundle by its manifest, with the other files unchanged."""

    def read(manifest: bytes) -> object:
        with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            for name, data in {**files, "manifest.json": manifest}.items():
                (Path(folder) / name).write_bytes(data)
            return current_api.read_bundle(Path(folder))

    return read


def reader_of_body(description: bytes) -> Callable[[bytes], object]:
    """A reader of the body of a submission; an empty description in it means this one."""

    def read(data: bytes) -> object:
        body = json.loads(data)
        if isinstance(body, dict) and body.get("description") == {}:
            body["description"] = json.loads(description)
        return current_api.read_body(json.dumps(body).encode())

    return read


def archive_values(data: bytes) -> Any:
    """The members of an archive, or the error's name."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "archive.tar.gz"
        path.write_bytes(data)
        try:
            members = plain(current_api.archive_in(path))
            return {"members": members, "files": plain(current_api.unpacked(path, Path(folder) / "unpacked"))}
        except Exception as error:
            return type(error).__name__
