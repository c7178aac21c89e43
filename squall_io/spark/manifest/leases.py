"""Leases: a reader that may take long says what it may still read, so that a vacuum leaves these files.

A *rewrite* is an entry with `replaces`. What a reader needs depends on the rewrites that it has seen: it reads no batch that
one of them has replaced. So a lease holds the batches that all other rewrites have replaced; without any, it holds all.

1. lease    the reader puts a lease that holds all, before it reads the manifest.
2. read     it reads the manifest, and may put the lease again, with the rewrites that it has seen.
3. renew    it puts the same lease again, several times within `secs`.
4. release  it deletes the lease. A lease of a reader that has died expires.

A vacuum lists the leases after it has read the manifest. A lease that it does not find was put later, so its reader finds all
rewrites that the vacuum has found, and reads none of the batches that they have replaced. A reader that wants replaced batches,
as those of an earlier version, reads the records of vacuums after step 1; a vacuum lists the leases again after it has put its
record. So either the reader finds the record, or the vacuum finds the lease.

When a lease expires is decided by the clock of the file system alone, which dates the lease and tells the present time.
Must not know: threads, what readers do.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.layout import LEASES, BatchName

KIND: Final = "lease"
#: Seconds for which a lease holds after it was put, and between two renewals.
TERM: Final = 600.0
RENEW: Final = 150.0
#: An expired lease is deleted this many seconds later: its reader may just be renewing it.
SWEEP_AFTER: Final = 24 * 3600.0


class ReaderLease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a reader."""

    #: Program, host and process, as information for users.
    holder: str
    #: Seconds since 1970, by the reader's clock, as information for users.
    since: float
    #: For how many seconds it holds after it was put.
    secs: float = TERM
    #: The rewrites that the reader has seen, as ranges of numbers by writer id and epoch; None: it may read everything.
    seen: Mapping[str, tuple[tuple[int, int], ...]] | None = None

    def holds(self, rewrite: BatchName) -> bool:
        """Return whether the reader may read batches that this rewrite has replaced."""
        if self.seen is None:
            return True
        ranges = self.seen.get(_series(rewrite), ())
        return not any(first <= rewrite.number <= last for first, last in ranges)


@dataclass(frozen=True)
class HeldLease:
    """A lease that has not expired."""

    lease: ReaderLease
    #: When it expires unless it is renewed, in seconds since 1970 by the clock of the file system.
    until: float


def new_path() -> str:
    """Return a path for a lease that no other has."""
    return f"{LEASES}/{secrets.token_hex(8)}.json"


def seen_in(entries: Iterable[BatchEntry]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the rewrites among these entries, as a lease names them."""
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        if entry.replaces:
            numbers.setdefault(_series(entry.batch), []).append(entry.batch.number)
    return {series: tuple(_ranges(sorted(found))) for series, found in sorted(numbers.items())}


def put_lease(files: Files, path: str, lease: ReaderLease) -> None:
    """Put a lease, or renew it."""
    files.replace(path, seal(KIND, lease))


def held_leases(files: Files, now: float) -> tuple[HeldLease, ...]:
    """Return the leases that have not expired. `now`: seconds since 1970 by the clock of the file system.

    A lease that cannot be read holds everything for as long as a lease of this Squall does.
    """
    statuses = [status for status in files.list(LEASES) if not status.is_folder]
    read = map_concurrently(lambda status: _read(files, status), statuses)
    found = (
        HeldLease(lease, status.modified + lease.secs)
        for status, lease in zip(statuses, read)
        if lease is not None
    )
    return tuple(sorted((each for each in found if each.until >= now), key=lambda each: each.lease.since))


def sweep_leases(files: Files, now: float) -> None:
    """Delete leases that expired long ago. `now`: as in `held_leases`."""
    statuses = [status for status in files.list(LEASES) if status.modified <= now - TERM - SWEEP_AFTER]
    read = map_concurrently(lambda status: _read(files, status), statuses)
    gone = [
        status.path
        for status, lease in zip(statuses, read)
        if lease is not None and status.modified + lease.secs <= now - SWEEP_AFTER
    ]
    map_concurrently(files.delete, gone)


def _read(files: Files, status: FileStatus) -> ReaderLease | None:
    """Return a lease; None if its reader has released it meanwhile."""
    try:
        return decode(KIND, ReaderLease, files.read(status.path), status.path)
    except AbsentFile:
        return None
    except UnreadableRecord as problem:
        return ReaderLease(f"a reader whose lease {problem}", status.modified)


def _series(batch: BatchName) -> str:
    return f"{batch.writer_id}.{batch.epoch}"


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges of rising numbers, ends included."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number <= found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


build_type_info(ReaderLease)
