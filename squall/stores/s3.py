"""`Files` on S3, or on a server that speaks its language, by boto3 and without Java.

A put is one call with the condition that there is no such object (`If-None-Match: *`), and S3 lets one of several callers win.
S3 has no rename: a move is a conditional copy, then the deletion of the source. Who dies in between leaves the file with both
names, as a crash may do on this machine's file system (`local`). The target exists as a whole or not at all.
Before its first conditional call a store tries whether the server honours conditions (`s3_conditions`).

S3 has no folders either: a folder is there while a key below it is. But sweepers find the moved files of a dead process by the
folders that they were moved from (`Files.move_if_absent`). So a move first puts a marker for the source's folder: an empty
object whose key ends with "/", as other programs have it, too. A marker is no file; who deletes the folder deletes it.

A copy that S3 has begun may end after its source was deleted: then a sweeper that comes in this second misses the target, and
it stays, a file that no record names. With a server that honours conditions only for copies in parts, a process that is frozen
between the parts and the last call can leave such a file, too.

A file where a folder must be is refused as far as it is there when a store looks. A file beside a folder of the same name is
not noticed.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
import hashlib
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from squall.stores.files import AbsentFile, FilesRefused, FileStatus, FileTaken, OpenStore
from squall.stores.paths import TMP, authority_of, check_below, check_path, folder_of, leaves_table
from squall.stores.s3_bucket import LARGEST_COPY, S3Bucket, keys_of
from squall.stores.s3_conditions import copies_in_one_call

#: Buckets whose listings have another order, and no prefixes in the middle of a name.
_DIRECTORY_BUCKET: Final = "--x-s3"
#: How many times a folder is deleted in which other processes put files.
_TRIES: Final = 20
#: The most folders that a store remembers to be none.
_REMEMBERED: Final = 10_000


class S3Files(OpenStore):
    """S3 below one table: `s3://bucket/folder` or `s3a://bucket/folder`. endpoint: where the server is; without one, boto3's
    settings decide (AWS_ENDPOINT_URL, AWS_DEFAULT_REGION, profiles), and so they do about keys. Raises `FilesRefused` if boto3
    is missing."""

    def __init__(
        self, path: str, endpoint: str | None = None, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        path = check_path(path)
        bucket = authority_of(path)
        if not bucket or "@" in bucket or ":" in bucket:
            raise FilesRefused(f"cannot open {path}: {bucket!r} is not a bucket; write s3://BUCKET/folder")
        if bucket.endswith(_DIRECTORY_BUCKET):
            raise FilesRefused(
                f"cannot open {path}: a directory bucket lists names in no order; give a general purpose bucket"
            )
        self.root = path
        self._below = folder_of(path).lstrip("/")
        self._bucket = S3Bucket(bucket, endpoint, pause=pause)
        self._lock = threading.Lock()
        #: Whether conditional copies are one call; None: not tried yet.
        self._one_call: bool | None = None
        #: Keys at which there was no object: folders, or nothing.
        self._no_files: set[str] = set()

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name."""
        what, key = self._what("list", folder), self._key(folder)
        start = len(key) + 1
        found: builtins.list[FileStatus] = []  # with the folder's own marker, which is no entry
        for page in self._bucket.pages(what, f"{key}/", delimiter="/"):
            for each, size, modified in keys_of(page):
                found.append(FileStatus.of_entry(folder, each[start:], size, False, modified))
            for prefix in page.get("CommonPrefixes", ()):
                name = prefix["Prefix"][start:-1]
                found.append(FileStatus.of_entry(folder, name, 0, True, 0.0))
        if not found and self._is_file(what, key):
            raise FilesRefused(f"{what}: it is a file; give another path")
        return sorted(filter(_is_valid, found))

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """Return everything below a folder, by path, from one flat listing."""
        what, key = self._what("list", folder), self._key(folder)
        start = len(key) + 1
        files: builtins.list[FileStatus] = []
        folders: set[str] = set()
        for page in self._bucket.pages(what, f"{key}/"):
            for each, size, modified in keys_of(page):
                above, _, name = each[start:].rpartition("/")
                if name:
                    files.append(FileStatus.of_entry(folder, each[start:], size, False, modified))
                while above and above not in folders:
                    folders.add(above)
                    above = above.rpartition("/")[0]
        found = [FileStatus.of_entry(folder, each, 0, True, 0.0) for each in folders]
        return sorted(filter(_is_valid, [*files, *found]))

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder: mostly one call, since the names that are asked for most begin no
        other name."""
        what, key = self._what("look for", path), self._key(path)
        for prefix in (key, f"{key}/"):
            found = [each for each, _, _ in keys_of(next(self._bucket.pages(what, prefix, most=1)))]
            if not found:
                return False
            if found[0] == key or found[0].startswith(f"{key}/"):
                return True
        return False

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes."""
        if length == 0:
            return b""
        what, key = self._what("read", path), self._key(path)

        def read_once() -> bytes:
            parts: builtins.list[bytes] = []
            self._bucket.slices(what, key, offset, length, parts.append)
            return b"".join(parts)

        return self._bucket.again(read_once)

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes."""
        what, key = self._what("read", path), self._key(path)

        def digest_once() -> str:
            found = hashlib.sha256()
            self._bucket.slices(what, key, 0, None, found.update)
            return found.hexdigest()

        return f"sha256:{self._bucket.again(digest_once)}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file, unless there is one."""
        what, key = self._what("write", path), self._key(path)
        self._honours_copies()
        self._require_folders(what, path)
        try:
            self._bucket.put(what, key, data, if_absent=True)
        except FileTaken:
            return False
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Create a file, or replace the existing one."""
        self._replace(path, data)

    def upload(self, path: str, content: BinaryIO) -> None:
        """The same with the content of an open file, which is read while it is sent."""
        content.seek(0)
        self._replace(path, content)

    def _replace(self, path: str, content: bytes | BinaryIO) -> None:
        what, key = self._what("write", path), self._key(path)
        self._require_folders(what, path)
        self._bucket.put(what, key, content, if_absent=False)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Copy a file, unless the new name is taken, and delete the old one. A crash, or an error, may leave the file with both
        names."""
        what = f"{self._what('rename', source)} to {self.root}/{target}"
        old, new = self._key(source), self._key(target)
        one_call = self._honours_copies()
        self._require_folders(what, target)
        size = self._bucket.size(what, old)
        folder = source.rpartition("/")[0]
        if folder:
            # Before the copy: from its end on, a sweeper must find this folder, even if another one has deleted the source.
            self._bucket.put(what, f"{self._key(folder)}/", b"", if_absent=False)
        try:
            if one_call and size <= LARGEST_COPY:
                self._bucket.copy(what, old, new)
            else:
                self._bucket.copy_in_parts(what, old, new, size)
        except FileTaken:
            return False
        self._bucket.delete(what, [old])
        return True

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        what, key = self._what("delete", path), self._key(path)
        for _ in range(_TRIES):
            found = [each for page in self._bucket.pages(what, f"{key}/") for each, _, _ in keys_of(page)]
            if not found:
                break
            self._bucket.delete(what, found)
        self._bucket.delete(what, [key])

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()

    def _key(self, path: str) -> str:
        """Return the key of a path of the table. Raises `FilesRefused` if it leads out of the table, or S3 has no such name."""
        try:
            check_below(path).encode()
        except UnicodeEncodeError:
            raise FilesRefused(f"{path!r} is no name that S3 takes: it is not Unicode") from None
        return f"{self._below}/{path}" if path else self._below

    def _honours_copies(self) -> bool:
        """Return whether the server honours conditions of copies in one call. Raises `FilesRefused` if it honours none."""
        with self._lock:
            if self._one_call is None:
                self._one_call = copies_in_one_call(self._bucket, self._key(TMP), self.root)
            return self._one_call

    def _require_folders(self, what: str, path: str) -> None:
        """Raise `FilesRefused` if a file lies where a folder of this path must be. What was found to be none is not asked for
        again."""
        key, looked_at = self._key(path), set()
        while len(key := key.rpartition("/")[0]) >= len(self._below) and key not in self._no_files:
            if self._is_file(what, key):
                raise FilesRefused(
                    f"{what}: s3://{self._bucket.name}/{key} is a file where a folder must be; give another path"
                )
            looked_at.add(key)
        if len(self._no_files) >= _REMEMBERED:
            self._no_files.clear()
        self._no_files |= looked_at

    def _is_file(self, what: str, key: str) -> bool:
        try:
            self._bucket.size(what, key)
        except AbsentFile:
            return False
        return True


def _is_valid(status: FileStatus) -> bool:
    """Return whether other calls take the path of an entry: keys of foreign programs may have empty parts."""
    return bool(status.name) and not leaves_table(status.path)
