"""Builds the tasks of a worker from its plan: instances, contexts, outputs and routes.

Reads top-down: `build_task` makes one task; the rest is what it needs.
Must not know: the loop, links.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from squall.transport.credit import FIRST_TUPLES
from topology_api import BatchBolt, Context, EmitError, Grouping, GroupingError
from topology_api.topology import ComponentSpec
from worker.errors.reports import failure_text
from worker.loop.plan import WorkerPlan
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route
from worker.tasks.async_bolt import AsyncBoltTask, AsyncRunner
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.bounded_inputs import BoundedInputs
from worker.tasks.emitter import BoltEmitter, SpoutEmitter
from worker.tasks.hooks import (
    DebugLog,
    Hooks,
    ObservedBoltEmitter,
    ObservedSpoutEmitter,
    load_hooks,
    watchers,
)
from worker.tasks.metrics import TaskMetrics
from worker.tasks.scratch import Scratch
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task
from worker.tracking.ids import GENERATION_BITS
from worker.tracking.tracker import Tracker


class TaskEnvironment:
    """What a worker gives its tasks: the plan, the clock, runners, scratch directories, shared resources."""

    def __init__(
        self,
        plan: WorkerPlan,
        now: Callable[[], float],
        wake: Callable[[], None],
        runner: AsyncRunner,
        scratch: Scratch,
    ) -> None:
        self.plan = plan
        self.now = now
        self.wake = wake
        self.async_runner = runner
        self.scratch = scratch
        self.resources: dict[object, object] = {}

    def make_scratch(self, component: str, index: int) -> str:
        """Return the scratch directory of a task, made when it is first asked for."""
        return self.scratch.make(self.plan.scratch(component, index))


def build_task(environment: TaskEnvironment, task: int, component: str, index: int) -> Task:
    """Build one task; errors of the component's unpickling are raised."""
    plan = environment.plan
    spec = plan.topology.component(component)
    instance = plan.topology.load(component)
    conf = plan.conf_of(component)
    random = Random(f"{plan.seed}/{component}/{index}")
    metrics = TaskMetrics()
    made: Task

    def wake() -> None:
        if isinstance(made, SpoutTask):
            made.wait.wake()
        environment.wake()

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
        resources=environment.resources,
        directory=lambda: environment.make_scratch(component, index),
        now=environment.now,
        random=Random(f"{plan.seed}/{component}/{index}/user"),
        wake=wake,
        topology_id=plan.topology_id,
        incarnation=(plan.incarnation.version, plan.incarnation.restart),
        progress=lambda why: made.goes_on(why),
        stopped=lambda: made.stopped,
    )
    outputs = build_outputs(plan, spec, task, index, context)
    hooks: list[Any] = [*load_hooks(conf["topology.auto.task.hooks"]), *watchers(plan.observers, context)]
    if conf["topology.debug"]:
        hooks.append(DebugLog())
    build = build_spout if spec.kind == "spout" else build_bolt
    made = build(environment, spec, instance, context, outputs, random, bool(hooks))
    made.metrics = metrics
    made.crash_on_error = conf["topology.on.error"] == "crash"
    if hooks:
        observer = Hooks(hooks, made.report)
        made.observer = observer
        assert isinstance(made.emitter, (ObservedBoltEmitter, ObservedSpoutEmitter))
        made.emitter.observer = observer
    return made


def build_spout(
    environment: TaskEnvironment,
    spec: ComponentSpec,
    instance: Any,
    context: Context,
    outputs: dict[str, StreamOutput],
    random: Random,
    observed: bool,
) -> SpoutTask:
    """Build the task of a spout, with its tracker."""
    conf, plan, task = context.conf, environment.plan, context.task
    timeouts = conf["topology.enable.message.timeouts"]
    timeout = float(conf["topology.message.timeout.secs"]) if timeouts else None  # type: ignore[arg-type]
    first = 0
    if plan.incarnation != (0, 0):
        first = Random(f"{plan.seed}/{plan.incarnation}/{task}").getrandbits(GENERATION_BITS)
    tracker = Tracker(task, timeout, environment.now(), first)
    kind = ObservedSpoutEmitter if observed else SpoutEmitter
    emitter = kind(spec.id, task, outputs, random, tracker, bool(conf["topology.acking"]))
    limit = conf["topology.max.spout.pending"]
    empty_wait = float(conf["topology.sleep.spout.wait.strategy.time.ms"]) / 1000  # type: ignore[arg-type]
    limits = plan.limits_of(spec.id)
    max_pending = None if limit is None else int(limit)  # type: ignore[call-overload]
    made = SpoutTask(
        spec, task, instance, context, limits, environment.now, emitter, tracker, max_pending, empty_wait
    )
    made.wait.calls_an_instant = plan.calls_an_instant
    return made


def build_bolt(
    environment: TaskEnvironment,
    spec: ComponentSpec,
    instance: Any,
    context: Context,
    outputs: dict[str, StreamOutput],
    random: Random,
    observed: bool,
) -> BoltTask:
    """Build the task of a bolt, of the kind that its class needs."""
    plan, task = environment.plan, context.task
    emitter = (ObservedBoltEmitter if observed else BoltEmitter)(spec.id, task, outputs, random)
    inputs = BoundedInputs(plan.end_sources(spec.id), spec.id in plan.cycle_of)
    args = (spec, task, instance, context, plan.limits_of(spec.id), environment.now, emitter, inputs)
    if isinstance(instance, BatchBolt):
        return BatchBoltTask(*args)
    if inspect.iscoroutinefunction(instance.execute):
        return AsyncBoltTask(*args, runner=environment.async_runner, wake=environment.wake)
    return BoltTask(*args)


def build_outputs(
    plan: WorkerPlan,
    spec: ComponentSpec,
    task: int,
    index: int,
    context: Context,
    kept: Mapping[tuple[str, int], Outbox] = {},
) -> dict[str, StreamOutput]:
    """Build the output streams of one task, with routes to all consumers; `kept` outboxes (by stream, target) are reused."""
    outputs: dict[str, StreamOutput] = {}
    for stream, declared in spec.outputs.items():
        source = plan.source(spec.id, task, stream)
        output = outputs[stream] = StreamOutput(source, declared.direct)
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
                consumer = Reader(grouping.fields, boxes, plan.tasks_here.__contains__, index, custom)
                add_route(output, grouping.kind, consumer)
        output.shorten()
    return outputs


def first_of(plan: WorkerPlan, target: int, frame: int) -> int:
    """Return the size of an outbox's first frame in tuples; within a process it has no limit of its own."""
    return frame if plan.linked or target in plan.tasks_here else FIRST_TUPLES


def load_grouping(
    packed: bytes, context: Context, source: str, stream: str, targets: list[int]
) -> Grouping | None:
    """Return the user's grouping, prepared for this sending task; None for a built-in grouping."""
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
    """Return the task ids of a component, for `Context.tasks`."""
    try:
        return plan.tasks_of[component]
    except KeyError:
        known = ", ".join(plan.tasks_of)
        raise EmitError(
            f"topology {plan.topology.name!r} has no component {component!r}; it has: {known}"
        ) from None
