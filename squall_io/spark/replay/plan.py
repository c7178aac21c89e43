"""The part of a topology that a replay runs: the components that the outputs depend on. A request that a replay cannot carry
out is refused with an error that names the component or stream.

This module has only plain values, and decisions over them. A `ReplayPlan` is sent to every task of the job.
Must not know: Spark, user code, tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from squall_io.spark.replay.problems import CannotReplay
from squall_io.spark.replay.records import MOST_SOURCES, NO_TASK
from squall_io.spark.rows.schema import Schema
from topology_api import Topology
from topology_api.graph import Edge, cycles
from topology_api.options import defaults, json_copy
from topology_api.topology import DEAD_LETTERS, ComponentSpec
from topology_api.wording import listed, nearest, shown, typed
from worker.loop.plan import TaskRow, WorkerPlan

#: Settings that do not apply to a replay.
_SET_ASIDE: Final[Mapping[str, object]] = {
    "topology.auto.task.hooks": [],
    "topology.debug": False,
    "topology.on.outage": "give-up",
}
DEFAULT: Final = "default"


class StreamKey(NamedTuple):
    """A stream of a component."""

    component: str
    stream: str

    def __str__(self) -> str:
        return self.component if self.stream == DEFAULT else f"{self.component}:{self.stream}"


def read_by(spec: ComponentSpec) -> tuple[StreamKey, ...]:
    """Return the streams that a component reads, each once."""
    return tuple(dict.fromkeys(StreamKey(entry.source, entry.stream) for entry in spec.inputs))


@dataclass(frozen=True)
class ReplayPlan:
    """The components to run, their sources, and the outputs."""

    #: The topology, without the routes to components that do not run; direct routes are all kept.
    topology: Topology
    #: The bolts to run, each after all components that it reads from.
    steps: tuple[str, ...]
    #: The streams that frames replace, by the caller's names; some may be unused.
    given: Mapping[str, StreamKey]
    #: The given streams that are used.
    sources: tuple[StreamKey, ...]
    #: The streams that become frames, by the caller's names.
    outputs: Mapping[str, StreamKey]
    #: The number of tuples that may fail; None: any number.
    max_errors: int | None
    #: The time in all tasks, in seconds since 1970: time stands still in a replay.
    now: float
    topology_id: str = ""
    #: The schemas of outputs whose types are not inferred.
    schemas: Mapping[StreamKey, Schema] = field(default_factory=dict)

    @cached_property
    def streams(self) -> tuple[StreamKey, ...]:
        """All streams that carry tuples; the position of a stream is its number."""
        inner = [key for step in self.steps for key in self.inputs_of(step)]
        return tuple(dict.fromkeys([*self.sources, *inner, *self.outputs.values()]))

    @cached_property
    def number_of(self) -> Mapping[StreamKey, int]:
        """The number of each stream."""
        return {key: number for number, key in enumerate(self.streams)}

    @cached_property
    def tasks(self) -> tuple[TaskRow, ...]:
        """Every task of the topology, numbered as a cluster numbers them."""
        rows = ((spec.id, index) for spec in self.topology.components for index in range(spec.parallelism))
        return tuple(TaskRow(task, *row) for task, row in enumerate(rows, 1))

    @cached_property
    def place_of(self) -> Mapping[int, tuple[str, int]]:
        """The component and the index of each task."""
        return {task: (component, index) for task, component, index in self.tasks}

    @cached_property
    def tasks_of(self) -> Mapping[str, list[int]]:
        """The tasks of each component, ascending."""
        return self.for_worker("").tasks_of

    @cached_property
    def running(self) -> frozenset[int]:
        """The tasks of the components that are run."""
        return frozenset(task for step in self.steps for task in self.tasks_of[step])

    def fields_of(self, key: StreamKey) -> tuple[str, ...]:
        """Return the names of a stream's values."""
        return self.topology.component(key.component).outputs[key.stream].fields

    def inputs_of(self, step: str) -> tuple[StreamKey, ...]:
        """Return the streams that a component reads, each once."""
        return read_by(self.topology.component(step))

    def readers_of(self, what: StreamKey | str) -> list[str]:
        """Return the running components that read a stream, or any stream of a component."""
        return [
            step for step in self.steps if any(what in (key, key.component) for key in self.inputs_of(step))
        ]

    def is_output(self, component: str) -> bool:
        """Return whether a stream of a component becomes a frame."""
        return any(key.component == component for key in self.outputs.values())

    def heir_of(self, what: StreamKey | str) -> int:
        """Return the task that passes on the notes of a source or component; NO_TASK if the notes are read from the component's
        own frame.
        """
        own_frame = not isinstance(what, StreamKey) and self.is_output(what)
        heirs = [] if own_frame else self.readers_of(what)
        return self.tasks_of[heirs[0]][0] if heirs else NO_TASK

    def for_worker(self, directory: str) -> WorkerPlan:
        """Return the plan in the form that the worker's core reads; in it, all tasks are on a different worker."""
        ground = {**defaults(), **self.topology.conf}
        return WorkerPlan(
            worker="replay",
            topology=self.topology,
            tasks=self.tasks,
            worker_of={task: "elsewhere" for task, _, _ in self.tasks},
            conf=json_copy({**ground, **_SET_ASIDE}),
            component_confs={
                spec.id: json_copy({**ground, **spec.conf, **_SET_ASIDE}) for spec in self.topology.components
            },
            directory=directory,
            topology_id=self.topology_id,
        )


