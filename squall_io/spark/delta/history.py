"""The versions of a Delta log: which are kept, what each has changed, and what a table held at one of them.

Must not know: rows, Spark, how versions are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from squall.stores.files import Files
from squall_io.spark.delta import log_names
from squall_io.spark.delta.actions import CommitInfo, DeltaAction, decode_actions
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.layout import BatchName
from topology_api import SquallError


class NoVersion(SquallError):
    """A version of a table that does not exist, or is not kept any more."""


@dataclass(frozen=True)
class KeptVersions:
    """The versions that can be read, from `oldest` to `newest`."""

    oldest: int
    newest: int


@dataclass(frozen=True)
class LogVersion:
    """One version of a log."""

    number: int
    #: Seconds since 1970, by the clock of the process that wrote it; None: it does not say.
    written: float | None
    #: What the version did: `CREATE TABLE`, `WRITE`, ...
    operation: str
    #: How many batches it added, and how many batches it has replaced.
    batches: int
    replaced: int
    #: The rows and files of the table in this version.
    rows: int
    files: int


def kept_versions(files: Files) -> KeptVersions:
    """Return which versions of a table's log can be read. Raises `NoVersion` if there is no log."""
    names = [status.name for status in files.list(log_names.FOLDER)]
    versions = {found for name in names if (found := log_names.version_of(name)) is not None}
    if not versions:
        raise NoVersion(
            f"{files.root} has no Delta log, so it has no versions: give a timestamp, or `squall table {files.root}"
            " --enable-delta`, which gives it versions from now on"
        )
    checkpoints = sorted(found for name in names if (found := log_names.checkpoint_of(name)) is not None)
    # Reading begins with version 0 or a checkpoint, and needs each version that follows it.
    first = newest = max(versions)
    while first - 1 in versions:
        first -= 1
    oldest = 0 if first == 0 else next((each for each in checkpoints if each >= first - 1), newest + 1)
    return KeptVersions(oldest, newest)


def log_at(files: Files, version: int) -> DeltaLog:
    """Return what a log held at a version. Raises `NoVersion`, which says what there is, and `ForeignLog`."""
    kept = kept_versions(files)
    if not kept.oldest <= version <= kept.newest:
        what = "is not there yet" if version > kept.newest else "is not kept any more"
        raise NoVersion(
            f"version {version} of {files.root} {what}: the newest version is {kept.newest}, and the oldest that is kept is"
            f" {kept.oldest}"
        )
    log = DeltaLog(files)
    log.refresh(version)
    return log


def entries_at(log: DeltaLog, counted: Mapping[BatchName, BatchEntry]) -> tuple[BatchEntry, ...]:
    """Return the entries whose files a log has, at its version, given all entries that count."""
    names = {str(batch): entry for batch, entry in counted.items()}
    live = log.live.keys()

    def replaced_paths(entry: BatchEntry) -> Iterator[str]:
        for name in entry.replaces:
            if name in names:
                yield from names[name].paths
                yield from replaced_paths(names[name])

    def is_in(entry: BatchEntry) -> bool:
        # An entry may have files of entries that it replaces: then it is in the log once their other files are not.
        return entry.paths <= live and live.isdisjoint(set(replaced_paths(entry)) - entry.paths)

    there = [entry for entry in counted.values() if entry.files and is_in(entry)]
    replaced = {name for entry in there for name in entry.replaces}
    found = [entry for entry in there if str(entry.batch) not in replaced]
    return tuple(sorted(found, key=lambda entry: (entry.committed, entry.batch)))


def last_versions(
    files: Files, most: int, counted: Callable[[], Mapping[BatchName, BatchEntry]]
) -> tuple[LogVersion, ...]:
    """Return the last versions of a table's log, the newest first. `counted`: reads all entries that count. Raises `NoVersion`,
    `ForeignLog`.
    """
    kept = kept_versions(files)
    first = max(kept.oldest, kept.newest - most + 1)
    log = log_at(files, first)
    path = log_names.version_path(first)
    read = [_actions(files, path) if files.exists(path) else []]  # only its checkpoint may be left
    read += [
        _actions(files, log_names.version_path(version)) for version in range(first + 1, kept.newest + 1)
    ]
    entries = counted()  # after the log, so that it has every batch of the log
    found = [_described(log, read[0], entries)]
    for actions in read[1:]:
        log.apply(actions)
        found.append(_described(log, actions, entries))
    return tuple(reversed(found))


def _actions(files: Files, path: str) -> list[DeltaAction]:
    return decode_actions(files.read(path), f"{files.root}/{path}")


def _described(
    log: DeltaLog, actions: list[DeltaAction], counted: Mapping[BatchName, BatchEntry]
) -> LogVersion:
    infos = [action.commit_info for action in actions if action.commit_info is not None]
    info = infos[0] if infos else CommitInfo()
    return LogVersion(
        log.version,
        None if info.timestamp is None else info.timestamp / 1000,
        infos[-1].operation if infos else "",
        len(info.batches),
        len(info.replaces),
        sum(entry.rows for entry in entries_at(log, counted)),
        len(log.live),
    )
