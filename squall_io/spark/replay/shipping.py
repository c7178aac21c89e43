"""Ships the user's own modules to Spark's workers, since pickles of components refer to classes by name.

The names in a topology's pickles lead to the files that the driver imported. All other modules that the driver has imported
from the same folders are shipped too, since they may import each other. A module that has not been imported yet is
not found; the caller must pass its file.
Must not know: what the shipped modules are used for.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import pickletools
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from topology_api import Topology
from worker.errors.reports import is_ours, is_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The names of the archives that each session was given.
_given: Final[WeakKeyDictionary[SparkSession, set[str]]] = WeakKeyDictionary()


def modules_of(topology: Topology) -> dict[str, Path]:
    """Return the user's modules that the topology's components need: place in an archive -> file."""
    customs = (entry.grouping.custom for spec in topology.components for entry in spec.inputs)
    pickles = [*topology.pickles.values(), *filter(None, customs)]
    named = {name for pickle in pickles for name in names_in(pickle)}
    roots = {root for name in named if (root := root_of(name)) is not None}
    return {
        place: Path(sys.modules[name].__file__ or "")
        for name in list(sys.modules)
        if (place := place_of(name)) is not None and root_of(name) in roots
    }


def names_in(pickle: bytes) -> set[str]:
    """Return the names of modules in a pickle: each of its strings that is the name of an imported module."""
    texts = (argument for _, argument, _ in pickletools.genops(pickle) if isinstance(argument, str))
    # Older protocols write "module name" as one string.
    return {word for text in texts for word in (text, text.partition(" ")[0]) if word in sys.modules}


def file_of(name: str) -> str | None:
    """Return the file of a user's module. Return None for a module without a file, and for a module that is already installed
    for Spark's workers: a module of Squall, of Python, or of a package.
    """
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or not isinstance(file, str) or not file.endswith(".py"):
        return None
    real = os.path.realpath(file)
    known = (each for each in (file, real) if is_ours(each) or not is_own(each))
    return None if any(known) else real


def place_of(name: str) -> str | None:
    """Return the path that a user's module must have in an archive so that it can be imported from there."""
    if (file := file_of(name)) is None:
        return None
    parts = name.split(".")
    if os.path.basename(file) == "__init__.py":
        parts.append("__init__")
    return "/".join(parts) + ".py"


def root_of(name: str) -> str | None:
    """Return the folder from which a user's module is imported. Return None if the module is not the user's, or if it was
    loaded by hand under a name that cannot be imported.
    """
    file, place = file_of(name), place_of(name)
    if file is None or place is None or not file.endswith(os.sep + place.replace("/", os.sep)):
        return None
    return file[: -len(place) - 1]


def ship(spark: SparkSession, modules: Mapping[str, Path]) -> None:
    """Give a session's workers these modules, unless the workers already have them."""
    if not modules:
        return
    data = archive_of(modules)
    name = f"squall-replay-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    given = _given.setdefault(spark, set())
    if name not in given:
        archive = _archives() / name
        archive.write_bytes(data)
        spark.addArtifacts(str(archive), pyfile=True)
        given.add(name)


@cache
def _archives() -> Path:
    """Return this process's folder of archives. Spark fetches them when its workers start, so they are kept until the process
    ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="squall-replay-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def archive_of(modules: Mapping[str, Path]) -> bytes:
    """Return modules as an archive that Python imports from; the same modules give the same bytes."""
    folders = {str(above) for place in modules for above in PurePosixPath(place).parents} - {"."}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in sorted(folders):  # a folder without its own entry in the archive is not a package
            archive.writestr(zipfile.ZipInfo(f"{folder}/"), b"")
        for place in sorted(modules):
            archive.writestr(zipfile.ZipInfo(place), modules[place].read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()