def plan_replay(
    topology: Topology,
    sources: Iterable[str],
    outputs: Sequence[str],
    max_errors: int | None,
    now: float,
    topology_id: str = "",
) -> ReplayPlan:
    """Return the plan for computing the outputs; raise `CannotReplay` with all problems."""
    problems: list[str] = []
    given = keys_of(topology, sources, "source", problems)
    wanted = keys_of(topology, outputs, "output", problems)
    problems += [problem for key in given.values() for problem in source_problems(topology, key)]
    problems += [problem for key in wanted.values() for problem in output_problems(topology, key)]
    if len(given) > MOST_SOURCES:
        problems.append(f"there are {len(given)} sources, and at most {MOST_SOURCES} are possible")
    if max_errors is not None and (type(max_errors) is not int or max_errors < 0):
        problems.append(
            f"max_errors is {typed(max_errors)}: give a whole number from 0, or None for any number of errors"
        )
    if not outputs:
        problems.append("outputs is empty: name the components whose tuples are wanted")
    if not problems:
        needed = find_needed(topology, set(given.values()), wanted.values(), problems)
        problems += cycle_problems(topology, needed, set(given.values()))
    if problems:
        raise CannotReplay(topology.name, problems)
    steps = in_order(topology, needed)
    read = {key for step in steps for key in read_by(topology.component(step))}
    used = tuple(key for key in given.values() if key in read)
    return ReplayPlan(
        pruned(topology, needed), tuple(steps), given, used, wanted, max_errors, now, topology_id
    )


# The requested streams


def keys_of(topology: Topology, names: Iterable[str], what: str, problems: list[str]) -> dict[str, StreamKey]:
    """Return the streams that the names `component` or `component:stream` mean; add a problem for each unknown name."""
    found: dict[str, StreamKey] = {}
    for name in names:
        key = key_of(topology, name)
        if isinstance(key, str):
            problems.append(f"{what} {shown(name)}: {key}")
        elif key in found.values():
            problems.append(f"{what} {name!r}: stream {key.stream!r} of {key.component!r} is given twice")
        else:
            found[name] = key
    return found


def key_of(topology: Topology, name: object) -> StreamKey | str:
    """Return the stream that one name means, or why it means none. The name of a component means its default stream, or its
    only stream.
    """
    if not isinstance(name, str):
        return "write 'component' or 'component:stream'"
    component, colon, stream = name.partition(":")
    known = [spec.id for spec in topology.components]
    if component not in known:
        near = nearest(component, known) or f" (there are: {listed(known)})"
        return f"there is no component {component!r}{near}"
    streams = list(topology.component(component).outputs)
    own = [each for each in streams if each != DEAD_LETTERS]
    if not colon:
        stream = own[0] if len(own) == 1 else DEFAULT
    if stream in streams:
        return StreamKey(component, stream)
    if not own:
        return f"{component!r} emits nothing; a replay runs no sinks: ask for the streams that the sinks read"
    near = nearest(stream, own) or f" (it has: {listed(own)})"
    return f"component {component!r} has no stream {stream!r}{near}"


