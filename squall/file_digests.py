"""Finds damage in a folder of files that never change: each file's size and SHA-256 are recorded once and compared later.

A disk may lose a file, cut it short, fill it with zeros or flip a bit, most often when the power fails. Files that are not in
the record are ignored. The files may have been replaced by user code, so they are read by `squall.guarded_files`.
Must not know: what the files are for, where the record is kept, what happens to a damaged folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from squall.guarded_files import DamagedFile, is_own_trouble, open_guarded

#: Bytes that are read at once.
_PIECE: Final = 1024 * 1024

#: Path of a file below its folder -> its size in bytes, and its SHA-256 as hex.
Digests = Mapping[str, tuple[int, str]]


def digests_of(folder: Path) -> Digests:
    """Return the sizes and digests of all files below a folder. Raises `DamagedFile` or `OSError`."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            found[os.path.relpath(file, folder)] = _digest_of(file, None)
    return found


def damage_in(folder: Path, digests: Digests) -> str | None:
    """Return what is wrong with the first file that is missing or differs from the record; None: every file is sound. Raises
    `OSError` if this process can open no file, which says nothing about the folder."""
    for name, recorded in digests.items():
        file = os.path.join(folder, name)
        try:
            found = _digest_of(file, recorded[0])
        except DamagedFile as error:
            return str(error)
        if found != tuple(recorded):
            return f"{file} is damaged: its {found[0]:,} bytes are not the {recorded[0]:,} that were written"
    return None


def checked_digests(values: Any) -> dict[str, tuple[int, str]]:
    """Return a record of digests that was read from JSON. Raises ValueError, TypeError, KeyError or AttributeError for anything
    else."""
    found = {}
    for name, (size, digest) in values.items():
        if type(size) is not int or not isinstance(digest, str):
            raise ValueError(f"{name!r:.80} has no size and digest")
        found[name] = size, digest
    return found


def _digest_of(file: str, size: int | None) -> tuple[int, str]:
    """Return the size and the digest of a file; "" as the digest if the file does not have the wanted size."""
    descriptor = _opened(file)
    digest = hashlib.sha256()
    try:
        found = os.fstat(descriptor).st_size
        if size is not None and found != size:
            return found, ""
        read = 0
        # A file that grows meanwhile is not read to an end that never comes.
        while read <= found and (piece := os.read(descriptor, _PIECE)):
            read += len(piece)
            digest.update(piece)
    except OSError as error:  # for example, a block of the disk cannot be read
        raise DamagedFile(f"{file} cannot be read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    return read, digest.hexdigest()


def _opened(file: str) -> int:
    try:
        descriptor = open_guarded(file)
    except OSError as error:
        if is_own_trouble(error):
            raise
        raise DamagedFile(f"{file} cannot be read: {error.strerror or error}") from error
    if descriptor is None:
        raise DamagedFile(f"{file} is missing")
    return descriptor
