"""The versions that must agree between the machine that packs a topology and the hosts that run it.

Pickles that hold code by value (classes of `__main__`, lambdas) are bytecode: only the Python minor version that wrote them can
read them, with a cloudpickle of the same major and minor version. So the versions of Python and of cloudpickle must be the same
everywhere.
Must not know: who compares versions, how versions are transferred. No package is imported just to find its version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import metadata
from typing import Final

from squall import __version__

#: The versions that must be the same, with their names in sentences.
MUST_FIT: Final[Mapping[str, str]] = {"python": "Python", "cloudpickle": "cloudpickle"}


@lru_cache(maxsize=1)
def _cloudpickle() -> str:
    try:
        return metadata.version("cloudpickle")
    except metadata.PackageNotFoundError:  # daemons do not need cloudpickle; processes that run components do
        return ""


def own_versions() -> dict[str, str]:
    """Return the versions of this process: "squall", "python" ("3.11.4") and "cloudpickle" ("" if it is not installed)."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"squall": __version__, "python": python, "cloudpickle": _cloudpickle()}


def minor(version: str) -> str:
    """Return major and minor version: "3.11" for "3.11.4"."""
    return ".".join(version.split(".")[:2])


def misfits(packed: Mapping[str, str], others: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Return a sentence for each version that keeps a topology from running on its hosts; an empty list if all versions fit.

    packed: the versions with which the topology was packed. others: (name, versions) of each daemon that is to run the
    topology; a missing version is assumed to fit.
    """
    problems = []
    by_problem: dict[tuple[str, str], list[str]] = {}
    for who, versions in others:
        for name in MUST_FIT:
            theirs = versions.get(name, "")
            if theirs and minor(theirs) != minor(packed.get(name, "")):
                by_problem.setdefault((name, minor(theirs)), []).append(who)
    for (name, theirs), whose in by_problem.items():
        shown = whose[:3] if len(whose) <= 4 else [*whose[:3], f"{len(whose) - 3} more"]
        problems.append(
            f"it was packed with {MUST_FIT[name]} {minor(packed.get(name, '')) or '(not said)'}, but"
            f" {', '.join(shown)} {'has' if len(whose) == 1 else 'have'} {MUST_FIT[name]} {theirs}: submit it with"
            f" {MUST_FIT[name]} {theirs}"
        )
    return problems
