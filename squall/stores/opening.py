"""Opens file systems: those that need no Java, this machine's own, HDFS by WebHDFS and S3; for a topology's state also HDFS by
Java.

Must not know: Spark, what files hold.
"""

from __future__ import annotations

from typing import Final, Protocol

from squall.stores.files import FilesRefused, OpenStore
from squall.stores.local import LocalFiles
from squall.stores.paths import LOCAL, S3_SCHEMES, authority_of, check_path, scheme_of

#: The port on which a NameNode serves WebHDFS by default.
WEBHDFS_PORT: Final = 9870


def open_store(
    path: str, *, webhdfs: str | None = None, s3_endpoint: str | None = None, follow_links: bool = False
) -> OpenStore:
    """Open the file system at a path. Nothing is read or written yet. Raises `InvalidPath`, or `FilesRefused` if the path needs
    Java, or boto3, which is missing.

    webhdfs: where the NameNode serves WebHDFS: HOST:PORT, or with http:// or https:// before it. Needed for hdfs:// paths.
    s3_endpoint: where a server speaks S3 that is not Amazon's: http://HOST:PORT or https://HOST. Without it, boto3's settings
        decide.
    follow_links: follow symbolic links below a local path; only for folders that are only read.
    """
    path = check_path(path)
    scheme = scheme_of(path)
    if scheme == LOCAL:
        return LocalFiles(path, follow_links)
    if scheme in S3_SCHEMES:
        from squall.stores.s3 import S3Files
        from squall.stores.s3_bucket import endpoint_of

        return S3Files(path, s3_endpoint and endpoint_of(s3_endpoint))
    if webhdfs is None or needs_java(scheme, webhdfs):
        raise FilesRefused(f"cannot open {path}: {_advice(scheme)}")
    from squall.stores.webhdfs import WebHdfsFiles

    return WebHdfsFiles(path, webhdfs)


def default_webhdfs(path: str) -> str | None:
    """Return where the NameNode of a path in normal form serves WebHDFS by default; None if the path is not on HDFS, or
    names no host."""
    host = authority_of(path).rpartition("@")[2]
    if scheme_of(path) != "hdfs" or not host:
        return None
    name, colon, port = host.rpartition(":")
    return f"{name if colon and port.isdecimal() else host}:{WEBHDFS_PORT}"


class HdfsStore(OpenStore, Protocol):
    """A store on HDFS."""

    def make_private(self) -> None:
        """Create the folder of this store for its user only. Raises `FilesRefused` if it is there and others may enter it."""


def open_hdfs(path: str, webhdfs: str | None) -> HdfsStore:
    """Open a folder of HDFS for a topology's state: through WebHDFS at an address, or, without one, by Hadoop's client, in a
    JVM that this process starts. Raises `FilesRefused` if neither is possible, `FilesUnavailable`.
    """
    if webhdfs is not None:
        from squall.stores.webhdfs import WebHdfsFiles

        return WebHdfsFiles(check_path(path), webhdfs)
    from squall.stores.java.steady import open_by_java

    return open_by_java(path)


def open_state(path: str, webhdfs: str | None) -> OpenStore:
    """Open a folder with the state of topologies, of this machine or of HDFS. Raises as `open_hdfs` does."""
    return LocalFiles(path) if scheme_of(check_path(path)) == LOCAL else open_hdfs(path, webhdfs)


def needs_java(scheme: str, webhdfs: str | None) -> bool:
    """Return whether file systems of this scheme can be reached only through Java, given the address of WebHDFS, if any."""
    return scheme not in (LOCAL, *S3_SCHEMES) and (scheme != "hdfs" or webhdfs is None)


def _advice(scheme: str) -> str:
    if scheme == "hdfs":
        return "without Java, HDFS is used through WebHDFS: give the NameNode's web address (HOST:9870)"
    return f"{scheme}:// needs Java, which is not used here; give a file://, an hdfs:// or an s3:// path"
