"""Vacuum: deletes the files of batches whose rows are in other files since long ago, or were dropped.

A *rewrite* is an entry with `replaces`. Its replaced batches keep their files until a vacuum, for readers that have begun
earlier, and for earlier versions of the table. A vacuum takes these steps; it may be killed at each, and two may run at once:

1. read     the Delta log, the manifest, and the records of earlier vacuums.
2. leases   which rewrites do readers hold back?
3. follow   the Delta log is brought up to the manifest. Files that it still had in step 1 stay until the next vacuum.
4. record   a record names the rewrites whose replaced batches have no files from now on.
5. look     the leases are listed again: what a reader holds by now stays, until the next vacuum.
6. delete   the files go, and folders of partitions in which nothing is left.
7. done     the records are put again, as done.

**Why it is right.** A file is deleted only if each entry that names it is replaced, for certain, by a rewrite that is recorded
(`_doomed`). A reader that has seen the rewrite reads none of the batches that it has replaced; for other readers see `leases`.
No file in a staging folder is touched: those are the sinks' and of `squall table --sweep`, whatever they hold.
A folder is deleted by a call that does so only if it is empty; a sink that is about to move a file there makes it again.

*Killed*: before step 4 nothing has changed. After it the record is not done, and the next vacuum deletes what is left of it.
Must not know: terminals, Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.delta.following import catch_up
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.leases import HeldLease, held_leases, sweep_leases
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.sweep import now_of
from squall_io.spark.manifest.tables import ROWS, read_table
from squall_io.spark.manifest.vacuums import VacuumRecord, mark_done, put_vacuum, read_vacuums, vacuumed_in
from topology_api import SquallError

#: Files that are deleted between two reports of progress.
_AT_ONCE: Final = 200

#: Called with the number of files that are gone, the number of all that go, and the bytes of those that are gone.
Progress = Callable[[int, int, int], object]


class CannotVacuum(SquallError):
    """A table of which nothing may be deleted."""


@dataclass(frozen=True)
class HeldBack:
    """A lease that keeps files."""

    holder: str
    #: When it began, by its reader's clock, and when it expires unless it is renewed, both in seconds since 1970.
    since: float
    until: float
    #: How many batches keep their files because of it.
    batches: int


@dataclass(frozen=True)
class Plan:
    """What a vacuum may delete."""

    #: Rewrites to be recorded.
    chosen: tuple[BatchName, ...] = ()
    #: Numbers of records of which files may be left, and that no lease holds.
    left: tuple[int, ...] = ()
    #: Files to delete, by path.
    doomed: Mapping[str, DataFile] = field(default_factory=dict)
    #: How many batches lose their files.
    batches: int = 0
    #: How many batches were replaced too recently; how many the Delta log still had.
    recent: int = 0
    behind: int = 0
    held: tuple[HeldBack, ...] = ()


@dataclass(frozen=True)
class Vacuumed:
    """What a vacuum has done, or, if it was dry, would do."""

    batches: int
    files: int
    size: int
    #: Replaced batches that keep their files, since they were replaced more recently than the retention.
    recent: int
    #: Replaced batches that keep their files until the next vacuum, since the Delta log had not followed yet.
    behind: int
    held: tuple[HeldBack, ...]
    dry: bool


def plan(
    state: TableState,
    records: Mapping[int, VacuumRecord],
    leases: Sequence[HeldLease],
    live: Collection[str],
    before: float,
) -> Plan:
    """Decide what may go. live: the files in the Delta log. before: batches that were replaced later keep their files."""
    uncertain = set(state.uncertain)
    rewrites = {
        entry.batch: entry
        for entry in state.counted.values()
        if entry.replaces and entry.batch not in uncertain
    }
    names = {str(batch): entry for batch, entry in state.counted.items()}
    old = {batch for batch, entry in rewrites.items() if entry.committed <= before}
    recorded = vacuumed_in(records.values()) & rewrites.keys()
    undone = {number: record.batches for number, record in records.items() if not record.done}
    wanted = old - recorded | {batch for batches in undone.values() for batch in batches & rewrites.keys()}
    held = {batch for batch in wanted if any(each.lease.holds(batch) for each in leases)}

    def doomed(going: Collection[BatchName]) -> dict[str, DataFile]:
        gone = recorded - held | set(going)
        return _doomed(names, [rewrites[batch] for batch in gone], [rewrites[batch] for batch in going])

    def count(batches: Iterable[BatchName]) -> int:
        return len({name for batch in batches for name in rewrites[batch].replaces})

    behind = {batch for batch in wanted - held if not doomed([batch]).keys().isdisjoint(live)}
    going = wanted - held - behind
    return Plan(
        chosen=tuple(sorted(going - recorded)),
        left=tuple(number for number, batches in undone.items() if batches <= going),
        doomed=doomed(going),
        batches=count(going),
        recent=count(rewrites.keys() - old - recorded),
        behind=count(behind),
        held=tuple(
            HeldBack(each.lease.holder, each.lease.since, each.until, count(mine))
            for each in leases
            if (mine := {batch for batch in held if each.lease.holds(batch)})
        ),
    )


def _doomed(
    names: Mapping[str, BatchEntry], gone: Iterable[BatchEntry], going: Iterable[BatchEntry]
) -> dict[str, DataFile]:
    """Return the files of the batches that the rewrites `going` have replaced, except those that an entry names which none of
    `gone` has replaced: a rewrite may keep files of the batches that it replaces."""
    replaced = {name for rewrite in gone for name in rewrite.replaces}
    kept = {file.path for name, entry in names.items() if name not in replaced for file in entry.files}
    mine = (names[name] for rewrite in going for name in rewrite.replaces if name in names)
    return {file.path: file for entry in mine for file in entry.files if file.path not in kept}


def vacuum(
    files: Files,
    retention: float,
    by: str,
    wall: Callable[[], float],
    *,
    dry: bool = False,
    progress: Progress = lambda done, total, size: None,
    at: Callable[[str], None] = lambda step: None,
) -> Vacuumed:
    """Delete the files of batches that were replaced more than `retention` seconds ago.

    by: names the vacuum to users. wall: the wall clock. at: called before each step, for tests.
    Raises `CannotVacuum`, `UnreadableManifest`, `UnreadableRecord`, and errors of `Files`; the call may be repeated.
    """
    table = read_table(files)
    if table.holds != ROWS:
        raise CannotVacuum(
            f"{files.root} holds versions of a result, of which each run deletes old ones: vacuum is for tables of sinks"
        )
    while True:
        at("read")
        log = _read_log(files)
        live = frozenset(log.live)
        state = require_readable(files, read_state(files))
        records = read_vacuums(files)
        at("leases")
        # The clocks of workers may be fast, and so may be that of this host.
        stored = wall() if dry else now_of(files)
        before = min(wall(), stored) - retention
        found = plan(state, records, held_leases(files, stored), live, before)
        if dry:
            return _outcome(found, found, existing(files, found.doomed), dry)
        at("follow")
        _follow(log, wall)
        if not found.batches:
            return _outcome(found, found, {}, dry)
        at("record")
        number = max(records, default=0) + 1
        record = VacuumRecord(tuple(map(str, found.chosen)), by, wall())
        if not found.chosen or put_vacuum(files, number, record):
            break
    if found.chosen:
        records[number] = record
    at("look")
    stored = now_of(files)
    last = plan(state, records, held_leases(files, stored), frozenset(log.live) | live, float("-inf"))
    at("delete")
    there = existing(files, last.doomed)
    _delete(files, there, progress, at)
    _delete_empty_folders(files, last.doomed, table.data)
    at("done")
    for each in last.left:
        mark_done(files, each, records[each])
    sweep_leases(files, stored)
    return _outcome(found, last, there, False)


def existing(files: Files, wanted: Mapping[str, DataFile]) -> dict[str, DataFile]:
    """Return those of the files that exist, by path."""
    folders = sorted({path.rpartition("/")[0] for path in wanted})
    listed = map_concurrently(files.list, folders)
    return {status.path: wanted[status.path] for each in listed for status in each if status.path in wanted}


def _read_log(files: Files) -> DeltaLog:
    log = DeltaLog(files)
    try:
        log.refresh()
    except ForeignLog as error:
        raise _foreign(files, error) from None
    return log


def _follow(log: DeltaLog, wall: Callable[[], float]) -> None:
    """Bring the Delta log up to the manifest."""
    try:
        catch_up(log.files, wall, log)
    except ForeignLog as error:
        raise _foreign(log.files, error) from None


def _foreign(files: Files, error: ForeignLog) -> CannotVacuum:
    return CannotVacuum(
        f"nothing was deleted, since the Delta log does not follow the table, and its readers may need the files: {error}."
        f" `squall table {files.root} --rebuild-delta` makes it hold what is committed"
    )


def _delete(
    files: Files, doomed: Mapping[str, DataFile], progress: Progress, at: Callable[[str], None]
) -> None:
    paths, size = sorted(doomed), 0
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        map_concurrently(files.delete, some)
        size += sum(doomed[path].size for path in some)
        progress(start + len(some), len(paths), size)
        at("deleted")


def _delete_empty_folders(files: Files, doomed: Iterable[str], data: str) -> None:
    """Delete the folders of deleted files, and those above them, if nothing is left there. data: as `TableRecord.data`."""
    levels: dict[int, set[str]] = {}
    for folder in {path.rpartition("/")[0] for path in doomed}:
        while folder and folder != data:
            levels.setdefault(folder.count("/"), set()).add(folder)
            folder = folder.rpartition("/")[0]
    for _, folders in sorted(levels.items(), reverse=True):
        map_concurrently(files.delete_if_empty, sorted(folders))


def _outcome(first: Plan, last: Plan, there: Mapping[str, DataFile], dry: bool) -> Vacuumed:
    """Return what was done. first: the plan with which it began; last: the one that was carried out."""
    held = {(each.holder, each.since): each for each in (*first.held, *last.held)}
    size = sum(file.size for file in there.values())
    return Vacuumed(last.batches, len(there), size, first.recent, first.behind, tuple(held.values()), dry)
