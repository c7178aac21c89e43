"""Drops old partitions: the rows of days that are past, by the values of a partition column: dates, or texts that are days.

A rewriter (see `rewriting`) replaces each batch that has rows of such a day by an entry with the files of its other days. So
the rows are gone for every reader that begins later, a batch that was dropped is still taken, and the files stay for others
until a vacuum. Entries say which files were dropped, and how many rows each had (`BatchEntry.dropped`).
Must not know: terminals, how rows are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Final
from urllib.parse import unquote

from squall.stores.files import Files
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.following import catch_up
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.holders import Myself
from squall_io.spark.manifest.rewriting import Rewriter, Step, require_idle
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.tables import ROWS, TableRecord, latest_schema, read_table
from squall_io.spark.rows.formats import NULL_PARTITION
from squall_io.spark.rows.types import Simple, same_name
from topology_api import SquallError
from topology_api.wording import listed

#: The most files that an entry takes over: some 2 MB of JSON.
MOST_FILES: Final = 5_000

#: A day, as Spark writes a date, and as ISO 8601 has it.
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

#: Returns how many rows each of these files has, by path.
RowCount = Callable[[Sequence[DataFile]], Mapping[str, int]]


class CannotDrop(SquallError):
    """A table of which no partitions can be dropped as requested."""


@dataclass(frozen=True)
class OldDays:
    """Which rows are to be dropped."""

    #: The partition column.
    column: str
    #: Rows of earlier days go.
    before: date

    def has(self, path: str) -> bool:
        """Return whether the rows of a file go. Rows without a day stay."""
        day = self.day_of(path)
        return day is not None and day < self.before

    def day_of(self, path: str) -> date | None:
        """Return the day of a file's rows; None if they have none."""
        for folder in path.split("/")[:-1]:
            name, equal, text = folder.partition("=")
            if (
                equal
                and same_name(unquote(name)) == same_name(self.column)
                and text not in (NULL_PARTITION, "")
            ):
                return self._day(unquote(text), path)
        return None

    def _day(self, text: str, path: str) -> date:
        with suppress(ValueError):
            if _DAY.fullmatch(text):
                return date.fromisoformat(text)
        raise CannotDrop(
            f"the {self.column} of {path} is {text!r:.100}, which is no day as 2026-11-29: its age is unknown, so nothing is"
            " dropped"
        )


@dataclass(frozen=True)
class DroppedDays:
    """What was dropped, or, if it was dry, would be."""

    column: str
    before: date
    #: The days, the oldest first.
    days: tuple[date, ...]
    #: The files of these days, and their bytes. A vacuum deletes them.
    files: int
    size: int
    #: None if it was dry, and the rows were not counted.
    rows: int | None


def days_before(now: float, age: float) -> date:
    """Return the first day that stays: a day is old when all of it lies more than `age` seconds back, in UTC."""
    return (datetime.fromtimestamp(now, timezone.utc) - timedelta(seconds=age)).date()


def day_column(files: Files, table: TableRecord, wanted: str | None) -> str:
    """Return the partition column that tells the day of a row: of type date, or, if it is wanted, of text. Raises
    `CannotDrop`."""
    schema = latest_schema(files)
    found = [None if schema is None else schema.schema.column(name) for name in table.partition_by]
    columns = [column for column in found if column is not None]
    days = [column.name for column in columns if column.type == Simple("date")]
    texts = [column.name for column in columns if column.type == Simple("string")]
    if wanted is None and len(days) == 1:
        return days[0]
    named = [name for name in (*days, *texts) if wanted is not None and same_name(name) == same_name(wanted)]
    if named:
        return named[0]
    if days and wanted is None:
        raise CannotDrop(
            f"{files.root} has several partition columns of type date: give one of {listed(days)}"
        )
    has = f"its partition columns are {listed(table.partition_by)}" if table.partition_by else "it has none"
    if wanted is not None:
        what = f"no partition column {wanted} of type date or string"
    else:
        what = "no partition column of type date"
        if texts:
            has += f"; if the texts of one are days as 2026-11-29, name it by --by {texts[0]}"
    raise CannotDrop(f"{files.root} has {what}, so the age of its rows is unknown: {has}")


