"""The tables of `squall top`: components, their tasks, and workers, of all topologies.

A row has the time of the Nimbus that answered. Lines below the tables say what a narrow window has no column for: bolts that
are down, calls that do not return, workers near their limit of memory.
Must not know: terminals, how rates are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from squall.api.answers import WorkerEntry
from squall.epoch_status import EpochStatus
from squall.status import ComponentStatus, TaskLoad
from squall_cli.terminal.component_table import down_sentence, undecided_sentence, why_idle
from squall_cli.terminal.epoch_lines import commit_text, wait_sentences
from squall_cli.terminal.formats import clock, cropped, latency, rate, short, span
from squall_cli.terminal.lines import Line, harmless
from squall_cli.terminal.load_table import (
    busy_cell,
    call_cell,
    call_lines,
    grew_cell,
    is_long,
    load_of,
    memory_lines,
    memory_text,
    restarts_cell,
)
from squall_cli.terminal.tables import Cell, TableColumn, bad_when_some


class Busy(msgspec.Struct, frozen=True):
    """One component of one topology at the time `now`, and its rate (None if the rate is not known yet). `shown`: how a line of
    the user's code is shown."""

    topology: str
    name: str
    component: ComponentStatus
    rate: float | None
    now: float = 0.0
    shown: Callable[[str], str] = str

    @property
    def keys(self) -> str:
        """The number of keys with state."""
        return "" if self.component.keys is None else short(self.component.keys)

    def of_spout(self, text: str) -> str:
        """Return a text that is shown only for spouts."""
        return text if self.component.kind == "spout" else ""

    def of_bolt(self, text: str) -> str:
        """Return a text that is shown only for bolts."""
        return text if self.component.kind == "bolt" else ""

    @property
    def load(self) -> TaskLoad:
        """The load of all tasks."""
        return load_of(self.component) if self.component.loads else TaskLoad(0)

    @property
    def why(self) -> Cell:
        """Why the component does not work as it should: it is down, in a long call, or idle."""
        down, load = self.component.down, self.load
        if down:
            since = clock(min(each.since for each in down), self.now)
            head, _, error = why_idle(self.component, self.shown).partition(":")
            return f"{head} since {since}:{error}", "bad"
        # A spout may wait for its source in `next_tuple`: then the reason why it is idle says more.
        told = self.component.kind == "bolt" or load.call_name not in ("", "next_tuple")
        if load.call_since is not None and told and is_long(load, self.now):
            of = f" of {load.call_name}()" if load.call_name else ""
            at = f", at {self.shown(load.call_place)}" if load.call_place else ""
            return f"in one call{of} for {span(self.now - load.call_since)}{at}", "bad"
        return why_idle(self.component, self.shown), "warn" if self.component.undecided else "dim"


class BusyTask(msgspec.Struct, frozen=True):
    """One task of a component, and the name of its worker."""

    of: Busy
    load: TaskLoad
    worker: str


class BusyWorker(msgspec.Struct, frozen=True):
    """A worker of a topology."""

    topology: str
    worker: WorkerEntry


