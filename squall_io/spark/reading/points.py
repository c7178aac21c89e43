"""A point in the history of a table, which a reader may choose instead of the present: a version, or a moment.

A version is that of the Delta log, or one of a table of results. Where a table was compacted since, batches are read from the
files of that time, and from those of today if a vacuum has deleted them.
Must not know: Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from squall.stores.files import AbsentFile, Files
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.delta.history import NoVersion, entries_at, log_at
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.originals import OriginalBatch, RowRange, originals, originals_of
from squall_io.spark.manifest.state import TableState, read_state
from squall_io.spark.manifest.vacuums import VacuumRecord, read_vacuums, vacuumed_in, without_files
from squall_io.spark.reading.moments import Moment, Span, WrongMoment, seconds_of
from squall_io.spark.results.versions import Version, kept_versions, newest_number, read_version


@dataclass(frozen=True)
class Point:
    """A version, or a moment in seconds since 1970; neither: the present."""

    version: int | None = None
    timestamp: float | None = None

    @classmethod
    def of(cls, version: int | None, timestamp: Moment | None, span: Span) -> Point:
        """Return the point that a user names. Raises `WrongMoment`."""
        if version is not None and timestamp is not None:
            raise WrongMoment(
                f"version ({version!r}) and timestamp ({timestamp!r}) are given: each chooses a state of the table, so give one"
            )
        if version is None and timestamp is None:
            return NOW
        name = "timestamp" if version is None else "version"
        if span:
            raise WrongMoment(
                f"{name} chooses a state of the table, and since and until choose batches by their time: give one or the other"
            )
        if version is None:
            assert timestamp is not None
            return cls(timestamp=seconds_of(timestamp, name))
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise WrongMoment(f"version is {version!r}: give the number of a version, such as 17")
        return cls(version)

    def __bool__(self) -> bool:
        return self != NOW


NOW: Final = Point()


def originals_at(files: Files, point: Point) -> tuple[TableState, list[OriginalBatch]]:
    """Return the state of a table, and where the rows of each batch are that it held at a point.

    Raises `NoVersion`, `ForeignLog`, and errors of `Files`.
    """
    if not point:
        state = read_state(files)
        return state, originals(state)
    # Read before the manifest, which then has every batch that the log has.
    log = None if point.version is None else log_at(files, point.version)
    now = read_state(files)
    then = _state_at(files, point, log, now)
    found = originals(then)
    records = read_vacuums(files)
    _, gone = without_files(now, records.values())
    if not gone:
        return now, found
    # What is gone by now was moved before, unless it was dropped.
    there = {
        (original.entry.batch, each.place): each
        for entry in now.counted.values()
        for original in originals_of(entry, now)
        for each in original.ranges
        if each.file.path not in gone
    }
    try:
        return now, [_moved(original, gone, there) for original in found]
    except KeyError:
        raise _dropped(files, point, now, records.values()) from None


def _state_at(files: Files, point: Point, log: DeltaLog | None, now: TableState) -> TableState:
    if log is not None:
        known = {path for entry in now.counted.values() for path in entry.paths}
        if (unknown := log.live.keys() - known) and not now.unreadable:
            raise ForeignLog(
                f"version {log.version} of {files.root} has files of no committed batch, such as {min(unknown)}"
            )
        entries = entries_at(log, now.counted)
    else:
        assert point.timestamp is not None
        entries = _entries_until(files, now, point.timestamp)
    return replace(now, entries=entries, replaced=tuple(_replaced_by(entries, now)))


def _moved(
    original: OriginalBatch, gone: Collection[str], there: Mapping[tuple[BatchName, int], RowRange]
) -> OriginalBatch:
    """Return where the rows of a batch are now, if a vacuum has deleted their files. Raises `KeyError` if they are nowhere."""
    ranges = tuple(
        there[original.entry.batch, each.place] if each.file.path in gone else each
        for each in original.ranges
    )
    return replace(original, ranges=ranges)


def _dropped(files: Files, point: Point, now: TableState, records: Iterable[VacuumRecord]) -> NoVersion:
    recorded = vacuumed_in(records)
    drops = [entry for entry in now.counted.values() if entry.dropped and entry.batch in recorded]
    what = f"moment {point.timestamp!r}" if point.version is None else f"version {point.version}"
    last = max((entry.committed for entry in drops), default=None)
    return NoVersion(
        f"{what} of {files.root} cannot be read any more: rows of it were dropped, and a vacuum has deleted their files. The"
        f" oldest moment that can be read is {last!r} (seconds since 1970), with the versions since"
    )


def version_at(files: Files, point: Point) -> Version | None:
    """Return the version of a table of results at a point; None if there is no version at all. Raises `NoVersion`."""
    newest = newest_number(files)
    if point.version is None:
        return _version_until(files, point.timestamp) if newest else None
    if newest and point.version <= newest:
        try:
            version = read_version(files, point.version)
        except AbsentFile:
            version = None
        if version is not None and not version.pruned:
            return version
    what = "is not there yet" if point.version > newest else "is not kept any more"
    raise NoVersion(f"version {point.version} of {files.root} {what}: {_kept_results(files)}")


def _version_until(files: Files, timestamp: float | None) -> Version:
    kept = kept_versions(files)
    for version in kept:
        if timestamp is None or version.published <= timestamp:
            return version
    raise NoVersion(
        f"no version of {files.root} that is kept is from {timestamp!r} (seconds since 1970) or earlier:"
        f" {_kept_results(files)}, published at {kept[-1].published!r}"
    )


def _kept_results(files: Files) -> str:
    if not (kept := kept_versions(files)):
        return "it has no version"
    return f"the newest version is {kept[0].number}, and the oldest that is kept is {kept[-1].number}"


def _entries_until(files: Files, state: TableState, timestamp: float) -> tuple[BatchEntry, ...]:
    """Return the entries of a moment: what was committed later is left out, and has not replaced anything yet."""
    there = [entry for entry in state.counted.values() if entry.committed <= timestamp]
    if not there and state.counted:
        first = min(entry.committed for entry in state.counted.values())
        raise NoVersion(
            f"{files.root} had no rows yet at {timestamp!r} (seconds since 1970): its first batch is from {first!r}"
        )
    replaced = {name for entry in there for name in entry.replaces}
    found = (entry for entry in there if str(entry.batch) not in replaced)
    return tuple(sorted(found, key=_in_order))


def _replaced_by(entries: Iterable[BatchEntry], state: TableState) -> list[BatchEntry]:
    """Return the entries that these replace, and those that they in turn have replaced."""
    names = {str(batch): entry for batch, entry in state.counted.items()}
    found: dict[str, BatchEntry] = {}
    left = [name for entry in entries for name in entry.replaces]
    while left:
        name = left.pop()
        if name in names and name not in found:
            found[name] = names[name]
            left += names[name].replaces
    return sorted(found.values(), key=_in_order)


def _in_order(entry: BatchEntry) -> tuple[float, BatchName]:
    return entry.committed, entry.batch
