"""The bodies of HTTP messages: the bytes of files, in pieces, and answers, which are read completely or not at all.

Must not know: clients, servers, the meaning of requests.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from topology_api.errors import SquallError

#: Bytes of an answer in JSON; a longer one is not from us.
LONGEST_ANSWER: Final = 64 * 1024 * 1024
_PIECE: Final = 256 * 1024

Progress = Callable[[int], object]
"""Called with the number of bytes transferred so far."""


class OfTheFile(Exception):
    """Reading or writing the caller's file failed. The connection is not at fault, so the caller gets this error."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def pieces_of(source: Path, size: int, progress: Progress | None) -> Iterator[bytes]:
    """Reads exactly the announced number of bytes, even if the file grows meanwhile."""
    done = 0
    with source.open("rb") as file:
        while done < size:
            try:
                piece = file.read(min(_PIECE, size - done))
            except OSError as error:
                raise OfTheFile(error) from error
            if not piece:
                raise OfTheFile(OSError(f"{source} has become shorter while it was sent"))
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done)


def copy_to(target: BinaryIO, response: http.client.HTTPResponse, limit: int | None) -> str:
    """Write an answer into `target`, and return its SHA-256. More than `limit` bytes are a SquallError."""
    digest = hashlib.sha256()
    done = 0
    while piece := response.read(_PIECE):
        done += len(piece)
        if limit is not None and done > limit:
            raise SquallError(f"the file is larger than the {limit} bytes that are allowed")
        digest.update(piece)
        try:
            target.write(piece)
        except OSError as error:
            raise OfTheFile(error) from error
    if response.length:  # read() with a size does not complain when the connection ends early
        raise http.client.IncompleteRead(b"", response.length)
    return digest.hexdigest()


def read_json(response: http.client.HTTPResponse) -> Any:
    """Return the JSON of an answer, None for an empty one."""
    data = read_all(response)
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        raise SquallError(f"the answer is not JSON ({error}): is a Squall there? {data[:80]!r}") from None


def read_all(response: http.client.HTTPResponse) -> bytes:
    """Return all bytes of an answer; raise IncompleteRead if it ended early."""
    data = response.read(LONGEST_ANSWER + 1)
    if len(data) > LONGEST_ANSWER:
        raise SquallError(f"the answer is longer than {LONGEST_ANSWER} bytes: it is not read")
    if response.length:
        raise http.client.IncompleteRead(data, response.length)
    return data
