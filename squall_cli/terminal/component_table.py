"""The table of a topology's components, in a given width: for a running topology, and for the summary.

If all columns fit the window, counts are shown in full. In a narrower window, counts are shortened first, then columns are
dropped. While a topology runs, columns have fixed widths, so that the table does not jump when numbers grow.
Must not know: terminals, colours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from squall.dead_letters.letter import undone
from squall.status import ComponentStatus
from squall_cli.terminal import formats
from squall_cli.terminal.lines import NO_LIMIT, Line, Piece, harmless
from squall_cli.terminal.tables import GAP, Cell, TableColumn, lines_of, table_of, total

#: The head of the column with the reason why a spout is idle or a bolt waits.
WHY_IDLE: Final = "WHY IDLE"
#: The width of this column. Longer reasons get separate lines below the table.
IDLE_WIDTH: Final = 19
#: The most lines below a table on a terminal for reasons that are too long for the column.
MOST_REASONS: Final = 3
#: Idle reasons that need no attention.
HARMLESS = ("finished", "inactive", "not open yet", "waits as it asked")
#: Columns that are shown only in wide windows. All other columns are dropped by rank.
WIDE: Final = ("KIND", WHY_IDLE)
COLUMNS: Final[tuple[TableColumn[Row], ...]] = (
    TableColumn("COMPONENT", lambda row: row.name, elastic=True, shortest=10),
    TableColumn("KIND", lambda row: (row.component.kind, "dim"), width=5),
    TableColumn("TASKS", lambda row: (row.count(row.component.tasks), "dim"), number=True, rank=6, width=5),
    TableColumn("EMITTED", lambda row: row.count(row.component.emitted), number=True, rank=1, width=7),
    TableColumn("EXECUTED", lambda row: row.of_bolt(row.component.executed), number=True, rank=2, width=8),
    TableColumn("ACKED", lambda row: row.count(row.component.acked), number=True, rank=4, width=6),
    TableColumn("FAILED", lambda row: row.failed, number=True, width=6),
    TableColumn("PENDING", lambda row: row.of_spout(row.component.pending), number=True, width=7),
    TableColumn("RATE/s", lambda row: formats.rate(row.rate), number=True, width=6),
    TableColumn("p50", lambda row: row.latency(row.component.p50), number=True, rank=5, width=6),
    TableColumn("p99", lambda row: row.latency(row.component.p99), number=True, rank=3, width=6),
    TableColumn(WHY_IDLE, lambda row: row.idle, width=IDLE_WIDTH),
)
#: Widths of columns with counts in full (up to 999,999,999).
IN_FULL: Final = {"EMITTED": 11, "EXECUTED": 11, "ACKED": 11, "FAILED": 9, "RATE/s": 9}


class Row(msgspec.Struct, frozen=True):
    """One component's figures. `rate` is None if the rate is unknown; `count` turns a count into text."""

    name: str
    component: ComponentStatus
    rate: float | None
    count: Callable[[int], str] = formats.short
    #: How a text with a line of the user's code is shown.
    shown: Callable[[str], str] = str

    def of_bolt(self, number: int) -> str:
        """Return a count that only bolts have: executions."""
        return "" if self.component.kind == "spout" else self.count(number)

    def of_spout(self, number: int) -> str:
        """Return a count that only spouts have: open trees. The count is always shortened."""
        return formats.short(number) if self.component.kind == "spout" else ""

    def latency(self, seconds: float | None) -> str:
        """Return a latency; only spouts have one."""
        return formats.latency(seconds) if self.component.kind == "spout" else ""

    @property
    def failed(self) -> Cell:
        return self.count(self.component.failed), "bad" if self.component.failed else ""

    @property
    def why_idle(self) -> str:
        """Return the idle reason, which may come from user code, as one line without terminal sequences."""
        return why_idle(self.component, self.shown)

    @property
    def idle(self) -> Piece:
        """Return the beginning of the idle reason, and its style."""
        is_harmless = self.component.idle in HARMLESS and not self.component.undecided
        style = "bad" if self.component.down else "dim" if is_harmless else "warn"
        return formats.cropped(self.why_idle, IDLE_WIDTH), style


def why_idle(component: ComponentStatus, shown: Callable[[str], str] = str) -> str:
    """Return why a component is idle or waits, as one line without terminal sequences; "" if it works."""
    if component.down:
        tasks = (
            "" if len(component.down) == component.tasks else f" ({len(component.down)} of {component.tasks})"
        )
        return harmless(" ".join(f"down{tasks}: {shown(component.down[-1].error)}".split()))
    if component.undecided:
        tuples = formats.plural(sum(each.tuples for each in component.undecided), "tuple")
        return harmless(" ".join(f"tries {tuples} again: {shown(component.undecided[0].failure)}".split()))
    return harmless(" ".join(component.idle.split()))


