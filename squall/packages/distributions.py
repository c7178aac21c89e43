"""Checks that the packages `supervisor`, `nimbus`, `worker` and `topology_api` on this Python's path are Squall's.

These names are common words: a well-known process manager installs a package `supervisor`, and Python finds a user's own
`worker.py` beside a topology before any installed package. The command and every daemon call `check_ours` first, so that the
error names such a package and the remedy, before an import fails without a visible reason.

A package is Squall's when it is in the same folder as `squall` itself (a different distribution, or a different copy of Squall,
is elsewhere) and no other distribution, installed later into this folder, owns its `__init__.py` now. The second condition is
slow to check, so it is not checked if the docstring in that `__init__.py` mentions Squall, as the docstrings of all of Squall's
packages do.

This module must not import any of the packages that it checks, not even for a base class of its error: it finds them and reads
one small file of each. Distributions are searched only when something is wrong.
"""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

TAKEN_NAMES = ("supervisor", "nimbus", "worker", "topology_api")
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

_MARK = b"Squall"
#: By a path, never by the name: an index may have a different program of this name.
_RESTORE = "    pip install --force-reinstall --no-deps .       # in Squall's checkout, or with the path of its wheel for ."
_HEAD = 4096  # bytes: enough for the first docstring of a package


class NotOurs(Exception):
    """A package that Squall needs is missing or belongs to a different distribution; the text names the package and the remedy.

    Unlike Squall's other errors, this is not a SquallError: the faulty package may be the one that defines that class.
    """


def check_ours() -> None:
    """Raise NotOurs, naming every package of `TAKEN_NAMES` that is missing or not Squall's."""
    if found := [problem for name in TAKEN_NAMES if (problem := _problem(name)) is not None]:
        raise NotOurs("\n".join(found))


def _problem(name: str) -> str | None:
    """Return why the package with this name is not ours, and what to do; None if it is ours."""
    try:
        spec = find_spec(name)
    except ValueError:  # sys.modules has a module without a spec under that name
        spec = None
    if spec is None:
        return _explain(name, None, beside_squall=False)
    if not spec.has_location or spec.origin is None:  # a folder without an __init__.py
        folders = list(spec.submodule_search_locations or ())
        return _explain(name, folders[0] if folders else None, any(map(_is_home, folders)))
    beside = _is_home(os.path.dirname(spec.origin))
    ours = beside and spec.submodule_search_locations is not None  # a package, not a module
    if ours and (_speaks_of_squall(spec, spec.origin) or distribution_of(name, spec.origin) is None):
        return None
    return _explain(name, spec.origin, beside)


def _is_home(folder: str) -> bool:
    return os.path.dirname(os.path.realpath(folder)) == HOME


def _speaks_of_squall(spec: ModuleSpec, file: str) -> bool:
    get_data = getattr(spec.loader, "get_data", None)  # also reads from a zip
    if get_data is None:
        return False
    try:
        data: bytes = get_data(file)
    except OSError:
        return False
    return _MARK in data[:_HEAD]


def _explain(name: str, file: str | None, beside_squall: bool) -> str:
    """Return the text of the error. `file`: what Python finds under this name, or None."""
    if file is None:
        return (
            f"Squall's package '{name}' is missing (looked for beside {HOME}/squall).\n"
            f"  The installation is incomplete. This restores it:\n{_RESTORE}"
        )
    if (owner := distribution_of(name, file)) is not None:
        other = owner.split()[0]
        advice = (
            f"  Squall and {other} cannot share an environment.\n"
            f"  Give Squall one of its own (python -m venv), or:\n    pip uninstall {other}\n"
        ) + (_RESTORE if beside_squall else "")
        whose = f"the distribution {owner}"
    elif beside_squall:
        advice = f"  A file of Squall was replaced or removed. This restores it:\n{_RESTORE}"
        whose = "no installed distribution lists this file"
    else:
        advice = "  Rename it, or start Squall where it is not on the path (see sys.path and PYTHONPATH).\n"
        whose = "no installed distribution: a file of your own?"
    return (
        f"The package '{name}' that Python finds is not Squall's.\n"
        f"  found:    {file}\n"
        f"  owned by: {whose}\n"
        f"  expected: {os.path.join(HOME, name)}\n" + advice.rstrip("\n")
    )


def distribution_of(package: str, file: str) -> str | None:
    """Return name and version of the installed distribution, other than Squall, that owns `file` of `package`."""
    from importlib.metadata import Distribution, distributions

    wanted = os.path.realpath(file)

    def owns(distribution: Distribution) -> bool:
        listed = [entry for entry in distribution.files or () if entry.parts[0] in (package, f"{package}.py")]
        if listed:
            return any(os.path.realpath(str(distribution.locate_file(entry))) == wanted for entry in listed)
        # An editable install lists no files of the package, but lists its top-level names.
        return package in (distribution.read_text("top_level.txt") or "").split()

    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name and name.lower() != "squall" and owns(distribution):
            return f"{name} {distribution.version}"
    return None
