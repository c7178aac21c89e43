"""The table of how components and their tasks are loaded, and the lines about calls that do not return and about memory.

`now` is the time of the Nimbus that answered: this machine may have another time.
Must not know: terminals, colours, clusters, this machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from squall.api.answers import WorkerEntry
from squall.status import ComponentStatus, TaskLoad
from squall_cli.terminal import formats
from squall_cli.terminal.lines import Line, harmless
from squall_cli.terminal.tables import Cell, TableColumn, lines_of, table_of

#: A task whose busy share is at least this is marked: it does not keep up, or soon will not.
FULL: Final = 0.9
#: Seconds after which a call that has not returned is reported, and after which it is so even if nothing is known of it.
LONG_CALL: Final = 5.0
UNKNOWN_CALL: Final = 10.0
#: Bytes by which the memory grew in calls of a task that are marked, and the share of its limit at which a worker is named.
GREW_MUCH: Final = 100 * 2**20
NEAR_LIMIT: Final = 0.8


class LoadRow(msgspec.Struct, frozen=True):
    """The load of one component, or of one of its tasks, at the time `now`. `shown`: the name or the task's number."""

    shown: str
    kind: str
    load: TaskLoad
    now: float

    def of_bolt(self, text: str) -> str:
        """Return a text that is shown only for bolts."""
        return text if self.kind == "bolt" else ""


COLUMNS: Final[tuple[TableColumn[LoadRow], ...]] = (
    TableColumn("LOAD OF", lambda row: row.shown, elastic=True, shortest=10),
    TableColumn("BUSY", lambda row: busy_cell(row.load.busy), number=True),
    TableColumn("GREW", lambda row: grew_cell(row.load.grew), number=True),
    TableColumn("QUEUE", lambda row: row.of_bolt(formats.short(row.load.queue)), number=True),
    TableColumn("EXEC p50", lambda row: row.of_bolt(formats.latency(row.load.execute_p50)), number=True),
    TableColumn("EXEC p99", lambda row: row.of_bolt(formats.latency(row.load.execute_p99)), number=True),
    TableColumn("IN ONE CALL", lambda row: call_cell(row.load.call_since, row.now), number=True),
)


def busy_cell(share: float | None) -> Cell:
    """Return a share as a percentage; a dash if it is unknown."""
    if share is None:
        return "-", "dim"
    return f"{share * 100:.0f}%", "warn" if share >= FULL else ""


def memory_text(size: int | None) -> str:
    """Return a process's memory: `87M`, `1.4G`; a dash if it is unknown."""
    if not size:
        return "-"
    return f"{size / 2**30:.1f}G" if size >= 2**30 else f"{size / 2**20:.0f}M"


def grew_cell(size: int | None) -> Cell:
    """Return by how much memory has grown; "" if it has not."""
    if not size:
        return ""
    return memory_text(size), "warn" if size >= GREW_MUCH else ""


def restarts_cell(worker: WorkerEntry) -> Cell:
    """Return how often a worker was started again."""
    restarts = worker.incarnation.restart
    return str(restarts), "warn" if restarts else "dim"


def load_lines(components: Mapping[str, ComponentStatus], tasks: bool, width: int, now: float) -> list[Line]:
    """Return the table: a row for each component, or with `tasks` for each task. Nothing if no worker reports its load."""
    rows = []
    for name, component in components.items():
        if tasks:
            rows += [
                LoadRow(f"{harmless(name)} {load.task}", component.kind, load, now)
                for load in component.loads
            ]
        elif component.loads:
            rows.append(LoadRow(harmless(name), component.kind, load_of(component), now))
    return lines_of(table_of(COLUMNS, rows), width) if rows else []


def load_of(component: ComponentStatus) -> TaskLoad:
    """Return the load of a component: the busiest task's share, all queues, the growth of all tasks, the call that has been
    running longest."""
    calls = [load for load in component.loads if load.call_since is not None]
    longest = min(calls, key=lambda load: load.call_since or 0.0, default=component.loads[0])
    return replace(
        longest,
        busy=component.busy,
        queue=component.queue,
        grew=sum(load.grew or 0 for load in component.loads),
        execute_p50=component.execute_p50,
        execute_p99=component.execute_p99,
    )


def call_lines(
    components: Mapping[str, ComponentStatus],
    width: int,
    now: float,
    shown: Callable[[str], str] = str,
) -> Iterator[Line]:
    """Yield a line for each call that has not returned for five seconds, the longest first. `shown`: how a line of the user's
    code is shown."""
    calls = [
        (load.call_since, name, load)
        for name, component in components.items()
        for load in component.loads
        if load.call_since is not None and is_long(load, now)
    ]
    for since, name, load in sorted(calls, key=lambda call: call[0]):
        of = f" of {load.call_name}()" if load.call_name else ""
        text = f"{name}[{load.task}] has been in one call{of} for {formats.duration(now - since)}"
        if load.call_place:
            text += f", at {shown(load.call_place)}"
        if load.call_tuple:
            text += f", with {load.call_tuple}"
        yield ((harmless(" ".join(text.split())), "bad"),)


def is_long(load: TaskLoad, now: float) -> bool:
    """Return whether the present call of a task is to be reported. Method, place and tuple come with a later heartbeat."""
    seconds = 0.0 if load.call_since is None else now - load.call_since
    known = load.call_name or load.call_place or load.call_tuple
    return seconds >= (LONG_CALL if known else UNKNOWN_CALL)


def call_cell(since: float | None, now: float) -> Cell:
    """Return how long a call has been running."""
    if since is None:
        return "", ""
    return formats.span(now - since), "bad" if now - since >= LONG_CALL else "warn"


def memory_lines(workers: Sequence[WorkerEntry], components: Mapping[str, ComponentStatus]) -> Iterator[Line]:
    """Yield a line for each worker that has used most of `topology.worker.memory.mb`, with the task that it grew in."""
    loads = {load.task: (name, load) for name, component in components.items() for load in component.loads}
    for worker in workers:
        used, limit = worker.rss, worker.memory_limit
        if not used or not limit or used < NEAR_LIMIT * limit:
            continue
        megabytes = (f"{size / 1e6:,.0f}" for size in (used, limit))
        text = f"{worker.worker} uses {' of '.join(megabytes)} MB (topology.worker.memory.mb)"
        grown = [loads[row.task] for row in worker.tasks if row.task in loads]
        total = sum(load.grew or 0 for _, load in grown)
        name, most = max(grown, key=lambda each: each[1].grew or 0, default=("", None))
        if most is not None and most.grew and most.grew > total / 2:
            text += f"; {most.grew / 1e6:,.0f} MB of the growth are from calls of {name}[{most.task}]"
        yield ((harmless(text), "bad" if used >= limit else "warn"),)
