"""Opens spouts and sinks as a worker does: a copy of what the topology has, with a context. Must not know: contracts."""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from local_cluster.bolt_run import run_bolt
from topology_api import Bolt, Context, Tuple
from topology_api.epoch_rules import STATE_PATH
from topology_api.options import defaults
from topology_api.packing import pack
from worker.tasks.metrics import TaskMetrics

T = TypeVar("T")
#: The names of topology and component in the contexts.
TOPOLOGY, COMPONENT = "contract", "connector"


class Surroundings:
    """The clock, the configuration and the scratch directories of the tasks of one trial."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        #: Connectors ask it whether there are epochs.
        self.conf = {**defaults(), STATE_PATH: f"file:///{TOPOLOGY}"}
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def without_epochs(self) -> None:
        """From now on tasks are those of a topology without epochs."""
        self.conf[STATE_PATH] = None

    def directory(self) -> str:
        """Return a new directory."""
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="squall-contract-")
        return tempfile.mkdtemp(dir=self.folder.name)

    def end(self) -> None:
        """Remove the directories."""
        if self.folder is not None:
            self.folder.cleanup()


def shipped(component: T, base: type) -> T:
    """Return a component as a worker gets it: unpickled. Raises CannotPack."""
    back: T = pickle.loads(pack(component, type(component).__name__, base))
    return back


def context_of(component: str, index: int, parallelism: int, around: Surroundings) -> Context:
    """Return the context of a task."""
    return Context(
        topology=TOPOLOGY,
        topology_id=f"{TOPOLOGY}-1",
        component=component,
        task=index + 1,
        index=index,
        parallelism=parallelism,
        conf=dict(around.conf),
        tasks=lambda name: list(range(1, parallelism + 1)),
        log=logging.getLogger(f"{TOPOLOGY}.{component}.{index}"),
        metrics=TaskMetrics(),
        resources={},
        directory=around.directory,
        now=lambda: around.now,
        random=Random(index),
        wake=lambda: None,
    )


class _Takes(Bolt):
    def execute(self, tup: Tuple) -> None: ...


def tuples_of(values: Sequence[Mapping[str, Any]]) -> list[Tuple]:
    """Return a tuple for each dict from field to value. The worker's core alone makes them."""
    return run_bolt(_Takes(), values)._inputs.started
