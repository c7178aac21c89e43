"""A spout task by itself: the bolt that reads its stream is in a worker that never answers."""

from __future__ import annotations

from collections.abc import Callable

from squall.values import TaskRow
from topology_api import Bolt, Spout, TopologyBuilder, Tuple
from topology_api.options import defaults
from worker.loop.build import TaskEnvironment, build_task
from worker.loop.plan import WorkerPlan
from worker.tasks.simulated_async import SimulatedAsync
from worker.tasks.spout import SpoutTask


class Silent(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise AssertionError("it is in another worker")


def lone_spout(spout: Spout, number: int, now: Callable[[], float], **conf: object) -> SpoutTask:
    """Return an open task with this number; `conf`: options, with `_` for `.`."""
    builder = TopologyBuilder("words")
    builder.set_spout("lines", spout)
    builder.set_bolt("store", Silent()).shuffle_grouping("lines")
    plan = WorkerPlan(
        worker="w1",
        topology=builder.build(),
        tasks=(TaskRow(number, "lines", 0), TaskRow(number + 1, "store", 0)),
        worker_of={number: "w1", number + 1: "w2"},
        conf={**defaults(), **{name.replace("_", "."): value for name, value in conf.items()}},
        component_confs={},
        directory="",
    )
    task = build_task(TaskEnvironment(plan, now, lambda: None, SimulatedAsync(now)), number, "lines", 0)
    assert isinstance(task, SpoutTask)
    task.start()
    return task
