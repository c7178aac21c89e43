"""Checkpoints: many entries in few files, so that reading stays fast after many batches.

Checkpoint n lists its parts; a part holds up to `PART` entries, gzipped, and is never changed. Checkpoint n + 1 keeps the full
parts of n and adds new parts for all other entries. A checkpoint's file is named after its number and put if absent, so
checkpoints form a sequence, and each contains everything in the earlier checkpoints. Once old checkpoints are deleted, a writer
that was frozen for a long time may use an old number again. So a writer that has put a checkpoint looks for a newer checkpoint:
if there is a newer one, the writer's own checkpoint is void. Only after this check are the entries' own files deleted. A reader
that listed these files earlier, and now finds one of them gone, starts over.

A part that no checkpoint names comes from a writer that died, or that put its checkpoint too late. Such parts are deleted only
together with old checkpoints: if the answer to a put was lost, a part that seems unused may belong to the newest checkpoint.

A checkpoint also *closes* epochs of rewriters: of those before `closed`, only entries in a checkpoint count from then on, so
that their claims and fences may be deleted (see `claims`).
Must not know: which entries count (callers pass them), Spark.
"""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files
from squall_io.spark.manifest.entries import WITH_PARTS, BatchEntry, entry_from, fields_of
from squall_io.spark.manifest.envelopes import (
    FORMAT,
    UnreadableRecord,
    build_type_info,
    convert,
    digest_of,
    numbered_fields,
    seal,
)
from squall_io.spark.manifest.layout import CHECKPOINTS, is_part, number_of, numbered

KIND: Final = "checkpoint"
#: The most entries of a part. Each checkpoint writes the entries of a part that is not full again, in a new part, so this also
#: limits the cost of a checkpoint (about 2 MB of JSON).
PART: Final = 5_000
#: How many checkpoints are kept, including the newest: a reader may be about to read an older one.
KEPT: Final = 3


class Part(msgspec.Struct, frozen=True):
    """A file of entries."""

    path: str
    entries: int
    digest: str


