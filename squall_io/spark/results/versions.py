"""Versions of a table of results: how a result is published by one step, and what becomes of the results before it.

A *run* is what is computed from what; runs with the same id have the same result. It makes an *attempt*: a folder of its own,
`_squall/results/<attempt>/`, that Spark writes rows into. The attempt becomes version n by one `put_if_absent` of
`versions/<n>.json`: before it a reader sees version n - 1, after it version n, and never anything between.

1. begin    remember the newest number as `base`; put `<attempt>/begun.json`. While it works, the attempt writes `alive` anew.
2. write    Spark writes to `<attempt>/rows/`.
3. seal     the record of the version is put at `results/<attempt>.seal.json`, if absent.
4. publish  look at the numbers after `base`, one by one: one that is of our run ends it; at the first free one the record is
            put, if absent, and `table.json` before it.
5. clear    the seal is deleted. Then old versions are pruned, and attempts that nobody works on any more are swept.

**Once.** Records of versions are never deleted (pruned ones are emptied), so the numbers have no holes, and whoever goes
through all of them after `base` meets any version that was made of this run since it began. So step 4 may be done by anybody,
again, and at the same time: a later run finishes what one that was killed after step 3 has left.

**Nothing that is published is swept, nothing that is swept is published.** Both want the seal, and one gets it. Who sweeps has
the seal first and looks at the versions then: an attempt whose own seal is cleared already is in one. Who publishes has the
seal first and looks at its files then: they are all there, or were swept before and are gone for good, `begun.json` with them.

**How rows are written**, the format and the partition columns, is settled by version 1, and so by one step: each record has
it, and who meets one that has another gives up. Before that nothing binds, whatever runs that failed have left.

Must not know: Spark, how rows are computed.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from squall_io.spark.manifest import tables
from squall_io.spark.manifest.clock import now_of
from squall_io.spark.manifest.commit import is_data
from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.manifest.envelopes import UnreadableRecord, canonical, digest_of, seal, unseal
from squall_io.spark.manifest.files import FileMissing, Files, each
from squall_io.spark.manifest.layout import RESULTS, VERSIONS, number_of, version_path
from topology_api import SquallError

VERSION: Final = "version"
PUBLISH: Final = "publish"
SWEEP: Final = "sweep"
SEAL: Final = ".seal.json"
#: An attempt shows that it is alive every so many seconds, and is swept when it has not for a day.
BEAT: Final = 60.0
DEAD_AFTER: Final = 24 * 3600.0
#: How results are written unless somebody says something else.
DEFAULT_TABLE: Final = tables.Table(tables.RESULTS, "parquet", ())
#: Versions that stay: readers of the one before the newest may finish.
KEEP: Final = 2

_ATTEMPT: Final = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}")


class AttemptLost(SquallError):
    """What an attempt has written was swept by another run, which took it for dead."""


@dataclass(frozen=True)
class Input:
    """What a run reads, as it was when it began."""

    path: str
    snapshot: str
    """A digest of what is read of it: other rows, another snapshot."""
    rows: int | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True)
class Run:
    """What is computed from what, and how it is written."""

    command: str
    """reprocess or replay."""
    job: str
    """What people call it: a file's path, or SQL."""
    code: str
    """A digest of the job's text."""
    inputs: tuple[Input, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the result depends on, as JSON values."""
    table: tables.Table = DEFAULT_TABLE
    """How it is written."""

    @property
    def id(self) -> str:
        """16 hexadecimal digits; the same for the same result, wherever the job's file lies."""
        inputs = [[each.path, each.snapshot] for each in self.inputs]
        fields = {"command": self.command, "code": self.code, "inputs": inputs, "settings": self.settings}
        fields["table"] = _table_fields(self.table)
        return digest_of(canonical(fields)).removeprefix("sha256:")[:16]


@dataclass(frozen=True)
class Attempt:
    """One try of a run, while it works."""

    name: str
    base: int
    """The newest version when it began."""

    @property
    def run(self) -> str:
        """The id of its run."""
        return self.name.partition("-")[0]

    @property
    def folder(self) -> str:
        """Where all that is its own lies."""
        return f"{RESULTS}/{self.name}"

    @property
    def rows(self) -> str:
        """Where Spark writes its rows."""
        return rows_folder(self.name)


@dataclass(frozen=True)
class Version:
    """A published result."""

    number: int
    run: str
    attempt: str
    command: str
    job: str
    code: str
    inputs: tuple[Input, ...]
    settings: Mapping[str, Any]
    table: tables.Table
    """How its rows are written: as those of all versions of the table."""
    rows: int
    schema: str
    """Spark's DDL."""
    files: tuple[DataFile, ...]
    """With paths relative to the table; empty when it was pruned."""
    published: float
    """Seconds since 1970, by the clock of who published it."""
    pruned: bool = False
    """Newer versions have taken its place, and its files are deleted."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else its run has counted, as the errors of a replay."""

    @property
    def folder(self) -> str:
        """Where its files lie, with their partition directories below."""
        return rows_folder(self.attempt)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Published:
    """How a run ended: the version with its result, and whether it is this attempt's or another one's of the same run."""

    version: Version
    ours: bool


def rows_folder(attempt: str) -> str:
    """Where an attempt's rows lie."""
    return f"{RESULTS}/{attempt}/rows"


def _seal_path(attempt: str) -> str:
    return f"{RESULTS}/{attempt}{SEAL}"


def _begun_path(attempt: str) -> str:
    return f"{RESULTS}/{attempt}/begun.json"


# Reading


def newest_number(files: Files) -> int:
    """The number of the newest version; 0: there is none."""
    numbers = [number_of(status.name) for status in files.list(VERSIONS)]
    return max((number for number in numbers if number is not None), default=0)


def newest_version(files: Files) -> Version | None:
    """The newest version, which is the one to read; `UnreadableRecord` when it cannot be."""
    number = newest_number(files)
    return read_version(files, number) if number else None


def read_version(files: Files, number: int) -> Version:
    """A version by its number; `FileMissing`, `UnreadableRecord`."""
    path = version_path(number)
    version = _version_from(unseal(VERSION, files.read(path), path), path)
    if version.number != number:
        raise UnreadableRecord(path, f"is damaged: it holds the record of version {version.number}")
    return version


def kept_versions(files: Files) -> list[Version]:
    """Every version that has files, the newest first: none of those before a pruned one has."""
    kept = []
    for number in range(newest_number(files), 0, -1):
        version = read_version(files, number)
        if version.pruned:
            break
        kept.append(version)
    return kept


# An attempt, from its beginning to its version


def begin(files: Files, run: Run) -> Attempt | Version:
    """Begin an attempt of a run; or the newest version, when it is this run's result already. `TableMismatch`: the versions are
    written in another way."""
    settle(files)
    base = newest_number(files)
    if base:
        newest = read_version(files, base)
        if newest.table != run.table:
            raise tables.mismatch(files, newest.table, run.table)
        if newest.run == run.id:
            return newest
    attempt = Attempt(f"{run.id}-{secrets.token_hex(8)}", base)
    files.put_if_absent(_begun_path(attempt.name), canonical({"job": run.job, "command": run.command}))
    beat(files, attempt)
    return attempt


def beat(files: Files, attempt: Attempt) -> None:
    """Show that the attempt is alive; wanted every `BEAT` seconds."""
    files.replace(f"{attempt.folder}/alive", b"")


def published_meanwhile(files: Files, attempt: Attempt) -> Version | None:
    """The version with the result of the attempt's run that somebody has published since it began."""
    for number in range(attempt.base + 1, newest_number(files) + 1):
        version = read_version(files, number)
        if version.run == attempt.run:
            return version
    return None


def publish(
    files: Files,
    attempt: Attempt,
    run: Run,
    rows: int,
    schema: str,
    wall: Callable[[], float] = time.time,
    counts: Mapping[str, int] | None = None,
) -> Published:
    """Make what Spark has written a version, unless one of the same run is there meanwhile.

    `TableMismatch`: the first version has come meanwhile, and is written in another way. Whatever `Files` raises comes through;
    it may be called again then.
    """
    try:
        there = _finish(files, _sealed(files, attempt, run, rows, schema, wall(), counts or {}))
    except AttemptLost:
        # Another attempt of our run may have been first, and have swept what we had written.
        found = published_meanwhile(files, attempt)
        if found is None:
            raise
        there = found
    return Published(there, there.attempt == attempt.name)


def give_up(files: Files, attempt: Attempt) -> None:
    """Delete what an attempt has written, unless it is published, or sealed: then the next run finishes it."""
    _sweep(files, attempt.name)


def _written(files: Files, attempt: Attempt, rows: int) -> tuple[DataFile, ...]:
    """The files that Spark has left."""
    below = len(attempt.rows) + 1
    found = [status for status in files.walk(attempt.rows) if is_data(status, below)]
    if rows and not found:
        raise _lost(files, attempt.name)
    try:
        digests = each(lambda status: files.digest(status.path), found)
    except FileMissing:
        raise _lost(files, attempt.name) from None
    return tuple(DataFile(status.path, status.size, digest) for status, digest in zip(found, digests))


def _sealed(
    files: Files, attempt: Attempt, run: Run, rows: int, schema: str, now: float, counts: Mapping[str, int]
) -> Version:
    """What is to be published, once the attempt has its seal; `AttemptLost` when a sweeper was first."""
    draft = Version(
        number=attempt.base,
        run=attempt.run,
        attempt=attempt.name,
        command=run.command,
        job=run.job,
        code=run.code,
        inputs=run.inputs,
        settings=run.settings,
        table=run.table,
        rows=rows,
        schema=schema,
        files=_written(files, attempt, rows),
        published=now,
        counts=counts,
    )
    path = _seal_path(attempt.name)
    if not files.put_if_absent(path, seal(PUBLISH, _fields_of(draft))):
        try:
            if _fate_in(files.read(path), path) == SWEEP:
                raise _lost(files, attempt.name)
        except (
            FileMissing
        ):  # the sweeper is done, or a helper has finished ours: the versions and the files will tell
            pass
    return draft


def _finish(files: Files, draft: Version) -> Version:
    """Publish what is sealed, and clear the seal; the version. `AttemptLost`, `TableMismatch` and `FolderTaken` clear it too:
    it never will be one."""
    try:
        version = _numbered(files, draft)
        tables.correct_table(files, version.table)  # another first one may have been about to come
    except (AttemptLost, tables.TableMismatch, tables.FolderTaken):
        files.delete(_seal_path(draft.attempt))
        raise
    files.delete(_seal_path(draft.attempt))
    return version


def _numbered(files: Files, draft: Version) -> Version:
    """Put a sealed record at the first free number after its base, unless its run is at one of them; that version."""
    number = draft.number + 1
    while True:
        try:
            version = read_version(files, number)
        except FileMissing:
            version = replace(draft, number=number)
            if not _is_whole(files, draft):
                raise _lost(files, draft.attempt) from None
            tables.open_table(files, draft.table)
            if not files.put_if_absent(version_path(number), seal(VERSION, _fields_of(version))):
                continue
        if version.table != draft.table:
            raise tables.mismatch(files, version.table, draft.table)
        if version.run == draft.run:
            return version
        number += 1


def _is_whole(files: Files, draft: Version) -> bool:
    """Whether the files of a sealed attempt are there: it was not swept before it had its seal."""
    there = {status.path: status.size for status in files.walk(rows_folder(draft.attempt))}
    return files.exists(_begun_path(draft.attempt)) and all(
        there.get(file.path) == file.size for file in draft.files
    )


def _lost(files: Files, attempt: str) -> AttemptLost:
    return AttemptLost(
        f"the rows in {files.root}/{RESULTS}/{attempt} are gone: this run was frozen or cut off for"
        f" {DEAD_AFTER / 3600:.0f} hours and another one took it for dead, or somebody deleted them. Nothing was published:"
        " run it again."
    )


# What others have left


def settle(files: Files) -> None:
    """Finish what runs that were killed in the middle of publishing, or of sweeping, have left."""
    for status in files.list(RESULTS):
        if not status.name.endswith(SEAL):
            continue
        try:
            data = files.read(status.path)
            if _fate_in(data, status.path) == SWEEP:
                _sweep_sealed(files, status.name.removesuffix(SEAL))
            else:
                _finish(files, _version_from(unseal(PUBLISH, data, status.path), status.path))
        except (FileMissing, AttemptLost, tables.TableMismatch, tables.FolderTaken, UnreadableRecord):
            continue  # its own run was faster; it can be no version; it is damaged, or a newer Squall's


def tidy(files: Files, run: str, keep: int = KEEP) -> int:
    """Prune versions, sweep attempts; how many folders were deleted.

    `run` is the id of a run that is published: other attempts of it have nothing left to do.
    """
    kept = kept_versions(files)
    old = kept[max(keep, 1) :]
    for version in reversed(
        old
    ):  # from the oldest on: so those that are pruned are the first ones at any moment
        emptied = replace(version, files=(), pruned=True)
        files.replace(version_path(version.number), seal(VERSION, _fields_of(emptied)))
        files.delete(
            f"{RESULTS}/{version.attempt}"
        )  # should we be killed before it: it is swept when it is old
    live = {version.attempt for version in kept}
    found = [(status.name, _ATTEMPT.fullmatch(status.name)) for status in files.list(RESULTS)]
    left = [name for name, attempt in found if attempt and name not in live]
    if not left:
        return len(old)
    dead = set(_dead(files, left))
    swept = [name for name in left if name in dead or name.partition("-")[0] == run]
    return len(old) + sum(_sweep(files, name) for name in swept)


def _dead(files: Files, attempts: list[str]) -> list[str]:
    """Those that have shown no sign of life for long, by the file system's clock alone."""
    now = now_of(files)

    def last_sign(attempt: str) -> float:
        signs = [status.modified for status in files.list(f"{RESULTS}/{attempt}")]
        return max(signs, default=now)

    return [name for name in attempts if now - last_sign(name) > DEAD_AFTER]


def _sweep(files: Files, attempt: str) -> bool:
    """Delete an attempt's folder, unless somebody is publishing it, or has."""
    if not files.put_if_absent(_seal_path(attempt), seal(SWEEP, {})):
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
    """Whether a seal is a publisher's or a sweeper's; `UnreadableRecord`."""
    try:
        unseal(SWEEP, data, path)
    except UnreadableRecord:
        unseal(PUBLISH, data, path)
        return PUBLISH
    return SWEEP


def _fields_of(version: Version) -> dict[str, Any]:
    """A version as JSON values."""
    return {
        "number": version.number,
        "run": version.run,
        "attempt": version.attempt,
        "command": version.command,
        "job": version.job,
        "code": version.code,
        "inputs": [vars(each) for each in version.inputs],
        "settings": dict(version.settings),
        "table": _table_fields(version.table),
        "rows": version.rows,
        "schema": version.schema,
        "files": [vars(file) for file in version.files],
        "published": version.published,
        "pruned": version.pruned,
        "counts": dict(version.counts),
    }


def _table_fields(table: tables.Table) -> dict[str, Any]:
    return {"file_format": table.file_format, "partition_by": list(table.partition_by)}


def _version_from(fields: Mapping[str, Any], path: str) -> Version:
    """A version out of JSON values that were read from `path`; `UnreadableRecord`."""
    try:
        return Version(
            **{
                **fields,
                "inputs": tuple(Input(**each) for each in fields["inputs"]),
                "table": tables.Table(
                    tables.RESULTS, fields["table"]["file_format"], tuple(fields["table"]["partition_by"])
                ),
                "files": tuple(DataFile(**file) for file in fields["files"]),
            }
        )
    except (KeyError, TypeError) as error:
        raise UnreadableRecord(path, f"is no version of a Squall table: {error}") from None
