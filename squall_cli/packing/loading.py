"""Loads a Topology from a user's input: `FILE[:NAME]` or `package.module[:NAME]`, and the arguments after `--`.

A file's folder goes to the front of sys.path and the file is imported under its own name, so that its classes are pickled by
reference, as they are for a cluster. Errors name the user's file and line, never a frame of Squall's. There are two classes of
errors: `WrongSource` for a wrong command line, `CannotLoad` for errors in the file.
Must not know: the use of the topology.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec

from squall.packages.ours import OURS
from topology_api.builder import TopologyBuilder
from topology_api.errors import InvalidTopology, SquallError
from topology_api.topology import Topology
from topology_api.wording import listed, nearest, shown, typed
from worker.errors.reports import MOST_LINES, cause_lines, describe, place_of, user_frames

HOME = Path(__file__).resolve().parent.parent.parent
DEFAULT_NAME = "topology"
MOST_FRAMES = 4


class WrongSource(SquallError, click.UsageError):
    """The user's input names no file or module that could define a topology, or the arguments are wrong. As a `UsageError`, the
    error ends a command with exit status 2, and click also shows the command's usage."""


class CannotLoad(SquallError):
    """The user's file does not define a topology. The text gives the reason and the place in the file."""


class SourceName(msgspec.Struct, frozen=True):
    """A parsed FILE[:NAME] or package.module[:NAME]. `file` is None for a module on Python's path."""

    file: Path | None
    module: str
    name: str

    @property
    def shown(self) -> str:
        return self.module if self.file is None else str(self.file)


def load_topology(text: str, arguments: tuple[str, ...] = ()) -> Topology:
    """Return the topology that `text` names. If `text` names a function, call it with these arguments."""
    source = parse_source(text)
    module = import_module(source) if source.file is None else import_file(source)
    return topology_of(source, find(source, module), arguments)


# What was typed


def parse_source(text: str) -> SourceName:
    """Parse `FILE[:NAME]` or `package.module[:NAME]`; raise WrongSource if the text is neither."""
    place, colon, name = text.rpartition(":")
    if not colon or os.path.exists(text):
        place, name = text, DEFAULT_NAME
    if not name.isidentifier():
        raise WrongSource(f"{text}: {name!r} after the colon is not a valid Python name: write FILE.py:NAME")
    if place.endswith(".py") or os.sep in place or os.path.exists(place):
        path = Path(place)
        check_file(path, or_else=", or its module, package.module")
        return SourceName(path, path.stem, name)
    if not all(part.isidentifier() for part in place.split(".")):
        raise WrongSource(f"{text}: give a file, FILE.py[:NAME], or a module, package.module[:NAME]")
    return SourceName(None, place, name)


def check_file(path: Path, or_else: str = "") -> None:
    """Raise WrongSource if the file does not exist or is not a Python file. `or_else`: a further suggestion for a user who
    gives a folder."""
    if not path.exists():
        folder = path.parent
        beside = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
        where = "" if folder.is_dir() else f" (nor a folder {str(folder)!r})"
        raise WrongSource(f"there is no file {str(path)!r}{where}{nearest(path.name, beside)}")
    if path.is_dir():
        raise WrongSource(f"{str(path)!r} is a folder: give the file in it{or_else}")
    if path.suffix != ".py":
        raise WrongSource(f"{str(path)!r} is not a Python file: its name must end in .py")


def name_conflict(path: Path) -> str | None:
    """Return why a file cannot be imported under its own name, or None."""
    stem = path.stem
    named, advice = f"{path}: a module named {stem!r}", f"rename the file, for example to my_{stem}.py"
    if stem in OURS:
        return f"{named} cannot be shipped, because Squall has a package of that name; {advice}"
    if stem in sys.stdlib_module_names or stem in sys.builtin_module_names:
        return f"{named} hides a module of Python's standard library; {advice}"
    if stem.startswith("__"):
        return f"{path}: {path.name} cannot be imported by its file name; give the package's module: package.module[:NAME]"
    if "." in stem:
        return f"{path}: a module's name has no dots; rename the file, for example to {stem.replace('.', '_')}.py"
    loaded = sys.modules.get(stem)
    if loaded is not None:
        other = getattr(loaded, "__file__", None)
        if other is None or not same_file(other, path):
            return f"{path}: the module {stem!r} is loaded already, from {other or 'elsewhere'}; {advice}"
    return neighbour_conflict(path.resolve().parent)


def neighbour_conflict(folder: Path) -> str | None:
    """Return the problem if a module in the file's folder has the name of one of Squall's packages, or if the folder is a
    checkout of Squall; else None."""
    if folder == HOME:
        return None
    if (folder / "squall_cli" / "main.py").exists():
        return f"{folder} is a checkout of Squall: move the topology's file to a folder of your own"
    for name in OURS:
        for neighbour in (folder / f"{name}.py", folder / name / "__init__.py"):
            if neighbour.exists():
                return (
                    f"{neighbour}: Squall has a package named {name!r}, so a module of that name beside a topology"
                    " cannot be imported or shipped; rename it, and change its imports"
                )
    return None


def same_file(one: str, other: Path) -> bool:
    return os.path.exists(one) and other.exists() and os.path.samefile(one, other)


# Importing the module


def import_file(source: SourceName) -> ModuleType:
    """Import a file under its stem, with its folder at the front of the path."""
    path = source.file
    assert path is not None
    conflict = name_conflict(path)
    if conflict is not None:
        raise CannotLoad(conflict)
    whole = path.resolve()  # before the import, since the file may change the working folder
    add_to_path(str(whole.parent))
    module = imported(source)
    found = getattr(module, "__file__", None)
    if found is None or not same_file(found, whole):
        raise CannotLoad(
            f"{path}: Python finds {found or 'another module'} under the name {source.module!r} first; rename one of the two"
        )
    return module


