"""Finds the user's own modules: those that were loaded when the user's file was imported, and those that the source of these
modules imports.

A module is the user's if its file is not in Python's library, not in a folder of installed packages and not in Squall. A user's
package is shipped whole. Imports inside functions have not run yet, so this module also reads the source of all shipped
modules: if such an import would find a module beside the file, or in a folder that the user added to the path, that module is
shipped too. Imports in code that only runs when the file is a script (`if __name__ == "__main__":`) are ignored. This module
itself imports and runs none of the user's code.
Must not know: archives, options, the receiver of the files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from squall.packages.ours import OURS
from squall.packages.travel_rules import NEEDED
from squall_cli.packing.loading import DEFAULT_NAME, HOME
from topology_api.errors import SquallError

#: Folders with these names contain no files that were written for the topology.
SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages", "dist-packages")
#: Modules that Python imports by itself, from any folder.
NOBODYS = ("__main__", "__mp_main__", "sitecustomize", "usercustomize")


class CannotShip(SquallError):
    """A module or file that a topology needs, or that an option names, cannot be shipped. The text says what helps."""


@dataclass
class Modules:
    """The modules that were found. `files`: place in the archive, where an import finds the module (`pkg/part.py`) -> file."""

    files: dict[str, Path] = field(default_factory=dict)
    #: Top-level names of installed libraries that the user's code imports.
    libraries: set[str] = field(default_factory=set)
    #: Top-level names that functions of the user's code import, but that cannot be found here -> `file.py:line`.
    missing: dict[str, str] = field(default_factory=dict)
    #: Top-level names whose folders were already added.
    packages: set[str] = field(default_factory=set)

    def add(self, place: str, file: Path) -> None:
        """Add a file to ship. Raises CannotShip if a different file has this place."""
        there = self.files.setdefault(place, file)
        if there != file and not os.path.samefile(there, file):
            raise CannotShip(f"{there} and {file} would both be shipped as {place!r}: rename one of them")

    def add_folder(self, place: str, folder: Path) -> bool:
        """Add a whole folder to ship; return whether it has any files. The place "." is the folder of the submitted file."""
        files = dict(files_below(folder))
        for name, file in files.items():
            self.add(name if place == "." else f"{place}/{name}", file)
        return bool(files)


def installed_folders() -> tuple[str, ...]:
    """Return the folders of Python's library and of installed packages."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = os.path.dirname(os.__file__)
    folders += [own, os.path.join(own, "lib-dynload"), *site.getsitepackages(), site.getusersitepackages()]
    return tuple({os.path.join(os.path.realpath(folder), "") for folder in folders if folder})


def is_installed(path: str | Path, folders: tuple[str, ...] = installed_folders()) -> bool:
    """Return whether a file or folder belongs to Python, to an installed package or to Squall."""
    real = os.path.realpath(path)
    foreign = {"site-packages", "dist-packages"}
    if os.path.join(real, "").startswith(folders) or not foreign.isdisjoint(Path(real).parts):
        return True
    home = os.path.join(HOME, "")
    return real.startswith(home) and real[len(home) :].split(os.sep)[0] in OURS


def user_folders() -> list[str]:
    """Return the user's folders on Python's path: the file's folder, PYTHONPATH, and folders that user code has added."""
    folders = map(os.path.abspath, sys.path)
    return [folder for folder in folders if os.path.isdir(folder) and not is_installed(folder)]


def find_modules(
    before: Collection[str],
    also: Iterable[str] = (),
    given: Mapping[str, Path] | None = None,
    entry: str = DEFAULT_NAME,
) -> Modules:
    """Return all of the user's modules. `before`: the names of the modules that were loaded before the user's file; `also`:
    names of modules that are imported later; `given`: files that are shipped in any case; `entry`: which name in the user's
    file is submitted."""
    found = Modules(dict(given or {}))
    for name in sorted(set(sys.modules).difference(before)):
        if name not in NOBODYS:
            add_loaded(found, name)
    folders = user_folders()
    read: dict[str, set[str]] = {}
    look_up(found, also, folders, True)
    while unread := [place for place in found.files if place not in read]:
        for place in unread:
            read[place] = imported_names(parsed(found.files[place])) if place.endswith(".py") else set()
            look_up(found, read[place], folders, False)
    loaded = {file_of(module) for module in list(sys.modules.values())}
    imported = set().union(*read.values())
    for place in [place for place in read if place.endswith(".py") and str(found.files[place]) in loaded]:
        source = found.files[place]
        tree = parsed(source)
        if "/" not in place and place.removesuffix(".py") not in imported:
            tree = without_script(tree, entry)  # only here: in an imported module, every function may be used
        names = imported_names(tree)
        look_up(found, names, folders, True)
        note_missing(found, source.name, tree, names)
    return found


