"""Paths of tables, as users write them: which are valid, and their normal form. Paths are checked at submission, without I/O.

Only the comparison of two paths (`overlap`, `nested`) does I/O: it resolves symbolic links on this machine.
Must not know: the contents of a path, which file systems exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from squall.stores.files import FilesRefused
from topology_api import SquallError

#: Squall's own folder below the path of a store. Readers of the path ignore it, because of its first character.
FOLDER: Final = "_squall"
#: Where a store writes a file before the file gets its name. After a crash, files can be left here.
TMP: Final = f"{FOLDER}/tmp"
#: The scheme of this machine's own file system.
LOCAL: Final = "file"
#: The schemes of S3: Amazon's programs know the first, Hadoop's client the second.
S3_SCHEMES: Final = ("s3", "s3a")

#: Scheme, authority and the rest of a path. The rest begins with "/" unless the path is relative.
_PARTS: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?)?(.*)", re.DOTALL)
#: Characters that Spark reads as part of a pattern, and ":", which HDFS does not allow in a name.
_SPECIAL: Final = re.compile(r"[*?\[\]{}\\:]")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
#: Finds host and port in an authority such as "host:9000", "user@host" or "container@account.net".
_AUTHORITY: Final = re.compile(r"(?:[^\s@]*@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(.*))?", re.DOTALL)
_PASSWORD: Final = (
    "it contains a password, which would be in logs and in the web UI; give it in Spark's configuration"
)


class InvalidPath(SquallError):
    """A path that cannot be the path of a table, whether it exists or not."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"path {self.path!r}: {self.why}"


