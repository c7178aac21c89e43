"""Versions of a table of results: how a result is published in one step, and what happens to earlier results.

A *run* is a computation and its inputs; runs with the same id have the same result. A run makes an *attempt*: its own folder
`_squall/results/<attempt>/`, into which Spark writes rows. One `put_if_absent` of `versions/<n>.json` turns the attempt into
version n: before this call, a reader sees version n - 1, and after it version n; there is nothing in between.

1. begin    remember the newest number as `base`; put `<attempt>/begun.json`. While it works, the attempt rewrites `alive`.
2. write    Spark writes to `<attempt>/rows/`.
3. seal     the version's record is put at `results/<attempt>.seal.json`, if absent.
4. publish  check the numbers after `base`, one by one: stop at a version of the same run. When the first free number
            is found, `table.json` is put if absent, then the record under this number if it is still absent.
5. clear    old versions are pruned, and abandoned attempts are swept. Then the seal is deleted.

**Once.** Version records are never deleted (pruned ones are emptied), so the numbers have no holes, and a search through all
numbers after `base` finds any version of this run that was published since it began. So any process may take step 4,
repeatedly and concurrently: if a run was killed after step 3, a later run finishes its work.

**Nothing that is published is swept, nothing that is swept is published.** A sweeper and a publisher both need the attempt's
seal, and only one of them gets it. A sweeper takes the seal first and then reads the versions: if the attempt's seal was
already cleared by a publisher, one of these versions is the attempt's. A publisher takes the seal first and then checks its
files: either all of them exist, or they were swept earlier and are gone for good, together with `begun.json`.

**How rows are written** (format and partition columns) is fixed by the publication of version 1, which is a single step. Each
record states the format and the columns, and a run gives up if it finds a record with a different format or other columns.
Before version 1, nothing is fixed, even if failed runs have left files.

Must not know: Spark, how rows are computed.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files
from squall_io.spark.manifest import envelopes, tables
from squall_io.spark.manifest.commit import is_data
from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import RESULTS, VERSIONS, number_of, numbered
from squall_io.spark.manifest.sweep import now_of
from topology_api import SquallError

VERSION: Final = "version"
PUBLISH: Final = "publish"
SWEEP: Final = "sweep"
SEAL: Final = ".seal.json"
#: Seconds between an attempt's keepalives.
KEEP_ALIVE: Final = 60.0
#: An attempt without a keepalive for this many seconds is presumed dead and swept.
DEAD_AFTER: Final = 24 * 3600.0
#: The default format of results.
DEFAULT_TABLE: Final = tables.TableRecord(tables.RESULTS, "parquet", ())
#: The setting that makes a run differ from an earlier one: the number of the version after which it begins.
AGAIN: Final = "again"
#: How many versions are kept, so that readers of the previous version can finish.
KEEP: Final = 2

_ATTEMPT: Final = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}")


class AttemptLost(SquallError):
    """The files of an attempt were swept by another run, which presumed it dead."""


class RunInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a run at its beginning."""

    path: str
    #: A digest that differs if the rows to read differ.
    snapshot: str
    rows: int | None = None
    since: int | float | None = None
    until: int | float | None = None


@dataclass(frozen=True)
class Run:
    """A computation, its inputs, and how its result is written."""

    #: reprocess or replay.
    command: str
    #: The job's readable name: a file's path, or SQL.
    job: str
    #: A digest of the job's text.
    code: str
    inputs: tuple[RunInput, ...]
    #: Everything else that the result depends on, as JSON values.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: How the result is written.
    table: tables.TableRecord = DEFAULT_TABLE

    @property
    def id(self) -> str:
        """16 hexadecimal digits, which are equal for equal results, wherever the job's file is."""
        fields = {
            "command": self.command,
            "code": self.code,
            "inputs": [[read.path, read.snapshot] for read in self.inputs],
            "settings": self.settings,
            "table": _without_kind(self.table),
        }
        return envelopes.digest_of(envelopes.canonical(fields)).removeprefix("sha256:")[:16]