def source_problems(topology: Topology, key: StreamKey) -> Iterator[str]:
    """Yield why a frame cannot replace a stream."""
    if topology.component(key.component).outputs[key.stream].direct:
        yield f"source {str(key)!r}: stream {key.stream!r} is direct, and no row of a frame says for which task it is"


def output_problems(topology: Topology, key: StreamKey) -> Iterator[str]:
    """Yield why a stream cannot become a frame."""
    if (spec := topology.component(key.component)).kind == "spout":
        yield f"output {str(key)!r}: {key.component!r} is a spout, which a replay does not run: its tuples are the source"
        return
    stream = spec.outputs[key.stream]
    if stream.direct:
        yield (
            f"output {str(key)!r}: stream {key.stream!r} is direct, so each of its tuples is for one task of a reader; ask for"
            " what its readers emit"
        )
    if not stream.fields:
        yield f"output {str(key)!r}: stream {key.stream!r} has no fields, so there are no columns"
    folded = [name.lower() for name in stream.fields]
    for name in dict.fromkeys(each for each in folded if folded.count(each) > 1):
        yield f"output {str(key)!r}: several of its fields are called {name!r} if case is ignored, and Spark ignores it"


# The components that the outputs depend on


def find_needed(
    topology: Topology, given: set[StreamKey], wanted: Iterable[StreamKey], problems: list[str]
) -> set[str]:
    """Return the bolts that the outputs depend on, up to the given streams."""
    needed: set[str] = set()
    ahead = [key.component for key in wanted]
    missing: dict[StreamKey, list[str]] = {}
    while ahead:
        if (component := ahead.pop()) in needed:
            continue
        needed.add(component)
        for key in read_by(topology.component(component)):
            if key in given:
                continue
            if topology.component(key.component).kind == "spout":
                missing.setdefault(key, []).append(component)
            else:
                ahead.append(key.component)
    for key, readers in missing.items():
        why = (
            "a replay has no dead letters, so give a frame of them (it may be empty)"
            if key.stream == DEAD_LETTERS
            else "a replay does not run spouts"
        )
        problems.append(
            f"no source is given for {str(key)!r}, which is read by {listed(sorted(readers))}: {why}"
        )
    for name in sorted({key.component for key in given} & needed):
        problems.append(
            f"{name!r} is given as a source, but it would also have to run, because other streams of it are needed: give all"
            " of its streams"
        )
    return needed


def cycle_problems(topology: Topology, needed: set[str], given: set[StreamKey]) -> Iterator[str]:
    """Yield the cycles among the components to run."""
    specs = [spec for spec in topology.components if spec.id in needed]
    edges = [
        Edge(target=spec.id, source=key.component, stream=key.stream)
        for spec in specs
        for key in read_by(spec)
        if key not in given
    ]
    for members in cycles([spec.id for spec in specs], edges):
        yield (
            f"{listed(members)} form a cycle, which a batch job cannot run: give a stream of the cycle as a source, or ask"
            " for outputs of components before the cycle"
        )


def in_order(topology: Topology, needed: set[str]) -> list[str]:
    """Return the components in an order in which each comes after all components that it reads from. Components that are ready
    at the same time keep the order of their declarations.
    """
    left = [spec for spec in topology.components if spec.id in needed]
    done: list[str] = []
    while left:
        waiting = {spec.id for spec in left}
        ready = [spec for spec in left if not any(entry.source in waiting for entry in spec.inputs)]
        done += [spec.id for spec in ready]
        left = [spec for spec in left if spec not in ready]
    return done


def pruned(topology: Topology, needed: set[str]) -> Topology:
    """Return the topology with only the code and routes of components that run. Direct routes to other components remain, since
    a bolt may name a task of such a component without an error; nothing is sent along these routes.
    """

    def without_routes(spec: ComponentSpec) -> ComponentSpec:
        if spec.id in needed:
            return spec
        return replace(spec, inputs=tuple(entry for entry in spec.inputs if entry.grouping.kind == "direct"))

    return replace(
        topology,
        components=tuple(map(without_routes, topology.components)),
        pickles={name: topology.pickles[name] for name in topology.pickles if name in needed},
    )
