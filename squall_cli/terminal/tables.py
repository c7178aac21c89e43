"""Tables of the commands that ask a cluster, and of a topology's components.

If a table is wider than the window, columns are dropped by rank, highest first; then elastic columns are cut. In a pipe or a
file a table is complete. Numbers are never cut.
Must not know: the meaning of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import IO, Any, Final, Generic, TypeVar

import msgspec

from squall_cli.terminal.formats import columns_of, cropped, short
from squall_cli.terminal.lines import NO_LIMIT, Line, Piece, harmless, width_of, write_lines

T = TypeVar("T")
#: A text, or a text and its style.
Cell = str | Piece

GAP: Final = 2
#: An elastic column is not cut below this width.
SHORTEST: Final = 20
#: Line breaks, tabs and other special blanks.
_BREAK: Final = re.compile(r"[^\S ]+")


class TableColumn(msgspec.Struct, Generic[T], frozen=True):
    """A column of a table. `cell` makes the cell of a row. `elastic`: the column may be cut, but not below the width
    `shortest`. `rank`: columns with the highest rank are dropped first; 0: never. `width`: a fixed width, to which longer cells
    are cut."""

    head: str
    cell: Callable[[T], Cell] = str
    number: bool = False
    elastic: bool = False
    rank: int = 0
    shortest: int = SHORTEST
    width: int | None = None


class Table(msgspec.Struct, frozen=True):
    """Columns, and rows with a cell for each column."""

    columns: tuple[TableColumn[Any], ...]
    rows: tuple[tuple[Piece, ...], ...]

    def only(self, kept: Sequence[int]) -> Table:
        """Return the table with only the columns at these indexes."""
        rows = tuple(tuple(row[each] for each in kept) for row in self.rows)
        return Table(tuple(self.columns[each] for each in kept), rows)

    def without(self, heads: Collection[str]) -> Table:
        return self.only([number for number, column in enumerate(self.columns) if column.head not in heads])

    @property
    def widths(self) -> list[int]:
        """Return the width that each column needs."""
        return [
            column.width
            or max(columns_of(text) for text in (column.head, *(row[number][0] for row in self.rows)))
            for number, column in enumerate(self.columns)
        ]


def table_of(columns: Sequence[TableColumn[T]], things: Iterable[T]) -> Table:
    """Make a table with a row for each thing."""
    return table(columns, ([column.cell(thing) for column in columns] for thing in things))


def table(columns: Sequence[TableColumn[Any]], rows: Iterable[Sequence[Cell]]) -> Table:
    """Make a table with one-line cells, free of control characters. Blanks stay as they are."""
    return Table(tuple(columns), tuple(tuple(map(_one_line, row)) for row in rows))


def _one_line(cell: Cell) -> Piece:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return harmless(_BREAK.sub(" ", text)), style


def bad_when_some(number: int) -> Cell:
    """Return a short count, highlighted unless it is 0."""
    return short(number), "bad" if number else ""


def total(widths: Sequence[int], gap: int = GAP) -> int:
    """Return the width of a table whose columns have these widths."""
    return sum(widths) + gap * (len(widths) - 1)


def fitted(made: Table, width: int, gap: int = GAP) -> tuple[Table, list[int]]:
    """Return the table without the columns that do not fit, and the widths of the remaining columns."""
    wanted = made.widths
    needed = [
        min(each, column.shortest) if column.elastic else each for each, column in zip(wanted, made.columns)
    ]
    kept = list(range(len(wanted)))
    while total([needed[each] for each in kept], gap) > width and any(
        made.columns[each].rank for each in kept
    ):
        kept.remove(max(kept, key=lambda each: (made.columns[each].rank, each)))
    given = {each: wanted[each] for each in kept}
    while total([*given.values()], gap) > width:  # cut the widest elastic column by one character
        elastic = [each for each in kept if given[each] > needed[each]]
        if not elastic:
            break
        given[max(elastic, key=lambda each: given[each])] -= 1
    return made.only(kept), [*given.values()]


def lines_of(made: Table, width: int = NO_LIMIT, gap: int = GAP, note: bool = False) -> list[Line]:
    """Return the table as lines that fit the window. The lines are wider than the window only if the remaining columns cannot
    be cut. With `note`, a last line names the columns that did not fit."""
    shown, given = fitted(made, width, gap)
    heads = tuple((column.head, "") for column in shown.columns)
    lines: list[Line] = []
    for row in (heads, *shown.rows):
        pieces: list[Piece] = []
        for (text, style), column, each in zip(row, shown.columns, given):
            if columns_of(text) > each:
                text = cropped(text, each)
            padding = (" " * (each - columns_of(text)), "")
            pieces += [padding, (text, style)] if column.number else [(text, style), padding]
            pieces.append((" " * gap, ""))
        lines.append(tuple(pieces))
    lines[0] = (("".join(text for text, _ in lines[0]).rstrip(), "head"),)
    dropped = [column.head for column in made.columns if column not in shown.columns]
    if dropped and note:
        lines.append(((cropped(f"The window is too narrow for {', '.join(dropped)}.", width), "dim"),))
    return lines


def show(made: Table, out: IO[str]) -> None:
    """Print a table."""
    write_lines(out, lines_of(made, width_of(out), note=True))