@dataclass(frozen=True)
class Attempt:
    """One attempt of a run, while it works."""

    name: str
    #: The number of the newest version when the attempt began.
    base: int

    @property
    def run(self) -> str:
        """The id of the attempt's run."""
        return self.name.partition("-")[0]

    @property
    def folder(self) -> str:
        """The folder of everything that the attempt writes."""
        return f"{RESULTS}/{self.name}"

    @property
    def rows(self) -> str:
        """The folder that Spark writes the attempt's rows to."""
        return f"{self.folder}/rows"


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published result. The fields are those of its record, in order; in the record, `table` lacks `holds`."""

    number: int
    run: str
    attempt: str
    command: str
    job: str
    code: str
    inputs: tuple[RunInput, ...]
    settings: Mapping[str, Any]
    #: How the rows are written: the same for all versions of the table.
    table: tables.TableRecord
    rows: int
    #: Spark's DDL.
    schema: str
    #: The paths of these files are relative to the table. A pruned version has no files.
    files: tuple[DataFile, ...]
    #: Seconds since 1970, by the publisher's clock.
    published: int | float
    #: Whether newer versions have replaced this version and its files are deleted.
    pruned: bool = False
    #: Other counts of the run, such as the errors of a replay.
    counts: Mapping[str, int] = {}

    @property
    def folder(self) -> str:
        """The folder of its files and their partition directories."""
        return f"{RESULTS}/{self.attempt}/rows"

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Published:
    """How a run ended: the version with the run's result, and whether this attempt wrote the version (`ours`) or a different
    attempt of the same run.
    """

    version: Version
    ours: bool


def _seal_path(attempt: str) -> str:
    return f"{RESULTS}/{attempt}{SEAL}"


def _begun_path(attempt: str) -> str:
    return f"{RESULTS}/{attempt}/begun.json"


# Reading


def newest_number(files: Files) -> int:
    """Return the number of the newest version; 0 if there is none."""
    return max((number_of(status.name) or 0 for status in files.list(VERSIONS)), default=0)


def newest_version(files: Files) -> Version | None:
    """Return the newest version, which readers read; raise `UnreadableRecord` if it is damaged."""
    number = newest_number(files)
    return read_version(files, number) if number else None


def read_version(files: Files, number: int) -> Version:
    """Return a version by its number. Raises `AbsentFile` or `UnreadableRecord`."""
    path = numbered(VERSIONS, number)
    version = _version_from(VERSION, files.read(path), path)
    if version.number != number:
        raise UnreadableRecord(path, f"is damaged: it holds the record of version {version.number}")
    return version


def kept_versions(files: Files) -> list[Version]:
    """Return every version that has files, newest first: all versions before a pruned version are pruned, too."""
    every = (read_version(files, number) for number in range(newest_number(files), 0, -1))
    return list(takewhile(lambda version: not version.pruned, every))


# An attempt, from its beginning to its version


def again(files: Files, run: Run) -> Run:
    """Return a run with the same job and inputs that differs from the run of the newest version.

    If such a run was killed while it published, return that one: its result becomes one version, however often it is repeated.
    """
    for draft in _sealed_drafts(files):
        killed = replace(run, settings={**run.settings, AGAIN: draft.settings.get(AGAIN)})
        if killed.id == draft.run:
            return killed
    return replace(run, settings={**run.settings, AGAIN: newest_number(files)})


def begin(files: Files, run: Run) -> Attempt | Version:
    """Begin an attempt of a run; return the newest version instead if it already is this run's result. Raises `TableMismatch`
    if the versions are written in a different way.
    """
    settle(files)
    if base := newest_number(files):
        newest = read_version(files, base)
        if newest.table != run.table:
            raise tables.mismatch(files, newest.table, run.table)
        if newest.run == run.id:
            return newest
    attempt = Attempt(f"{run.id}-{secrets.token_hex(8)}", base)
    record = envelopes.canonical({"job": run.job, "command": run.command})
    files.put_if_absent(_begun_path(attempt.name), record)
    keep_alive(files, attempt)
    return attempt


def keep_alive(files: Files, attempt: Attempt) -> None:
    """Show that the attempt is alive; to be called every `KEEP_ALIVE` seconds."""
    files.replace(f"{attempt.folder}/alive", b"")


def published_meanwhile(files: Files, attempt: Attempt) -> Version | None:
    """Return the version that another attempt of the same run has published since this attempt began, if any."""
    later = (read_version(files, number) for number in range(attempt.base + 1, newest_number(files) + 1))
    return next((version for version in later if version.run == attempt.run), None)


def publish(
    files: Files,
    attempt: Attempt,
    run: Run,
    rows: int,
    schema: str,
    wall: Callable[[], float] = time.time,
    counts: Mapping[str, int] | None = None,
) -> Published:
    """Publish the rows that Spark wrote as a version, unless the same run already has a version.

    Raises `TableMismatch` if the first version has been published meanwhile, in a different format or with other partitions.
    Errors of `Files` are raised unchanged; the call may then be repeated.
    """
    draft = Version(
        number=attempt.base,
        run=attempt.run,
        attempt=attempt.name,
        rows=rows,
        schema=schema,
        files=(),
        published=wall(),
        counts=counts or {},
        **vars(run),  # the other fields of a version are those of its run
    )
    try:
        version = _finish(files, _sealed(files, draft), clear=False)
    except AttemptLost:
        # Another attempt of this run may have published first, and then swept this attempt's rows.
        if (meanwhile := published_meanwhile(files, attempt)) is None:
            raise
        version = meanwhile
    return Published(version, version.attempt == attempt.name)


def give_up(files: Files, attempt: Attempt) -> None:
    """Delete what an attempt wrote, unless it is published or sealed: the next run finishes a sealed attempt."""
    _sweep(files, attempt.name)


def _sealed(files: Files, draft: Version) -> Version:
    """Seal an attempt with the files that Spark wrote; return the version to publish. Raises `AttemptLost` if a
    sweeper was first."""
    folder = draft.folder
    written = [status for status in files.walk(folder) if is_data(status, len(folder) + 1)]
    if draft.rows and not written:
        raise _lost(files, draft.attempt)
    try:
        digests = map_concurrently(lambda status: files.digest(status.path), written)
    except AbsentFile:
        raise _lost(files, draft.attempt) from None
    found = (DataFile(status.path, status.size, digest) for status, digest in zip(written, digests))
    draft = msgspec.structs.replace(draft, files=tuple(found))
    path = _seal_path(draft.attempt)
    if not files.put_if_absent(path, _record_of(PUBLISH, draft)):
        # If the seal is gone, either a sweeper has finished or another run has published this attempt. Versions and files show
        # which.
        with suppress(AbsentFile):
            if _fate_in(files.read(path), path) == SWEEP:
                raise _lost(files, draft.attempt)
    return draft


def _finish(files: Files, draft: Version, clear: bool = True) -> Version:
    """Publish a sealed attempt and, if `clear`, clear the seal; return the version. The seal is always cleared before
    `AttemptLost`, `TableMismatch` or `FolderTaken` is raised, since the attempt can then never become a version.
    """
    try:
        version = _numbered(files, draft)
        # `table.json` may have the format of a run that did not publish.
        tables.correct_table(files, version.table)
    except (AttemptLost, tables.TableMismatch, tables.FolderTaken):
        files.delete(_seal_path(draft.attempt))
        raise
    if clear or version.attempt != draft.attempt:
        files.delete(_seal_path(draft.attempt))
    return version


def _numbered(files: Files, draft: Version) -> Version:
    """Put a sealed record at the first free number after its base, unless its run already has a version after the base; return
    the version of the run.
    """
    number = draft.number + 1
    while True:
        try:
            version = read_version(files, number)
        except AbsentFile:
            version = msgspec.structs.replace(draft, number=number)
            if not _is_whole(files, draft):
                raise _lost(files, draft.attempt) from None
            tables.open_table(files, draft.table)
            if not files.put_if_absent(numbered(VERSIONS, number), _record_of(VERSION, version)):
                continue
        if version.table != draft.table:
            raise tables.mismatch(files, version.table, draft.table)
        if version.run == draft.run:
            return version
        number += 1


def _is_whole(files: Files, draft: Version) -> bool:
    """Return whether all files of a sealed attempt exist. If not, the attempt was swept before it was sealed."""
    sizes = {status.path: status.size for status in files.walk(draft.folder)}
    complete = all(sizes.get(file.path) == file.size for file in draft.files)
    return files.exists(_begun_path(draft.attempt)) and complete


def _lost(files: Files, attempt: str) -> AttemptLost:
    return AttemptLost(
        f"the rows in {files.root}/{RESULTS}/{attempt} are gone: this run was frozen or cut off for"
        f" {DEAD_AFTER / 3600:.0f} hours and a different run presumed it dead, or the rows were deleted by hand. Nothing was"
        " published: run it again."
    )


# Leftovers of other runs


def settle(files: Files) -> None:
    """Finish the work of runs that were killed while they published or swept."""
    for status in files.list(RESULTS):
        if _ATTEMPT.fullmatch(name := status.name.removesuffix(SEAL)) is None or name == status.name:
            continue
        try:
            data = files.read(status.path)
            if _fate_in(data, status.path) == SWEEP:
                _sweep_sealed(files, name)
            elif (draft := _version_from(PUBLISH, data, status.path)).attempt == name:
                _finish(files, draft)
        except (AbsentFile, AttemptLost, tables.TableMismatch, tables.FolderTaken, UnreadableRecord):
            # The attempt's own run was faster, or the attempt cannot become a version, or its seal is damaged or written by a
            # newer Squall.
            continue


def _sealed_drafts(files: Files) -> Iterator[Version]:
    """Yield the drafts of attempts that are sealed, and not known to be published."""
    for status in files.list(RESULTS):
        if status.name.endswith(SEAL):
            with suppress(AbsentFile, UnreadableRecord):
                yield _version_from(PUBLISH, files.read(status.path), status.path)


def tidy(files: Files, run: str, keep: int = KEEP) -> int:
    """Prune versions and sweep attempts; return how many folders were deleted.

    run: the id of a published run; the other attempts of this run have nothing left to do.
    """
    kept = kept_versions(files)
    old = kept[max(keep, 1) :]
    for version in reversed(old):  # oldest first: at any moment, the pruned versions are the oldest ones
        emptied = msgspec.structs.replace(version, files=(), pruned=True)
        files.replace(numbered(VERSIONS, version.number), _record_of(VERSION, emptied))
        # If this process is killed before it deletes the folder, the folder is swept later.
        files.delete(f"{RESULTS}/{version.attempt}")
    live = {version.attempt for version in kept}
    names = [status.name for status in files.list(RESULTS) if _ATTEMPT.fullmatch(status.name)]
    left = [name for name in names if name not in live]
    dead = set(_dead(files, left)) if left else set()
    swept = [name for name in left if name in dead or name.partition("-")[0] == run]
    deleted = len(old) + sum(_sweep(files, name) for name in swept)
    # Last, since the seal shows `again` that the command of this run may have been killed.
    map_concurrently(files.delete, [_seal_path(version.attempt) for version in kept if version.run == run])
    return deleted


def _dead(files: Files, attempts: list[str]) -> list[str]:
    """Return the attempts without a recent keepalive. Only the file system's clock is used."""
    now = now_of(files)
    signs = {name: [status.modified for status in files.list(f"{RESULTS}/{name}")] for name in attempts}
    return [name for name, times in signs.items() if now - max(times, default=now) > DEAD_AFTER]