class _Index(msgspec.Struct, omit_defaults=True):
    """The contents of a checkpoint's own file."""

    parts: tuple[Part, ...]
    closed: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read. If the table has none: number 0 and no contents."""

    number: int = 0
    parts: tuple[Part, ...] = ()
    entries: tuple[BatchEntry, ...] = ()
    #: Unreadable parts of this checkpoint, and unreadable newer checkpoints; the entries in them are missing here.
    unreadable: tuple[UnreadableRecord, ...] = ()
    #: Of earlier epochs of rewriters, only the entries in a checkpoint count.
    closed: int = 0


def read_newest(files: Files) -> Checkpoint:
    """Return the newest readable checkpoint. Raises `AbsentFile` if a newer checkpoint replaced it during the call."""
    unreadable: list[UnreadableRecord] = []
    for number in _numbers(files):
        try:
            index = _read_index(files, number)
        except UnreadableRecord as problem:
            unreadable.append(problem)
            continue
        results = map_concurrently(partial(_read_part, files, number), index.parts)
        unreadable += [result for result in results if isinstance(result, UnreadableRecord)]
        entries = tuple(entry for result in results if isinstance(result, list) for entry in result)
        return Checkpoint(number, index.parts, entries, tuple(unreadable), index.closed)
    return Checkpoint(unreadable=tuple(unreadable))


def entries_since(files: Files, number: int, count: int) -> tuple[int, list[BatchEntry]]:
    """Return the number of the newest checkpoint, and its entries without the first `count`. number: that of the checkpoint
    which had `count` entries. Only parts with new entries are read. Raises `UnreadableRecord`.
    """
    while numbers := _numbers(files):
        with suppress(AbsentFile):  # there is a newer checkpoint
            return numbers[0], _entries_after(files, numbers[0], count) if numbers[0] > number else []
    return number, []


def _entries_after(files: Files, number: int, count: int) -> list[BatchEntry]:
    found: list[BatchEntry] = []
    first = 0
    for part in _read_index(files, number).parts:
        if first + part.entries > count:
            read = _read_part(files, number, part)
            if isinstance(read, UnreadableRecord):
                raise read
            found += read[max(0, count - first) :]
        first += part.entries
    return found


def read_closed(files: Files) -> int:
    """Return `closed` of the newest checkpoint. Raises `UnreadableRecord`."""
    while numbers := _numbers(files):
        with suppress(AbsentFile):  # there is a newer checkpoint
            return _read_index(files, numbers[0]).closed
    return 0


def _numbers(files: Files) -> list[int]:
    """Return the numbers of the existing checkpoints, newest first."""
    found = (number_of(status.name) for status in files.list(CHECKPOINTS))
    return sorted((number for number in found if number is not None), reverse=True)


def _read_index(files: Files, number: int) -> _Index:
    path = numbered(CHECKPOINTS, number)
    index = convert(KIND, _Index, numbered_fields(KIND, files.read(path), path, WITH_PARTS)[1], path)
    if foreign := [part.path for part in index.parts if not is_part(part.path)]:
        raise UnreadableRecord(
            path, f"is forged: it names {foreign[0]!r:.200}, which is no part of a checkpoint"
        )
    return index


def _read_part(files: Files, number: int, part: Part) -> list[BatchEntry] | UnreadableRecord:
    """Return the entries of a part of checkpoint `number`."""
    try:
        data = files.read(part.path)
    except AbsentFile:
        if not files.exists(numbered(CHECKPOINTS, number)):
            raise  # there is a newer checkpoint: parts are deleted after the checkpoints that name them
        return UnreadableRecord(part.path, f"is missing: {part.entries} entries were in it")
    if digest_of(data) != part.digest:
        why = f"is damaged: {part.entries} entries are in it, and its digest is not the one that the checkpoint names"
        return UnreadableRecord(part.path, why)
    try:
        return [entry_from(fields, part.path) for fields in json.loads(gzip.decompress(data))]
    except UnreadableRecord as problem:
        return problem


def write_next(files: Files, before: Checkpoint, entries: Iterable[BatchEntry], closed: int = 0) -> bool:
    """Write the checkpoint that follows `before` (the newest), with `entries` added; delete the files that the new checkpoint
    makes unnecessary. closed: as in `Checkpoint`; what `before` has closed stays closed.

    It must be certain that each of `entries` counts. If another task has already written the new checkpoint, or if something
    in `before` cannot be read, return False and delete nothing.
    """
    if before.unreadable:
        return False
    number = before.number + 1
    added = sorted(entries, key=lambda entry: (entry.committed, entry.batch))
    full = [part for part in before.parts if part.entries >= PART]
    loose = [*before.entries[sum(part.entries for part in full) :], *added]
    made = [_write_part(files, number, loose[start : start + PART]) for start in range(0, len(loose), PART)]

    closed = max(closed, before.closed)
    newest_format = max((entry.format for entry in (*before.entries, *added)), default=FORMAT)
    if closed:  # a release that knows no closed epochs knows no rewriters either
        newest_format = max(newest_format, WITH_PARTS)
    path, record = numbered(CHECKPOINTS, number), seal(KIND, _Index((*full, *made), closed), newest_format)
    if not files.put_if_absent(path, record):
        # The index names parts that only this call wrote. So if the existing index is the same, an earlier try of this put
        # succeeded, and its answer was lost.
        try:
            if files.read(path) != record:
                return False
        except AbsentFile:
            return False
    if _numbers(files)[:1] != [number]:
        return False  # there is a newer checkpoint: this checkpoint is late, and may be void
    map_concurrently(files.delete, [entry.batch.commit for entry in added])
    _delete_old(files, number - KEPT)
    return True


def _write_part(files: Files, number: int, entries: list[BatchEntry]) -> Part:
    data = gzip.compress(json.dumps([fields_of(entry) for entry in entries]).encode(), 6, mtime=0)
    path = f"{CHECKPOINTS}/part-{number}-{secrets.token_hex(8)}.json.gz"
    files.put_if_absent(path, data)
    return Part(path, len(entries), digest_of(data))


def _delete_old(files: Files, newest_gone: int) -> None:
    """Delete the checkpoints up to number `newest_gone`, then those of their parts that no later checkpoint names."""
    needed: set[str] = set()
    gone: list[str] = []
    parts: list[str] = []
    for status in files.list(CHECKPOINTS):
        if (number := number_of(status.name)) is None:
            made = status.name.split("-")
            if len(made) == 3 and made[1].isdecimal() and int(made[1]) <= newest_gone:
                parts.append(status.path)
        elif number <= newest_gone:
            gone.append(status.path)
        else:
            try:
                needed.update(part.path for part in _read_index(files, number).parts)
            except (AbsentFile, UnreadableRecord):
                return  # another task was faster, or it is unknown which parts this checkpoint needs
    map_concurrently(files.delete, gone)
    map_concurrently(files.delete, [path for path in parts if path not in needed])


build_type_info(Part, _Index)
