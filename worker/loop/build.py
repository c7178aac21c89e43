"""Making the tasks of a worker out of its plan: instances, contexts, outputs and routes.

Reads top-down: `build_task` makes one task; the rest is what it needs.
Must not know: the loop, links.
"""

from __future__ import annotations

import inspect
import logging
import os
import pickle
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from squall.transport.credit import FIRST_TUPLES
from topology_api import BatchBolt, Context, EmitError, Grouping, GroupingError
from topology_api.topology import ComponentSpec
from worker.async_bolt_task import AsyncBoltTask, AsyncRunner
from worker.batch_bolt_task import BatchBoltTask
from worker.bolt_task import BoltTask
from worker.completion import Inputs
from worker.emitter import BoltEmitter, SpoutEmitter
from worker.ids import GENERATION_BITS
from worker.metrics import TaskMetrics
from worker.observers import (
    DebugLog,
    Hooks,
    ObservedBoltEmitter,
    ObservedSpoutEmitter,
    load_hooks,
    watchers,
)
from worker.outbox import Outbox
from worker.plan import WorkerPlan
from worker.reports import failure_text
from worker.router import Output, add_route
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.tracker import Tracker


class Surroundings:
    """What the tasks of one worker get from it."""

    def __init__(
        self, plan: WorkerPlan, now: Callable[[], float], wake: Callable[[], None], runner: AsyncRunner
    ) -> None:
        self.plan = plan
        self.now = now
        self.wake = wake
        self.async_runner = runner
        self.resources: dict[object, object] = {}


def build_task(ground: Surroundings, task: int, component: str, index: int) -> Task:
    """The task object of one task; what the component's unpickling raises comes through."""
    plan = ground.plan
    spec = plan.topology.component(component)
    instance = plan.topology.load(component)
    conf = plan.conf_of(component)
    random = Random(f"{plan.seed}/{component}/{index}")
    metrics = TaskMetrics()
    made: Task

    def wake() -> None:
        if isinstance(made, SpoutTask):
            made.wake()
        ground.wake()

    def progress(why: str | None) -> None:
        made.goes_on(why)

    context = Context(
        topology=plan.topology.name,
        component=component,
        task=task,
        index=index,
        parallelism=spec.parallelism,
        conf=conf,
        tasks=lambda name: tasks_of(plan, name),
        log=logging.getLogger(f"squall.{plan.topology.name}.{component}.{index}"),
        metrics=metrics,
        resources=ground.resources,
        directory=lambda: scratch(plan, component, index),
        now=ground.now,
        random=Random(f"{plan.seed}/{component}/{index}/user"),
        wake=wake,
        topology_id=plan.topology_id,
        incarnation=plan.incarnation,
        progress=progress,
        stopped=lambda: made.stopped,
    )
    outputs = build_outputs(plan, spec, task, index, context)
    hooks: list[Any] = [*load_hooks(conf["topology.auto.task.hooks"]), *watchers(plan.observers, context)]
    if conf["topology.debug"]:
        hooks.append(DebugLog())
    if spec.kind == "spout":
        made = build_spout(ground, spec, task, instance, context, outputs, random, bool(hooks))
    else:
        made = build_bolt(ground, spec, task, instance, context, outputs, random, bool(hooks))
    made.metrics = metrics
    made.crash_on_error = conf["topology.on.error"] == "crash"
    if hooks:
        observer = Hooks(hooks, made.report)
        made.observer = observer
        assert isinstance(made.emitter, (ObservedBoltEmitter, ObservedSpoutEmitter))
        made.emitter.observer = observer
    return made


def build_spout(
    ground: Surroundings,
    spec: ComponentSpec,
    task: int,
    instance: Any,
    context: Context,
    outputs: dict[str, Output],
    random: Random,
    observed: bool,
) -> SpoutTask:
    """The task of a spout, with its tracker."""
    conf = context.conf
    timeouts = conf["topology.enable.message.timeouts"]
    timeout = float(conf["topology.message.timeout.secs"]) if timeouts else None  # type: ignore[arg-type]
    plan = ground.plan
    first = 0
    if plan.incarnation != (0, 0):
        first = Random(f"{plan.seed}/{plan.incarnation}/{task}").getrandbits(GENERATION_BITS)
    tracker = Tracker(task, timeout, ground.now(), first)
    kind = ObservedSpoutEmitter if observed else SpoutEmitter
    emitter = kind(spec.id, task, outputs, random, tracker, bool(conf["topology.acking"]))
    limit = conf["topology.max.spout.pending"]
    empty_wait = float(conf["topology.sleep.spout.wait.strategy.time.ms"]) / 1000  # type: ignore[arg-type]
    limits = plan.limits_of(spec.id)
    max_pending = None if limit is None else int(limit)  # type: ignore[call-overload]
    made = SpoutTask(
        spec, task, instance, context, limits, ground.now, emitter, tracker, max_pending, empty_wait
    )
    made.calls_an_instant = plan.calls_an_instant
    return made


