"""The components of a topology as a table of a given width: the same one while it runs and in the summary.

Five layouts, from everything in full down to what fits a narrow window; the widest that fits is taken, so that no line
is ever wrapped. Columns have fixed widths, so that the table does not jump while the numbers grow.
Must not know: terminals, colours (a line is text in pieces, each with the name of its style).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from squall.status import ComponentStatus
from squall_cli.terminal import formats

#: (text, style): the styles are "", "head", "dim", "bad" and "warn".
Piece = tuple[str, str]
Line = tuple[Piece, ...]
Figure = Callable[[int], str]

SHORTEST_NAME = 8
#: Head of the column with the reason why a spout is idle or a bolt waits.
WHY_IDLE: Final = "WHY IDLE"
#: Idle reasons that need no attention.
HARMLESS = ("finished", "inactive", "not open yet", "waits as it asked")


@dataclass(frozen=True)
class Row:
    """One component's figures. `rate` is None where it is unknown."""

    name: str
    component: ComponentStatus
    rate: float | None


@dataclass(frozen=True)
class FigureColumn:
    """One column: its head, width, cell text and style."""

    head: str
    width: int
    text: Callable[[Row, Figure], str]
    style: Callable[[Row], str] = lambda row: ""
    left: bool = False


@dataclass(frozen=True)
class Layout:
    """Columns beside the component's name, the gap between them, and how counts are written."""

    columns: tuple[FigureColumn, ...]
    gap: int
    count: Figure

    @property
    def width(self) -> int:
        """The width of the columns, without the name."""
        return sum(column.width + self.gap for column in self.columns)

    def has(self, head: str) -> bool:
        return any(column.head == head for column in self.columns)


def _in_full(number: int) -> str:
    return formats.whole(number) if number < 10**9 else formats.short(number)


def _spouts_only(text: str, row: Row) -> str:
    return text if row.component.kind == "spout" else ""


def _idle_style(row: Row) -> str:
    return "dim" if row.component.idle in HARMLESS else "warn"


def _columns(count_width: int) -> dict[str, FigureColumn]:
    """Return every column by its head; counts have at least this width."""
    every = (
        FigureColumn("KIND", 5, lambda row, count: row.component.kind, lambda row: "dim", left=True),
        FigureColumn("TASKS", 5, lambda row, count: count(row.component.tasks), lambda row: "dim"),
        FigureColumn("EMITTED", max(7, count_width), lambda row, count: count(row.component.emitted)),
        FigureColumn("EXECUTED", max(8, count_width), lambda row, count: _executed(row, count)),
        FigureColumn("ACKED", max(6, count_width), lambda row, count: count(row.component.acked)),
        FigureColumn(
            "FAILED", max(6, count_width - 2), lambda row, count: count(row.component.failed), _failed_style
        ),
        FigureColumn(
            "PENDING", 7, lambda row, count: _spouts_only(formats.short(row.component.pending), row)
        ),
        FigureColumn("RATE/s", max(6, count_width - 2), lambda row, count: formats.rate(row.rate)),
        FigureColumn("p50", 6, lambda row, count: _spouts_only(formats.latency(row.component.p50), row)),
        FigureColumn("p99", 6, lambda row, count: _spouts_only(formats.latency(row.component.p99), row)),
        FigureColumn(WHY_IDLE, 19, lambda row, count: row.component.idle, _idle_style, left=True),
    )
    return {column.head: column for column in every}


def _executed(row: Row, count: Figure) -> str:
    return "" if row.component.kind == "spout" else count(row.component.executed)


def _failed_style(row: Row) -> str:
    return "bad" if row.component.failed else ""


ALL = (
    "KIND", "TASKS", "EMITTED", "EXECUTED", "ACKED", "FAILED", "PENDING", "RATE/s", "p50", "p99", WHY_IDLE,
)  # fmt: skip
MEDIUM = ("TASKS", "EMITTED", "EXECUTED", "ACKED", "FAILED", "PENDING", "RATE/s", "p50", "p99")
NARROW = ("EMITTED", "EXECUTED", "FAILED", "PENDING", "RATE/s")
TINY = ("FAILED", "PENDING", "RATE/s")
#: Characters of a count in full (up to 999,999,999); narrower layouts shorten counts.
FULL_WIDTH = 11


def _layout(heads: Sequence[str], gap: int, count_width: int, count: Figure) -> Layout:
    columns = _columns(count_width)
    return Layout(tuple(columns[head] for head in heads), gap, count)


