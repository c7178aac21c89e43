"""What one task of a reading spout does: goes through its units, tells how far it has come, bears with stores that are away.

The state of a task from `open` to `close`. Its units are read one after the other. One that cannot be read as it should be is
told of, put aside, and tried again after a while: nothing of it is left out without a word, and the others are read.
Must not know: what units are, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from squall_io.spark.manifest.files import FilesError, FilesRefused, FilesUnavailable
from squall_io.spark.spouts.position_records import (
    PositionRecords,
    Reader,
    agree,
    default_folder,
    owner_name,
    require_reader,
)
from squall_io.spark.spouts.positions import OpenUnit, Positions, Unit
from squall_io.spark.stores import Store
from topology_api import SquallError

if TYPE_CHECKING:
    from topology_api import Context

#: Positions are written this often at the most.
SAVE_SECONDS: Final = 1.0
#: Waits of a task whose store is away, doubling.
FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
#: What cannot be read as it should be is tried again after so long.
RETRY_SECONDS: Final = 10.0
#: The longest wait before positions are written again when that failed.
LONGEST_SAVE_WAIT: Final = 30.0

#: An item: its position in its unit, the position after it, and its values, or why there are none.
Item = tuple[int, int, tuple[object, ...] | SquallError]
Emit = Callable[[tuple[object, ...], tuple[object, int]], None]


class Units(Protocol):
    """What there is to read, for one task."""

    def open(self, context: Context) -> None:
        """Open what it lies in. Called again when it raised."""

    @property
    def reads(self) -> str:
        """What is read, for the record of the reader."""

    @property
    def home(self) -> str:
        """The folder below which positions are kept unless told otherwise."""

    def positions(self, folder: str) -> Store:
        """Open a folder of positions; whoever calls closes it."""

    def snapshot(self) -> Mapping[str, Any]:
        """What there is now, as JSON values: the first task of a submission to ask decides. Positions are open."""

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """The units of a snapshot, in the order in which they are read. Called again when it raised."""

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Units that have come since, and the seconds until it is time to ask again; None: nothing can come any more."""

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """The items of a unit from a position on."""

    def name(self, unit: Unit) -> object:
        """The unit in message ids."""

    def close(self) -> None:
        """Close what was opened; may not have been."""


