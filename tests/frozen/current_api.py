"""The present code of the product, by the names of the fixtures: user imports, pickles, submissions.

See `current_code.py`. Must not know: the contents of the fixtures.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from nimbus.submission.parse import read_submission
from squall.cluster import blobs
from squall.packages import archives
from squall_cli.packing.submission import request_body
from squall_io.spark import CommittedRows, HdfsLines, SparkSink
from tests.frozen.current_code import described
from topology_api import Topology
from topology_api.packing import pack

PACKAGES: Final = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip
ROOT: Final = Path(__file__).resolve().parents[2]
#: A class of a module, and the classes above it.
_CLASS: Final = re.compile(r"^class (\w+)\(([^)]*)\):", re.MULTILINE)
#: The modules that users import, each of which lists the permitted names in `__all__`.
PUBLIC: Final = (
    "topology_api", "local_cluster", "local_cluster.testing", "squall_io.files", "squall_io.spark",
)  # fmt: skip


def packed(component: object) -> bytes:
    """A component as `build()` packs it."""
    return pack(component, "a component")


def public_names() -> dict[str, Any]:
    """All names that users import, as `module:name`."""
    modules = {name: importlib.import_module(name) for name in PUBLIC}
    return {
        f"{name}:{each}": getattr(module, each) for name, module in modules.items() for each in module.__all__
    }


def component_values(component: Any) -> dict[str, Any]:
    """The user's settings of one of our components."""
    if isinstance(component, SparkSink):
        told = component._settings
        return {
            "path": told.path,
            "schema": str(told.schema),
            "format": told.file_format,
            "partition_by": told.partition_by,
            "compression": told.compression,
            "master": told.master,
            "conf": told.conf,
            "batch": (component.batch_size, component.batch_interval, component.threaded),
        }
    if isinstance(component, (HdfsLines, CommittedRows)):
        return {name: value for name, value in vars(component).items() if name != "_squall_task"}
    return dict(vars(component))


# Errors


def error_classes() -> dict[str, list[str]]:
    """Every error of ours as `module:name`: its name, and those of all its base classes. Read from the sources, since importing
    all of them needs Spark, and time.
    """
    classes: list[tuple[str, str, list[str]]] = []
    for path in sorted(each for package in PACKAGES for each in (ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, above in _CLASS.findall(path.read_text(encoding="utf-8")):
            classes.append((module, name, [base.strip().rpartition(".")[2] for base in above.split(",")]))
    kinds: dict[str, set[str]] = {"SquallError": set()}
    while True:
        found = [(name, bases) for _, name, bases in classes if kinds.keys() & set(bases)]
        above = {
            name: kinds.get(name, set()).union(bases, *(kinds.get(base, ()) for base in bases))
            for name, bases in found
        }
        if above.items() <= kinds.items():
            break
        kinds |= above
    return {
        f"{module}:{name}": [name, *sorted(kinds[name] & kinds.keys())]
        for module, name, bases in classes
        if name == "SquallError" or kinds.keys() & set(bases)
    }


# Submissions


def read_description(data: bytes, pickles: Mapping[str, bytes]) -> object:
    """A topology by its description."""
    return described(Topology.from_description(json.loads(data), pickles))


def read_body(data: bytes) -> object:
    """A submission as Nimbus accepts it."""
    found = read_submission(json.loads(data))
    return {**structs.asdict(found), "topology": described(found.topology)}


def body_of(topology: Topology, **said: Any) -> dict[str, Any]:
    """A submission as the command sends it."""
    return request_body(topology, submission="a key", **said)


def read_bundle(folder: Path) -> object:
    """The topology in a worker's bundle."""
    return described(blobs.read_bundle(folder))


def archive_in(path: Path, limit: int = 10_000_000, unpacked: int = 10_000_000) -> list[list[Any]]:
    """The members of an archive."""
    return [[each.name, each.size, each.executable] for each in archives.check(path, limit, unpacked).members]


def unpacked(path: Path, folder: Path) -> dict[str, tuple[int, bytes]]:
    """The files of an unpacked archive: mode and bytes."""
    archives.unpack(path, folder, 10_000_000, 10_000_000)
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    return {
        each.relative_to(folder).as_posix(): (each.stat().st_mode & 0o777, each.read_bytes())
        for each in files
    }