#: Shown only if a topology keeps state.
KEYS: Final[TableColumn[Busy]] = TableColumn("KEYS", lambda each: each.keys, number=True, rank=4)
COMPONENTS: Final[tuple[TableColumn[Busy], ...]] = (
    TableColumn("TOPOLOGY", lambda each: each.topology, elastic=True, shortest=10),
    TableColumn("COMPONENT", lambda each: each.name, elastic=True, shortest=10),
    TableColumn("KIND", lambda each: (each.component.kind, "dim"), rank=5),
    TableColumn("TASKS", lambda each: short(each.component.tasks), number=True, rank=4),
    TableColumn("RATE/s", lambda each: (rate(each.rate), "head" if each.rate else "dim"), number=True),
    TableColumn("FAILED", lambda each: bad_when_some(each.component.failed), number=True, rank=1),
    TableColumn("PENDING", lambda each: each.of_spout(short(each.component.pending)), number=True, rank=2),
    TableColumn("p99", lambda each: each.of_spout(latency(each.component.p99)), number=True, rank=3),
    TableColumn("BUSY", lambda each: busy_cell(each.component.busy), number=True),
    TableColumn("QUEUE", lambda each: each.of_bolt(short(each.component.queue)), number=True, rank=2),
    TableColumn(
        "EXEC p50", lambda each: each.of_bolt(latency(each.component.execute_p50)), number=True, rank=4
    ),
    TableColumn(
        "EXEC p99", lambda each: each.of_bolt(latency(each.component.execute_p99)), number=True, rank=1
    ),
    TableColumn("IN ONE CALL", lambda each: call_cell(each.load.call_since, each.now), number=True, rank=1),
    TableColumn("GREW", lambda each: grew_cell(each.load.grew), number=True, rank=5),
    KEYS,
    TableColumn("ERRORS", lambda each: bad_when_some(each.component.errors), number=True, rank=1),
    TableColumn("WHY IDLE", lambda each: each.why, elastic=True, rank=6),
)
TASKS: Final[tuple[TableColumn[BusyTask], ...]] = (
    TableColumn("TOPOLOGY", lambda each: each.of.topology, elastic=True, shortest=10),
    TableColumn("COMPONENT", lambda each: each.of.name, elastic=True, shortest=10),
    TableColumn("TASK", lambda each: str(each.load.task), number=True),
    TableColumn("WORKER", lambda each: each.worker, rank=1),
    TableColumn("BUSY", lambda each: busy_cell(each.load.busy), number=True),
    TableColumn("GREW", lambda each: grew_cell(each.load.grew), number=True, rank=2),
    TableColumn("QUEUE", lambda each: each.of.of_bolt(short(each.load.queue)), number=True, rank=3),
    TableColumn(
        "EXEC p50", lambda each: each.of.of_bolt(latency(each.load.execute_p50)), number=True, rank=4
    ),
    TableColumn(
        "EXEC p99", lambda each: each.of.of_bolt(latency(each.load.execute_p99)), number=True, rank=3
    ),
    TableColumn("IN ONE CALL", lambda each: call_cell(each.load.call_since, each.of.now), number=True),
)
WORKERS: Final[tuple[TableColumn[BusyWorker], ...]] = (
    TableColumn("TOPOLOGY", lambda each: each.topology, elastic=True, shortest=10),
    TableColumn("WORKER", lambda each: each.worker.worker),
    TableColumn("HOST", lambda each: each.worker.host or "-", elastic=True, shortest=10),
    TableColumn("RESTARTS", lambda each: restarts_cell(each.worker), number=True, rank=1),
    TableColumn("PID", lambda each: "-" if each.worker.pid is None else str(each.worker.pid), number=True),
    TableColumn("CPU", lambda each: busy_cell(each.worker.cpu), number=True),
    TableColumn("RSS", lambda each: memory_text(each.worker.rss), number=True),
    TableColumn("THREADS", lambda each: short(each.worker.threads or 0), number=True, rank=2),
)


def tasks_of(busy: Sequence[Busy], workers: Sequence[BusyWorker]) -> list[BusyTask]:
    """Return the tasks of all components: those in a long call first, then the busiest."""
    place = {(each.topology, row.task): each.worker.worker for each in workers for row in each.worker.tasks}
    tasks = [
        BusyTask(each, load, place.get((each.topology, load.task), "-"))
        for each in busy
        for load in each.component.loads
    ]
    return sorted(
        tasks,
        key=lambda each: (
            not (each.of.component.kind == "bolt" and is_long(each.load, each.of.now)),
            -(each.load.busy or 0.0),
            each.of.topology,
            each.load.task,
        ),
    )


def busiest(workers: Sequence[BusyWorker]) -> list[BusyWorker]:
    """Return the workers, the one that uses most processor time first."""
    return sorted(workers, key=lambda each: (-(each.worker.cpu or 0.0), each.topology, each.worker.worker))


def commit_lines(epochs: Mapping[str, EpochStatus], width: int) -> Iterator[Line]:
    """Yield the last commit of each topology that keeps its state: first of those that waited longest for the next one."""
    for topology, epoch in sorted(
        epochs.items(), key=lambda item: (item[1].quiet, -(item[1].age or 0.0), item[0])
    ):
        yield ((cropped(f"{harmless(topology)}: {commit_text(epoch)}", width), "dim"),)


def trouble_lines(
    busy: Sequence[Busy],
    workers: Sequence[BusyWorker],
    width: int,
    epochs: Mapping[str, EpochStatus],
) -> Iterator[Line]:
    """Yield lines about problems, each with its topology. `epochs`: those of the topologies that keep their state."""
    for topology in dict.fromkeys(each.topology for each in busy):
        own = [each for each in busy if each.topology == topology]
        components = {each.name: each.component for each in own}
        found: list[Line] = [
            ((harmless(down_sentence(each.name, each.component, each.shown)), "bad"),)
            for each in own
            if each.component.down
        ]
        found += [
            ((harmless(undecided_sentence(each.name, each.component, each.shown)), "warn"),)
            for each in own
            if each.component.undecided
        ]
        waits = wait_sentences(epochs.get(topology), own[0].shown)
        found += [((text, "bad"),) for text in waits.values()]
        bolts = {name: component for name, component in components.items() if component.kind == "bolt"}
        found += call_lines(bolts, width, own[0].now, own[0].shown)
        found += memory_lines([each.worker for each in workers if each.topology == topology], components)
        for ((text, style),) in found:
            yield ((cropped(f"{harmless(topology)}: {text}", width), style),)
