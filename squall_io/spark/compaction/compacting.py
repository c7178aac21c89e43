"""Compacts a table: decides what to merge, lets the files be written, and commits them, step by step.

After each step the table is as a compaction of just that much would leave it, so a compaction that dies has lost only the step
it was at; what it has written for that is deleted by the next one.
Must not know: how files of a format are written, how progress is shown.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from squall.stores.files import AbsentFile, Files
from squall_io.spark.compaction.parquet_merges import CannotMerge
from squall_io.spark.delta.following import catch_up, newest_version
from squall_io.spark.manifest.entries import BatchEntry, Parts
from squall_io.spark.manifest.holders import Myself
from squall_io.spark.manifest.layout import BatchName, batch_of, place_in
from squall_io.spark.manifest.rewriting import Merge, Rewriter, Step, Wanted, plan, require_idle
from squall_io.spark.manifest.state import checkpoint_if_due, read_state, require_readable
from squall_io.spark.manifest.tables import ROWS, TableRecord, describe, read_table
from topology_api import SquallError


class CannotCompact(SquallError):
    """A table that cannot be compacted as requested."""


class WriteMerge(Protocol):
    """Writes the rows of a merge to a file, and returns whose rows they are; calls the last argument now and then."""

    def __call__(self, files: Files, merge: Merge, path: str, sign: Callable[[], None]) -> Parts: ...


@dataclass(frozen=True)
class DirectoryGain:
    """What a compaction does in one directory of data files, relative to their folder; "" is that folder."""

    directory: str
    files_before: int
    files_after: int
    size_before: int
    #: None before the files are written.
    size_after: int | None = None


@dataclass(frozen=True)
class Compacted:
    """What a compaction has done, or will do."""

    gains: tuple[DirectoryGain, ...] = ()
    #: Batches whose rows were moved, and batches that have them now.
    replaced: int = 0
    made: int = 0
    rows: int = 0

    @property
    def files_before(self) -> int:
        """How many files were merged."""
        return sum(gain.files_before for gain in self.gains)

    @property
    def files_after(self) -> int:
        """How many files have their rows now."""
        return sum(gain.files_after for gain in self.gains)

    @property
    def size_before(self) -> int:
        """The bytes of the files that were merged."""
        return sum(gain.size_before for gain in self.gains)

    @property
    def size_after(self) -> int:
        """The bytes of the new files."""
        return sum(gain.size_after or 0 for gain in self.gains)


#: Called with the number of files that were merged so far, and the number of all that will be.
Progress = Callable[[int, int], object]


def planned(files: Files, wanted: Wanted) -> list[Step]:
    """Return what a compaction would do now. Raises `UnreadableManifest`."""
    return plan(require_readable(files, read_state(files)), wanted)


def outlook(steps: Sequence[Step], wanted: Wanted) -> Compacted:
    """Return the outcome of these steps before they are taken."""
    gains = [
        DirectoryGain(_below(merge.directory, wanted.data), len(merge.sources), 1, merge.size)
        for step in steps
        for merge in step.merges
    ]
    rows = sum(step.rows for step in steps)
    return Compacted(_summed(gains), sum(len(step.replaced) for step in steps), len(steps), rows)


def require_compactable(files: Files) -> TableRecord:
    """Return the record of a table that can be compacted. Raises `CannotCompact`."""
    table = read_table(files)
    if table.holds != ROWS:
        raise CannotCompact(
            f"{files.root} holds {describe(table)}: each run writes all files anew, so there is nothing to compact"
        )
    return table


def compact(
    files: Files,
    wanted: Wanted,
    write: WriteMerge,
    whose: str,
    *,
    me: Myself = Myself(),  # noqa: B008 - it is frozen
    take_over: bool = False,
    progress: Progress = lambda done, total: None,
    wall: Callable[[], float] = time.time,
    at: Callable[[str], None] = lambda step: None,
) -> Compacted:
    """Compact a table; return what was done. Raises `RewriterBusy` if another compaction is at work, unless `take_over`;
    `Superseded` if another one takes over; `UnreadableManifest`, `CannotMerge`, `ForeignLog`, and errors of `Files`. Whatever
    is raised, the table has all of its rows, and another call continues.

    whose: host and process, for people. me: the same, for others that would wait for it.
    """
    if not planned(files, wanted):
        return Compacted()
    if not take_over:
        require_idle(files, me)
    return compact_as(Rewriter(files, whose, wall, holder=me.holder, at=at), wanted, write, progress=progress)


def compact_as(
    rewriter: Rewriter,
    wanted: Wanted,
    write: WriteMerge,
    *,
    progress: Progress = lambda done, total: None,
    committed: Callable[[Step], object] = lambda step: None,
) -> Compacted:
    """Compact a table as this rewriter, which may have done so before; return what was done. Raises as `compact`.

    committed: called after each step that counts.
    """
    try:
        return _compact(rewriter, wanted, write, progress, committed)
    except AbsentFile:
        if rewriter.epoch:
            rewriter.require_owner()  # a later one deletes what this one is writing
        raise


def _compact(
    rewriter: Rewriter,
    wanted: Wanted,
    write: WriteMerge,
    progress: Progress,
    committed: Callable[[Step], object],
) -> Compacted:
    files, at = rewriter.files, rewriter.at
    rewriter.begin()
    # Read again: what an earlier compaction has done until it was superseded is known only now.
    steps = plan(rewriter.read(), wanted)
    total = sum(len(merge.sources) for step in steps for merge in step.merges)
    done = 0
    gains: list[DirectoryGain] = []
    for step in steps:
        name = rewriter.next_batch()
        parts: dict[str, Parts] = {}
        at("write")
        for number, merge in enumerate(step.merges):
            path = place_in(_below(merge.directory, wanted.data), f"part-{number:05d}{_suffix(merge)}")
            try:
                parts[path] = write(files, merge, f"{name.attempt(1)}/{path}", rewriter.sign)
            except AbsentFile as missing:
                rewriter.require_owner()  # after another compaction, a vacuum may have deleted it
                raise CannotMerge(
                    f"a file of a committed batch is gone: {missing}; squall table {files.root} --verify names all such files"
                ) from missing
            done += len(merge.sources)
            progress(done, total)
        _require_all_rows(step, parts)
        commit = rewriter.commit(name, step, parts, wanted.data)
        entry = commit.run()
        committed(step)
        commit.clear()
        gains += _gains(step, entry, name, wanted)
    rewriter.end()
    at("checkpoint")
    checkpoint_if_due(files)
    if newest_version(files) >= 0:
        at("delta")
        catch_up(files, rewriter.wall)
    replaced = sum(len(step.replaced) for step in steps)
    return Compacted(_summed(gains), replaced, len(steps), sum(step.rows for step in steps))


def _require_all_rows(step: Step, parts: dict[str, Parts]) -> None:
    """Raise `CannotMerge` if the files of a batch had other rows than the manifest says."""
    found = Counter[str]()
    for file_parts in parts.values():
        for name, rows in file_parts:
            found[str(batch_of(name))] += rows
    kept = {str(batch_of(name)) for file in step.kept for name, _ in file.parts or ((file.name, 0),)}
    for entry in step.replaced:
        name = str(entry.batch)
        if not entry.replaces and name not in kept and found[name] != entry.rows:
            raise CannotMerge(
                f"batch {name} has {found[name]:,} rows in its files, and {entry.rows:,} were committed: nothing was changed"
                " by this step; squall table --verify names damaged files"
            )


def _gains(step: Step, entry: BatchEntry, name: BatchName, wanted: Wanted) -> list[DirectoryGain]:
    """Return what a step has done in each directory."""
    merged = [(merge.directory, len(merge.sources), 0, merge.size, 0) for merge in step.merges]
    made = [(file.directory, 0, 1, 0, file.size) for file in entry.files if batch_of(file.name) == name]
    return [
        DirectoryGain(_below(directory, wanted.data), *numbers) for directory, *numbers in (*merged, *made)
    ]


def _summed(gains: Sequence[DirectoryGain]) -> tuple[DirectoryGain, ...]:
    """Return one gain for each directory, by name."""
    found: dict[str, DirectoryGain] = {}
    for gain in gains:
        one = found.get(gain.directory, DirectoryGain(gain.directory, 0, 0, 0))
        after = None if gain.size_after is None else (one.size_after or 0) + gain.size_after
        found[gain.directory] = DirectoryGain(
            gain.directory,
            one.files_before + gain.files_before,
            one.files_after + gain.files_after,
            one.size_before + gain.size_before,
            after,
        )
    return tuple(found[directory] for directory in sorted(found))


def _below(directory: str, data: str) -> str:
    """Return a directory relative to the folder of the data files."""
    return directory.removeprefix(data).lstrip("/") if data else directory


def _suffix(merge: Merge) -> str:
    """Return the ending of the new file's name: that of its newest source."""
    newest = max(merge.pieces, key=lambda piece: piece.schema).file
    return "".join(newest.name[newest.name.rindex("-") :].partition(".")[1:])
