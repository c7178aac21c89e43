"""Tables of the commands that ask a cluster: by rich on a terminal, in plain aligned columns elsewhere.

If a table is wider than the window, it drops columns by rank, highest first, then cuts elastic columns. In a pipe or a
file it is complete. Numbers are never cut.
Must not know: what the rows mean. rich is imported only for a terminal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from squall_cli.terminal.screen import is_terminal

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table as RichTable
    from rich.text import Text

Cell = str | tuple[str, str]
"""A text, or a text and its style: "dim", "bad", "warn" or "good"."""

GAP: Final = 2
#: An elastic column is not cut below this.
SHORTEST: Final = 20
STYLES: Final = {"dim": "dim", "bad": "bold red", "warn": "yellow", "good": "green", "head": "bold", "": ""}


@dataclass(frozen=True)
class TableColumn:
    """A column: its head, whether it holds numbers, whether it may be cut, and its rank (0: never dropped)."""

    head: str
    number: bool = False
    elastic: bool = False
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """Columns, and rows with a cell for each column."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(columns: Sequence[TableColumn], rows: Iterable[Sequence[Cell]]) -> Table:
    """Make a table with one-line cells, free of control characters."""
    return Table(tuple(columns), tuple(tuple(_one_line(cell) for cell in row) for row in rows))


def text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def harmless(text: str) -> str:
    """Escape unprintable characters: names given by users may hold terminal sequences."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _one_line(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return harmless(" ".join(cell.split()))
    return harmless(" ".join(cell[0].split())), cell[1]


def widths(made: Table) -> list[int]:
    """Return the width that each column wants."""
    return [
        max([len(column.head), *(len(text_of(row[number])) for row in made.rows)])
        for number, column in enumerate(made.columns)
    ]


def fitted(made: Table, width: int) -> tuple[Table, list[int]]:
    """Return the table without the columns that do not fit, and the width of each other column."""
    wanted = widths(made)
    kept = list(range(len(made.columns)))

    def needed(each: int) -> int:
        return min(wanted[each], SHORTEST) if made.columns[each].elastic else wanted[each]

    def too_wide(of: list[int]) -> int:
        return GAP * (len(kept) - 1) + sum(of) - width

    while too_wide([needed(each) for each in kept]) > 0 and any(made.columns[each].rank for each in kept):
        kept.remove(max(kept, key=lambda each: (made.columns[each].rank, each)))
    given = [wanted[each] for each in kept]
    for _ in range(max(0, too_wide(given))):  # a character at a time of the widest elastic column
        elastic = [place for place, each in enumerate(kept) if given[place] > needed(each)]
        if not elastic:
            break
        given[max(elastic, key=lambda place: given[place])] -= 1
    columns = tuple(made.columns[each] for each in kept)
    return Table(columns, tuple(tuple(row[each] for each in kept) for row in made.rows)), given


def plain_lines(made: Table) -> list[str]:
    """Return the table as text, every cell in full."""
    wanted = widths(made)
    lines = []
    for row in (tuple(column.head for column in made.columns), *made.rows):
        cells = [
            text_of(cell).rjust(width) if column.number else text_of(cell).ljust(width)
            for cell, column, width in zip(row, made.columns, wanted)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


def rich_table(made: Table, width: int) -> RichTable:
    """Return the table for a window of this width."""
    from rich.table import Table as RichTable

    shown, given = fitted(made, width)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, each in zip(shown.columns, given):
        justify: JustifyMethod = "right" if column.number else "left"
        drawn.add_column(
            column.head, justify=justify, no_wrap=True, overflow="ellipsis", min_width=each, max_width=each
        )
    for row in shown.rows:
        drawn.add_row(*(rich_text(cell) for cell in row))
    return drawn


def rich_text(cell: Cell) -> Text:
    """Convert a cell for rich."""
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else Text(cell[0], style=STYLES[cell[1]])


def console(out: IO[str]) -> Console:
    """Return rich's console for a terminal: as wide as the window, without markup."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    return Console(
        file=out,
        width=size.columns,
        height=size.lines,
        force_terminal=True,
        no_color=bool(os.environ.get("NO_COLOR")),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def show(made: Table, out: IO[str]) -> None:
    """Print a table."""
    if is_terminal(out):
        where = console(out)
        where.print(rich_table(made, where.width))
    else:
        out.write("".join(f"{line}\n" for line in plain_lines(made)))
