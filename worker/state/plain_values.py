"""The handle of a ValueState whose values are of an immutable type, without `ttl`, as most are.

Hot: such a value is found by one look-up, and written, saved and brought back by none.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from worker.routing.key_groups import GroupRange, cut
from worker.routing.text_hash import text_hash
from worker.state.codecs import Codec
from worker.state.table import NONE, StateTable, StoredBytes
from worker.state.values import ValueHandle

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    generic_get, generic_set = object.__getattribute__, object.__setattr__
    fetch_item = fetch_text = fetch_end = cast("Any", None)

#: The most lists among which the cells of an epoch are divided.
MOST_LISTS = 64
#: The most calls whose cells are looked up at once, and the least cells for which this pays: fewer are in the processor's
#: caches.
MOST_AHEAD: Final = 64
LEAST_AHEAD: Final = 4096
#: At how many items before its use a cell is fetched from memory, and its key.
_FAR = cython.declare(cython.Py_ssize_t, 16)
_NEAR = cython.declare(cython.Py_ssize_t, 8)
#: The name of the attribute.
_VALUE = cython.declare(object, "value")


@cython.no_gc  # a key or value of an immutable type refers to no cell, and the collector would look at each of a million
@cython.cclass
class ValueCell:
    """A key with its value, and what the value was at the last marker if the key was written since; NONE: there is, or was,
    none."""

    __slots__ = ("before", "epoch", "key", "now")

    key: Any
    now: Any
    before: Any
    #: The number of the epoch in which it was written last.
    epoch: int


class RecentValues:
    """The cells that were written between two markers, each followed by what its value was before, in lists by the groups of
    their keys: to divide them at their first writing, when they are at hand, costs less than later."""

    __slots__ = ("by_group", "count", "divided", "groups", "lists", "older", "ranges", "rest")

    def __init__(self, own: GroupRange | None) -> None:
        """`own`: the groups of the task's keys; None: the keys are not divided."""
        self.divided = own
        self.ranges: list[GroupRange] = [] if own is None else cut(own, min(MOST_LISTS, own.end - own.first))
        self.lists: list[list[Any]] = [[] for _ in self.ranges]
        #: Those of other keys than texts, of keys that are another task's, and of all without groups.
        self.rest: list[Any] = []
        self.groups = 0 if own is None else own.groups
        #: The list of each group.
        self.by_group: list[list[Any]] = [self.rest] * self.groups
        for groups, cells in zip(self.ranges, self.lists):
            self.by_group[groups.first : groups.end] = [cells] * (groups.end - groups.first)
        #: How many cells there are.
        self.count = 0
        #: Those of the epochs before, the latest first, once a rewind has put them together.
        self.older: list[RecentValues] = []

    def __len__(self) -> int:
        return self.count

    def clear(self) -> None:
        """Forget them."""
        for cells in (*self.lists, self.rest):
            cells.clear()
        self.count = 0

    def shares(self, least: int) -> Iterator[tuple[GroupRange, list[Any]]]:
        """Yield groups, in order, and the list of what has one of them: those of neighbours together, as long as a list has
        fewer than `least` cells. Without what is in `rest`."""
        joined: list[Any] = []
        first = 0
        for at, cells in enumerate(self.lists):
            # The lists themselves are left alone: a rewind needs them.
            joined = [*joined, *cells] if joined else cells
            if joined and (len(joined) >= 2 * least or cells is self.lists[-1]):
                yield self.ranges[first].joined(self.ranges[at]), joined
                joined = []
            if not joined:
                first = at + 1

    def every_cell(self) -> list[Any]:
        """Return all cells."""
        return [cell for cells in (*self.lists, self.rest) for cell in cells[::2]]


