"""Records of vacuums: which batches have no files of their own any more, since other entries have replaced them.

A record names rewrites (entries with `replaces`): from then on, the batches that they have replaced have no files, except those
that other entries name, too. It is numbered and put if absent, before the first file is deleted, and put again as `done` when
none is left. If it is not done, its vacuum was killed, or a lease held it back; the next one deletes the rest.
Must not know: which batches are replaced, when they may go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.layout import VACUUMS, BatchName, batch_of, number_of, numbered
from squall_io.spark.manifest.state import TableState

KIND: Final = "vacuum"


class VacuumRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of a record."""

    #: The names of the rewrites.
    rewrites: tuple[str, ...]
    #: Program, host and process, as information for users.
    by: str
    #: Seconds since 1970, by the clock of that host.
    began: float
    done: bool = False

    @property
    def batches(self) -> set[BatchName]:
        """The rewrites."""
        found = (batch_of(name) for name in self.rewrites)
        return {batch for batch in found if batch is not None}


def read_vacuums(files: Files) -> dict[int, VacuumRecord]:
    """Return all records, by number. Raises `UnreadableRecord`."""
    numbers = sorted(filter(None, (number_of(status.name) for status in files.list(VACUUMS))))
    return dict(zip(numbers, map_concurrently(lambda number: _read(files, number), numbers)))


def put_vacuum(files: Files, number: int, record: VacuumRecord) -> bool:
    """Put a record; return False if another vacuum has taken the number. Repeat it with the same record after a lost answer."""
    path, data = numbered(VACUUMS, number), seal(KIND, record)
    return files.put_if_absent(path, data) or files.read(path) == data


def mark_done(files: Files, number: int, record: VacuumRecord) -> None:
    """Say that no file is left of what a record names."""
    files.replace(numbered(VACUUMS, number), seal(KIND, msgspec.structs.replace(record, done=True)))


def vacuumed_in(records: Iterable[VacuumRecord]) -> set[BatchName]:
    """Return all rewrites that records name."""
    return {batch for record in records for batch in record.batches}


def without_files(state: TableState, records: Iterable[VacuumRecord]) -> tuple[set[str], set[str]]:
    """Return the names of the batches that have lost files by these records, and the paths of these files."""
    recorded = vacuumed_in(records)
    rewrites = (entry for entry in state.counted.values() if entry.batch in recorded)
    names = {name for rewrite in rewrites for name in rewrite.replaces}
    kept: set[str] = set()
    gone: set[str] = set()
    for entry in state.counted.values():
        (gone if str(entry.batch) in names else kept).update(entry.paths)
    return names, gone - kept


def _read(files: Files, number: int) -> VacuumRecord:
    path = numbered(VACUUMS, number)
    record = decode(KIND, VacuumRecord, files.read(path), path)
    if wrong := [name for name in record.rewrites if batch_of(name) is None]:
        raise UnreadableRecord(path, f"is forged: {wrong[0]!r:.200} is not the name of a batch")
    return record


build_type_info(VacuumRecord)
