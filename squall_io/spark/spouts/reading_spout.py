"""The common parts of spouts that read files: tasks share units, store how far they have read, and wait for unavailable stores.

An item's message id is (name of its unit, position). An item is settled when its tree is acked, and also when its tree failed
for good: then the item is in the dead letters, or counted as failed. If failed items were not settled, a row that no bolt can
handle would return after each restart. An item whose tree was cut off by the end of a topology is not settled, and is emitted
again.

With `topology.state.path` nothing of this is stored: a position of the spout is how far its items are emitted, and it is part
of the topology's commits. Only what tasks have to agree on, such as which files there are, is in the folder of positions. It is
the folder of the first submission of this state, which a position names.

A task reads its units one after the other. A unit that cannot be read properly is reported, set aside, and tried again
later. Nothing in such a unit is skipped silently, and the other units are read meanwhile.
Must not know: what units are, threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from squall.stores.files import FilesError, FilesRefused, FilesUnavailable, OpenStore
from squall.stores.paths import InvalidPath, check_path
from squall_io.kit.replays import replay_problems
from squall_io.kit.settling_spout import SettlingSpout
from squall_io.kit.waiting import Waiting
from squall_io.lines.polling import AT_ONCE, poll_problems
from squall_io.spark.spouts import positions
from squall_io.spark.spouts.positions import (
    EmittedSoFar,
    LostInput,
    OpenUnit,
    PositionRecords,
    Positions,
    ReaderIdentity,
    Unit,
    merged,
)
from squall_io.spark.spouts.steady_stores import open_steady
from topology_api import Fields, InvalidConfig, Replay, SquallError
from topology_api.epoch_rules import state_path
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context

#: Minimum seconds between writes of positions.
SAVE_SECONDS: Final = 1.0
#: Seconds after which an unreadable unit is tried again.
RETRY_SECONDS: Final = 10.0
#: The most seconds before a failed write of positions is repeated.
LONGEST_SAVE_WAIT: Final = 30.0

#: An item: its position in its unit, the position after it, and its values, or the error that explains why it has none.
Item = tuple[int, int, tuple[object, ...] | SquallError]
#: Emits values with a message id.
Emit = Callable[..., object]


class ReadingSpout(SettlingSpout):
    """A spout whose tasks share units of input and store how far they have read. Subclasses define the units."""

    #: Seconds between two looks for new units.
    poll_interval: float
    _positions: str | None = None
    _task: ReadingTask

    def __init__(
        self,
        fields: Sequence[str],
        follow: bool,
        poll_interval: float | None,
        folder: str | None,
        replay: Replay | None,
        conf: Mapping[str, str] | None,
        problems: list[str],
    ) -> None:
        """folder: the folder of positions; None: the default. problems: problems that the subclass has found; the raised
        `InvalidConfig` lists these and the problems of the arguments here.
        """
        if not isinstance(follow, bool):
            problems.append(f"follow is {typed(follow)}: give True or False")
        problems += poll_problems(poll_interval)
        if folder is not None:
            problems += path_problems(folder, "positions")
        problems += replay_problems(replay)
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.fields = tuple(fields)
        self.outputs = Fields(*fields)
        self.follow = follow
        if poll_interval is not None:
            self.poll_interval = float(poll_interval)
        self.replay = replay
        self.conf = dict(conf or {})
        self._positions = folder

    def _units(self) -> Units:
        """Return the units of this task."""
        raise NotImplementedError

    def open(self, context: Context) -> None:
        """Find the units that are left to read. With `topology.state.path`, `rewind` does, when it knows where to begin."""
        self._context = context
        if state_path(context.conf) is None:
            self._task = ReadingTask(self._units(), context, self._positions)
            self._start()
        else:
            begin = EmittedSoFar(context.topology_id)
            self._task = ReadingTask(self._units(), context, self._positions, begin)

    def _start(self) -> None:
        try:
            self._task.start()
        except FilesUnavailable:
            pass  # next_tuple tries again, and logs the error
        except BaseException:
            self._task.close()
            raise

    def position(self) -> dict[str, Any]:
        """Return which units are emitted, and how far the others are."""
        return self._task.emitted_so_far()

    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Continue behind a position; None: at the stored positions, if there are any. Raises `LostInput` if the input of this
        position is not there any more.
        """
        begin = msgspec.convert(position or {"submission": self._context.topology_id}, EmittedSoFar)
        self._task.close()
        self._task = ReadingTask(self._units(), self._context, self._positions, begin)
        self._start()

    def merge_positions(self, positions: list[Any]) -> dict[str, Any]:
        """Return what all tasks have emitted. Each task finds what is left for it, whatever their number was."""
        found: dict[str, Any] = msgspec.to_builtins(merged(msgspec.convert(positions, list[EmittedSoFar])))
        return found

    def next_tuple(self) -> float | None:
        """Emit the next lines or rows."""
        wait = self._task.next(self.emit, AT_ONCE)
        if self._task.finished:
            self.finish()
        return wait


