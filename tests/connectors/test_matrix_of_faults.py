"""The worlds are complete: each names its connector and its fixture, and every promise that it leaves out, with a reason."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from tests.connector_contract import SinkWorld, SourceWorld, World
from tests.connectors import sink_promises, source_promises
from tests.connectors.worlds import USUAL, cells, worlds
from topology_api import RewindableSpout

WORLDS = [(each, set(source_promises.PROMISES)) for each in worlds(SourceWorld)]
WORLDS += [(each, set(sink_promises.PROMISES)) for each in worlds(SinkWorld)]


def connector_of(world: type[World]) -> Any:
    module, _, name = world.connector.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("world", "promises"), WORLDS, ids=[world.name for world, _ in WORLDS])
def test_a_world_leaves_out_only_promises_that_there_are(world: type[World], promises: set[str]) -> None:
    known = promises | {f"{name}, {which} epochs" for name in promises for which in ("with", "without")}
    assert set(world.not_applicable) <= known
    assert world.slow <= known
    assert all(len(reason.split()) > 2 for reason in world.not_applicable.values())


@pytest.mark.parametrize("world", [world for world, _ in WORLDS], ids=[world.name for world, _ in WORLDS])
def test_a_world_names_its_connector_and_its_fixture(world: type[World]) -> None:
    connector = connector_of(world)
    if issubclass(world, SourceWorld):
        assert world.rewindable == issubclass(connector, RewindableSpout)
    assert hasattr(getattr(sys.modules[world.__module__], world.name), "_fixture_function")


def test_the_usual_run_has_cells_of_every_world() -> None:
    found = [
        *cells(SourceWorld, source_promises.PROMISES, source_promises.WITH_EPOCHS_ONLY),
        *cells(SinkWorld, sink_promises.PROMISES),
    ]
    usual = {(cell.values[0], cell.values[1]) for cell in found if not cell.marks}
    # HDFS takes 15 s to start, and tests/hdfs has it: its cells are those of --soak.
    assert {name for name, _ in usual} == {world.name for world, _ in WORLDS} - {"hdfs_files"}
    assert {promise for _, promise in usual} == USUAL
