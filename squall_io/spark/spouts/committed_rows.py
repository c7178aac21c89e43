"""CommittedRows: the rows of committed batches as a stream, in the order of the commits.

    builder.set_spout("rows", CommittedRows("hdfs://namenode:9000/counts", ["word", "count"], follow=True), parallelism=2)

A batch is read by one task, completely and once: its position is stored like others (see `positions`), by the batch's
name, so
it does not matter when and in which order tasks discover it. Within a task the batches come in the order of their
commits, the rows of each as they are in its files.
Must not know: how positions are stored, file formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.files import AbsentFile, FilesUnavailable
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS, BatchName
from squall_io.spark.manifest.state import read_state, require_readable
from squall_io.spark.manifest.tables import (
    ROWS,
    TableRecord,
    describe,
    latest_schema,
    read_schema,
    read_table,
)
from squall_io.spark.reading.moments import Moment, Span, WrongMoment
from squall_io.spark.rows.schema import Schema
from squall_io.spark.session.java import require_packages
from squall_io.spark.session.sessions import SessionLease, shared_session
from squall_io.spark.spouts.positions import Ranges, Unit, owner_of
from squall_io.spark.spouts.reading_spout import (
    ReadingSpout,
    follow_problems,
    path_problems,
    positions_problems,
    replay_problems,
)
from squall_io.spark.spouts.reading_task import Item, Units
from squall_io.spark.spouts.row_files import RowFiles
from squall_io.spark.spouts.splits import UnreadableFile
from squall_io.spark.spouts.steady_stores import open_steady
from squall_io.spark.stores import OpenStore, check_path
from topology_api import Fields, InvalidConfig, Replay, SquallError
from topology_api.names import field_problem
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    from topology_api import Context

#: Seconds between two polls for new batches.
POLL_SECONDS: Final = 2.0


class CannotStream(SquallError):
    """A table whose rows cannot be streamed as requested."""


class CommittedRows(ReadingSpout):
    """The committed rows of a table, one tuple each.

    path: the table's.
    fields: the columns that a tuple has, in this order. Values are Python's own; a struct is a dict, a map is one, a
        timestamp is aware, in UTC.
    since, until: only batches committed from `since` on and before `until`: a datetime with its tzinfo, ISO text with its zone,
        or seconds since 1970.
    follow: False reads the batches that exist when the spout's first task starts, and ends; True continues with new ones.
    positions: a folder for how far the tasks have read; None: one of this submission alone, in `_squall/readers`
        of the table. With a folder of your own a topology that is submitted again continues where the last one ended, and reads
        what was added since.
    replay: as `Spout.replay`.
    master, conf: of Spark, the same as for the topology's `SparkSink`s. Parquet tables are read without Spark.
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
        problems = [*path_problems(path, "path"), *_field_problems(names)]
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

    _context: Context
    _files: OpenStore
    _rows: RowFiles
    """These three are set by `open`."""
    _schemas: dict[int, Schema]
    """By number; 0 is the newest, which the fields were checked with."""

    def __init__(self, spout: CommittedRows) -> None:
        self._spout = spout
        self._lease: SessionLease | None = None
        #: This task's batches.
        self._entries: dict[Unit, BatchEntry] = {}
        #: The files of commits and checkpoints at the last poll.
        self._seen: frozenset[str] | None = None

    def open(self, context: Context) -> None:
        """Open the table, and check that it has the wanted columns."""
        self._context = context
        require_packages()
        if not hasattr(self, "_files"):
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

    def positions(self, folder: str) -> OpenStore:
        """Open a folder of positions."""
        return open_steady(folder, self._spout.conf)

    def snapshot(self) -> Mapping[str, Any]:
        """Return the batches that count now, by owner and number; nothing if the table is followed."""
        if self._spout.follow:
            return {}
        numbers: dict[str, Ranges] = {}
        for unit in self._batches():
            numbers.setdefault(unit.series, Ranges()).add(unit.number)
        return {"batches": {series: list(map(list, ranges)) for series, ranges in numbers.items()}}

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """Return the batches of the snapshot; if the table is followed, the existing ones."""
        if self._spout.follow:
            return self._new_units()
        wanted = {series: Ranges(map(tuple, ranges)) for series, ranges in snapshot["batches"].items()}
        entries = self._batches()
        units = [unit for unit in entries if unit.number in wanted.get(unit.series, ())]
        gone = sum(last - first + 1 for ranges in wanted.values() for first, last in ranges) - len(units)
        if gone:
            raise CannotStream(
                f"{self._files.root} has lost {gone} of the batches that it had when reading began: its manifest was"
                " changed by something else than Squall"
            )
        self._keep(entries, units)
        return units

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Return new batches; None unless the table is followed."""
        return (self._new_units(), POLL_SECONDS) if self._spout.follow else None

    def name(self, unit: Unit) -> object:
        """Return the batch's name."""
        return f"{unit.series}.{unit.number}"

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """Yield the rows of a batch; a row's position is its place among all of them."""
        entry = self._entries[unit]
        schema = self._schema(entry.schema if self._rows.wants_written else 0)
        place = 0
        for file in entry.files:
            try:
                for row in self._rows.rows(file, schema):
                    if place >= position:
                        yield place, place + 1, row
                    place += 1
            except AbsentFile as error:
                raise UnreadableFile(f"batch {entry.batch} is not complete any more: {error}") from None
        if place != entry.rows:
            raise UnreadableFile(
                f"batch {entry.batch} has {place} rows in its files, and {entry.rows} were committed"
            )

    def close(self) -> None:
        """Close the table, and release the session."""
        if hasattr(self, "_files"):
            self._files.close()
        if self._lease is not None:
            self._lease.release()

    def _session(self) -> SessionLease:
        """Return a lease of Spark's session, which is started when first needed."""
        if self._lease is None:
            spout, context = self._spout, self._context
            self._lease = shared_session(spout.master, spout.conf, context.log, context.progress)
        return self._lease

    def _check(self, table: TableRecord) -> None:
        """Raise `CannotStream` if the table does not hold what is wanted of it."""
        root = self._files.root
        if table.holds != ROWS:
            raise CannotStream(
                f"{root} holds {describe(table)}: only rows of batches can be read as a stream"
            )
        newest = latest_schema(self._files)
        if newest is None:
            raise CannotStream(
                f"the table at {root} has no schema yet: its sink is starting; try again in a moment"
            )
        unknown = [name for name in self._spout.fields if newest.schema.column(name) is None]
        if unknown:
            near = nearest(unknown[0], newest.schema.names)
            raise CannotStream(
                f"the table at {root} has no column {listed(unknown)} (it has {newest.schema}){near}"
            )
        self._schemas = {0: newest.schema}

    def _schema(self, number: int) -> Schema:
        if number not in self._schemas:
            self._schemas[number] = read_schema(self._files, number).schema
        return self._schemas[number]

    def _batches(self) -> dict[Unit, BatchEntry]:
        """Return the batches as they were committed, oldest first, ignoring compactions: these only move rows.

        `FilesUnavailable`: which batches count will be certain soon.
        """
        state = require_readable(self._files, read_state(self._files))
        if state.uncertain:
            raise FilesUnavailable(
                f"whether batch {state.uncertain[0]} of {self._files.root} counts is not decided: a task of its sink has"
                " restarted, and will decide in a moment"
            )
        entries = (entry for entry in (*state.entries, *state.replaced) if not entry.replaces)
        inside = [entry for entry in entries if self._spout.span.holds(entry.committed)]
        return {
            unit_of(entry.batch): entry
            for entry in sorted(inside, key=lambda entry: (entry.committed, entry.batch))
        }

    def _new_units(self) -> list[Unit]:
        """Return all existing batches if anything has changed since the last poll."""
        # An entry may be in a checkpoint before any task has seen its own file.
        names = frozenset(
            status.path for folder in (COMMITS, CHECKPOINTS) for status in self._files.list(folder)
        )
        if names == self._seen:
            return []
        entries = self._batches()
        self._keep(entries, entries)
        self._seen = names
        return list(entries)

    def _keep(self, entries: Mapping[Unit, BatchEntry], units: Iterable[Unit]) -> None:
        index, parallelism = self._context.index, self._context.parallelism
        self._entries = {unit: entries[unit] for unit in units if owner_of(unit, parallelism) == index}


def unit_of(batch: BatchName) -> Unit:
    """Return the unit for a batch."""
    return Unit(f"{batch.writer_id}.{batch.epoch}", batch.number)


def _field_problems(names: tuple[Any, ...]) -> Iterator[str]:
    if not names:
        yield "fields are none: name the columns that a tuple has"
    yield from (f"a field {problem}" for name in names if (problem := field_problem(name)) is not None)
    if len(set(map(str, names))) < len(names):
        yield f"fields are {listed(names)}: each once"
