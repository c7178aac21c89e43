"""Opens the file system that a path names, and finds those problems of paths and settings that can be found without Spark.

`/a/b` and `file:///a/b` are on this machine and need no Java, and neither does S3. Everything else goes through the Hadoop
client of Spark's JVM, or of a separate JVM if there is no session. HDFS is used through WebHDFS, without a JVM, if
`squall.webhdfs.address` is set and there is no classic session. Spark Connect has no JVM on this machine, so it requires this
setting for HDFS. Hadoop's client reaches S3 only with `squall.unsafe.store`, or to read where boto3 is missing.
Must not know: what files hold.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from squall.stores.files import FilesRefused, OpenStore
from squall.stores.java.java_calls import translated_errors
from squall.stores.opening import needs_java, open_store
from squall.stores.paths import (
    FOLDER,
    LOCAL,
    S3_SCHEMES,
    InvalidPath,
    check_path,
    default_scheme,
    folder_of,
    scheme_of,
)
from squall_io.spark.session.request import OWN_PREFIX, SessionRequest, is_classic, master_problem
from topology_api.wording import listed, nearest, shown, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from squall.stores.java.hadoop import HadoopFiles, Jvm


#: Where WebHDFS is served: HOST:PORT, or with http:// or https:// before it.
WEBHDFS: Final = "squall.webhdfs.address"
#: Where a server speaks S3 that is not Amazon's: http://HOST:PORT or https://HOST.
S3_ENDPOINT: Final = "squall.s3.endpoint"
#: "true": write even to file systems where a commit may go wrong.
UNSAFE: Final = "squall.unsafe.store"
_OWN: Final = (WEBHDFS, S3_ENDPOINT, UNSAFE)

#: File systems whose rename to an absent name is atomic, with one winner; a commit needs such a rename.
_ATOMIC: Final = ("hdfs", "viewfs")
_RISK: Final = (
    "two tasks with the same writer id, one of which was declared dead, may both commit, so that rows may be duplicated"
    " or lost"
)

_log = logging.getLogger(__name__)


def open_files(
    path: str,
    *,
    session: SparkSession | None = None,
    jvm: Jvm | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    follow_links: bool = False,
) -> OpenStore:
    """Open the file system at a table's path. Raises `InvalidPath` or `NotInstalled`, or errors of `Files` if the file system
    does not answer.

    conf: Spark's configuration, which may have `squall.webhdfs.address`, `squall.s3.endpoint` and `squall.unsafe.store`.
    jvm: an existing JVM to use instead of the session's JVM; the store does not end it. If the JVM in use ends, the store must
        be opened again.
    follow_links: follow symbolic links below a local path; only for folders that are no table and are only read.
    """
    path = check_path(path)
    scheme = scheme_of(path)
    if scheme == LOCAL:
        _require_no_other_default(path, session, conf)
        return open_store(path, follow_links=follow_links)

    without_jvm = jvm is None and (session is None or not is_classic(session))
    # A JVM that is there anyway is used, for S3 only where boto3 is missing.
    without = without_jvm or (scheme in S3_SCHEMES and importlib.util.find_spec("boto3") is not None)
    if without and not needs_jvm(scheme, conf):
        return open_store(path, webhdfs=conf.get(WEBHDFS), s3_endpoint=conf.get(S3_ENDPOINT))
    if without_jvm and session is not None:
        raise FilesRefused(f"cannot open {path}: {_no_jvm(scheme)}")
    from squall.stores.java.hadoop import Jvm  # loads the code that starts a JVM

    if jvm is not None:
        jvm = jvm.lent()
    else:
        jvm = Jvm.own(conf) if session is None else Jvm.of_session(session)
    return open_hadoop(path, jvm, conf)


def needs_jvm(scheme: str, conf: Mapping[str, str]) -> bool:
    """Return whether these settings want Hadoop's client for file systems of this scheme, if there is no session."""
    if scheme in S3_SCHEMES:
        return conf.get(UNSAFE) == "true"
    return needs_java(scheme, conf.get(WEBHDFS))


def open_hadoop(path: str, jvm: Jvm, conf: Mapping[str, str]) -> HadoopFiles:
    """Open the file system at a path in normal form with Hadoop's client in a JVM, whose use ends with the store."""
    from squall.stores.java.hadoop import HadoopFiles

    scheme = scheme_of(path)
    read_only = _no_rename(scheme, conf)
    if read_only is None and scheme not in _ATOMIC:
        _log.warning("%s is on a file system without atomic renames: %s (%s=true)", path, _RISK, UNSAFE)
    try:
        return HadoopFiles(path, jvm, read_only=read_only)
    except BaseException:
        jvm.close()
        raise