class ReadingTask:
    """One task's life. Every method is called by the task's own thread."""

    def __init__(self, units: Units, context: Context, positions: str | None) -> None:
        self._units = units
        self._context = context
        self._folder = positions
        self._positions = Positions(context.index, context.parallelism)
        self._records: PositionRecords | None = None
        self._store: Store | None = None
        #: Units to be read, and all that are not done: these, those put aside, and those that are open.
        self._left: deque[Unit] = deque()
        self._undone: set[Unit] = set()
        #: Of these the ones that could not be read, and when they are tried again.
        self._aside: list[Unit] = []
        self._retry_at = 0.0
        #: The units that are open, by their names in message ids.
        self._named: dict[object, Unit] = {}
        self._current: OpenUnit | None = None
        self._name: object = None
        self._items: Iterator[Item] = iter(())
        self._save_at = 0.0
        self._save_wait = SAVE_SECONDS
        #: The last wait for a store that is away; 0: it is not.
        self._wait = 0.0
        #: All there is was emitted.
        self.finished = False

    def start(self) -> None:
        """Open everything and find out what is left to be read; `FilesUnavailable`: call it again."""
        context, units = self._context, self._units
        units.open(context)
        if self._store is None:
            folder = self._folder or default_folder(units.home, context.topology_id, context.component)
            self._store = units.positions(folder)
        reader = Reader(context.topology, context.component, units.reads)
        try:
            require_reader(self._store, reader)
            snapshot = agree(self._store, context.topology_id, units.snapshot)
        except FilesRefused as error:
            raise FilesRefused(
                f"{error}; {context.component} keeps how far it has come in {self._store.root}: where that cannot be, give"
                " another folder as positions"
            ) from None
        self._positions = Positions(context.index, context.parallelism)
        records = PositionRecords(
            self._store, self._positions, owner_name(context.topology_id, context.incarnation)
        )
        records.load()
        self._take_in(units.units(snapshot))
        self._records = records
        self._save_at = context.now() + SAVE_SECONDS
        context.log.info("reads %s; pieces left to this task: %d", units.reads, len(self._left))

    def next(self, emit: Emit) -> float | None:
        """Emit the next item; the seconds until the next call, or None: soon. What makes a unit unreadable is raised."""
        try:
            self._save_if_due()
            item = next(self._items, None)
            while item is None:
                if not self._turn():
                    return self._look()
                item = next(self._items, None)
        except FilesUnavailable as error:
            return self._bear(error)
        except Exception:
            self._put_aside()
            raise
        if self._wait:
            self._wait = 0.0
            self._context.log.info("goes on reading")
        assert self._current is not None
        position, after, values = item
        if isinstance(values, SquallError):
            self._current.next = after
            raise values
        self._current.taken(position, after)
        emit(values, (self._name, position))
        return None

    def settle(self, message_id: tuple[object, int]) -> None:
        """The tree of an item is done, or failed for good."""
        name, position = message_id
        unit = self._named.get(name)
        if unit is not None:
            self._positions.settle(unit, position)
            self._close_if_done(unit, name)
            if self.finished and not self._named:
                self.save()
            else:
                self._save_if_due()  # `next` is not called at the limit of pending trees, nor after the end

    def save(self) -> None:
        """Write how far the task has come, if that has changed. While the store is away reading goes on."""
        if self._records is None or not self._positions.changed:
            return
        context = self._context
        try:
            self._records.save()
        except FilesError as error:
            if self._save_wait == SAVE_SECONDS:
                context.log.warning("cannot keep how far it has come, and goes on; tries again: %s", error)
            self._save_wait = min(2 * self._save_wait, LONGEST_SAVE_WAIT)
        else:
            self._save_wait = SAVE_SECONDS
        self._save_at = context.now() + self._save_wait

    def _save_if_due(self) -> None:
        if self._positions.changed and self._context.now() >= self._save_at:
            self.save()

    def close(self) -> None:
        """Write how far the task has come, and close everything."""
        try:
            self.save()
        finally:
            if self._store is not None:
                self._store.close()
            self._units.close()

    def _turn(self) -> bool:
        """There is nothing more in the unit, if there is one: begin the next; whether there is one."""
        if self._records is None:
            self.start()
        if self._current is not None:
            self._positions.exhausted(self._current)
            self._close_if_done(self._current.unit, self._name)
            self._current = None
        if self._aside and self._context.now() >= self._retry_at:
            self._left.extend(self._aside)
            self._aside.clear()
        if not self._left:
            return False
        unit = self._left.popleft()
        self._current = self._positions.open.get(unit) or self._positions.begin(unit)
        self._name = self._units.name(unit)
        self._named[self._name] = unit
        self._items = self._units.items(unit, self._current.next)
        return True

    def _look(self) -> float | None:
        """Everything that was known has been taken: look for more."""
        found = self._units.more()
        waits = []
        if found is not None:
            more, seconds = found
            self._take_in(more)
            waits.append(seconds)
        if self._left:
            return 0.0
        if self._aside:
            waits.append(max(0.0, self._retry_at - self._context.now()))
        if waits:
            return min(waits)
        self.finished = True
        if not self._named:
            self.save()
        return None

    def _take_in(self, units: Iterable[Unit]) -> None:
        """Note the units that are this task's and not done."""
        for unit in units:
            if self._positions.mine(unit) and unit not in self._undone and not self._positions.is_done(unit):
                self._undone.add(unit)
                self._left.append(unit)

    def _close_if_done(self, unit: Unit, name: object) -> None:
        if unit not in self._positions.open:
            self._undone.discard(unit)
            self._named.pop(name, None)

    def _bear(self, error: FilesUnavailable) -> float:
        """The store is away: go on after a wait, where the task was."""
        if not self._wait:
            self._context.log.warning("waits, and tries again: %s", error)
        self._wait = min(2 * self._wait, LONGEST_WAIT) if self._wait else FIRST_WAIT
        if self._current is not None:
            self._items = self._units.items(self._current.unit, self._current.next)
        return self._wait

    def _put_aside(self) -> None:
        """The unit cannot be read as it should be: others first."""
        if self._current is not None:
            if not self._aside:
                self._retry_at = self._context.now() + RETRY_SECONDS
            self._aside.append(self._current.unit)
            self._current = None
            self._items = iter(())
