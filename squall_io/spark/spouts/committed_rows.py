"""CommittedRows: the rows of committed batches as a stream, in the order of the commits.

    builder.set_spout("rows", CommittedRows("hdfs://namenode:9000/counts", ["word", "count"], follow=True), parallelism=2)

A batch is read by one task, as a whole and once: its place is kept as positions are (see `positions`), by the batch's name, so
that it does not matter when and in which order tasks find out about it. Within a task the batches come in the order of their
commits, the rows of each as they lie in its files.
Must not know: how positions are kept, file formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.entries import Entry
from squall_io.spark.manifest.files import FileMissing, FilesUnavailable
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS, BatchName
from squall_io.spark.manifest.state import State, read_state, require_readable
from squall_io.spark.manifest.tables import ROWS, Table, describe, latest_schema, read_schema, read_table
from squall_io.spark.reading.moments import Moment, Span, WrongMoment
from squall_io.spark.rows.schema import Schema
from squall_io.spark.session.java import require_packages
from squall_io.spark.session.sessions import SessionLease, shared_session
from squall_io.spark.spouts.positions import Ranges, Unit, owner_of
from squall_io.spark.spouts.reading_spout import (
    ReadingSpout,
    follow_problems,
    positions_problems,
    replay_problems,
)
from squall_io.spark.spouts.reading_task import Item, Units
from squall_io.spark.spouts.row_files import RowFiles
from squall_io.spark.spouts.splits import UnreadableFile
from squall_io.spark.spouts.steady_stores import open_steady
from squall_io.spark.stores import InvalidPath, Store, check_path
from topology_api import Fields, InvalidConfig, Replay, SquallError
from topology_api.names import field_problem
from topology_api.wording import listed, nearest, typed

if TYPE_CHECKING:
    from topology_api import Context

#: Seconds between two looks for batches that have come.
LOOK_SECONDS: Final = 2.0


class CannotStream(SquallError):
    """A table whose rows cannot be read as they were asked for."""


class CommittedRows(ReadingSpout):
    """The rows that were committed to a table, one tuple each.

    path: the table's.
    fields: the columns that a tuple has, in this order. Values are Python's own; a struct is a dict, a map is one, a
        timestamp is aware, in UTC.
    since, until: only batches committed from `since` on and before `until`: a datetime with its tzinfo, ISO text with its zone,
        or seconds since 1970.
    follow: False reads what is there when the first task of the spout looks, and ends; True goes on with what comes.
    positions: a folder in which is kept how far the tasks have come; None: one of this submission alone, in `_squall/readers`
        of the table. With a folder of your own a topology that is submitted again goes on where the last one ended, and reads
        what has come since.
    replay: as `Spout.replay`.
    master, conf: of Spark, as of the `SparkSink`s of the topology. Parquet tables are read without Spark.
    """

    def __init__(
        self,
        path: str,
        fields: Sequence[str],
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        follow: bool = False,
        positions: str | None = None,
        replay: Replay | None = ReadingSpout.replay,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [*_path_problems(path), *_field_problems(names)]
        try:
            self.span = Span.of(since, until)
        except WrongMoment as error:
            problems.append(str(error))
        problems += [*follow_problems(follow), *positions_problems(positions), *replay_problems(replay)]
        if problems:
            raise InvalidConfig(problems, "CommittedRows")
        self.path = check_path(path)
        self.fields = names
        self.outputs = Fields(*names)
        self.follow = follow
        self.replay = replay
        self.master = master
        self.conf = dict(conf or {})
        self._positions = positions

    def _units(self) -> Units:
        return BatchUnits(self)


class BatchUnits:
    """The batches of a table, for one task."""

    def __init__(self, spout: CommittedRows) -> None:
        self._spout = spout
        self._context: Context | None = None
        self._files: Store | None = None
        self._rows: RowFiles | None = None
        self._lease: SessionLease | None = None
        #: This task's batches.
        self._entries: dict[Unit, Entry] = {}
        #: The newest schema, and others by their numbers.
        self._schemas: dict[int, Schema] = {}
        #: What there was of commits and checkpoints at the last look.
        self._seen: frozenset[str] | None = None

    def open(self, context: Context) -> None:
        """Open the table, and see that it has what is wanted."""
        self._context = context
        require_packages()
        if self._files is None:
            self._files = open_steady(self._spout.path, self._spout.conf)
        table = read_table(self._files)
        self._check(table)
        self._rows = RowFiles(self._files, table.file_format, self._spout.fields, self._session)

    @property
    def reads(self) -> str:
        """The table, and which of its batches."""
        span = self._spout.span
        since = "" if span.since is None else f" since {span.since!r}"
        until = "" if span.until is None else f" until {span.until!r}"
        return f"{self._spout.path}{since}{until}"

    @property
    def home(self) -> str:
        """The table's folder."""
        return self._spout.path

    def positions(self, folder: str) -> Store:
        """Open a folder of positions."""
        return open_steady(folder, self._spout.conf)

    def snapshot(self) -> Mapping[str, Any]:
        """The batches that count now, by owner and number; nothing of the sort when the table is followed."""
        if self._spout.follow:
            return {}
        numbers: dict[str, Ranges] = {}
        for entry in self._batches(self._look()):
            unit = unit_of(entry.batch)
            numbers.setdefault(unit.series, Ranges()).add(unit.number)
        return {"batches": {series: [list(each) for each in ranges] for series, ranges in numbers.items()}}

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """The batches of the snapshot; when the table is followed, those that are there."""
        if self._spout.follow:
            return self._new_units()
        wanted = {series: Ranges(map(tuple, ranges)) for series, ranges in snapshot["batches"].items()}
        found = {unit_of(entry.batch): entry for entry in self._batches(self._look())}
        units = [unit for unit in found if unit.number in wanted.get(unit.series, ())]
        gone = sum(last - first + 1 for ranges in wanted.values() for first, last in ranges) - len(units)
        if gone:
            raise CannotStream(
                f"{self._opened.root} has lost {gone} of the batches that it had when reading began: its manifest was"
                " changed by something else than Squall"
            )
        self._keep(found, units)
        return units

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """The batches that have come; None unless the table is followed."""
        return (self._new_units(), LOOK_SECONDS) if self._spout.follow else None

    def name(self, unit: Unit) -> object:
        """The batch's name."""
        return f"{unit.series}.{unit.number}"

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """The rows of a batch; a row's position is its place among all of them."""
        entry = self._entries[unit]
        assert self._rows is not None
        schema = self._schema(entry.schema if self._rows.wants_written else 0)
        place = 0
        for file in entry.files:
            try:
                for row in self._rows.rows(file, schema):
                    if place >= position:
                        yield place, place + 1, row
                    place += 1
            except FileMissing as error:
                raise UnreadableFile(f"batch {entry.batch} is not whole any more: {error}") from None
        if place != entry.rows:
            raise UnreadableFile(
                f"batch {entry.batch} has {place} rows in its files, and {entry.rows} were committed"
            )

    def close(self) -> None:
        """Close the table, and give the session back."""
        if self._files is not None:
            self._files.close()
        if self._lease is not None:
            self._lease.release()

    @property
    def _opened(self) -> Store:
        assert self._files is not None, "opened first"
        return self._files

    def _session(self) -> SessionLease:
        """Spark, started when it is first needed."""
        assert self._context is not None
        if self._lease is None:
            self._lease = shared_session(
                self._spout.master, self._spout.conf, self._context.log, self._context.progress
            )
        return self._lease

    def _check(self, table: Table) -> None:
        """Whether the table holds what is wanted of it; `CannotStream`."""
        root = self._opened.root
        if table.holds != ROWS:
            raise CannotStream(
                f"{root} holds {describe(table)}: rows of batches are what can be read as a stream"
            )
        newest = latest_schema(self._opened)
        if newest is None:
            raise CannotStream(
                f"the table at {root} has no schema yet: its sink is about to start; try again in a moment"
            )
        unknown = [name for name in self._spout.fields if newest.schema.column(name) is None]
        if unknown:
            near = nearest(unknown[0], newest.schema.names)
            raise CannotStream(
                f"the table at {root} has no column {listed(unknown)} (it has {newest.schema}){near}"
            )
        self._schemas = {0: newest.schema}

    def _schema(self, number: int) -> Schema:
        """A schema by its number; 0 is the newest that the fields were checked with."""
        if number not in self._schemas:
            self._schemas[number] = read_schema(self._opened, number).schema
        return self._schemas[number]

    def _look(self) -> State:
        """What the table holds, for certain; `FilesUnavailable` when that will be known soon."""
        state = require_readable(self._opened, read_state(self._opened))
        if state.uncertain:
            raise FilesUnavailable(
                f"whether batch {state.uncertain[0]} of {self._opened.root} counts is not decided: a task of its sink has been"
                " started anew, and will say so in a moment"
            )
        return state

    def _batches(self, state: State) -> list[Entry]:
        """The batches as they were committed, the oldest first: whoever compacts moves rows that were read, or will be."""
        entries = (entry for entry in (*state.entries, *state.replaced) if not entry.replaces)
        inside = [entry for entry in entries if self._spout.span.holds(entry.committed)]
        return sorted(inside, key=lambda entry: (entry.committed, entry.batch))

    def _new_units(self) -> list[Unit]:
        """All batches that are there, if anything has changed since the last look."""
        folders = (
            COMMITS,
            CHECKPOINTS,
        )  # an entry may be in a checkpoint before anybody has seen its own file
        names = frozenset(status.path for folder in folders for status in self._opened.list(folder))
        if names == self._seen:
            return []
        found = {unit_of(entry.batch): entry for entry in self._batches(self._look())}
        self._keep(found, found)
        self._seen = names
        return list(found)

    def _keep(self, found: Mapping[Unit, Entry], units: Iterable[Unit]) -> None:
        assert self._context is not None
        index, parallelism = self._context.index, self._context.parallelism
        self._entries = {unit: found[unit] for unit in units if owner_of(unit, parallelism) == index}


def unit_of(batch: BatchName) -> Unit:
    """A batch as what is read by one task."""
    return Unit(f"{batch.seat}.{batch.epoch}", batch.number)


def _path_problems(path: object) -> Iterator[str]:
    try:
        check_path(path)  # type: ignore[arg-type]
    except InvalidPath as error:
        yield str(error)
    except TypeError:
        yield f"path is {typed(path)}: give a str"


def _field_problems(names: tuple[Any, ...]) -> Iterator[str]:
    if not names:
        yield "fields are none: name the columns that a tuple has"
    for name in names:
        problem = field_problem(name)
        if problem is not None:
            yield f"a field {problem}"
    if len(set(map(str, names))) < len(names):
        yield f"fields are {listed(names)}: each once"
