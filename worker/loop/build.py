"""Builds the tasks of a worker from its plan: instances, contexts, outputs and routes.

The module reads top-down: `build_task` makes one task; the other functions make its parts.
Must not know: the loop, links.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from squall.transport.credit import FIRST_TUPLES
from topology_api import (
    BatchBolt,
    Context,
    EmitError,
    Grouping,
    GroupingError,
    StatefulBolt,
)
from topology_api.tuples import Tuple
from worker.errors.reports import ErrorReport, failure_text
from worker.loop.memory_growth import MemoryGrowth
from worker.loop.plan import WorkerPlan
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route
from worker.tasks import hooks
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask, BoundedInputs
from worker.tasks.emitter import BoltEmitter, SpoutEmitter
from worker.tasks.metrics import TaskMetrics
from worker.tasks.runners import AsyncDriver
from worker.tasks.scratch import make_scratch
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task, TaskSetup
from worker.tracking.dead_letters import LetterKeeper, MemoryLetters
from worker.tracking.ids import GENERATION_BITS
from worker.tracking.tracker import Tracker

if TYPE_CHECKING:
    from worker.loop.call_marks import CallMarks


@dataclass(eq=False, repr=False)
class TaskEnvironment:
    """What a worker gives its tasks: the plan, the clock, the runner of coroutines, shared resources."""

    plan: WorkerPlan
    now: Callable[[], float]
    wake: Callable[[], None]
    async_runner: AsyncDriver
    resources: dict[object, object] = field(default_factory=dict)
    #: Ends the process after a MemoryError of the user's code; see `Task.on_out_of_memory`.
    on_out_of_memory: Callable[[Task, ErrorReport, Sequence[Tuple]], None] | None = None
    #: The marks of running calls, if a process of this worker has died in one.
    marks: CallMarks | None = None
    #: Measures the memory of the process; None: it is unknown here.
    growth: MemoryGrowth | None = None
    #: Turns a time of the clock into wall-clock time.
    time_of: Callable[[float], float] = lambda moment: moment
    #: Does what a kind of worker does with each new task.
    prepare: Callable[[Task], None] | None = None
    #: How many times all tasks of this process were replaced by new ones.
    lives: int = 0
    #: Returns what keeps the dead letters of a spout task.
    letters: Callable[[int], LetterKeeper] = lambda task: MemoryLetters()


def build_task(environment: TaskEnvironment, task: int, component: str, index: int) -> Task:
    """Build one task. Raises the errors of unpickling the component."""
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

    context = build_context(
        environment,
        task,
        component,
        index,
        metrics=metrics,
        wake=wake,
        progress=lambda why: made.goes_on(why),
        stopped=lambda: made.stopped,
    )
    outputs = build_outputs(plan, context, index)
    own = hooks.load_hooks(conf["topology.auto.task.hooks"])
    observers: list[Any] = [*own, *hooks.watchers(plan.observers, context)]
    if conf["topology.debug"]:
        observers.append(hooks.DebugLog())
    setup = TaskSetup(spec, instance, context, plan.limits_of(component), environment.now)
    build = build_spout if spec.kind == "spout" else build_bolt
    made = build(environment, setup, outputs, random, bool(observers))
    made.metrics = metrics
    made.on_out_of_memory = environment.on_out_of_memory
    if environment.marks is not None:
        environment.marks.begin(made, plan)
    if environment.prepare is not None:
        environment.prepare(made)
    if observers:
        made.observer = hooks.Hooks(observers, made.report)
        assert isinstance(made.emitter, hooks.Observed)
        made.emitter.observer = made.observer
    return made


def build_context(
    environment: TaskEnvironment, task: int, component: str, index: int, **of_running_task: Any
) -> Context:
    """Return the context of a task. `of_running_task`: the arguments that only a running task can give; each has a default."""
    plan = environment.plan
    return Context(
        topology=plan.topology.name,
        component=component,
        task=task,
        index=index,
        parallelism=plan.topology.component(component).parallelism,
        conf=plan.conf_of(component),
        tasks=lambda name: tasks_of(plan, name),
        log=logging.getLogger(plan.logger_of(component, index)),
        resources=environment.resources,
        directory=lambda: make_scratch(plan.scratch(component, index)),
        now=environment.now,
        random=Random(f"{plan.seed}/{component}/{index}/user"),
        topology_id=plan.topology_id,
        incarnation=(plan.incarnation.version, plan.incarnation.restart),
        **{"metrics": TaskMetrics(), "wake": environment.wake, **of_running_task},
    )


Outputs = dict[str, StreamOutput]


def build_spout(
    environment: TaskEnvironment, setup: TaskSetup, outputs: Outputs, random: Random, observed: bool
) -> SpoutTask:
    """Build the task of a spout, with its tracker."""
    conf, plan, task = setup.context.conf, environment.plan, setup.context.task
    timeouts = conf["topology.enable.message.timeouts"]
    timeout = float(conf["topology.message.timeout.secs"]) if timeouts else None  # type: ignore[arg-type]
    first = 0
    if plan.incarnation != (0, 0) or environment.lives:
        life = f"/{environment.lives}" if environment.lives else ""
        first = Random(f"{plan.seed}/{plan.incarnation}/{task}{life}").getrandbits(GENERATION_BITS)
    tracker = Tracker(task, timeout, environment.now(), first)
    tracker.acking = bool(conf["topology.acking"])
    if plan.has_epochs:
        from worker.loop.state_build import build_epoch_spout

        made = build_epoch_spout(setup, outputs, random, tracker, observed)
    else:
        kind = hooks.ObservedSpoutEmitter if observed else SpoutEmitter
        made = SpoutTask(setup, kind(setup.spec.id, task, outputs, random, tracker))
    made.wait.calls_an_instant = plan.calls_an_instant
    made.letters.keeper = environment.letters(task)
    made.letters.random = Random(f"{plan.seed}/{plan.incarnation}/{task}/{environment.now()}/letters")
    return made


def build_bolt(
    environment: TaskEnvironment, setup: TaskSetup, outputs: Outputs, random: Random, observed: bool
) -> BoltTask:
    """Build the task of a bolt, of the kind that its class needs."""
    plan, component = environment.plan, setup.spec.id
    inputs = BoundedInputs(plan.end_sources(component), component in plan.cycle_of)
    if plan.has_epochs or isinstance(setup.instance, StatefulBolt):
        from worker.loop.state_build import (
            build_holding_bolt,  # only topologies with state need these modules
        )

        return build_holding_bolt(environment, setup, inputs, outputs, random, observed)
    kind = hooks.ObservedBoltEmitter if observed else BoltEmitter
    emitter = kind(component, setup.context.task, outputs, random)
    if isinstance(setup.instance, BatchBolt):
        return BatchBoltTask(setup, emitter, inputs)
    if inspect.iscoroutinefunction(setup.instance.execute):
        runner, wake = environment.async_runner, environment.wake
        return AsyncBoltTask(setup, emitter, inputs, runner=runner, wake=wake)
    return BoltTask(setup, emitter, inputs)


def build_outputs(
    plan: WorkerPlan, context: Context, index: int, kept: Mapping[tuple[str, int], Outbox] = {}
) -> Outputs:
    """Build the output streams of one task, with routes to all consumers.

    index: the index of the sending task, where round robin starts. kept: outboxes to reuse, by stream and target.
    """
    spec = plan.topology.component(context.component)
    outputs: Outputs = {}
    for stream, declared in spec.outputs.items():
        source = plan.source(spec.id, context.task, stream)
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
                custom = load_grouping(grouping.custom, context, stream, targets)
                groups = plan.groups_of(reader.id)
                consumer = Reader(grouping.fields, boxes, plan.tasks_here.__contains__, index, custom, groups)
                add_route(output, grouping.kind, consumer)
        output.shorten()
    return outputs


def first_of(plan: WorkerPlan, target: int, frame: int) -> int:
    """Return the size of an outbox's first frame in tuples. Within a process, the first frame is as large as all others."""
    return frame if plan.linked or target in plan.tasks_here else FIRST_TUPLES


def load_grouping(packed: bytes, context: Context, stream: str, targets: list[int]) -> Grouping | None:
    """Return the user's grouping, prepared for this sending task; None for a built-in grouping."""
    if not packed:
        return None
    grouping: Grouping = pickle.loads(packed)
    try:
        grouping.prepare(context, context.component, stream, tuple(targets))
    except Exception as error:
        raise GroupingError(
            f"custom grouping {type(grouping).__name__} on stream {stream!r} of component {context.component!r}: "
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
