"""Paths of tables, as people write them: which are valid, and their normal form. No I/O: checked at submission.

Must not know: what is at a path, which file systems exist.
"""

from __future__ import annotations

import os
import re
from typing import Final

from squall_io.spark.manifest.layout import FOLDER
from topology_api import SquallError

#: The scheme of this machine's own file system.
LOCAL: Final = "file"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
#: In a path to read, these mean a pattern to Spark, and HDFS does not allow ":" in a name.
_SPECIAL: Final = re.compile(r"[*?\[\]{}\\:]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: An authority, "host:9000", "user@host", "container@account.net": the host, and the port after a ":".
_AUTHORITY: Final = re.compile(r"(?:[^\s@]*@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(.*))?", re.DOTALL)
_LONE: Final = re.compile("[\ud800-\udfff]")


class InvalidPath(SquallError):
    """This cannot be the path of a table, whatever is there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"path {self.path!r}: {self.why}"


def check_path(path: str | os.PathLike[str]) -> str:
    """Return a path in normal form: `/a/b`, `file:///a/b`, `hdfs://host:9000/a/b`, `hdfs:///a/b`; `InvalidPath`."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidPath(repr(text), "it is no text")
    if not text.strip():
        raise InvalidPath(
            text, "it is empty; give /folder/of/the/table or hdfs://host:port/folder/of/the/table"
        )
    scheme, authority, below = _split(text)
    _check_authority(text, scheme, authority)
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if not parts:
        raise InvalidPath(text, "it is the root of a file system; give a folder below it, of the table alone")
    if ".." in parts:
        raise InvalidPath(text, "it has '..' in it; write it without")
    if found := _CONTROL.search(text) or _LONE.search(text) or _SPECIAL.search(below):
        raise InvalidPath(
            text, f"{found.group()!r} in it would not be taken as it is by Spark or HDFS; use another name"
        )
    return _joined(scheme, authority, "/" + "/".join(parts))


def check_table_path(path: str | os.PathLike[str]) -> str:
    """Like `check_path`, for a table to write to, which must not be in another table's own folder."""
    normal = check_path(path)
    if FOLDER in folder_of(normal).split("/"):
        raise InvalidPath(
            os.fspath(path),
            f"{FOLDER!r} in it is the folder that a table keeps its own files in; give another path",
        )
    return normal


def from_here(path: str) -> str:
    """Return a relative path of this machine as an absolute one: for people who type it, or run a script. Others are
    unchanged.
    """
    if path and ":" not in path.partition("/")[0]:  # no scheme
        return os.path.abspath(path)
    return path


def scheme_of(path: str) -> str:
    """Return the scheme of a path in normal form; "file" for a path without one, which is on this machine."""
    return _split(path)[0] or LOCAL


def authority_of(path: str) -> str:
    """Return the authority of a path in normal form, "host:9000"; "" if the configuration determines it."""
    return _split(path)[1]


def folder_of(path: str) -> str:
    """Return a path in normal form without scheme and authority: "/a/b"."""
    return _split(path)[2]


def _check_authority(text: str, scheme: str, authority: str) -> None:
    """Raise `InvalidPath` if there can be no file system of that scheme, or no host of that name."""
    if scheme in ("http", "https"):
        raise InvalidPath(
            text,
            f"{scheme}:// is no file system; write hdfs://host:port/folder, with the port of the NameNode's fs.defaultFS",
        )
    if not authority:
        return
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise InvalidPath(text, f"{authority!r} is no name of a host; write {scheme}://host:port/folder")
    port = found[2]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidPath(text, f"{port!r} is no port; write a number from 1 to 65535, or leave it out")


def _joined(scheme: str, authority: str, below: str) -> str:
    return f"{scheme}://{authority}{below}" if scheme else below


def _split(text: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the rest, which begins with "/"; `InvalidPath`."""
    found = _SCHEME.fullmatch(text)
    if found is None:
        if not text.startswith("/"):
            raise InvalidPath(
                text,
                "it is relative, and workers run in folders of their own; write it from the root: '/...'",
            )
        return "", "", text
    scheme, rest = found.group(1).lower(), found.group(2)
    authority = ""
    if rest.startswith("//"):
        authority, slash, below = rest[2:].partition("/")
        rest = slash + below
    if ":" in authority.rpartition("@")[0]:
        raise InvalidPath(
            f"{scheme}://...@{authority.rpartition('@')[2]}{rest}",
            "it has a password in it, which would be in logs and in the web UI; give it by Spark's configuration",
        )
    if rest and not rest.startswith("/"):
        with_host = "" if scheme == LOCAL else f"{scheme}://host/folder or "
        raise InvalidPath(text, f"after '{scheme}:' there must be '/'; write {with_host}{scheme}:///folder")
    if scheme == LOCAL and authority not in ("", "localhost"):
        raise InvalidPath(
            text, f"{authority!r} would be a host, and files are this machine's; write file:///folder"
        )
    return scheme, "" if scheme == LOCAL else authority, rest
