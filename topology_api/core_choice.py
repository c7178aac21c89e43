"""Which core runs: the compiled modules or the same ones as plain Python. Decided once, before the first of them is imported.

The compiled core runs if it was built from the very sources that lie here: beside the extensions lies a stamp, a line with a
checksum for each source. One that differs (an editable installation whose sources were edited since, an update that was cut
off) means plain Python for all of them, never a mixture. `SQUALL_PURE=1` asks for plain Python.
Must not know: what the modules do.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Final
from zlib import crc32

#: The modules on the way of a tuple. All are compiled, or none.
HOT: Final = (
    "topology_api.tuples",
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
    "worker.tasks.emitter",
    "worker.tasks.task",
    "worker.tasks.bolt",
    "worker.tasks.spout_wait",
    "worker.tasks.spout",
    "squall.transport.credit",
    "worker.loop.task_table",
    "worker.loop.links",
    "worker.loop.ack_router",
    "worker.loop.worker",
)
_PACKAGES: Final = frozenset(module.partition(".")[0] for module in HOT)
ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Choice:
    """Which core runs. `why`: why it is not the compiled one; "" if it is."""

    compiled: bool
    why: str = ""

    def __str__(self) -> str:
        return "compiled" if self.compiled else f"plain ({self.why})"


def source_path(module: str, ending: str = ".py", root: str = ROOT) -> str:
    """A file of a module."""
    return os.path.join(root, *module.split(".")) + ending


def stamp_path(root: str = ROOT) -> str:
    """The stamp of the extensions for this Python."""
    return os.path.join(root, "topology_api", f"core{sysconfig.get_config_var('EXT_SUFFIX')}.stamp")


def fingerprint(root: str = ROOT) -> str:
    """What the stamp of extensions that were built from these sources holds."""
    lines = []
    for module in HOT:
        for ending in (".py", ".pxd"):
            try:
                with open(source_path(module, ending, root), "rb") as file:
                    lines.append(f"{module}{ending} {crc32(file.read()):08x}\n")
            except FileNotFoundError:  # not every module has types of its own
                continue
    return "".join(lines)


def choose(root: str = ROOT, pure: str = "") -> Choice:
    """The core to run from a folder; `pure`: the value of SQUALL_PURE."""
    if pure not in ("", "0"):
        return Choice(False, f"SQUALL_PURE is {pure}")
    try:
        with open(stamp_path(root), encoding="ascii") as file:
            stamp = file.read()
    except (OSError, UnicodeDecodeError):
        return Choice(False, "not compiled for this Python; see docs/compiled-core.md")
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    if missing := [module for module in HOT if not os.path.exists(source_path(module, suffix, root))]:
        return Choice(False, f"the extension of {missing[0]} is missing: install again")
    built, here = set(stamp.splitlines()), set(fingerprint(root).splitlines())
    if built != here:
        changed = sorted(built ^ here)[0].split(" ")[0]
        path = changed.replace(".", "/", changed.count(".") - 1)
        return Choice(False, f"{path} was changed since it was compiled: install again")
    return Choice(True)


class PlainSource(MetaPathFinder):
    """Finds the sources of modules that have extensions beside them, which Python prefers: of the hot ones, and of those that
    were hot when this was compiled."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
        if fullname.partition(".")[0] not in _PACKAGES or not os.path.exists(source_path(fullname, suffix)):
            return None
        return spec_from_file_location(fullname, source_path(fullname))


CHOICE: Final = choose(pure=os.environ.get("SQUALL_PURE", ""))
if not CHOICE.compiled:
    sys.meta_path.insert(0, PlainSource())
#: What tracebacks name the files of the compiled modules: as given to the compiler, not as installed.
COMPILED_FILES: Final = frozenset(module.replace(".", "/") + ".py" for module in HOT if CHOICE.compiled)