def import_module(source: SourceName) -> ModuleType:
    """Import a module by its dotted name, from the working folder or from Python's path."""
    try:
        folder = os.getcwd()
    except OSError as error:
        raise CannotLoad(f"{source.module} cannot be looked for in the working folder: {error}") from None
    add_to_path(folder)
    return imported(source)


def add_to_path(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()


def imported(source: SourceName) -> ModuleType:
    try:
        return importlib.import_module(source.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and source.file is None and f"{source.module}.".startswith(f"{missing}."):
            raise WrongSource(
                f"there is no module {missing!r} in {os.getcwd()} or on Python's path, and no such file"
            ) from None
        head = source.shown if isinstance(error, InvalidTopology) else f"{source.shown} cannot be imported"
        raise CannotLoad(trouble(head, error)) from None


def trouble(head: str, error: BaseException) -> str:
    """Return an error in the user's code as text of at most 15 lines. The last line names the user's file and line."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
        inside = [line for line in lines[1:-1] if line.strip()]
        return "\n".join(
            [f"{head}: {type(error).__name__}: {error.msg}", *inside, f"  at {error.filename}:{error.lineno}"]
        )
    if isinstance(error, SystemExit):
        lines = [f"{head}: it ended the process (SystemExit: {error.code}); "]
        lines[0] += "code for running it as a script belongs under  if __name__ == '__main__':"
    elif isinstance(error, SquallError):
        lines = f"{head}: {error}".splitlines()
    else:
        lines = [f"{head}: {describe(error)}"]
        if isinstance(error, ImportError) and "relative import" in str(error):
            lines.append("  A file of a package is given by its module: package.module[:NAME]")
    place = place_of(error)
    frames = [frame for frame in user_frames(error.__traceback__) if not is_import_machinery(frame.filename)]
    if not isinstance(error, SquallError):  # a SquallError's message is complete; only the place is added
        causes = cause_lines(error)
        lines += [f"  {line}" for line in causes]
        shown = frames[-min(MOST_FRAMES, (MOST_LINES - len(causes)) // 2) :]
        for frame in shown:
            # The last frame may be the user's own line, which is printed below: do not print it twice.
            if frame is not shown[-1] or place != f"{frame.filename}:{frame.lineno}, in {frame.name}":
                lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
            if frame.line:
                lines.append(f"    {frame.line}")
    return "\n".join([*lines, f"  at {place}"] if place and not is_import_machinery(place) else lines)


def is_import_machinery(file: str) -> bool:
    """Return whether a file belongs to Python's import machinery, which runs between an import statement and the module."""
    return file.startswith("<frozen importlib") or file == importlib.__file__


# From the module to the topology


def find(source: SourceName, module: ModuleType) -> Any:
    """Return the value of the name in the module. If the module lacks the name, raise CannotLoad with names that exist."""
    missing = object()
    value = getattr(module, source.name, missing)
    if value is not missing:
        return value
    candidates = [name for name, value in vars(module).items() if is_candidate(name, value, module)]
    advice = "; it must hold a Topology of that name, or a function that returns one"
    if candidates:
        others = f"; it has {listed(candidates)}: give FILE:NAME for one of these"
        advice = nearest(source.name, candidates) or others
    raise CannotLoad(f"{source.shown} has no {source.name!r}{advice}")


def is_candidate(name: str, value: object, module: ModuleType) -> bool:
    """Return whether a user may have meant this name."""
    if name.startswith("_"):
        return False
    return isinstance(value, Topology) or (inspect.isfunction(value) and value.__module__ == module.__name__)


def topology_of(source: SourceName, value: Any, arguments: tuple[str, ...]) -> Topology:
    """Return the value if it is a topology; if it is a function, call it and return its topology."""
    what = f"{source.name!r} in {source.shown}"
    if isinstance(value, Topology):
        if arguments:
            raise WrongSource(
                f"{what} is a Topology, which takes no arguments (given: {listed(arguments)});"
                " make it a function that returns one"
            )
        return value
    if not callable(value):
        raise CannotLoad(f"{what} is {typed(value)}: it must be a Topology, or a function that returns one")
    check_arguments(source, value, arguments)
    try:
        made = value(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, SquallError) and source.module.partition(".")[0] in OURS:
            raise  # the text of a function of Squall is complete
        raise CannotLoad(trouble(f"{source.name}() in {source.shown} failed", error)) from None
    if isinstance(made, Topology):
        return made
    raise CannotLoad(f"{source.name}() in {source.shown} returned {typed(made)}, not a Topology{hint(made)}")


def check_arguments(source: SourceName, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise WrongSource, with the signature, if the function does not accept these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = f"given: {listed(arguments)}" if arguments else "none were given"
        raise WrongSource(
            f"the arguments after -- do not fit {source.name}{signature} in {source.shown}:"
            f" {error} ({given}){defined_at(function)}"
        ) from None


def defined_at(function: object) -> str:
    """Return the place of a function as a line below an error; "" for a function that was written in C."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"\n  at {code.co_filename}:{code.co_firstlineno}"


def hint(made: object) -> str:
    """Return a hint for a function that returned something other than a topology."""
    if made is None:
        return "; is there a 'return builder.build()' at its end?"
    if isinstance(made, TopologyBuilder):
        return "; return builder.build()"
    if inspect.iscoroutine(made):
        made.close()
        return "; it must not be an async function"
    return "" if not isinstance(made, type) else f"; {shown(made)} is a class"
