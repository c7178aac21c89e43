"""Builds the tasks of topologies with epochs, and those of stateful bolts: the part of `worker.loop.build` that other
topologies do not import.

Must not know: the loop, links.
"""

from __future__ import annotations

import inspect
from random import Random
from typing import TYPE_CHECKING

from topology_api import BatchBolt, Bolt, StagedSink, StatefulBolt, TokenSink
from worker.tasks import hooks
from worker.tasks.bolt import BoltTask, BoundedInputs
from worker.tasks.epoch_async import EpochAsyncTask
from worker.tasks.epoch_batch import EpochBatchTask
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.epoch_emitter import EpochSpoutEmitter
from worker.tasks.epoch_sink import EpochSinkTask
from worker.tasks.epoch_spout import EpochSpoutTask, ObservedEpochSpoutEmitter
from worker.tasks.holding import HoldingEmitter
from worker.tasks.keeping import KeepingEmitter, KeepingTask, ObservedKeepingEmitter, RichBoltTask
from worker.tasks.spout import SpoutTask
from worker.tasks.staged_sink import StagedSinkTask
from worker.tasks.stateful_bolt import StatefulBoltTask, positions_of
from worker.tasks.task import TaskSetup
from worker.tracking.tracker import Tracker

if TYPE_CHECKING:
    from worker.loop.build import Outputs, TaskEnvironment


def build_epoch_spout(
    setup: TaskSetup, outputs: Outputs, random: Random, tracker: Tracker, observed: bool
) -> SpoutTask:
    """Build the task of a spout in a topology with epochs."""
    repeating = ObservedEpochSpoutEmitter if observed else EpochSpoutEmitter
    return EpochSpoutTask(setup, repeating(setup.spec.id, setup.context.task, outputs, random, tracker))


def build_holding_bolt(
    environment: TaskEnvironment,
    setup: TaskSetup,
    inputs: BoundedInputs,
    outputs: Outputs,
    random: Random,
    observed: bool,
) -> BoltTask:
    """Build a task whose calls are all or nothing."""
    plan, component, instance = environment.plan, setup.spec.id, setup.instance
    kind = kind_with_epochs(instance) if plan.has_epochs else StatefulBoltTask
    plain: type[HoldingEmitter] = HoldingEmitter
    seen: type[HoldingEmitter] = hooks.ObservedHoldingEmitter
    if issubclass(kind, KeepingTask):
        plain, seen = KeepingEmitter, ObservedKeepingEmitter
    emitter = (seen if observed else plain)(component, setup.context.task, outputs, random)
    positions = positions_of(plan.topology, component, instance)
    stateful: StatefulBoltTask
    if issubclass(kind, EpochAsyncTask):
        runner, wake = environment.async_runner, environment.wake
        stateful = kind(setup, emitter, inputs, positions, runner=runner, wake=wake)
    else:
        stateful = kind(setup, emitter, inputs, positions)
    for observer in plan.observers:
        # With epochs any bolt may be built here; only one with state has something to watch, and timers.
        if hasattr(observer, "watch_states") and isinstance(instance, StatefulBolt):
            stateful.watch = watch = observer.watch_states(stateful.table)
            stateful.execute = watch.traced(stateful.execute)
            stateful.instance.on_timer = watch.traced(stateful.instance.on_timer)  # type: ignore[method-assign]
    return stateful


def kind_with_epochs(bolt: Bolt) -> type[StatefulBoltTask]:
    """Return the class of the tasks of a bolt in a topology with epochs."""
    sinks = ((TokenSink, EpochSinkTask), (StagedSink, StagedSinkTask))
    for base, kind in sinks:
        if isinstance(bolt, base):
            return kind
    if isinstance(bolt, BatchBolt):
        return EpochBatchTask
    if inspect.iscoroutinefunction(bolt.execute):
        return EpochAsyncTask
    return EpochBoltTask if bolt.auto_ack else RichBoltTask