def _sweep(files: Files, attempt: str) -> bool:
    """Delete an attempt's folder, unless the attempt is being published or is already published."""
    if not files.put_if_absent(_seal_path(attempt), envelopes.seal(SWEEP, {})):
        return False
    return _sweep_sealed(files, attempt)


def _sweep_sealed(files: Files, attempt: str) -> bool:
    published = attempt in {version.attempt for version in kept_versions(files)}
    if not published:
        files.delete(f"{RESULTS}/{attempt}")
    files.delete(_seal_path(attempt))
    return not published


# Records


def _fate_in(data: bytes, path: str) -> str:
    """Return whether a seal is a publisher's or a sweeper's. Raises `UnreadableRecord`."""
    try:
        envelopes.unseal(SWEEP, data, path)
    except UnreadableRecord:
        envelopes.unseal(PUBLISH, data, path)
        return PUBLISH
    return SWEEP


def _record_of(kind: str, version: Version) -> bytes:
    return envelopes.seal(kind, {**msgspec.to_builtins(version), "table": _without_kind(version.table)})


def _without_kind(table: tables.TableRecord) -> dict[str, Any]:
    return {"file_format": table.file_format, "partition_by": list(table.partition_by)}


def _version_from(kind: str, data: bytes, path: str) -> Version:
    """Return the version in a record of this kind that was read from `path`. Raises `UnreadableRecord`."""
    fields = envelopes.unseal(kind, data, path)
    if isinstance(fields.get("table"), dict):
        fields["table"]["holds"] = tables.RESULTS
    files = fields.get("files")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict) and not file.keys() <= {"path", "size", "digest"}:
            raise UnreadableRecord(path, f"is not a valid version: a file with the fields {sorted(file)}")
    version = envelopes.convert("version", Version, fields, path)
    if _ATTEMPT.fullmatch(version.attempt) is None:
        raise UnreadableRecord(path, f"is forged: {version.attempt!r:.200} is not the name of an attempt")
    tables.require_known(version.table, path)
    envelopes.require_below((file.path for file in version.files), version.folder, path)
    return version


envelopes.build_type_info(RunInput, Version)