def add_loaded(found: Modules, name: str) -> None:
    """Add a loaded module with its whole package, if the module is the user's."""
    file = file_of(sys.modules.get(name))
    if file is None or is_installed(file):
        return
    path = Path(file)
    if not path.is_file():
        raise CannotShip(
            f"module {name!r} comes from {file}, which is not a file that can be shipped: unpack it into a folder, or"
            " install it on the hosts and name it in --requirements"
        )
    top, *below = name.split(".")
    around = list(path.parents)[: len(below) + 2]
    if top in NEEDED and any(True for folder in around for _ in folder.glob("*.dist-info")):
        return  # one of Squall's own libraries, put there by `pip install --target`
    if top not in found.packages:
        found.packages.add(top)
        for portion in portions_of(sys.modules.get(top)):
            found.add_folder(top, portion)  # a package includes its data files
    inside = ["__init__"] if path.name.startswith("__init__.") else []
    # The module was added with its package already, except in unusual packages.
    found.add("/".join([top, *below, *inside]) + suffix_of(path), path)


def digest_of_parts(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return a digest of files, or of other parts. It covers their contents and their places."""
    found = hashlib.sha256()
    for place, data in parts:
        found.update(f"{place} {len(data)}\n".encode("utf-8", "surrogateescape") + data)
    return f"sha256:{found.hexdigest()}"


def file_of(module: object) -> str | None:
    """Return the file of a module. Return None for any other object in sys.modules: reading its attributes may do anything."""
    if not isinstance(module, ModuleType):
        return None
    file = vars(module).get("__file__")
    return file if isinstance(file, str) else None


def portions_of(module: object) -> list[Path]:
    """Return the folders of a package that belong to the user; return none for a plain module."""
    folders = vars(module).get("__path__") if isinstance(module, ModuleType) else None
    return [Path(folder) for folder in folders or () if os.path.isdir(folder) and not is_installed(folder)]


def suffix_of(path: Path) -> str:
    """Return `.py`, or the whole suffix of an extension module."""
    suffixes = sorted(importlib.machinery.all_suffixes(), key=len, reverse=True)
    return next((suffix for suffix in suffixes if path.name.endswith(suffix)), path.suffix)


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name below the folder, file) for all files to ship: all except hidden files, caches and environments."""
    above: set[str] = set()  # links may form circles
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in above:
            folders.clear()
            continue
        above.add(real)
        folders[:] = sorted(name for name in folders if is_worth_shipping(root, name))
        for name in sorted(names):
            file = Path(root, name)
            if not name.startswith(".") and file.is_file():
                yield file.relative_to(folder).as_posix(), file


def is_worth_shipping(root: str, name: str) -> bool:
    skipped = name.startswith(".") or name in SKIPPED_FOLDERS or name.endswith((".egg-info", ".dist-info"))
    return not skipped and not os.path.exists(os.path.join(root, name, "pyvenv.cfg"))


# Imports that have not run


def parsed(source: Path) -> ast.Module:
    """Return the parsed code of a file; an empty module if the file is not Python."""
    try:
        return ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])  # for example a template, or a test's bad example, which is never imported


def imported_names(tree: ast.Module) -> set[str]:
    """Return the top-level names of all imports in a file."""
    return {name for node in ast.walk(tree) for name in top_names(node)}