def path_problems(path: object, what: str) -> Iterator[str]:
    """Yield what is wrong with the path of a table or folder; `what` names the argument."""
    try:
        check_path(path)  # type: ignore[arg-type]
    except InvalidPath as error:
        yield str(error) if what == "path" else f"{what}: {error}"
    except TypeError:
        yield f"{what} is {typed(path)}: give text"


class Units(ABC):
    """The units of the input, as one task sees them."""

    #: `open` sets `_context` and `_files`.
    _context: Context
    _files: OpenStore
    #: Whether symbolic links in the input's folder are followed: not in a table.
    follow_links = False

    def __init__(self, spout: ReadingSpout, folder: str, reads: str) -> None:
        """folder: the folder to open. reads: a description of the input, for the record of the reader."""
        self._follow = spout.follow
        self._poll_interval = spout.poll_interval
        self._conf = spout.conf
        self._folder = folder
        self.reads = reads

    def open(self, context: Context) -> None:
        """Open the input's folder. Called again if it raised an error."""
        self._context = context
        if not hasattr(self, "_files"):
            self._files = open_steady(self._folder, self._conf, self.follow_links)

    def positions(self, folder: str) -> OpenStore:
        """Open a folder of positions; the caller closes it."""
        return open_steady(folder, self._conf)

    def close(self) -> None:
        """Close what was opened, if anything."""
        if hasattr(self, "_files"):
            self._files.close()

    @property
    def home(self) -> str:
        """The folder below which positions are stored by default."""
        return self._folder

    def name(self, unit: Unit) -> object:
        """Return the unit's name in message ids."""
        return unit.number

    @abstractmethod
    def snapshot(self) -> Mapping[str, Any]:
        """Return the existing input as JSON values. All tasks of a submission use the snapshot of its first task. The folder of
        positions is already open.
        """

    @abstractmethod
    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """Return the units of a snapshot, in reading order. Called again if it raised an error."""

    @abstractmethod
    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Return new units, and the seconds until the next call; None: there will be no more."""

    @abstractmethod
    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """Yield the items of a unit from a position on."""


class ReadingTask:
    """The work of one task. All methods are called in the task's own thread."""

    def __init__(
        self, units: Units, context: Context, folder: str | None, begin: EmittedSoFar | None = None
    ) -> None:
        """`begin`: where to begin, if positions are kept in the commits of the topology, and not in the folder."""
        self._begin = begin
        self._started = False
        self._units = units
        self._context = context
        self._now = context.now
        self._folder = folder
        self._positions = Positions(context.index, context.parallelism)
        self._records: PositionRecords | None = None
        self._store: OpenStore | None = None
        #: Units to read.
        self._left: deque[Unit] = deque()
        #: All unfinished units: those to read, those set aside, and the open ones.
        self._undone: set[Unit] = set()
        #: Units that could not be read.
        self._aside: list[Unit] = []
        #: When these units are tried again.
        self._retry_at = 0.0
        #: The units that are open, by their names in message ids.
        self._named: dict[object, OpenUnit] = {}
        self._current: OpenUnit | None = None
        self._name: object = None
        self._items: Iterator[Item] = iter(())
        self._save_at = 0.0
        self._save_wait = SAVE_SECONDS
        self._waiting = Waiting(units.reads, context.log, context.progress, context.now)
        #: Whether everything was emitted.
        self.finished = False

    def start(self) -> None:
        """Open everything and find the units that are left to read; after `FilesUnavailable`, call this method again."""
        context, units, begin = self._context, self._units, self._begin
        submission = context.topology_id if begin is None else begin.submission
        units.open(context)
        if self._store is None:
            folder = self._folder if begin is None or begin.folder is None else begin.folder
            if folder is None:
                folder = positions.default_folder(units.home, submission, context.component)
            self._store = units.positions(folder)
        reader = ReaderIdentity(context.topology, context.component, units.reads)
        try:
            positions.require_reader(self._store, reader)
            if begin is not None and begin.agreed:
                snapshot = positions.agreed_before(self._store, begin)
            else:
                snapshot = positions.agree(self._store, submission, units.snapshot)
        except FilesRefused as error:
            raise FilesRefused(
                f"{error}; {context.component} stores its positions in {self._store.root}: if it cannot write there, give"
                " another folder as positions"
            ) from None
        self._positions = Positions(context.index, context.parallelism)
        owner = positions.owner_name(context.topology_id, context.incarnation)
        records = PositionRecords(self._store, self._positions, owner)
        if begin is None or not begin.agreed:
            records.load()
        for record in [] if begin is None else begin.records:
            self._positions.learn(record)
        self._undone.clear()
        self._left.clear()
        self._queue(units.units(snapshot))
        if begin is not None:
            self._require_begun()
            begin.folder, begin.agreed = self._store.root, positions.digest_of_snapshot(snapshot)
        self._records = records
        self._started = True
        self._save_at = context.now() + SAVE_SECONDS
        context.log.info("reads %s; pieces left to this task: %d", units.reads, len(self._left))

    def next(self, emit: Emit, most: int = 1) -> float | None:
        """Emit the next items; return the seconds until the next call (None: call again soon). Raises the errors of units that
        cannot be read.
        """
        self._save_if_due()
        keeps_positions = self._begin is None
        for _ in range(most):
            try:
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
            self._waiting.succeeded()
            current = self._current
            assert current is not None
            position, after, values = item
            if type(values) is not tuple:
                current.next = after
                raise values  # type: ignore[misc] # mypy does not narrow by `type`
            if keeps_positions:
                current.taken(position, after)
            else:
                current.next = after
            emit(values, message_id=(self._name, position))
        return None

    def settle_many(self, message_ids: list[Any]) -> None:
        """Record that the trees of items are done, or failed for good. All are recorded before anything is stored: storing can
        fail, and it is not said again which they were."""
        if self._begin is not None:
            return
        for message_id in message_ids:
            self._settle(message_id)
        # `next` is not called at the limit of pending trees, nor after the end.
        if (self.finished and not self._named) or self._now() >= self._save_at:
            self.save()

    def settle(self, message_id: object) -> None:
        """Record that the tree of an item is done, or failed for good."""
        self.settle_many([message_id])

    def _settle(self, message_id: object) -> None:
        place: tuple[object, int] = message_id  # type: ignore[assignment]
        name, position = place
        if (opened := self._named.get(name)) is None:
            return
        opened.settle(position)
        self._positions.changed = True
        if opened.exhausted and self._positions.close_if_done(opened):
            self._closed(opened.unit, name)

    def save(self) -> None:
        """Store how far the task has read, if that has changed. Reading continues while the store is unavailable."""
        if self._records is None or self._begin is not None or not self._positions.changed:
            return
        context = self._context
        try:
            self._records.save()
        except FilesError as error:
            if self._save_wait == SAVE_SECONDS:
                context.log.warning("cannot store how far it has read; continues, and tries again: %s", error)
            self._save_wait = min(2 * self._save_wait, LONGEST_SAVE_WAIT)
        else:
            self._save_wait = SAVE_SECONDS
        self._save_at = context.now() + self._save_wait

    def emitted_so_far(self) -> dict[str, Any]:
        """Return what was emitted, as plain values. Only with `begin`."""
        begin = self._begin
        assert begin is not None
        if self._started:
            begin.records = [self._positions.record()]
        found: dict[str, Any] = msgspec.to_builtins(begin)
        return found

    def _require_begun(self) -> None:
        """Check that the units that were begun are there. Raises `LostInput`."""
        missing = sorted(unit for unit in self._positions.begun if unit not in self._undone)
        if missing:
            names = ", ".join(str(self._units.name(unit)) for unit in missing[:3])
            raise LostInput(
                f"{self._units.reads} has lost {len(missing)} of the pieces whose beginning is committed ({names}): put them "
                "back, or set another topology.state.path, with which everything is read again"
            )

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
        """Begin the next unit, since the current unit has no further items; return whether there was a next unit."""
        if not self._started:
            self.start()
        if self._current is not None:
            if self._positions.exhausted(self._current):
                self._closed(self._current.unit, self._name)
            self._current = None
        if self._aside and self._context.now() >= self._retry_at:
            self._left.extend(self._aside)
            self._aside.clear()
        if not self._left:
            return False
        unit = self._left.popleft()
        self._current = self._positions.open.get(unit) or self._positions.begin(unit)
        self._name = self._units.name(unit)
        self._named[self._name] = self._current
        self._items = self._units.items(unit, self._current.next)
        return True

    def _find_more(self) -> float | None:
        """Search for new units, since all known units have been read."""
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
        """Queue the units that belong to this task and are not done."""
        known = self._positions
        for unit in units:
            if not known.mine(unit) or unit in self._undone:
                continue
            if not known.is_done(unit):
                self._undone.add(unit)
                self._left.append(unit)
            elif self._begin is not None:
                # Tasks of another parallelism may have read it, before positions were committed.
                known.done.add(unit)

    def _closed(self, unit: Unit, name: object) -> None:
        self._undone.discard(unit)
        del self._named[name]

    def _wait_for_store(self, error: FilesUnavailable) -> float:
        """Return how long to wait for an unavailable store; after the wait, the task continues where it stopped."""
        if self._current is not None:
            self._items = self._units.items(self._current.unit, self._current.next)
        return self._waiting.failed(str(error))

    def _put_aside(self) -> None:
        """Set aside the current unit, which cannot be read properly; reading continues with the next unit."""
        if self._current is not None:
            if not self._aside:
                self._retry_at = self._context.now() + RETRY_SECONDS
            self._aside.append(self._current.unit)
            self._current = None
            self._items = iter(())