def layouts(without: Collection[str] = ()) -> tuple[Layout, ...]:
    """Return all layouts, widest first, without these columns."""

    def kept(heads: Sequence[str]) -> list[str]:
        return [head for head in heads if head not in without]

    return (
        _layout(kept(ALL), 2, FULL_WIDTH, _in_full),
        _layout(kept(ALL), 2, 0, formats.short),
        _layout(kept(MEDIUM), 1, 0, formats.short),
        _layout(kept(NARROW), 1, 0, formats.short),
        _layout(kept(TINY), 1, 0, formats.short),
    )


def rows_of(components: Mapping[str, ComponentStatus], rates: Mapping[str, float | None]) -> list[Row]:
    """Return a row for each component, in order of declaration."""
    return [Row(name, with_left(component), rates.get(name)) for name, component in components.items()]


def with_left(component: ComponentStatus) -> ComponentStatus:
    """Return the figures as they are shown: trees cut off by a stop count as pending, not as failed."""
    stopped = component.failures.get("stopped", 0) if component.kind == "spout" else 0
    return replace(component, failed=component.failed - stopped, pending=component.pending + stopped)


def layout_for(rows: Sequence[Row], width: int, every: Sequence[Layout]) -> tuple[Layout, int]:
    """Return the widest layout that fits and the width of its names; the widest layouts show names in full."""
    longest = max([len(row.name) for row in rows] + [len("COMPONENT")])
    for layout in every:
        wanted = longest if layout.has("KIND") else min(longest, SHORTEST_NAME + 4)
        if layout.width + wanted <= width:
            return layout, min(longest, width - layout.width)
    return every[-1], max(SHORTEST_NAME, min(longest, width - every[-1].width))


def live_table(rows: Sequence[Row], width: int, most_rows: int) -> list[Line]:
    """Return the table of a running topology: columns of fixed width, idle reasons, and at most `most_rows` rows."""
    return _table(rows, width, layouts(), most_rows)


def final_table(rows: Sequence[Row], width: int) -> list[Line]:
    """Return the table of an ended topology, with columns as wide as their cells."""
    return _table(rows, width, tuple(snug(layout, rows) for layout in layouts((WHY_IDLE,))), len(rows))


def table_without_rates(rows: Sequence[Row], width: int) -> list[Line]:
    """Return the table of a topology at one moment, without rates, with columns as wide as their cells."""
    return _table(rows, width, tuple(snug(layout, rows) for layout in layouts(("RATE/s",))), len(rows))


def snug(layout: Layout, rows: Sequence[Row]) -> Layout:
    """Shrink the columns to their cells; long reasons of bolts get lines of their own."""
    columns = []
    for column in layout.columns:
        longest = max([len(column.text(row, layout.count)) for row in rows] + [len(column.head)])
        if column.head == WHY_IDLE:
            longest = min(longest, column.width)
        columns.append(replace(column, width=longest))
    return replace(layout, columns=tuple(columns))


def _table(rows: Sequence[Row], width: int, every: Sequence[Layout], most_rows: int) -> list[Line]:
    layout, name_width = layout_for(rows, width, every)
    lines = [_head(layout, name_width)]
    shown = rows if len(rows) <= most_rows else rows[: max(0, most_rows - 1)]
    lines += [_line(layout, name_width, row) for row in shown]
    if len(shown) < len(rows):
        lines.append(((f"… and {formats.plural(len(rows) - len(shown), 'more component')}", "dim"),))
    if every[0].has(WHY_IDLE):
        room = max((column.width for column in layout.columns if column.head == WHY_IDLE), default=0)
        lines += _reasons([row for row in rows if len(row.component.idle) > room], width)
    return lines


def _head(layout: Layout, name_width: int) -> Line:
    cells = ["COMPONENT"[:name_width].ljust(name_width)]
    for column in layout.columns:
        cells.append(column.head.ljust(column.width) if column.left else column.head.rjust(column.width))
    return (((" " * layout.gap).join(cells).rstrip(), "head"),)


def _line(layout: Layout, name_width: int, row: Row) -> Line:
    pieces = [(formats.cropped(row.name, name_width).ljust(name_width), "")]
    for column in layout.columns:
        text = column.text(row, layout.count)
        if len(text) > column.width:  # wider than expected
            text = formats.cropped(text, column.width)
        padded = text.ljust(column.width) if column.left else text.rjust(column.width)
        pieces.append((" " * layout.gap + padded, column.style(row)))
    return tuple(pieces)


def _reasons(rows: Sequence[Row], width: int) -> list[Line]:
    """Return lines with the reasons that do not fit into a column."""
    lines: list[Line] = []
    for row in rows:
        is_idle = " is idle" if row.component.kind == "spout" else ""
        text = formats.cropped(f"{row.name}{is_idle}: {row.component.idle}", width)
        lines.append(((text, _idle_style(row)),))
    return lines[:3]


def plain(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line).rstrip()