def top_names(node: ast.AST) -> list[str]:
    """Return the top-level names that an import statement imports; none for other code and for relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.partition(".")[0]]
    return []


def without_script(tree: ast.Module, entry: str) -> ast.Module:
    """Return the code of a file without its `if __name__ == "__main__":`, and without functions that only this block uses.
    The function `entry` is kept: Squall calls it."""
    script = [node for node in tree.body if is_main_block(node)]
    rest = [node for node in tree.body if not is_main_block(node)]
    while script:
        named = mentioned(script)
        own = [
            node
            for node in rest
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name in named
            and node.name != entry
            and not node.decorator_list  # a decorator may register it for use elsewhere
            and node.name not in mentioned(other for other in rest if other is not node)
        ]
        if not own:
            break
        script += own
        rest = [node for node in rest if node not in own]
    return ast.Module(rest, tree.type_ignores)


def is_main_block(node: ast.stmt) -> bool:
    """Return whether this is `if __name__ == "__main__":`."""
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Compare):
        return False
    sides = {ast.unparse(side) for side in (node.test.left, *node.test.comparators)}
    return isinstance(node.test.ops[0], ast.Eq) and sides == {"__name__", "'__main__'"}


def mentioned(body: Iterable[ast.AST]) -> set[str]:
    """Return all names in the code, and all strings, since a string may be a name."""
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names


def note_missing(found: Modules, file: str, tree: ast.Module, names: Collection[str]) -> None:
    """Record the imports inside functions of an imported file that find no module on this machine: a call of such a function
    would raise. Imports outside of functions have already run; if such an import failed, the file has handled the failure."""
    there = {place.partition("/")[0].partition(".")[0] for place in found.files}
    lost = {name for name in names if name not in there and name not in found.libraries and is_nowhere(name)}
    if not lost:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, line in unguarded_imports(node.body):
                if name in lost:
                    found.missing.setdefault(name, f"{file}:{line}")


def is_nowhere(name: str) -> bool:
    """Whether an import of this top-level name would find nothing."""
    if name in sys.modules or name in OURS or name in sys.stdlib_module_names:
        return False
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError, AttributeError):  # foreign finders may raise these
        return False


def unguarded_imports(body: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield (top-level name, line) of the imports in a body, except imports inside a `try` that handles their failure."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((name, node.lineno) for name in top_names(node))
        elif isinstance(node, ast.Try) and node.handlers:
            yield from unguarded_imports([*node.handlers, *node.orelse, *node.finalbody])
        else:
            yield from unguarded_imports(ast.iter_child_nodes(node))


def look_up(found: Modules, names: Iterable[str], folders: list[str], in_use: bool) -> None:
    """Add the modules that imports of these names would find in the user's folders. If the importing code is `in_use`, also
    note the libraries that it imports. Code that is shipped only because its package is shipped, such as the package's tests,
    is not in use."""
    there = {place.partition("/")[0].partition(".")[0] for place in found.files}
    for name in sorted(set(names)):
        if name in there or name in OURS or name in sys.stdlib_module_names:
            continue
        loaded = file_of(sys.modules.get(name)) or next(iter(portions_of(sys.modules.get(name))), None)
        if loaded is not None:
            if in_use and is_installed(loaded):
                found.libraries.add(name)
            continue
        spec = PathFinder.find_spec(name, folders)
        if spec is None or not add_spec(found, name, spec):
            installed = PathFinder.find_spec(name, [folder for folder in sys.path if folder not in folders])
            if in_use and installed is not None and installed.origin is not None:
                found.libraries.add(name)


def add_spec(found: Modules, name: str, spec: importlib.machinery.ModuleSpec) -> bool:
    """Add the module that an import would find, if the module is the user's; return whether it was added."""
    portions = [Path(folder) for folder in spec.submodule_search_locations or () if not is_installed(folder)]
    if spec.origin is not None and not portions and spec.has_location and not is_installed(spec.origin):
        found.add(name + suffix_of(Path(spec.origin)), Path(spec.origin))
        return True
    if spec.origin is None:  # a folder without __init__.py is a package only if it has modules
        portions = [folder for folder in portions if any(folder.rglob("*.py"))]
    for folder in portions:
        found.add_folder(name, folder)
    return bool(portions)