def build_bolt(
    ground: Surroundings,
    spec: ComponentSpec,
    task: int,
    instance: Any,
    context: Context,
    outputs: dict[str, Output],
    random: Random,
    observed: bool,
) -> BoltTask:
    """The task of a bolt, of the kind that its class asks for."""
    plan = ground.plan
    emitter = (ObservedBoltEmitter if observed else BoltEmitter)(spec.id, task, outputs, random)
    inputs = Inputs(plan.end_sources(spec.id), spec.id in plan.cycle_of)
    args = (spec, task, instance, context, plan.limits_of(spec.id), ground.now, emitter, inputs)
    if isinstance(instance, BatchBolt):
        return BatchBoltTask(*args)
    if inspect.iscoroutinefunction(instance.execute):
        return AsyncBoltTask(*args, runner=ground.async_runner, wake=ground.wake)
    return BoltTask(*args)


def build_outputs(
    plan: WorkerPlan,
    spec: ComponentSpec,
    task: int,
    index: int,
    context: Context,
    kept: Mapping[tuple[str, int], Outbox] = {},
) -> dict[str, Output]:
    """The output streams of one task, with a route to every consumer; outboxes that are `kept`, by stream and target, stay."""
    outputs: dict[str, Output] = {}
    for stream, declared in spec.outputs.items():
        source = plan.source(spec.id, task, stream)
        output = outputs[stream] = Output(source, declared.direct)
        for reader in plan.readers(spec.id):
            for entry in reader.inputs:
                if (entry.source, entry.stream) != (spec.id, stream):
                    continue
                targets = plan.tasks_of[reader.id]
                credited = (reader.id, spec.id, stream) not in plan.topology.closing_edges
                cycle = plan.cycle_of.get(spec.id, -1)
                if cycle >= 0 and plan.cycle_of.get(reader.id) != cycle:
                    cycle = -1
                frame = min(plan.limits_of(spec.id).frame, plan.limits_of(reader.id).frame)
                boxes = {
                    target: kept[stream, target]
                    if (stream, target) in kept
                    else Outbox(source, target, credited, cycle, frame, first_of(plan, target, frame))
                    for target in targets
                }
                grouping = entry.grouping
                custom = load_grouping(grouping.custom, context, spec.id, stream, targets)
                add_route(
                    output,
                    grouping.kind,
                    grouping.fields,
                    boxes,
                    plan.tasks_here.__contains__,
                    index,
                    custom,
                )
        output.shorten()
    return outputs


def first_of(plan: WorkerPlan, target: int, frame: int) -> int:
    """Tuples of an outbox's first frame: what stays in this process may be as large as it likes."""
    return frame if plan.linked or target in plan.tasks_here else FIRST_TUPLES


def load_grouping(
    packed: bytes, context: Context, source: str, stream: str, targets: list[int]
) -> Grouping | None:
    """The user's grouping, prepared for this sending task; None where the grouping is one of ours."""
    if not packed:
        return None
    grouping: Grouping = pickle.loads(packed)
    try:
        grouping.prepare(context, source, stream, tuple(targets))
    except Exception as error:
        raise GroupingError(
            f"custom grouping {type(grouping).__name__} on stream {stream!r} of component {source!r}: "
            f"prepare() raised {failure_text(error)}"
        ) from error
    return grouping


def tasks_of(plan: WorkerPlan, component: str) -> list[int]:
    """`Context.tasks`."""
    try:
        return plan.tasks_of[component]
    except KeyError:
        known = ", ".join(plan.tasks_of)
        raise EmitError(
            f"topology {plan.topology.name!r} has no component {component!r}; it has: {known}"
        ) from None


def scratch(plan: WorkerPlan, component: str, index: int) -> str:
    """`Context.directory`: made when it is first asked for."""
    path = plan.scratch(component, index)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path
