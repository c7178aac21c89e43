"""Why a spout does not emit at a moment: it is empty, it paces itself, or it raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall.clock import ManualClock
from squall.values import TaskRow
from tests.worker.daemon_stand_ins import a_task
from topology_api import Fields, Spout, TopologyBuilder
from topology_api.options import defaults
from worker.loop.build import TaskEnvironment, build_task
from worker.loop.plan import WorkerPlan
from worker.loop.snapshot import held_up_by, idle_reason
from worker.tasks.simulated_async import SimulatedAsync
from worker.tasks.spout import SpoutTask

NEXT: list[Callable[[Spout], float | None]] = []


class Played(Spout):
    """Does what the test says."""

    outputs = Fields("value")

    def next_tuple(self) -> float | None:
        return NEXT[0](self)


def emits_and_waits(spout: Spout) -> float | None:
    spout.emit((1,))
    return 5.0


def emits(spout: Spout) -> float | None:
    spout.emit((1,))
    return None


def waits(spout: Spout) -> float | None:
    return 5.0


def nothing(spout: Spout) -> float | None:
    return None


def raises(spout: Spout) -> float | None:
    raise ValueError("no")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def task(clock: ManualClock) -> SpoutTask:
    builder = TopologyBuilder("played")
    builder.set_spout("played", Played())
    plan = WorkerPlan(
        worker="w1",
        topology=builder.build(),
        tasks=(TaskRow(1, "played", 0),),
        worker_of={1: "w1"},
        conf=defaults(),
        component_confs={},
        directory="",
    )
    calls = SimulatedAsync(clock.now)
    found = build_task(TaskEnvironment(plan, clock.now, lambda: None, calls), 1, "played", 0)
    assert isinstance(found, SpoutTask)
    found.start()
    return found


def runs(task: SpoutTask, step: Callable[[Spout], float | None]) -> str:
    """Why it is idle after a run in which next_tuple did this."""
    NEXT[:] = [step]
    task.run()
    return idle_reason(task)


def test_a_spout_that_emits_and_asks_for_a_pause_is_not_empty(task: SpoutTask, clock: ManualClock) -> None:
    assert runs(task, emits_and_waits) == "waits as it asked"
    clock.move_to(clock.now() + 5.0)
    assert idle_reason(task) == ""
    assert runs(task, waits) == "source empty"
    clock.move_to(clock.now() + 60.0)
    assert runs(task, emits_and_waits) == "waits as it asked"
    task.wait.wake()
    assert idle_reason(task) == ""


def test_a_spout_that_emits_nothing_is_empty_whether_it_asks_for_a_pause_or_not(task: SpoutTask) -> None:
    assert runs(task, emits) == ""
    assert runs(task, nothing) == "source empty"


def test_a_spout_that_raises_waits_because_of_that(task: SpoutTask, clock: ManualClock) -> None:
    assert runs(task, nothing) == "source empty"
    clock.move_to(clock.now() + 1.0)
    assert runs(task, raises) == "waits after an error"
    clock.move_to(clock.now() + 1.0)
    assert runs(task, emits) == ""


def test_a_spout_that_has_emitted_since_the_last_reading_is_not_idle(
    task: SpoutTask, clock: ManualClock
) -> None:
    assert runs(task, emits_and_waits) == "waits as it asked", "there is no earlier reading"
    clock.move_to(clock.now() + 5.0)
    assert runs(task, emits_and_waits) == ""
    clock.move_to(clock.now() + 0.1)
    assert idle_reason(task) == "", "both readings count as one"
    clock.move_to(clock.now() + 0.6)
    assert idle_reason(task) == "waits as it asked", "nothing since"
    clock.move_to(clock.now() + 60.0)
    assert runs(task, emits_and_waits) == "waits as it asked", "the last reading is too old"


def test_a_spout_whose_worker_is_inside_a_long_call_says_which(task: SpoutTask, clock: ManualClock) -> None:
    other = a_task(4, busy_since=clock.now())
    assert held_up_by(task, other) == "", "the call has just begun"
    clock.move_to(clock.now() + 2.0)
    assert held_up_by(task, other) == "waits for a call of count[4]"
    assert held_up_by(task, None) == held_up_by(task, task) == ""