def down_sentence(name: str, component: ComponentStatus, shown: Callable[[str], str] = str) -> str:
    """Return since when a bolt is down, or which of its tasks, and the last error."""
    since = min(each.since for each in component.down)
    who = f"{name} has"
    if len(component.down) < component.tasks:
        tasks = ", ".join(str(each.task) for each in component.down)
        who = f"task {tasks} of {name} has" if len(component.down) == 1 else f"tasks {tasks} of {name} have"
    return harmless(
        " ".join(f"{who} been down{formats.since(since)}: {shown(component.down[-1].error)}".split())
    )


def undecided_sentence(name: str, component: ComponentStatus, shown: Callable[[str], str] = str) -> str:
    """Return since when tuples are tried again without a verdict, why, and when they are given up."""
    tried = component.undecided
    tuples = sum(each.tuples for each in tried)
    first = min(tried, key=lambda each: each.since)
    since = formats.since(first.since)
    if first.until is None:
        end = "they are tried without end"
    elif since:
        end = f"they are given up at {formats.moment(first.until)} (topology.outage.give.up.secs)"
    else:
        end = f"they are given up after {first.until - first.since:g} s (topology.outage.give.up.secs)"
    what = f"{formats.plural(tuples, 'tuple')} of {name} {'is' if tuples == 1 else 'are'} tried again"
    return harmless(" ".join(f"{what}{since} ({shown(first.failure)}); {end}".split()))


def _in_full(number: int) -> str:
    return formats.whole(number) if number < 10**9 else formats.short(number)


def rows_of(
    components: Mapping[str, ComponentStatus],
    rates: Mapping[str, float | None],
    shown: Callable[[str], str] = str,
) -> list[Row]:
    """Return a row for each component, in order of declaration."""
    rows = components.items()
    return [Row(name, with_left(component), rates.get(name), shown=shown) for name, component in rows]


def with_left(component: ComponentStatus) -> ComponentStatus:
    """Return the figures to show: trees that were cut off when the topology stopped are pending, not failed."""
    stopped = undone(component.failures) if component.kind == "spout" else 0
    return replace(component, failed=component.failed - stopped, pending=component.pending + stopped)


def live_table(rows: Sequence[Row], width: int, most_rows: int) -> list[Line]:
    """Return the table of a running topology: columns of fixed width, idle reasons, and at most `most_rows` rows."""
    shown = rows if len(rows) <= most_rows else rows[: max(0, most_rows - 1)]
    lines, idle = _table(shown, width, running=True)
    if len(shown) < len(rows):
        lines.append(((f"… and {formats.plural(len(rows) - len(shown), 'more component')}", "dim"),))
    return lines + _reasons(rows, idle, width)


def final_table(rows: Sequence[Row], width: int) -> list[Line]:
    """Return the table of an ended topology, with columns as wide as their cells."""
    return _table(rows, width, without=(WHY_IDLE,))[0]


def table_without_rates(rows: Sequence[Row], width: int) -> list[Line]:
    """Return the table of a topology's current status, without rates, with columns as wide as their cells."""
    lines, idle = _table(rows, width, without=("RATE/s",))
    return lines + _reasons(rows, idle, width)


def _table(
    rows: Sequence[Row], width: int, running: bool = False, without: Collection[str] = ()
) -> tuple[list[Line], int]:
    """Return the widest table that fits, and the width of its column for idle reasons (0: it has no such column)."""
    for count, widths in ((_in_full, IN_FULL), (formats.short, {})):
        columns = [
            msgspec.structs.replace(column, width=widths.get(column.head, column.width) if running else None)
            for column in COLUMNS
        ]
        made = table_of(columns, [msgspec.structs.replace(row, count=count) for row in rows]).without(without)
        if total(made.widths) <= width:
            return lines_of(made, width, GAP), IDLE_WIDTH
    return lines_of(made.without(WIDE), width, gap=1, note=not running), 0


def _reasons(rows: Sequence[Row], room: int, width: int) -> list[Line]:
    """Return lines with the reasons that are wider than `room`, first for what is down. In a pipe, return all of these reasons,
    in full."""
    lines: list[Line] = []
    for row in sorted(rows, key=lambda row: not row.component.down):
        if row.component.down:
            lines.append(
                ((formats.cropped(down_sentence(row.name, row.component, row.shown), width), "bad"),)
            )
        elif row.component.undecided:
            lines.append(
                ((formats.cropped(undecided_sentence(row.name, row.component, row.shown), width), "warn"),)
            )
        elif formats.columns_of(row.why_idle) > room:
            is_idle = " is idle" if row.component.kind == "spout" else ""
            text = formats.cropped(f"{harmless(row.name)}{is_idle}: {row.why_idle}", width)
            lines.append(((text, row.idle[1]),))
    return lines if width == NO_LIMIT else lines[:MOST_REASONS]