def check_path(path: str | os.PathLike[str]) -> str:
    """Return a path in normal form: `/a/b`, `file:///a/b`, `hdfs://host:9000/a/b`, `hdfs:///a/b`. Raises `InvalidPath`."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidPath(repr(text), "it is not text")
    scheme, authority, below = place = _split(text)
    _require_no_password(*place, _PASSWORD)
    parts = [part for part in below.split("/") if part not in ("", ".")]
    why = _form_problem(*place) or _host_problem(scheme, authority) or _name_problem(text, parts)
    if why is not None:
        raise InvalidPath(text, why)
    folder = "/" + "/".join(parts)
    return f"{scheme}://{'' if scheme == LOCAL else authority}{folder}" if scheme else folder


def check_below(path: str) -> str:
    """Return a path relative to the table that a store is given; "" is the table itself. Every store checks each path here.

    Raises `FilesRefused` if the path leads out of the table: paths come from records, which others may have written.
    """
    if path and leaves_table(path):
        raise FilesRefused(
            f"{path!r} is not a path below a table, so nothing was done; a record of the table is forged"
        )
    return path


def leaves_table(path: str) -> bool:
    """Return whether a path that a record holds, or a store is given, does not lie below the table: it is absolute, or goes up,
    or has a part that file systems do not read as a name of its own."""
    try:
        path.encode("utf-8", "surrogateescape")  # as a listing of a local folder names a file
    except UnicodeEncodeError:
        return True
    return "\0" in path or any(part in ("", ".", "..") for part in path.split("/"))


def default_scheme(address: str) -> str:
    """Return the scheme of Hadoop's own file system, whose address is the value of `fs.defaultFS`. Raises `InvalidPath`, which
    shows no password."""
    # A value on a line of its own in core-site.xml has blanks around it.
    place = _split(address.strip())
    _require_no_password(*place, "Hadoop's fs.defaultFS contains a password; give it in another setting")
    if _form_problem(*place) is not None:
        why = "Hadoop's fs.defaultFS is not the address of a file system; write hdfs://host:port or file:///"
        raise InvalidPath(address.rpartition("@")[2], why)
    return place[0] or LOCAL


def from_here(path: str) -> str:
    """Return a path from a command line or script; a relative path is made absolute, all other paths are unchanged."""
    # A path without ":" in its first part has no scheme.
    return os.path.abspath(path) if path and ":" not in path.partition("/")[0] else path


def scheme_of(path: str) -> str:
    """Return the scheme of a path in normal form; "file" for a path without a scheme, which is on this machine."""
    return _split(path)[0] or LOCAL


def authority_of(path: str) -> str:
    """Return the authority of a path in normal form, such as "host:9000"; "" if the configuration determines the host."""
    return _split(path)[1]


def folder_of(path: str) -> str:
    """Return a path in normal form without scheme and authority: "/a/b"."""
    return _split(path)[2]


def overlap(one: str, other: str) -> str | None:
    """Return why there cannot be two tables at these paths; None if there can be."""
    return f"both are {one}" if _place(one) == _place(other) else nested(one, other)


def nested(one: str, other: str) -> str | None:
    """Return a sentence that says which of two paths is below the other; None if neither is."""
    for inner, outer in ((one, other), (other, one)):
        below, above = _place(inner), _place(outer)
        if below[:2] == above[:2] and below[2].startswith(f"{above[2]}/"):
            return f"{inner} lies in {outer}"
    return None


def _place(path: str) -> tuple[str, str, str]:
    """Return scheme, authority and folder, which are equal for all paths of the same place."""
    scheme, authority, folder = _split(check_path(path))
    if scheme in ("", LOCAL):
        return "", "", os.path.realpath(folder)
    return S3_SCHEMES[0] if scheme in S3_SCHEMES else scheme, authority, folder


def _split(text: str) -> tuple[str, str, str]:
    found = _PARTS.fullmatch(text)
    assert found is not None  # any text matches
    scheme, authority, below = found.groups(default="")
    return scheme.lower(), authority, below


def _require_no_password(scheme: str, authority: str, below: str, why: str) -> None:
    """Raise `InvalidPath` with the reason `why` if these parts of a path contain a password; the error shows no password."""
    user, at, host = authority.rpartition("@")
    if not at and "@" in below and not authority.rpartition(":")[2].isdecimal():  # a password may contain "/"
        user, host, below = authority, "", below.rpartition("@")[2]
    if ":" in user:
        raise InvalidPath(f"{scheme}://...@{host}{below}", why)


def _form_problem(scheme: str, authority: str, below: str) -> str | None:
    """Return why these cannot be the parts of an absolute path."""
    if not (scheme or below.strip()):
        return "it is empty; give /folder/of/the/table or hdfs://host:port/folder/of/the/table"
    if not (scheme or below.startswith("/")):
        return "it is relative, and each worker runs in its own folder; write it from the root: '/...'"
    if below and not below.startswith("/"):
        with_host = "" if scheme == LOCAL else f"{scheme}://host/folder or "
        return f"after '{scheme}:' there must be '/'; write {with_host}{scheme}:///folder"
    if scheme == LOCAL:
        elsewhere = f"{authority!r} would be a host, but file: is always this machine; write file:///folder"
        return elsewhere if authority not in ("", "localhost") else None
    return None


def _host_problem(scheme: str, authority: str) -> str | None:
    """Return why there is no file system of this scheme, or why the host or the port is impossible."""
    if scheme in ("http", "https"):
        return f"{scheme}:// is not a file system; write hdfs://host:port/folder, with the port of the NameNode's fs.defaultFS"
    if not authority:
        return None
    if (found := _AUTHORITY.fullmatch(authority)) is None:
        return f"{authority!r} is not a host name; write {scheme}://host:port/folder"
    port = found[2]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        return f"{port!r} is not a port; write a number from 1 to 65535, or leave it out"
    return None


def _name_problem(text: str, parts: Sequence[str]) -> str | None:
    """Return why a path with these parts cannot be the path of a table."""
    if not parts:
        return "it is the root of a file system; give a folder below it that only the table uses"
    if ".." in parts:
        return "it has '..' in it; write the path without '..'"
    if found := _UNPRINTABLE.search(text) or _SPECIAL.search("/".join(parts)):
        return f"Spark or HDFS would not take {found.group()!r} in it literally; use another name"
    return None
