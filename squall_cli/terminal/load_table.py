"""The table of how components and their tasks are loaded, and the lines about calls that do not return.

Must not know: terminals, colours, clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from squall.status import ComponentStatus, TaskLoad
from squall_cli.terminal import formats
from squall_cli.terminal.lines import Line, harmless
from squall_cli.terminal.tables import Cell, TableColumn, lines_of, table_of

#: A task whose busy share is at least this is marked: it does not keep up, or soon will not.
FULL: Final = 0.9
#: Seconds after which a call that has not returned is reported.
LONG_CALL: Final = 5.0


@dataclass(frozen=True)
class LoadRow:
    """The load of one component, or of one of its tasks. `shown`: the name or the task's number."""

    shown: str
    kind: str
    load: TaskLoad

    def of_bolt(self, text: str) -> str:
        """Return a text that is shown only for bolts."""
        return text if self.kind == "bolt" else ""


COLUMNS: Final[tuple[TableColumn[LoadRow], ...]] = (
    TableColumn("LOAD OF", lambda row: row.shown, elastic=True, shortest=10),
    TableColumn("BUSY", lambda row: busy_cell(row.load.busy), number=True),
    TableColumn("QUEUE", lambda row: row.of_bolt(formats.short(row.load.queue)), number=True),
    TableColumn("EXEC p50", lambda row: row.of_bolt(formats.latency(row.load.execute_p50)), number=True),
    TableColumn("EXEC p99", lambda row: row.of_bolt(formats.latency(row.load.execute_p99)), number=True),
    TableColumn("IN ONE CALL", lambda row: _call_cell(row.load.call_since), number=True),
)


def busy_cell(share: float | None) -> Cell:
    """Return a share as a percentage; a dash if it is unknown."""
    if share is None:
        return "-", "dim"
    return f"{share * 100:.0f}%", "warn" if share >= FULL else ""


def load_lines(components: Mapping[str, ComponentStatus], tasks: bool, width: int) -> list[Line]:
    """Return the table: a row for each component, or with `tasks` for each task. Nothing if no worker reports its load."""
    rows = []
    for name, component in components.items():
        if tasks:
            rows += [
                LoadRow(f"{harmless(name)} {load.task}", component.kind, load) for load in component.loads
            ]
        elif component.loads:
            rows.append(LoadRow(harmless(name), component.kind, load_of(component)))
    return lines_of(table_of(COLUMNS, rows), width) if rows else []


def load_of(component: ComponentStatus) -> TaskLoad:
    """Return the load of a component: the busiest task's share, all queues, the call that has been running longest."""
    calls = [load for load in component.loads if load.call_since is not None]
    longest = min(calls, key=lambda load: load.call_since or 0.0, default=component.loads[0])
    return replace(
        longest,
        busy=component.busy,
        queue=component.queue,
        execute_p50=component.execute_p50,
        execute_p99=component.execute_p99,
    )


def call_lines(
    components: Mapping[str, ComponentStatus],
    width: int,
    now: float | None = None,
    shown: Callable[[str], str] = str,
) -> Iterator[Line]:
    """Yield a line for each call that has not returned for five seconds, the longest first. `shown`: how a line of the user's
    code is shown."""
    now = time.time() if now is None else now
    calls = [
        (load.call_since, name, load)
        for name, component in components.items()
        for load in component.loads
        if load.call_since is not None and now - load.call_since >= LONG_CALL
    ]
    for since, name, load in sorted(calls, key=lambda call: call[0]):
        text = f"{name}[{load.task}] has been in one call for {formats.duration(now - since)}"
        if load.call_place:
            text += f", at {shown(load.call_place)}"
        if load.call_tuple:
            text += f", with {load.call_tuple}"
        yield ((harmless(" ".join(text.split())), "bad"),)


def _call_cell(since: float | None) -> Cell:
    if since is None:
        return "", ""
    seconds = time.time() - since
    return formats.span(seconds), "bad" if seconds >= LONG_CALL else "warn"
