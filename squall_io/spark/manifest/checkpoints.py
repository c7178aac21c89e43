"""Checkpoints: many entries in few files, so that reading stays fast after many batches.

Checkpoint n lists its parts; a part holds up to `PART` entries, gzipped, and is never changed. Checkpoint n + 1 has the full
parts of n and new ones with the rest. Its number is put if absent, so checkpoints follow each other, and each has everything
that those before it have. Numbers are used again once old checkpoints are deleted, by somebody who was frozen for long; so
whoever has put one looks whether there is a newer one: then its own is nothing. Only after that are the entries' own files
deleted: whoever listed them before, and finds one gone, looks again.

Parts that nobody names, of those who died or came second, are deleted with the old checkpoints, never before: an answer may be
lost, and a part that seems needless be the newest checkpoint's.
Must not know: who counts (it is given the entries), Spark.
"""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from squall_io.spark.manifest.entries import Entry, entry_from, fields_of
from squall_io.spark.manifest.envelopes import UnreadableRecord, digest_of, seal, unseal
from squall_io.spark.manifest.files import FileMissing, Files, each
from squall_io.spark.manifest.layout import CHECKPOINTS, checkpoint_path, number_of

KIND: Final = "checkpoint"
#: Entries of one part: a part is written anew until it is full, so this bounds what a checkpoint costs (about 2 MB of JSON).
PART: Final = 5_000
#: Checkpoints that stay, the newest among them: readers may have just seen the others.
KEPT: Final = 3


@dataclass(frozen=True)
class Part:
    """A file of entries."""

    path: str
    entries: int
    digest: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read; number 0 and nothing in it: there is none."""

    number: int = 0
    parts: tuple[Part, ...] = ()
    entries: tuple[Entry, ...] = ()
    unreadable: tuple[UnreadableRecord, ...] = ()
    """What of it, or of a newer one, cannot be read: those entries are missing here."""


def read_newest(files: Files) -> Checkpoint:
    """The newest checkpoint that can be read; `FileMissing` when it was superseded meanwhile."""
    unreadable: list[UnreadableRecord] = []
    for number in _numbers(files):
        try:
            parts = _read_index(files, number)
        except UnreadableRecord as problem:
            unreadable.append(problem)
            continue
        entries: list[Entry] = []
        for result in each(partial(_read_part, files, number), parts):
            if isinstance(result, UnreadableRecord):
                unreadable.append(result)
            else:
                entries += result
        return Checkpoint(number, parts, tuple(entries), tuple(unreadable))
    return Checkpoint(unreadable=tuple(unreadable))


def _numbers(files: Files) -> list[int]:
    """The numbers of the checkpoints that are there, the newest first."""
    found = (number_of(status.name) for status in files.list(CHECKPOINTS))
    return sorted((number for number in found if number is not None), reverse=True)


def _read_index(files: Files, number: int) -> tuple[Part, ...]:
    path = checkpoint_path(number)
    fields = unseal(KIND, files.read(path), path)
    try:
        return tuple(Part(part["path"], int(part["entries"]), part["digest"]) for part in fields["parts"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(path, f"is no checkpoint of a Squall table: {error}") from None


def _read_part(files: Files, number: int, part: Part) -> list[Entry] | UnreadableRecord:
    """The entries of a part of checkpoint `number`."""
    try:
        data = files.read(part.path)
    except FileMissing:
        if not files.exists(checkpoint_path(number)):
            raise  # there is a newer one: parts are deleted after the checkpoints that name them
        return UnreadableRecord(part.path, f"is missing: {part.entries} entries were in it")
    if digest_of(data) != part.digest:
        why = f"is damaged: {part.entries} entries are in it, and its digest is not the one that the checkpoint names"
        return UnreadableRecord(part.path, why)
    try:
        return [entry_from(fields, part.path) for fields in json.loads(gzip.decompress(data))]
    except UnreadableRecord as problem:
        return problem


def write_next(files: Files, before: Checkpoint, entries: Iterable[Entry]) -> bool:
    """Make the checkpoint after `before`, the newest, with `entries` added, and delete what it makes needless.

    Each entry must count for certain. False: somebody else has made that checkpoint, or something of the one before cannot be
    read; nothing was changed.
    """
    if before.unreadable:
        return False
    number = before.number + 1
    added = sorted(entries, key=lambda entry: (entry.committed, entry.batch))
    full = [part for part in before.parts if part.entries >= PART]
    loose = [*before.entries[sum(part.entries for part in full) :], *added]
    made = [_write_part(files, number, loose[start : start + PART]) for start in range(0, len(loose), PART)]
    parts = [{"path": part.path, "entries": part.entries, "digest": part.digest} for part in (*full, *made)]
    if not _put(files, checkpoint_path(number), seal(KIND, {"parts": parts})):
        return False
    if _numbers(files)[:1] != [number]:
        return False  # we were away so long that ours was made, and deleted, by somebody else
    each(files.delete, [entry.batch.commit for entry in added])
    _delete_old(files, number - KEPT)
    return True


def _put(files: Files, path: str, record: bytes) -> bool:
    """Put a checkpoint, which names parts that only we have made; whether it is there."""
    if files.put_if_absent(path, record):
        return True
    try:
        return files.read(path) == record
    except FileMissing:
        return False


def _write_part(files: Files, number: int, entries: list[Entry]) -> Part:
    data = gzip.compress(json.dumps([fields_of(entry) for entry in entries]).encode(), 6, mtime=0)
    path = f"{CHECKPOINTS}/part-{number}-{secrets.token_hex(8)}.json.gz"
    files.put_if_absent(path, data)
    return Part(path, len(entries), digest_of(data))


def _delete_old(files: Files, newest_gone: int) -> None:
    """Delete checkpoints up to this number, then parts of them that no later one has."""
    needed: set[str] = set()
    gone: list[str] = []
    parts: list[str] = []
    for status in files.list(CHECKPOINTS):
        number = number_of(status.name)
        if number is None:
            made = status.name.split("-")
            if len(made) == 3 and made[1].isdecimal() and int(made[1]) <= newest_gone:
                parts.append(status.path)
        elif number <= newest_gone:
            gone.append(status.path)
        else:
            try:
                needed.update(part.path for part in _read_index(files, number))
            except (FileMissing, UnreadableRecord):
                return  # others are faster, or nobody knows what it needs
    each(files.delete, gone)
    each(files.delete, [path for path in parts if path not in needed])
