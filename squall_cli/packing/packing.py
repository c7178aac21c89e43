"""Collects and packs the files that are shipped with a topology: its modules, the files of --include and --resource,
requirements and wheels.

    archive of the code                               on the worker's PYTHONPATH, before everything else
        word_count.py                                 the file that was submitted
        my_helpers.py, my_package/...                 the user's modules that it imports, and those of --include
        words.txt                                     --resource: beside the file, so that Path(__file__) leads there

A file that would hide a module of Squall, of Squall's dependencies or of Python's library is refused.
Must not know: Nimbus, how a package is sent.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from squall.packages.archives import BadArchive, digest_of, pack
from squall.packages.tar_members import name_problem
from squall.packages.travel_rules import problem_of_requirements, problems_of_code
from squall_cli.packing import user_modules
from squall_cli.packing.loading import SourceName
from squall_cli.packing.user_modules import CannotShip, Modules
from squall_cli.terminal.formats import plural
from topology_api.wording import listed

CODE, WHEELS, REQUIREMENTS = "code", "wheels", "requirements"
HOOKS: Final = "topology.auto.task.hooks"


class Resource(msgspec.Struct, frozen=True):
    """A data file or folder, and its name beside the submitted file (None: its own name)."""

    path: Path
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Parse `PATH` or `PATH=NAME`; if a path that contains `=` exists, the text is a PATH. Raises CannotShip for a missing
        file."""
        path, equals, name = text.rpartition("=")
        named = bool(equals) and not os.path.exists(text)
        if not named:
            path = text
        if not os.path.exists(path):
            raise CannotShip(f"--resource {path}: there is no such file or folder")
        if not named:
            return cls(Path(os.path.abspath(path)))
        name = name.rstrip("/") or name
        problem = (
            name_problem(name) if name else "there is no name after the '=': write PATH=NAME, or PATH alone"
        )
        if problem is not None and name != ".":
            raise CannotShip(
                f"--resource {text}: NAME must be a place beside the topology's file, but {problem}"
            )
        return cls(Path(os.path.abspath(path)), name)


class Package(msgspec.Struct, frozen=True):
    """The files that are shipped besides the pickles. `code`: path in the archive -> file."""

    code: Mapping[str, Path] = msgspec.field(default_factory=dict)
    requirements: Path | None = None
    wheels: tuple[Path, ...] = ()
    #: Installed libraries that the code imports; these are not shipped.
    libraries: tuple[str, ...] = ()
    #: Modules that the code imports, but that cannot be found here -> `file.py:line`.
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def summary(self) -> str:
        """`2 modules, 1 other file, 3 wheels, requirements`."""
        modules = sum(place.endswith(tuple(importlib.machinery.all_suffixes())) for place in self.code)
        others = len(self.code) - modules
        parts = [plural(modules, "module")]
        parts += [plural(others, "other file")] if others else []
        parts += [plural(len(self.wheels), "wheel")] if self.wheels else []
        parts += ["requirements"] if self.requirements is not None else []
        return ", ".join(parts)


class Packed(msgspec.Struct, frozen=True):
    """A file to upload: its purpose, path and SHA-256."""

    purpose: str
    path: Path
    sha256: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def included(paths: Iterable[str], home: Path) -> dict[str, Path]:
    """Return the files of --include by their paths in the archive. The paths are chosen so that the same imports find the files
    in the archive. `home` is the folder from which the submitted file imports. Other folders that contain the included files
    are appended to sys.path, so that the submitted file can import them here as well."""
    found = Modules()
    home = Path(os.path.abspath(home))
    for text in paths:
        path = Path(os.path.abspath(text))
        if not path.exists():
            raise CannotShip(f"--include {text}: there is no such file or folder")
        if path.is_file() and user_modules.suffix_of(path) not in importlib.machinery.all_suffixes():
            raise CannotShip(f"--include {text}: it is not a module; for a data file use --resource {text}")
        root = root_of(path, {home, *map(Path, user_modules.user_folders())})
        if root != home and str(root) not in map(os.path.abspath, sys.path):
            sys.path.append(str(root))
        place = path.relative_to(root).as_posix()
        if path.is_file():
            found.add(place, path)
        elif not found.add_folder(place, path):
            raise CannotShip(f"--include {text}: it contains nothing to ship")
    return found.files


def root_of(path: Path, roots: Collection[Path]) -> Path:
    """Return the folder from which a module is imported: the innermost of `roots` that contains the module, else the folder
    above the module's outermost package."""
    if path in roots:
        return path
    above = path.parent
    while (above / "__init__.py").exists():
        above = above.parent
    around = [root for root in roots if above.is_relative_to(root)]
    return max(around, key=lambda root: len(root.parts), default=above)


