"""Chooses the core: the compiled modules, or the same modules as plain Python. The choice is made once, before their first
import.

The compiled core runs only if it was built from exactly the installed sources. To check this, the build leaves a stamp beside
the extensions, with a checksum of each source. If a source differs (after an edit in an editable installation, or an
interrupted update), all modules run as plain Python; compiled and plain modules are never mixed. `SQUALL_PURE=1` selects plain
Python.
Must not know: what the modules do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Final
from zlib import crc32

#: The modules on a tuple's path. All are compiled, or none.
HOT: Final = (
    "topology_api.tuples",
    "topology_api.state_guard",
    "squall.transport.id_columns",
    "squall.transport.row_columns",
    "squall.transport.frames",
    "worker.routing.text_hash",
    "worker.tracking.ids",
    "worker.tracking.ack_batch",
    "worker.routing.outbox",
    "worker.routing.router",
    "worker.tracking.timing_wheel",
    "worker.tracking.tracker",
    "worker.state.table",
    "worker.state.expiry",
    "worker.state.codecs",
    "worker.state.values",
    "worker.state.plain_values",
    "worker.state.lists",
    "worker.state.maps",
    "worker.tasks.emitter",
    "worker.tasks.holding",
    "squall.reports.histogram",
    "worker.tasks.work_time",
    "worker.tasks.task",
    "worker.tasks.bolt",
    "worker.tasks.stateful_bolt",
    "worker.tasks.epoch_emitter",
    "worker.tasks.spout_wait",
    "worker.tasks.spout",
    "squall.transport.credit",
    "worker.loop.task_table",
    "worker.loop.links",
    "worker.loop.ack_router",
    "worker.loop.worker",
)
#: The extension with Cython's own part of all others, mostly that for memory views: compiled once, not in each of them.
SHARED: Final = "topology_api._cython_shared"
_PACKAGES: Final = frozenset(module.partition(".")[0] for module in HOT)
#: How the extensions for this Python end. `sysconfig` knows it too, but loads all settings of Python's own build.
SUFFIX: Final = EXTENSION_SUFFIXES[0]
ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Choice:
    """Which core runs. `why`: why it is not the compiled core; "" if it is."""

    compiled: bool
    why: str = ""

    def __str__(self) -> str:
        return "compiled" if self.compiled else f"plain ({self.why})"


def source_path(module: str, ending: str = ".py", root: str = ROOT) -> str:
    """Return the path of a module's file with this ending."""
    return os.path.join(root, *module.split(".")) + ending


def stamp_path(root: str = ROOT) -> str:
    """Return the path of the stamp of the extensions for this Python."""
    return os.path.join(root, "topology_api", f"core{SUFFIX}.stamp")


def fingerprint(root: str = ROOT) -> str:
    """Return the text of the stamp for extensions built from these sources."""
    lines = []
    for module in HOT:
        for ending in (".py", ".pxd"):
            try:
                with open(source_path(module, ending, root), "rb") as file:
                    lines.append(f"{module}{ending} {crc32(file.read()):08x}\n")
            except FileNotFoundError:  # a module need not have a .pxd file
                continue
    return "".join(lines)


def choose(root: str = ROOT, pure: str = "") -> Choice:
    """Choose the core for the installation in the folder `root`. pure: the value of SQUALL_PURE."""
    if pure not in ("", "0"):
        return Choice(False, f"SQUALL_PURE is {pure}")
    try:
        with open(stamp_path(root), encoding="ascii") as file:
            stamp = file.read()
    except (OSError, UnicodeDecodeError):
        return Choice(False, "not compiled for this Python; see docs/compiled-core.md")
    if missing := [module for module in HOT if not os.path.exists(source_path(module, SUFFIX, root))]:
        return Choice(False, f"the extension of {missing[0]} is missing: install again")
    built, here = set(stamp.splitlines()), set(fingerprint(root).splitlines())
    if built != here:
        changed = sorted(built ^ here)[0].split(" ")[0]
        path = changed.replace(".", "/", changed.count(".") - 1)
        return Choice(False, f"{path} was changed since it was compiled: install again")
    return Choice(True)


class PlainSource:
    """Makes Python import a module's source although Python would prefer the extension beside the source. This applies to the
    hot modules, and to modules that were hot when the extensions were built.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _PACKAGES or not os.path.exists(source_path(fullname, SUFFIX)):
            return None
        return spec_from_file_location(fullname, source_path(fullname))


CHOICE: Final = choose(pure=os.environ.get("SQUALL_PURE", ""))
if not CHOICE.compiled:
    sys.meta_path.insert(0, PlainSource())
#: The paths of the compiled modules in tracebacks. These are the paths that the compiler got, not those of the installation.
COMPILED_FILES: Final = frozenset(module.replace(".", "/") + ".py" for module in HOT if CHOICE.compiled)
