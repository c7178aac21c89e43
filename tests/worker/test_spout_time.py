"""The time of a tree begins when its tuple can leave, however long the spout's own call took."""

from __future__ import annotations

from squall.clock import ManualClock
from squall.values import TaskRow
from topology_api import Bolt, Context, Fields, Spout, TopologyBuilder, Tuple
from topology_api.options import defaults
from worker.loop.build import TaskEnvironment, build_task
from worker.loop.plan import WorkerPlan
from worker.tasks.simulated_async import SimulatedAsync
from worker.tasks.spout import SpoutTask

CLOCK: list[ManualClock] = []


class Blocks(Spout):
    """Emits, blocks for 50 seconds, emits again; emits in open and activate too."""

    outputs = Fields("value")
    replay = None

    def open(self, context: Context) -> None:
        self.emit(("open",), message_id="open")

    def activate(self) -> None:
        self.emit(("activate",), message_id="activate")

    def next_tuple(self) -> float:
        self.emit(("before",), message_id="before")
        CLOCK[0].move_to(CLOCK[0].now() + 50.0)
        self.emit(("after",), message_id="after")
        return 1000.0


class Ignores(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


def spout_task(timeout: float) -> tuple[SpoutTask, ManualClock]:
    """The task of a `Blocks` spout, started at time 1000, and its clock."""
    clock = ManualClock()
    clock.move_to(1000.0)
    CLOCK[:] = [clock]
    builder = TopologyBuilder("blocks")
    builder.set_spout("blocks", Blocks())
    builder.set_bolt("ignores", Ignores()).shuffle_grouping("blocks")
    conf = defaults() | {"topology.message.timeout.secs": timeout}
    plan = WorkerPlan(
        worker="w1",
        topology=builder.build(),
        tasks=(TaskRow(1, "blocks", 0), TaskRow(2, "ignores", 0)),
        worker_of={1: "w1", 2: "w1"},
        conf=conf,
        component_confs={},
        directory="",
    )
    calls = SimulatedAsync(clock.now)
    task = build_task(TaskEnvironment(plan, clock.now, lambda: None, calls), 1, "blocks", 0)
    assert isinstance(task, SpoutTask)
    task.start()
    return task, clock


def test_emissions_of_a_call_longer_than_the_timeout_do_not_fail() -> None:
    task, clock = spout_task(timeout=10.0)
    task.run()
    assert clock.now() == 1050.0
    task.tracker.expire(1059.9)
    assert task.tracker.failed == [] and task.tracker.pending == 3
    task.tracker.expire(1061.0)
    assert sorted(emission[0] for emission, _ in task.tracker.failed if emission) == [
        "after",
        "before",
        "open",
    ]


def test_emissions_of_open_count_from_open() -> None:
    task, _ = spout_task(timeout=10.0)
    [emission] = [emission for emission in task.tracker.emissions if emission]
    assert emission[0] == "open" and emission[5] == 1000.0


def test_emissions_of_activate_after_a_long_pause_get_the_whole_timeout() -> None:
    task, clock = spout_task(timeout=10.0)
    clock.move_to(5000.0)
    task.tracker.expire(5000.0)
    task.tracker.failed.clear()
    clock.move_to(9000.0)
    task.call("activate")
    task.tracker.expire(9009.9)
    assert task.tracker.pending == 1
    task.tracker.expire(9011.0)
    assert [emission[0] for emission, _ in task.tracker.failed if emission] == ["activate"]