def gather(
    source: SourceName,
    before: Collection[str],
    includes: Mapping[str, Path],
    resources: Sequence[Resource] = (),
    confs: Iterable[Mapping[str, object]] = (),
) -> Package:
    """Return the files that are shipped with the topology of this source. Raises CannotShip if a file cannot be shipped.
    `before`: see `find_modules`."""
    hooks = {name for conf in confs for name in hook_modules(conf)}
    modules = user_modules.find_modules(before, hooks, includes, source.name)
    for resource in resources:
        add_resource(modules, resource, source)
    check_names(modules.files)
    return Package(modules.files, libraries=tuple(sorted(modules.libraries)), missing=modules.missing)


def hook_modules(conf: Mapping[str, object]) -> list[str]:
    """Return the top-level names of the modules that a worker imports for a configuration's hooks."""
    hooks = conf.get(HOOKS)
    names = map(str, hooks) if isinstance(hooks, list) else ()
    return [name.partition(":")[0].partition(".")[0] for name in names]


def file_and_place(source: SourceName) -> tuple[Path, str]:
    """Return the submitted file and its path in the archive."""
    if source.file is not None:
        return Path(os.path.abspath(source.file)), source.file.name
    module = sys.modules[source.module]
    file = Path(module.__file__ or "")
    place = source.module.replace(".", "/")
    return file, f"{place}/__init__.py" if hasattr(module, "__path__") else f"{place}.py"


def add_resource(modules: Modules, resource: Resource, source: SourceName) -> None:
    """Add data files. Data from below the submitted file's folder keeps its relative path; other data goes beside the file."""
    text = f"--resource {resource.path}"
    file, place = file_and_place(source)
    if user_modules.is_installed(file):
        raise CannotShip(f"{text}: {source.shown} is installed and not shipped, so no data can go beside it")
    path, name = resource.path, resource.name
    if name is None:
        name = path.relative_to(file.parent).as_posix() if path.is_relative_to(file.parent) else path.name
    folder = place.rpartition("/")[0]
    name = f"{folder}/{name}" if folder else name
    if path.is_file():
        modules.add(name, path)
    elif not path.is_dir():
        raise CannotShip(f"{text}: it is neither a file nor a folder")
    elif not modules.add_folder(name, path):
        raise CannotShip(f"{text}: the folder contains no file to ship (hidden files are left out)")


def check_names(files: Mapping[str, Path]) -> None:
    """Raise CannotShip, with all names, if shipped modules would hide modules of Squall, of its dependencies or of Python."""
    problems = problems_of_code(files)
    if problems:
        raise CannotShip("\n".join(f"{files[place]}: {problem}" for place, problem in problems.items()))


def read_requirements(path: Path) -> Path:
    """Return the absolute path of a requirements file. Raises CannotShip, with the line, if a line is malformed or refers to a
    file of this machine."""
    try:
        problem = problem_of_requirements(path.read_bytes())
    except OSError as error:
        raise CannotShip(f"--requirements {path}: {error.strerror}") from None
    if problem is not None:
        raise CannotShip(f"--requirements {path}: {problem}")
    return Path(os.path.abspath(path))


def find_wheels(folder: Path) -> tuple[Path, ...]:
    """Return the wheels in a folder. Raises CannotShip if there are none, and OSError if the folder cannot be read."""
    if not folder.is_dir():
        raise CannotShip(f"--wheels {folder}: there is no such folder")
    files = Path(os.path.abspath(folder)).iterdir()  # glob would not report a folder that cannot be read
    wheels = tuple(sorted(path for path in files if path.suffix == ".whl" and path.is_file()))
    if not wheels:
        raise CannotShip(
            f"--wheels {folder}: it contains no wheel (*.whl); `pip wheel -r requirements.txt -w {folder}` makes wheels"
        )
    return wheels


def pack_all(package: Package, folder: Path) -> list[Packed]:
    """Write the archives of a package into a folder; raise CannotShip for files that cannot be archived."""
    packed = []
    archives = ((CODE, package.code), (WHEELS, {wheel.name: wheel for wheel in package.wheels}))
    try:
        for purpose, files in archives:
            if files:
                target = folder / f"{purpose}.tar.gz"
                packed.append(Packed(purpose, target, pack(files, target)))
        if package.requirements is not None:
            target = folder / "requirements.txt"
            target.write_bytes(package.requirements.read_bytes())
            packed.append(Packed(REQUIREMENTS, target, digest_of(target)))
    except BadArchive as error:
        place = "" if error.member is None else f" {package.code.get(error.member, error.member)}"
        raise CannotShip(f"the package cannot be packed:{place} {error.reason}") from None
    return packed


def largest(package: Package, number: int = 3) -> str:
    """Return the largest files as text, to help make a package smaller: `data/big.csv (12.0 MB), ...`."""
    files = [*package.code.items(), *((wheel.name, wheel) for wheel in package.wheels)]
    sizes = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)[:number]
    return listed([f"{name} ({size:,} bytes)" for size, name in sizes])