def plan(state: TableState, old: OldDays, count: RowCount) -> Iterator[Step]:
    """Yield which batches are replaced together; each step is one new entry."""
    uncertain = set(state.uncertain)
    affected = [
        entry
        for entry in state.entries
        if entry.batch not in uncertain and any(old.has(file.path) for file in entry.files)
    ]
    for group in _groups(affected):
        gone = [(entry, file) for entry in group for file in entry.files if old.has(file.path)]
        rows = _rows(gone, count)
        yield Step(
            replaced=tuple(group),
            merges=(),
            kept=tuple(file for entry in group for file in entry.files if not old.has(file.path)),
            dropped=tuple(
                part for _, file in gone for part in (file.parts or ((file.name, rows[file.path]),))
            ),
        )


def _groups(entries: Iterable[BatchEntry]) -> Iterator[list[BatchEntry]]:
    """Yield entries of one schema, with at most `MOST_FILES` files, or a single entry."""
    group: list[BatchEntry] = []
    for entry in sorted(entries, key=lambda entry: (entry.schema, entry.committed, entry.batch)):
        files = sum(len(each.files) for each in (*group, entry))
        if group and (files > MOST_FILES or entry.schema != group[0].schema):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _rows(gone: Sequence[tuple[BatchEntry, DataFile]], count: RowCount) -> dict[str, int]:
    """Return how many rows files have, by path. Files that say so themselves, or are the only one of a batch, are not read."""
    known = {file.path: entry.rows for entry, file in gone if len(entry.files) == 1}
    unknown = [file for _, file in gone if not file.parts and file.path not in known]
    return {**known, **(count(unknown) if unknown else {})}


def drop(
    files: Files,
    age: float,
    by: str,
    wall: Callable[[], float],
    count: RowCount,
    *,
    column: str | None = None,
    me: Myself = Myself(),  # noqa: B008 - it is frozen
    dry: bool = False,
    at: Callable[[str], None] = lambda step: None,
) -> DroppedDays:
    """Drop the rows of days that lie more than `age` seconds back.

    by: names the process to users; me: the same, for others that would wait for it. at: called before each step, for
    tests. Raises `CannotDrop`, `RewriterBusy`, `Superseded`, `UnreadableManifest`, and errors of `Files`. What was done before
    an error stays; the call may be repeated.
    """
    table = read_table(files)
    if table.holds != ROWS:
        raise CannotDrop(
            f"{files.root} holds versions of a result: the job that makes it decides on its rows"
        )
    old = OldDays(day_column(files, table, column), days_before(wall(), age))
    state = require_readable(files, read_state(files))
    found = [file for entry in state.entries for file in entry.files if old.has(file.path)]
    if dry or not found:
        return _outcome(old, found, None if dry else 0)
    require_idle(files, me)
    rewriter = Rewriter(files, by, wall, topology="squall vacuum", holder=me.holder, at=at)
    rewriter.begin()
    rows = 0
    found = []
    state = rewriter.read()
    for step in plan(state, old, count):
        commit = rewriter.commit(rewriter.next_batch(), step, {}, table.data)
        commit.run()
        commit.clear()
        rows += sum(number for _, number in step.dropped)
        found += [file for entry in step.replaced for file in entry.files if old.has(file.path)]
        rewriter.sign()
    rewriter.end()
    at("follow")
    try:
        catch_up(files, wall)
    except ForeignLog as error:
        raise CannotDrop(
            f"the rows were dropped, but readers of the Delta log see them on, since it does not follow the table: {error}."
            f" `squall table {files.root} --rebuild-delta` makes it hold what is committed"
        ) from None
    return _outcome(old, found, rows)


def _outcome(old: OldDays, found: Sequence[DataFile], rows: int | None) -> DroppedDays:
    days = sorted({day for file in found if (day := old.day_of(file.path)) is not None})
    return DroppedDays(
        old.column, old.before, tuple(days), len(found), sum(file.size for file in found), rows
    )