class PlainValueHandle(ValueHandle):
    """Values of an immutable type, each of a key and without `ttl`.

    `cells` has a `ValueCell` for each key, which a call finds by one look-up and writes by none. The first writing after a
    marker notes the cell, and what its value was, in `touched`: from these a snapshot is encoded and a rewind goes back,
    without a look-up, too. A cell without a value stays in `cells` until a snapshot has said so (`at_marker_of`); without
    epochs, until another key is cleared.
    """

    def __init__(self, table: StateTable, name: str, codec: Codec, default: Any) -> None:
        super().__init__(table, name, codec, default=default)
        self.cells: dict[Any, ValueCell] = {}
        #: The same as `touched`.
        self.recent: RecentValues | None = None
        if self.touched is not None:
            self.touched = self.recent = RecentValues(None)
        #: The groups by which cells are divided that are written after the next marker; None: they are not.
        self.groups: GroupRange | None = None
        #: Grows with each marker; a cell that was written since the last one has this number.
        self.epoch = 1
        #: How many cells have no value.
        self.absent = 0
        #: Without epochs: those that were cleared.
        self.cleared: list[ValueCell] = []
        #: What the running call has read or written, if it is `read_turn` or `turn`; None: it has read what has no cell.
        self.cell: Any = None
        #: The call that has read last: a value that is read and then written is looked up once.
        self.read_turn = -1
        #: The cells of `ahead_count` calls from `ahead_turn` on, found beforehand (None: there is none, or its key is no text),
        #: whose keys are in `ahead_keys` from `ahead_from` on. Forgotten when a cell is removed.
        self.ahead: list[Any] = [None] * MOST_AHEAD
        self.ahead_keys: list[Any] = []
        self.ahead_from = self.ahead_count = self.ahead_turn = 0

    @property
    def value(self) -> Any:
        """The value of the key at hand, or the default."""
        return self.read()

    @value.setter
    def value(self, new: Any) -> None:
        self.write(new)

    # What `type` does for all attributes takes longer than reading or writing a value. In plain Python, these are removed.

    def __getattribute__(self, name: str) -> Any:
        if name is _VALUE:
            return self.read()
        return generic_get(self, name)

    def __setattr__(self, name: str, new: Any) -> None:
        if name is _VALUE:
            self.write(new)
        else:
            generic_set(self, name, new)

    @cython.locals(table=StateTable, cell=ValueCell)
    def read(self) -> Any:
        """Return the value of the key at hand, or the default."""
        table = self.table
        key = table.key
        if key is table.none:
            table.no_key(self.what())
        cell = self.cells.get(key) if self.ahead_count == 0 else None  # as `found`, without a call
        if cell is None:
            cell = self.found(key)  # before `read_turn`: it may raise
        self.cell = cell
        self.read_turn = table.turn
        if cell is None or cell.now is table.none:
            return self.default
        return cell.now

    @cython.locals(table=StateTable, cell=ValueCell)
    def write(self, new: Any) -> None:
        """Set the value of the key at hand."""
        table = self.table
        if table.key is table.none:
            table.no_key(self.what())
        if type(new) is not self.exact:
            new = self.codec.fitting(new, self)
        if self.turn != table.turn:
            self.begin(table)
        cell = self.cell
        if cell.now is table.none:
            self.absent -= 1
        cell.now = new

    @cython.locals(cell=ValueCell, recent=RecentValues, cells=list)
    def begin(self, table: StateTable) -> None:
        """The running call is about to change the value of the key at hand, for the first time."""
        cell = self.cell if self.read_turn == table.turn else None
        if cell is None or cell.now is table.none:
            cell = self.found(table.key)
        if cell is None:
            cell = cell_of(table.key, table.none)
            self.cells[table.key] = cell
            self.absent += 1
        if cell is not self.cell:
            self.cell = cell
        self.old, self.turn = cell.now, table.turn
        recent = self.recent
        if recent is not None and cell.epoch != self.epoch:
            cell.epoch, cell.before = self.epoch, cell.now
            recent.count += 1
            cells = recent.rest
            if recent.groups and type(cell.key) is str:
                cells = recent.by_group[text_hash(cell.key) % recent.groups]
            cells.append(cell)
            cells.append(cell.now)
        if table.first is None:  # as `add_changed` does; what the value was at the marker is in the cell
            table.first = self
        else:
            table.others.append(self)

    @cython.locals(cell=ValueCell, at=cython.longlong)
    def found(self, key: Any) -> Any:
        """Return the cell of a key; None if there is none."""
        if self.ahead_count:
            at = self.table.turn - self.ahead_turn
            if 0 <= at < self.ahead_count and self.ahead_keys[self.ahead_from + at] is key:
                cell = self.ahead[at]
                if cell is not None:
                    return cell
        cell = self.cells.get(key)
        if cell is None and self.raw and self.first_touch(key) is not NONE:
            cell = self.cells[key]
        return cell

    @cython.locals(at=cython.Py_ssize_t, cell=ValueCell)
    def look_ahead(self, keys: list[Any], start: int, stop: int) -> None:
        """Find the cells of the next calls, whose keys these are, at once, if the last call has used this state.

        The processor waits for memory for each part of a look-up in a large state. It waits for several look-ups at the same
        time if no call is between them.
        """
        turn = self.table.turn
        if self.read_turn != turn and self.turn != turn:
            self.ahead_count = 0
            return
        self.ahead_keys, self.ahead_from, self.ahead_turn = keys, start, turn + 1
        for at in range(start, stop):
            if type(keys[at]) is str:
                hash(keys[at])  # the text keeps it
        for at in range(start, stop):
            key = keys[at]
            cell = self.cells.get(key) if type(key) is str else None
            self.ahead[at - start] = cell
            if cython.compiled and cell is not None:
                fetch_end(cell)
        self.ahead_count = stop - start

    @cython.locals(cell=ValueCell)
    def clear(self) -> None:
        table = self.table
        key = table.key
        if key is NONE:
            table.no_key(self.what())
        cell = self.found(key)
        if cell is None or cell.now is NONE:
            return
        if self.turn != table.turn:
            self.begin(table)
        self.absent += 1
        cell.now = NONE
        if self.recent is None:
            self.sweep_cleared()
            self.cleared.append(cell)

    @cython.locals(cell=ValueCell)
    def sweep_cleared(self) -> None:
        """Remove the cells that earlier calls have cleared."""
        for cell in self.cleared:
            if cell.now is NONE and cell is not self.cell:
                self.remove(cell)
        self.cleared.clear()

    @cython.locals(cell=ValueCell)
    def remove(self, cell: ValueCell) -> None:
        """Remove a cell without a value, if it is there."""
        if self.cells.get(cell.key) is cell:
            self.ahead_count = 0
            del self.cells[cell.key]
            self.absent -= 1

    @cython.locals(cell=ValueCell)
    def undo(self) -> None:
        cell = self.cell
        self.absent += (self.old is NONE) - (cell.now is NONE)
        cell.now = self.old
        self.turn, self.read_turn = 0, -1
        self.old = NONE

    def put_opened(self, key: Any, value: Any) -> None:
        self.cells[key] = cell_of(key, value)

    def load(self, keys: list[Any], values: Iterable[Any]) -> None:
        self.cells.update(zip(keys, map(cell_of, keys, values)))

    @cython.locals(cell=ValueCell)
    def at(self, key: Any) -> Any:
        cell = self.cells.get(key)
        return NONE if cell is None else cell.now

    def current(self) -> dict[Any, Any]:
        return {key: cell.now for key, cell in self.cells.items() if cell.now is not NONE}

    def count(self) -> int:
        return len(self.cells) - self.absent

    def mark_at_hand(self) -> None:
        pass  # its cell knows it

    def kept(self, cell: Any) -> Any:
        raise AssertionError("cells keep what the values were")

    def every_cell(self) -> list[Any]:
        """Return all cells, also those without a value, and the keys of what no call has touched since the task began."""
        return [*self.cells.values(), *self.raw]

    def begin_epoch(self) -> None:
        self.touched = self.recent = RecentValues(self.groups)
        self.epoch += 1

    @cython.locals(
        cell=ValueCell,
        at=cython.Py_ssize_t,
        stop=cython.Py_ssize_t,
        step=cython.Py_ssize_t,
        last=cython.Py_ssize_t,
    )
    def at_marker_of(
        self, cells: list[Any], start: int, stop: int, step: int
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the keys and values at the last marker of what `every_cell` or `touched` has, and the keys without a value,
        while these are being saved. Cells that have none now either are removed. `start`, `stop`, `step`: which of `cells`."""
        keys: list[Any] = []
        values: list[Any] = []
        gone: list[Any] = []
        last = min(stop, len(cells)) - _NEAR * step
        for at in range(start, min(stop, len(cells)), step):
            if cython.compiled:
                fetch_item(cells, at + _FAR * step)
                if at < last and type(cells[at + _NEAR * step]) is ValueCell:
                    cell = cells[at + _NEAR * step]
                    fetch_text(cell.key)
            each = cells[at]
            if type(each) is not ValueCell:
                if each in self.raw:
                    keys.append(each)
                    values.append(StoredBytes(self.raw[each]))
                    continue
                each = self.cells[each]  # it was touched after the marker
            cell = each
            if cell.epoch == self.epoch:
                was = cell.before
            else:
                was = cell.now
                cell.before = NONE  # `RecentValues` has it, as long as it is needed
                if was is NONE:
                    self.remove(cell)
            if was is NONE:
                gone.append(cell.key)
            else:
                keys.append(cell.key)
                values.append(was)
        return keys, values, gone

    def merge_older(self, found: Any, older: Any) -> None:
        found.older.append(older)

    def bring_back(self, changes: Any) -> None:
        for recent in (changes, *changes.older):
            for cells in (*recent.lists, recent.rest):
                self.bring_back_cells(cells)
        self.touched = self.recent = RecentValues(None)

    @cython.locals(cell=ValueCell, at=cython.Py_ssize_t)
    def bring_back_cells(self, cells: list[Any]) -> None:
        """Let cells have the values that follow them in the list."""
        self.ahead_count = 0
        for at in range(0, len(cells), 2):
            cell, before = cells[at], cells[at + 1]
            if cell.now is NONE:
                self.remove(cell)
            elif before is NONE:
                del self.cells[cell.key]
            if cell.now is NONE and before is not NONE:
                self.cells[cell.key] = cell  # a snapshot may have removed it
            cell.now = before

    def take_over(self, other: Any) -> None:
        super().take_over(other)
        self.epoch, self.absent = other.epoch + 1, other.absent


@cython.locals(cell=ValueCell)
def cell_of(key: Any, value: Any) -> ValueCell:
    """Return a cell that was not written since the last marker."""
    cell = ValueCell.__new__(ValueCell)
    cell.key, cell.now, cell.before, cell.epoch = key, value, NONE, 0
    return cell


@cython.locals(cell=ValueCell)
def spread_cells(cells: list[Any], lists: list[list[Any] | None]) -> int:
    """Add each of the cells, or keys of values that are bytes, to the list at `text_hash(key) % len(lists)`, as far as keys are
    texts whose place has a list; return how many were added."""
    number = len(lists)
    last = len(cells) - _NEAR
    for at in range(len(cells)):
        if cython.compiled:
            fetch_item(cells, at + _FAR)
            if at < last and type(cells[at + _NEAR]) is ValueCell:
                cell = cells[at + _NEAR]
                fetch_text(cell.key)
        key = each = cells[at]
        if type(each) is ValueCell:
            cell = each
            key = cell.key
        if type(key) is not str:
            return at
        found = lists[text_hash(key) % number]
        if found is None:
            return at
        found.append(each)
    return len(cells)


def key_of_cell(each: Any) -> Any:
    """Return the key of a cell, or of a value that is bytes."""
    return each.key if type(each) is ValueCell else each


if not cython.compiled:
    del PlainValueHandle.__getattribute__, PlainValueHandle.__setattr__
