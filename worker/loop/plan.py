"""A worker's plan: the topology, the worker of each task, the merged configuration, and values that follow from these.
Must not know: queues, user code, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from squall.packages.state_paths import StateStart
from squall.transport.credit import frame_limits
from squall.values import Incarnation
from squall.values import TaskRow as TaskRow
from topology_api import Topology
from topology_api.epoch_rules import DEFAULT_GROUPS, has_key, named_groups, state_path
from topology_api.letter_streams import is_letter_stream
from topology_api.topology import ComponentSpec
from topology_api.tuples import Source
from worker.loop.cycles import Cycle
from worker.routing.key_groups import GroupRange, range_of
from worker.tasks.task import TaskLimits


class WorkerPlan(msgspec.Struct, frozen=True, dict=True):
    """Everything that one worker needs to run its tasks."""

    worker: str
    topology: Topology
    #: Every task of the topology.
    tasks: tuple[TaskRow, ...]
    worker_of: Mapping[int, str]
    conf: Mapping[str, Any]
    component_confs: Mapping[str, Mapping[str, Any]]
    directory: str
    seed: int = 0
    #: Objects that watch the tasks; see `worker.tasks.hooks`.
    observers: tuple[Any, ...] = msgspec.field(default=())
    #: Spout tasks that had finished before this worker was started; they are not opened again.
    finished: frozenset[int] = frozenset()
    #: In simulated time, where calls take no time: the most calls of next_tuple within one instant. None: no limit.
    calls_an_instant: int | None = None
    #: Which process of the worker this is; see `squall.cluster.records.Placement`.
    incarnation: Incarnation = msgspec.field(default=Incarnation(0, 0))
    #: The version of the assignment. A process that stays has its incarnation from an earlier one.
    version: int = 0
    #: Which submission of the topology this is.
    topology_id: str = ""
    #: How often this submission got its name back, because the version after it was rolled back.
    returns: int = 0
    #: The epoch with which this submission begins; None: the last commit.
    state_start: StateStart | None = None
    #: An epoch that is committed at the path of the state, so that there is a log; 0: none is known to be.
    committed: int = 0
    #: Into how many groups the keys of stateful bolts were divided at the last commit, if the configuration names no number; 0:
    #: it is not known, or they were not.
    groups: int = 0
    #: False: another worker gets tuples only after the transport has linked it.
    linked: bool = True

    @property
    def has_epochs(self) -> bool:
        """Whether the topology's state is kept outside of its workers."""
        return state_path(self.conf) is not None

    def groups_of(self, component: str) -> int:
        """Return into how many groups the keys of a component's state are divided; 0: it has none, or keeps it in memory."""
        spec = self.topology.component(component)
        return self.key_groups if self.has_epochs and has_key(spec.keeps) else 0

    @property
    def key_groups(self) -> int:
        """Into how many groups the keys of stateful bolts are divided."""
        return named_groups(self.conf) or self.groups or DEFAULT_GROUPS

    def range_of(self, component: str, index: int) -> GroupRange | None:
        """Return the key groups of one of a component's tasks; None: its keys are not divided into groups."""
        groups = self.groups_of(component)
        return range_of(index, len(self.tasks_of[component]), groups) if groups else None

    @property
    def tenure(self) -> str:
        """Which submission of the topology this is, and which of its times with the name: to the log of its state, one that
        returns is a later one than the one that was rolled back."""
        return f"{self.topology_id}+{self.returns}" if self.returns else self.topology_id

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of all tasks, "component/index", by id: ids change with assignments, names do not."""
        return {task: f"{component}/{index}" for task, component, index in self.tasks}

    @property
    def own_tasks(self) -> list[TaskRow]:
        """The tasks that run in this worker."""
        return [row for row in self.tasks if row[0] in self.tasks_here]

    def logger_of(self, component: str, index: int) -> str:
        """Return the name of a task's logger (`Context.log`)."""
        return f"squall.{self.topology.name}.{component}.{index}"

    @cached_property
    def tasks_by_logger(self) -> dict[str, str]:
        """The tasks, such as "count[4]", by the names of their loggers."""
        return {self.logger_of(component, at): f"{component}[{task}]" for task, component, at in self.tasks}

    def scratch(self, component: str, index: int) -> str:
        """Return the path of a task's scratch directory (`Context.directory`), whether it exists or not."""
        return f"{self.directory}/{component}-{index}"

    @cached_property
    def tasks_of(self) -> dict[str, list[int]]:
        """The task ids of each component, ascending."""
        found: dict[str, list[int]] = {component.id: [] for component in self.topology.components}
        for task, component, _ in self.tasks:
            found[component].append(task)
        return {component: sorted(tasks) for component, tasks in found.items()}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of tasks of each component."""
        return {component: len(tasks) for component, tasks in self.tasks_of.items()}

    @property
    def spout_tasks(self) -> list[int]:
        """The ids of all spout tasks of the topology."""
        return [task for spec in self.topology.spouts for task in self.tasks_of[spec.id]]

    @cached_property
    def tasks_here(self) -> frozenset[int]:
        """The ids of the tasks that run in this worker."""
        return frozenset(task for task, worker in self.worker_of.items() if worker == self.worker)

    @cached_property
    def component_of(self) -> dict[int, str]:
        """The component of each task."""
        return {task: component for task, component, _ in self.tasks}

    @cached_property
    def cycle_of(self) -> dict[str, int]:
        """Component -> index of its cycle; only for components that are in a cycle."""
        return {component: index for index, cycle in enumerate(self.topology.cycles) for component in cycle}

    def conf_of(self, component: str) -> Mapping[str, Any]:
        """Return the merged configuration of a component."""
        return self.component_confs.get(component, self.conf)

    def limits_of(self, component: str) -> TaskLimits:
        """Return the sizes of a component's queues.

        A run ends after `emits` emissions, and outboxes are checked at least once a run. So if an outbox is below `high` at the
        start of a run, then at the end of the run it is below the queue's size plus the emissions of one user call.
        """
        size = int(self.conf_of(component)["topology.queue.size"])
        frame, window = frame_limits(size)
        emits = max(1, min(1024, size // 4))
        return TaskLimits(frame, window, max(1, size - 2 * emits), emits)

    def window_of(self, task: int) -> int:
        """Return the number of frames that may be in flight from one worker to this task."""
        return self.limits_of(self.component_of[task]).window

    def readers(self, component: str) -> list[ComponentSpec]:
        """Return the bolts that read a stream of this component."""
        return [bolt for bolt in self.topology.bolts if any(each.source == component for each in bolt.inputs)]

    def end_targets(self, component: str) -> list[int]:
        """Return the tasks that get an end mark from each task of a component: the tasks of its readers, except readers in the
        same cycle.
        """
        cycle = self.cycle_of.get(component, -1)
        readers = [each.id for each in self.readers(component) if self.cycle_of.get(each.id) != cycle]
        return sorted(task for reader in readers for task in self.tasks_of[reader])

    def end_sources(self, component: str) -> list[int]:
        """Return the tasks from which each task of this component needs an end mark."""
        cycle = self.cycle_of.get(component, -1)
        inputs = self.topology.component(component).inputs
        sources = {each.source for each in inputs if self.cycle_of.get(each.source) != cycle}
        return sorted(task for source in sources for task in self.tasks_of[source])

    def spouts_before(self, component: str) -> list[ComponentSpec]:
        """Return the spouts whose tuples, or what bolts made of them, reach a component, in order of declaration."""
        before, found = {component}, [component]
        for each in found:
            inputs = self.topology.component(each).inputs
            # Letters are of the spout whose letters the component reads anyway.
            new = {entry.source for entry in inputs if not is_letter_stream(entry.stream)} - before
            before |= new
            found += new
        return [spout for spout in self.topology.spouts if spout.id in before]

    def barrier_targets(self, component: str) -> list[int]:
        """Return the tasks that get the barriers of each task of a component: those of all its readers."""
        return sorted(task for reader in self.readers(component) for task in self.tasks_of[reader.id])

    def barrier_sources(self, component: str) -> list[int]:
        """Return the tasks from which each task of this component gets barriers."""
        sources = {each.source for each in self.topology.component(component).inputs}
        return sorted(task for source in sources for task in self.tasks_of[source])

    def closing_sources(self, component: str) -> list[int]:
        """Return those of them whose tuples come over an edge that closes a cycle."""
        edges = self.topology.closing_edges
        sources = {source for reader, source, _ in edges if reader == component}
        return sorted(task for source in sources for task in self.tasks_of[source])

    def cycles(self) -> list[Cycle]:
        """Return the cycles, each with the workers that host its tasks and the worker that coordinates it."""
        cycles = []
        for members in self.topology.cycles:
            tasks = sorted(task for component in members for task in self.tasks_of[component])
            workers = tuple(sorted({self.worker_of[task] for task in tasks}))
            cycles.append(Cycle(workers, self.worker_of[tasks[0]]))
        return cycles

    def source(self, component: str, task: int, stream: str) -> Source:
        """Return the source of the tuples that a task emits on a stream."""
        return Source(component, task, stream, self.topology.component(component).outputs[stream].fields)
