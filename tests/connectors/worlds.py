"""The worlds of this folder, and the cells of the matrix: a world, a promise, and whether the topology has epochs.

Must not know: any connector, what a promise does.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.connector_contract import SinkWorld, SourceWorld, World

#: Promises that the usual run shows of each connector; `--soak` adds the others, and the other kind of topology.
USUAL: Final = frozenset(
    {
        "killed", "unreadable", "refused", "too large", "missing", "wrong login", "nothing lost", "in order", "rebalanced",
        "answer lost",
    }
)  # fmt: skip
#: Those that the usual run shows with epochs and without: what is stored at the source differs.
BOTH: Final = frozenset({"nothing lost"})


def modules() -> list[ModuleType]:
    """The modules of worlds, by name."""
    files = sorted(Path(__file__).parent.glob("*_world.py"))
    return [importlib.import_module(f"tests.connectors.{file.stem}") for file in files]


def worlds(kind: type[World]) -> list[type[World]]:
    """The worlds of a kind, SourceWorld or SinkWorld."""
    return [
        each
        for module in modules()
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, kind)
        and each.__module__ == module.__name__
        and not inspect.isabstract(each)
    ]


def cells(kind: type[World], promises: Collection[str], with_epochs_only: Collection[str] = ()) -> list[Any]:
    """Parameters (fixture of the world, promise, whether with epochs); those of no usual run are marked `soak`."""
    return [
        pytest.param(world.name, promise, epochs, id=f"{world.name}-{promise}-{_mode(epochs)}", marks=marks)
        for world in worlds(kind)
        for promise in promises
        if promise not in world.not_applicable
        for epochs, marks in _variants(world, promise, promise in with_epochs_only)
    ]


def _mode(epochs: bool) -> str:
    return "epochs" if epochs else "plain"


def _variants(world: type[World], promise: str, epochs_only: bool) -> Iterator[tuple[bool, Any]]:
    """With epochs and without. The usual run has the one with which the connector promises more."""
    assert issubclass(world, (SourceWorld, SinkWorld))
    more = world.rewindable if issubclass(world, SourceWorld) else world.once
    for epochs in (True,) if epochs_only else (True, False):
        names = {promise, f"{promise}, {'with' if epochs else 'without'} epochs"}
        if names & world.not_applicable.keys():
            continue
        usual = (epochs == more or promise in BOTH) and promise in USUAL and not names & world.slow
        yield epochs, () if usual else (pytest.mark.soak,)
