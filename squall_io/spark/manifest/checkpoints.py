"""Checkpoints: many entries in few files, so that reading stays fast after many batches.

Checkpoint n lists its parts; a part holds up to `PART` entries, gzipped, and is never changed. Checkpoint n + 1 has the parts
of n and one more, or its last one written anew with more in it. Its number is put if absent, so checkpoints follow each other,
and each has everything that those before it have. Only then are the entries' own files deleted: whoever listed them before,
and finds one gone, looks again.
Must not know: who counts (it is given the entries), Spark.
"""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from squall_io.spark.manifest.entries import Entry, entry_from, fields_of
from squall_io.spark.manifest.envelopes import UnreadableRecord, digest_of, seal, unseal
from squall_io.spark.manifest.files import Files, each
from squall_io.spark.manifest.layout import CHECKPOINTS, checkpoint_path, number_of

KIND: Final = "checkpoint"
#: Entries of one part: a part is written anew until it is full, so this bounds what a checkpoint costs (about 2 MB of JSON).
PART: Final = 5_000
#: Checkpoints that stay besides the newest, for readers that have just seen them.
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
    numbers = [number_of(status.name) for status in files.list(CHECKPOINTS)]
    unreadable: list[UnreadableRecord] = []
    for number in sorted((number for number in numbers if number is not None), reverse=True):
        try:
            parts = _read_index(files, number)
        except UnreadableRecord as problem:
            unreadable.append(problem)
            continue
        entries: list[Entry] = []
        for result in each(lambda part: _read_part(files, part), parts):
            if isinstance(result, UnreadableRecord):
                unreadable.append(result)
            else:
                entries += result
        return Checkpoint(number, parts, tuple(entries), tuple(unreadable))
    return Checkpoint(unreadable=tuple(unreadable))


def _read_index(files: Files, number: int) -> tuple[Part, ...]:
    path = checkpoint_path(number)
    fields = unseal(KIND, files.read(path), path)
    try:
        return tuple(Part(part["path"], int(part["entries"]), part["digest"]) for part in fields["parts"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(path, f"is no checkpoint of a Squall table: {error}") from None


def _read_part(files: Files, part: Part) -> list[Entry] | UnreadableRecord:
    data = files.read(part.path)
    if digest_of(data) != part.digest:
        why = f"is damaged: {part.entries} entries are in it, and its digest is not the one that the checkpoint names"
        return UnreadableRecord(part.path, why)
    return [entry_from(fields, part.path) for fields in json.loads(gzip.decompress(data))]


def write_next(files: Files, before: Checkpoint, entries: Iterable[Entry]) -> bool:
    """Make the checkpoint after `before`, with `entries` added, and delete what it makes needless.

    Each entry must count for certain. False: somebody else has made that checkpoint, or something of the one before cannot be
    read; nothing was changed.
    """
    if before.unreadable:
        return False
    added = sorted(entries, key=lambda entry: (entry.committed, entry.batch))
    full = [part for part in before.parts if part.entries >= PART]
    loose = [*before.entries[sum(part.entries for part in full) :], *added]
    parts = list(full)
    for start in range(0, len(loose), PART):
        parts.append(_write_part(files, before.number + 1, loose[start : start + PART]))
    fields = {
        "parts": [{"path": part.path, "entries": part.entries, "digest": part.digest} for part in parts]
    }
    if not files.put_if_absent(checkpoint_path(before.number + 1), seal(KIND, fields)):
        each(files.delete, [part.path for part in parts if part not in full])
        return False
    each(files.delete, [entry.batch.commit for entry in added])
    _delete_old(files, before.number + 1 - KEPT)
    return True


def _write_part(files: Files, number: int, entries: list[Entry]) -> Part:
    data = gzip.compress(json.dumps([fields_of(entry) for entry in entries]).encode(), 6, mtime=0)
    path = f"{CHECKPOINTS}/part-{number}-{secrets.token_hex(8)}.json.gz"
    files.put_if_absent(path, data)
    return Part(path, len(entries), digest_of(data))


def _delete_old(files: Files, newest_gone: int) -> None:
    """Delete checkpoints up to this number, and parts of them that no later one has."""
    needed: set[str] = set()
    gone: list[str] = []
    parts: list[tuple[int, str]] = []
    for status in files.list(CHECKPOINTS):
        number = number_of(status.name)
        if number is None:
            made = status.name.split("-")
            if len(made) == 3 and made[1].isdecimal():
                parts.append((int(made[1]), status.path))
        elif number <= newest_gone:
            gone.append(status.path)
        else:
            needed.update(part.path for part in _read_index(files, number))
    if gone:
        old = [path for number, path in parts if number <= newest_gone and path not in needed]
        each(files.delete, [*gone, *old])
