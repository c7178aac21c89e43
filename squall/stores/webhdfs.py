"""`Files` on HDFS through WebHDFS: plain HTTP without a JVM, for Spark Connect. (The library fsspec also uses WebHDFS, but
lacks the rename options that commits need.)

Renames use the options NONE or OVERWRITE. The bytes of files are exchanged with the DataNodes, whose addresses the NameNode
gives. So this machine must be able to connect to the DataNodes.
The user name is the only sign-in: a cluster with Kerberos refuses it.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
import getpass
import hashlib
import http
import http.client
import json
import os
import socket
import ssl
import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

from squall.stores.files import (
    AbsentFile,
    FilesError,
    FilesRefused,
    FileStatus,
    FilesUnavailable,
    FileTaken,
    NotServed,
)
from squall.stores.hadoop_errors import Thrown, error_of
from squall.stores.paths import check_below, folder_of
from squall.stores.private import require_private
from squall.stores.renaming import RenamingFiles, pieces_of

#: Seconds until a silent connection is given up.
_PATIENCE: Final = 30.0
_SLICE: Final = 1 << 20
#: Java's names for errors of connections.
_NO_ANSWER: Final[dict[type[Exception], str]] = {
    ConnectionRefusedError: "java.net.ConnectException",
    TimeoutError: "java.net.SocketTimeoutException",
    socket.gaierror: "java.net.UnknownHostException",
    ssl.SSLCertVerificationError: "java.security.cert.CertificateException",
}
_SIGN_IN: Final = "this cluster wants a sign-in (Kerberos?), which WebHDFS does not do here"


class WebHdfsFiles(RenamingFiles):
    """HDFS below one table, through WebHDFS at an address: HOST:PORT, or with http:// or https:// in front. Of several
    NameNodes, with commas between their addresses, the active one is found."""

    def __init__(self, path: str, address: str, *, user: str | None = None) -> None:
        super().__init__(path)
        self._folder = folder_of(path)
        self._bases = bases_of(address)
        #: The index of the NameNode that answered last.
        self._active = 0
        self._user = user or os.environ.get("HADOOP_USER_NAME") or _user()

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name."""
        what = self._what("list", folder)
        try:
            answer = self._ask(what, "GET", folder, "LISTSTATUS")
        except AbsentFile:
            return []
        found = self._part(what, answer, "FileStatuses", "FileStatus")
        if len(found) == 1 and not found[0]["pathSuffix"]:
            raise FilesRefused(f"{what}: it is a file; give another path")
        return sorted(_status(folder, fields) for fields in found)

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        with suppress(AbsentFile):
            self._ask(self._what("look for", path), "GET", path, "GETFILESTATUS")
            return True
        return False

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes."""
        return b"" if length == 0 else b"".join(self._content(path, offset, length))

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes."""
        found = hashlib.sha256()
        for data in self._content(path, 0, None):
            found.update(data)
        return f"sha256:{found.hexdigest()}"

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        self._ask(self._what("delete", path), "DELETE", path, "DELETE", recursive="true")

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder, unless something is in it."""
        what = self._what("delete", folder)
        with suppress(AbsentFile, FileTaken):
            answer = self._ask(what, "GET", folder, "GETFILESTATUS")
            if self._part(what, answer, "FileStatus", "type") == "DIRECTORY":
                self._ask(what, "DELETE", folder, "DELETE", recursive="false")

    def make_private(self) -> None:
        """Create the folder of this store for its user only. Raises `FilesRefused` if it is there and others may enter it."""
        what = self._what("make folder", "")
        try:
            answer = self._ask(what, "GET", "", "GETFILESTATUS")
        except AbsentFile:
            self._ask(what, "PUT", "", "MKDIRS", permission="700")
            answer = self._ask(what, "GET", "", "GETFILESTATUS")
        kind, owner, mode = (
            str(self._part(what, answer, "FileStatus", name)) for name in ("type", "owner", "permission")
        )
        require_private(self.root, self._user, owner, int(mode, 8), is_folder=kind == "DIRECTORY")

    def close(self) -> None:
        """Do nothing: each call opens its own connection."""

    def _write(self, path: str, content: bytes | BinaryIO) -> None:
        what = self._what("write", path)
        answer = self._ask(what, "PUT", path, "CREATE", overwrite="true", noredirect="true")
        with _sent(what, "PUT", _location(what, answer), content):
            pass

    def _rename(self, source: str, target: str, over: bool) -> None:
        what = f"{self._what('rename', source)} to {self.root}/{target}"
        option = "OVERWRITE" if over else "NONE"
        destination = f"{self._folder}/{check_below(target)}"
        self._ask(what, "PUT", source, "RENAME", destination=destination, renameoptions=option)

    def _make_folder(self, path: str) -> None:
        self._ask(self._what("make folder", path), "PUT", path, "MKDIRS")

    def _content(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        """Yield a file's bytes in slices."""
        what = self._what("read", path)
        try:
            yield from self._slices(what, path, offset, length)
        except AbsentFile:
            raise
        except FilesError:
            # For WebHDFS, an offset past the end of an existing file is an error; here it means that nothing is left to read.
            if not offset:
                raise
            answer = self._ask(what, "GET", path, "GETFILESTATUS")
            if offset < self._part(what, answer, "FileStatus", "length"):
                raise

    def _slices(self, what: str, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        part = {"offset": str(offset)} if length is None else {"offset": str(offset), "length": str(length)}
        answer = self._ask(what, "GET", path, "OPEN", noredirect="true", **part)
        with _sent(what, "GET", _location(what, answer), None) as response:
            while data := response.read(_SLICE):
                yield data
            if response.length:
                # The answer ended too early; `read(_SLICE)` itself raises no error then.
                raise http.client.IncompleteRead(b"", response.length)

    def _ask(self, what: str, method: str, path: str, op: str, **arguments: str) -> Any:
        """Return the answer of the active NameNode to a call."""
        active, count = self._active, len(self._bases)  # other threads change it, too
        for turn in range(count):
            at = (active + turn) % count
            try:
                answer = self._asked(at, what, method, path, op, **arguments)
            except NotServed:
                if turn == count - 1:
                    raise
            except FilesUnavailable:
                # It may have been done: only the caller knows whether it can be made again. Then another one is asked first.
                self._active = (at + 1) % count
                raise
            else:
                self._active = at
                return answer
        raise AssertionError("there is at least one address")

    def _asked(self, at: int, what: str, method: str, path: str, op: str, **arguments: str) -> Any:
        """Return the answer of one NameNode."""
        where = quote(f"/webhdfs/v1{self._folder}{'/' if check_below(path) else ''}{path}")
        query = urlencode({"op": op, "user.name": self._user, **arguments}, quote_via=quote)
        with _sent(what, method, f"{self._bases[at]}{where}?{query}", None) as response:
            body = response.read()
        try:
            return json.loads(body) if body else {}
        except ValueError:
            raise self._no_webhdfs(what) from None

    def _part(self, what: str, answer: Any, *names: str) -> Any:
        """Return the value under these nested names of an answer."""
        try:
            for name in names:
                answer = answer[name]
        except (KeyError, TypeError):
            raise self._no_webhdfs(what) from None
        return answer

    def _no_webhdfs(self, what: str) -> FilesRefused:
        return FilesRefused(
            f"{what}: {', '.join(self._bases)} does not answer like WebHDFS; is it the NameNode's web address?"
        )


def bases_of(addresses: str) -> builtins.list[str]:
    """Return each address of a text with commas between them, as `base_of` does."""
    return [base_of(each.strip()) for each in addresses.split(",")]


def base_of(address: str) -> str:
    """Return an address with its scheme, and without a path. Raises `FilesRefused`."""
    try:
        base = urlsplit(address if "://" in address else f"http://{address}")
        known = base.scheme in ("http", "https") and bool(base.hostname) and base.port != 0
    except ValueError:  # the port is not a number, or a bracket of IPv6 is missing
        known = False
    if known and not (base.path.strip("/") or base.query or "@" in address or len(address.split()) > 1):
        return f"{base.scheme}://{base.netloc}"
    # What is before an "@" may be a password.
    raise FilesRefused(
        f"{address.rpartition('@')[2]!r} is not a WebHDFS address: give HOST:PORT, http://... or https://..."
    )


def _user() -> str:
    """Return this process's user name on the machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise FilesRefused(
            "WebHDFS wants a user's name, and this process has none: set HADOOP_USER_NAME"
        ) from None


@contextmanager
def _sent(
    what: str, method: str, url: str, content: bytes | BinaryIO | None
) -> Iterator[http.client.HTTPResponse]:
    """Yield the open answer to a request; raise the matching error if the request failed."""
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.netloc, timeout=_PATIENCE)
    try:
        # The DataNode addresses that a NameNode gives may have letters that HTTP does not allow.
        target = quote(f"{parts.path}?{parts.query}", safe=string.printable)
        headers = {"Content-Type": "application/octet-stream"}
        body: bytes | Iterator[bytes] | None
        if content is None or isinstance(content, (bytes, bytearray, memoryview)):
            body = content
        else:
            headers["Content-Length"] = str(content.seek(0, os.SEEK_END))
            body = pieces_of(content)
        connection.request(method, target, body=body, headers=headers)
        if (response := connection.getresponse()).status >= 300:
            raise _failure(what, response.status, response.read())
        yield response
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(what, parts.netloc, error) from None
    finally:
        connection.close()


def _unreachable(what: str, server: str, error: Exception) -> Exception:
    """Return the error for a call without a complete answer."""
    names = (name for kind, name in _NO_ANSWER.items() if isinstance(error, kind))
    return error_of(what, [Thrown([next(names, type(error).__name__)], f"{server}: {error}")])


def _failure(what: str, status: int, body: bytes) -> Exception:
    """Return the error that an answer reports."""
    try:
        remote = json.loads(body)["RemoteException"]
        thrown = Thrown([str(remote["javaClassName"])], str(remote.get("message") or ""))
    except (ValueError, KeyError, TypeError):
        kind = FilesRefused if status < 500 else FilesUnavailable
        help_ = f"; {_SIGN_IN}" if status == http.HTTPStatus.UNAUTHORIZED else ""
        return kind(f"{what}: HTTP status {status}{help_}")
    return error_of(what, [thrown])


def _location(what: str, answer: Any) -> str:
    """Return the address that a file's bytes go to or come from."""
    try:
        return str(answer["Location"])
    except (KeyError, TypeError):
        raise FilesRefused(f"{what}: WebHDFS names no DataNode; Hadoop 2.8 or newer is needed") from None


def _status(folder: str, fields: Any) -> FileStatus:
    is_folder, modified = fields["type"] == "DIRECTORY", fields["modificationTime"] / 1000
    return FileStatus.of_entry(folder, fields["pathSuffix"], fields["length"], is_folder, modified)
