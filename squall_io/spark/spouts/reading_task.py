"""What one task of a reading spout does: reads its units, stores how far it has read, and waits for stores that are away.

The state of a task from `open` to `close`. Its units are read one after the other. A unit that cannot be read properly is
reported, set aside, and tried again later: nothing of it is skipped silently, and the other units are read.
Must not know: what units are, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from squall_io.spark.manifest.files import FilesError, FilesRefused, FilesUnavailable
from squall_io.spark.spouts.position_records import (
    PositionRecords,
    ReaderIdentity,
    agree,
    default_folder,
    owner_name,
    require_reader,
)
from squall_io.spark.spouts.positions import OpenUnit, Positions, Unit
from squall_io.spark.stores import OpenStore
from topology_api import SquallError

if TYPE_CHECKING:
    from topology_api import Context

#: Minimum seconds between writes of positions.
SAVE_SECONDS: Final = 1.0
#: Seconds that a task waits while its store is away, doubling.
FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
#: Seconds after which an unreadable unit is tried again.
RETRY_SECONDS: Final = 10.0
#: The longest wait before failed writes of positions are repeated.
LONGEST_SAVE_WAIT: Final = 30.0

#: An item: its position in its unit, the position after it, and its values, or why there are none.
Item = tuple[int, int, tuple[object, ...] | SquallError]
Emit = Callable[[tuple[object, ...], tuple[object, int]], None]


class Units(Protocol):
    """What there is to read, for one task."""

    def open(self, context: Context) -> None:
        """Open the source. Called again if it raised."""

    @property
    def reads(self) -> str:
        """What is read, for the record of the reader."""

    @property
    def home(self) -> str:
        """The folder below which positions are stored by default."""

    def positions(self, folder: str) -> OpenStore:
        """Open a folder of positions; the caller closes it."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return what exists now, as JSON values: the first task of a submission that asks decides. Positions are open."""

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """Return the units of a snapshot, in reading order. Called again if it raised."""

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Return new units, and the seconds until the next call; None: there will be no more."""

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """Yield the items of a unit from a position on."""

    def name(self, unit: Unit) -> object:
        """Return the unit as used in message ids."""

    def close(self) -> None:
        """Close what was opened, if anything."""


class ReadingTask:
    """The life of one task. Every method is called by the task's own thread."""

    def __init__(self, units: Units, context: Context, positions: str | None) -> None:
        self._units = units
        self._context = context
        self._folder = positions
        self._positions = Positions(context.index, context.parallelism)
        self._records: PositionRecords | None = None
        self._store: OpenStore | None = None
        #: Units to read, and all unfinished ones: these, those set aside, and the open ones.
        self._left: deque[Unit] = deque()
        self._undone: set[Unit] = set()
        #: Units that could not be read, and when they are tried again.
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
        #: Whether everything was emitted.
        self.finished = False

    def start(self) -> None:
        """Open everything and find out what is left to read; `FilesUnavailable`: call it again."""
        context, units = self._context, self._units
        units.open(context)
        if self._store is None:
            folder = self._folder or default_folder(units.home, context.topology_id, context.component)
            self._store = units.positions(folder)
        reader = ReaderIdentity(context.topology, context.component, units.reads)
        try:
            require_reader(self._store, reader)
            snapshot = agree(self._store, context.topology_id, units.snapshot)
        except FilesRefused as error:
            raise FilesRefused(
                f"{error}; {context.component} stores how far it has read in {self._store.root}: if that is impossible, give"
                " another folder as positions"
            ) from None
        self._positions = Positions(context.index, context.parallelism)
        records = PositionRecords(
            self._store, self._positions, owner_name(context.topology_id, context.incarnation)
        )
        records.load()
        self._queue(units.units(snapshot))
        self._records = records
        self._save_at = context.now() + SAVE_SECONDS
        context.log.info("reads %s; pieces left to this task: %d", units.reads, len(self._left))

    def next(self, emit: Emit) -> float | None:
        """Emit the next item; return the seconds until the next call, None for soon. Raises the error of an unreadable unit."""
        try:
            self._save_if_due()
            item = next(self._items, None)
            while item is None:
                if not self._turn():
                    return self._find_more()
                item = next(self._items, None)
        except FilesUnavailable as error:
            return self._wait_for_store(error)
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
        """Record that the tree of an item is done, or failed for good."""
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
        """Store how far the task has read, if that has changed. Reading continues while the store is away."""
        if self._records is None or not self._positions.changed:
            return
        context = self._context
        try:
            self._records.save()
        except FilesError as error:
            if self._save_wait == SAVE_SECONDS:
                context.log.warning("cannot store how far it has read, and goes on; tries again: %s", error)
            self._save_wait = min(2 * self._save_wait, LONGEST_SAVE_WAIT)
        else:
            self._save_wait = SAVE_SECONDS
        self._save_at = context.now() + self._save_wait

    def _save_if_due(self) -> None:
        if self._positions.changed and self._context.now() >= self._save_at:
            self.save()

    def close(self) -> None:
        """Store how far the task has read, and close everything."""
        try:
            self.save()
        finally:
            if self._store is not None:
                self._store.close()
            self._units.close()

    def _turn(self) -> bool:
        """Begin the next unit, as the current one has no further items; return whether there is one."""
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

    def _find_more(self) -> float | None:
        """Search for more units, as all known ones have been read."""
        found = self._units.more()
        waits = []
        if found is not None:
            more, seconds = found
            self._queue(more)
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

    def _queue(self, units: Iterable[Unit]) -> None:
        """Queue the units that are this task's and not done."""
        for unit in units:
            if self._positions.mine(unit) and unit not in self._undone and not self._positions.is_done(unit):
                self._undone.add(unit)
                self._left.append(unit)

    def _close_if_done(self, unit: Unit, name: object) -> None:
        if unit not in self._positions.open:
            self._undone.discard(unit)
            self._named.pop(name, None)

    def _wait_for_store(self, error: FilesUnavailable) -> float:
        """Continue after a wait where the task was: the store is away."""
        if not self._wait:
            self._context.log.warning("waits, and tries again: %s", error)
        self._wait = min(2 * self._wait, LONGEST_WAIT) if self._wait else FIRST_WAIT
        if self._current is not None:
            self._items = self._units.items(self._current.unit, self._current.next)
        return self._wait

    def _put_aside(self) -> None:
        """Set a unit aside that cannot be read properly: others first."""
        if self._current is not None:
            if not self._aside:
                self._retry_at = self._context.now() + RETRY_SECONDS
            self._aside.append(self._current.unit)
            self._current = None
            self._items = iter(())