def settings_in(conf: Mapping[object, object], problems: list[str]) -> dict[str, str]:
    """Return settings in Spark's form; add a sentence to `problems` for each invalid setting."""
    settings: dict[str, str] = {}
    for name, value in conf.items():
        if not isinstance(name, str) or not name.startswith(("spark.", OWN_PREFIX)):
            near = nearest(str(name), _OWN)
            problems.append(
                f"conf has {typed(name)}: its names begin with 'spark.' (Hadoop's with 'spark.hadoop.'){near}"
            )
        elif isinstance(value, bool):
            settings[name] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            settings[name] = str(value)
        else:
            problems.append(
                f"conf has a {type(value).__name__} for {name!r}: give text, a number, True or False"
            )
    return settings


def place_problems(
    master: str | None, conf: Mapping[str, str], *, reads: Iterable[str] = (), writes: Iterable[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each problem of Spark's master and settings, and of the paths (in normal form) to read or write."""
    request = SessionRequest.of(master, conf)
    if (problem := master_problem(request.where)) is not None:
        yield problem
    yield from _setting_problems(conf)
    for name in request.server_settings:
        yield (
            f"conf has {shown(name)}, which Spark reads when a server starts: {request.place} runs already; leave it out, or"
            " start the server with it"
        )
    for paths, writing in ((reads, False), (writes, True)):
        for path in paths:
            scheme, problem = scheme_of(path), None
            if request.is_connect and needs_jvm(scheme, conf):
                problem = _no_jvm(scheme)
            elif writing and scheme not in (LOCAL, *S3_SCHEMES):
                problem = _no_rename(scheme, conf)
            if problem is not None:
                yield f"path {path!r} cannot be {'written to' if writing else 'read'}: {problem}"


def check_table_path(path: str | os.PathLike[str]) -> str:
    """Like `check_path`, for a table to write to, which must not be in another table's own folder."""
    normal = check_path(path)
    if FOLDER in folder_of(normal).split("/"):
        why = f"{FOLDER!r} in it is the folder that a table keeps its own files in; give another path"
        raise InvalidPath(os.fspath(path), why)
    return normal


def _setting_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each problem of Squall's own settings."""
    for name in conf:
        if name.startswith(OWN_PREFIX) and name not in _OWN:
            yield f"conf has {shown(name)}: Squall's own settings are {listed(_OWN)}{nearest(name, _OWN)}"
    if conf.get(UNSAFE, "true") not in ("true", "false"):
        yield f"conf has {shown(conf[UNSAFE])} for {UNSAFE}: give true or false"
    if WEBHDFS in conf:
        from squall.stores.webhdfs import bases_of

        try:
            bases_of(conf[WEBHDFS])
        except FilesRefused as problem:
            yield f"conf has an invalid value for {WEBHDFS}: {problem}"
    if S3_ENDPOINT in conf:
        from squall.stores.s3_bucket import endpoint_of

        try:
            endpoint_of(conf[S3_ENDPOINT])
        except FilesRefused as problem:
            yield f"conf has an invalid value for {S3_ENDPOINT}: {problem}"


def _no_rename(scheme: str, conf: Mapping[str, str]) -> str | None:
    """Return why Squall does not write to file systems of this scheme; None if it writes to them."""
    if scheme in _ATOMIC or conf.get(UNSAFE) == "true":
        return None
    if scheme in S3_SCHEMES:
        return "writing to S3 needs boto3: install Squall with its extra `s3`, also where workers run"
    return (
        f"Squall knows of no rename on {scheme}:// that has one winner: without such a rename, {_RISK}; reading is safe."
        f" Give an hdfs:// or an s3a:// path, or write in spite of the risk with the setting {UNSAFE}=true"
    )


def _require_no_other_default(path: str, session: SparkSession | None, conf: Mapping[str, str]) -> None:
    """Raise `FilesRefused` for a path without a scheme if Hadoop's default is not this machine's file system: the path is
    ambiguous.
    """
    default = conf.get("spark.hadoop.fs.defaultFS")
    if default is None and (java := getattr(session, "_jsc", None)) is not None:  # Spark Connect has none
        with translated_errors(f"cannot open {path}"):
            default = str(java.hadoopConfiguration().get("fs.defaultFS"))
    if path.startswith("/") and default is not None and default_scheme(default) != LOCAL:
        raise FilesRefused(
            f"cannot open {path}: a path without a scheme is on this machine, but Hadoop's own file system here"
            f" (fs.defaultFS) is {default}; write file://{path} or {default.rstrip('/')}{path}"
        )


def _no_jvm(scheme: str) -> str:
    """Return why a path cannot be used with a session of Spark Connect."""
    if scheme in S3_SCHEMES:
        return f"a session of Spark Connect has no JVM here, which {UNSAFE}=true wants for S3; leave this setting out"
    if scheme != "hdfs":
        return f"a session of Spark Connect has no JVM here, and {scheme}:// needs one; give a hdfs:// or an s3a:// path"
    return (
        "a session of Spark Connect has no JVM here, so HDFS must be used through WebHDFS: set"
        f" {WEBHDFS} to the NameNode's web address (HOST:9870)"
    )
