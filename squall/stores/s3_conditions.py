"""Finds out whether an S3 server honours conditions, by trying: a server that does not know the header `If-None-Match` ignores
it, and overwrites what another process has put.

Must not know: tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from squall.stores.files import FilesError, FilesRefused, FileTaken
from squall.stores.s3_bucket import S3Bucket

_ADVICE: Final = (
    "give a path on Amazon S3, or on a newer release of this server that has conditional writes; reading is safe, and"
    " hdfs:// and local paths can be written to"
)


def copies_in_one_call(bucket: S3Bucket, folder: str, root: str) -> bool:
    """Return whether the server honours the condition of a copy that is one call; if not, it does for a copy in parts. Puts
    objects whose keys begin with `folder`, and deletes them.

    Raises `FilesRefused` if it ignores the condition of a put, or that of a copy in parts; and errors of `Files`.
    """
    name = f"{folder}/probe.{secrets.token_hex(8)}"
    first, second = f"{name}.1", f"{name}.2"
    what = f"cannot try conditional writes below {root}"
    try:
        if not _done(lambda: bucket.put(what, first, b"1", if_absent=True)):
            raise FilesRefused(
                f"{what}: the server says that {first} is there, which is a random name; {_ADVICE}"
            )
        if _done(lambda: bucket.put(what, first, b"2", if_absent=True)):
            raise _ignored(root, "puts with the header If-None-Match")
        _done(lambda: bucket.put(what, second, b"3", if_absent=True))
        with suppress(FilesRefused):  # some servers refuse a call with a header that they do not know
            if not _done(lambda: bucket.copy(what, first, second)):
                return True
        if not _done(lambda: bucket.copy_in_parts(what, first, second, 1)):
            return False
        raise _ignored(root, "copies with the header If-None-Match")
    finally:
        with suppress(FilesError):  # sweepers of temporary files delete them later
            bucket.delete(what, [first, second])


def _ignored(root: str, calls: str) -> FilesRefused:
    return FilesRefused(
        f"cannot write to {root}: this server overwrites existing objects in {calls}, so two processes could both commit;"
        f" {_ADVICE}"
    )


def _done(call: Callable[[], None]) -> bool:
    """Return whether a conditional call was done; False: the server has honoured the condition, which does not hold."""
    try:
        call()
    except FileTaken:
        return False
    return True
