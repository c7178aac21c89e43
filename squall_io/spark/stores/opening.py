"""Which file system a path names, and how it is reached.

`/a/b` and `file:///a/b` are on this machine and need no Java; everything else goes through the Hadoop client of Spark's
JVM, or
of a JVM of its own if there is no session. HDFS is reached by WebHDFS, without a JVM, if `squall.webhdfs.address` is set
and there is no classic session; Spark Connect, which gives no JVM, requires that.
Must not know: what files hold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from squall_io.spark.manifest.files import FilesRefused
from squall_io.spark.stores.hadoop_errors import translated_errors
from squall_io.spark.stores.local import LocalFiles
from squall_io.spark.stores.paths import LOCAL, check_path, scheme_of
from squall_io.spark.stores.renaming import OpenStore
from topology_api.wording import nearest, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from squall_io.spark.stores.gateway import Jvm


#: How the names of Squall's own settings begin.
_OWN: Final = "squall."
#: Where WebHDFS is served: HOST:PORT, or with http:// or https:// before it.
WEBHDFS: Final = "squall.webhdfs.address"
#: "true": write even where a commit may go wrong.
UNSAFE: Final = "squall.unsafe.store"

#: File systems whose rename to an absent name is atomic, with one winner; a commit needs that.
_ATOMIC: Final = ("hdfs", "viewfs")
_RISK: Final = (
    "two tasks with the same writer id, one of which was declared dead, may both commit, so that rows may be duplicated"
    " or lost"
)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_log = logging.getLogger(__name__)


def open_files(
    path: str,
    *,
    session: SparkSession | None = None,
    jvm: Jvm | None = None,
    conf: Mapping[str, str] = _NOTHING,
) -> OpenStore:
    """Open the file system at a table's path; `InvalidPath`, `NotInstalled`, and errors of `Files` if it does not answer.

    conf: Spark's configuration, which may have `squall.webhdfs.address` and `squall.unsafe.store`. jvm: an existing JVM to
        use
        instead of a session's; it stays open. After the end of the session's JVM the store has to be opened again.
    """
    path = check_path(path)
    scheme = scheme_of(path)
    if scheme == LOCAL:
        _require_no_other_default(path, session, conf)
        return LocalFiles(path)
    from squall_io.spark.stores.gateway import Jvm, is_classic

    if jvm is None and (session is None or not is_classic(session)):
        if scheme == "hdfs" and WEBHDFS in conf:
            from squall_io.spark.stores.webhdfs import WebHdfsFiles

            return WebHdfsFiles(path, conf[WEBHDFS])
        if session is not None:
            raise FilesRefused(f"cannot open {path}: {_no_jvm(scheme)}")
    read_only = _no_rename(scheme, conf)
    if read_only is None and scheme not in _ATOMIC:
        _log.warning("%s is on a file system without atomic renames: %s (%s=true)", path, _RISK, UNSAFE)
    if jvm is not None:
        jvm = jvm.lent()
    else:
        jvm = Jvm.own(conf) if session is None else Jvm.of_session(session)
    from squall_io.spark.stores.hadoop import HadoopFiles

    try:
        return HadoopFiles(path, jvm, read_only=read_only)
    except BaseException:
        jvm.close()
        raise


def reading_problem(path: str, conf: Mapping[str, str], is_connect: bool) -> str | None:
    """Return why a path in normal form cannot be reached from anywhere; None: nothing is known against it.

    is_connect: the session will be one of Spark Connect.
    """
    scheme = scheme_of(path)
    if not is_connect or scheme == LOCAL or (scheme == "hdfs" and WEBHDFS in conf):
        return None
    return _no_jvm(scheme)


def writing_problem(path: str, conf: Mapping[str, str], is_connect: bool) -> str | None:
    """Return why a path cannot be written to; like `reading_problem`."""
    problem = reading_problem(path, conf, is_connect)
    scheme = scheme_of(path)
    return _no_rename(scheme, conf) if problem is None and scheme != LOCAL else problem


def setting_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with Squall's own settings, a sentence each."""
    for name in conf:
        if name.startswith(_OWN) and name not in (WEBHDFS, UNSAFE):
            yield f"conf has {shown(name)}: of Squall's own there are {WEBHDFS} and {UNSAFE}{nearest(name, (WEBHDFS, UNSAFE))}"
    if conf.get(UNSAFE, "true") not in ("true", "false"):
        yield f"conf has for {UNSAFE} {shown(conf[UNSAFE])}: give true or false"
    if WEBHDFS in conf:
        from squall_io.spark.stores.webhdfs import base_of

        try:
            base_of(conf[WEBHDFS])
        except FilesRefused as problem:
            yield f"conf has for {WEBHDFS} what it cannot be: {problem}"


def _no_rename(scheme: str, conf: Mapping[str, str]) -> str | None:
    """Return why file systems of a scheme are not written to; None: they are."""
    if scheme in _ATOMIC or conf.get(UNSAFE) == "true":
        return None
    return (
        f"Squall knows of no rename on {scheme}:// that has one winner, and without it {_RISK}; reading is all right. Give an"
        f" hdfs:// path, or write all the same with the setting {UNSAFE}=true"
    )


def _require_no_other_default(path: str, session: SparkSession | None, conf: Mapping[str, str]) -> None:
    """Refuse a path without scheme if Hadoop has another default file system: it is ambiguous."""
    default = conf.get("spark.hadoop.fs.defaultFS")
    java = getattr(session, "_jsc", None)  # Spark Connect has none
    if default is None and java is not None:
        with translated_errors(f"cannot open {path}"):
            default = str(java.hadoopConfiguration().get("fs.defaultFS"))
    if path.startswith("/") and default is not None and scheme_of(default) != LOCAL:
        raise FilesRefused(
            f"cannot open {path}: without a scheme it is this machine's, and Hadoop's own file system here"
            f" (fs.defaultFS) is {default}; write file://{path} or {default.rstrip('/')}{path}"
        )


def _no_jvm(scheme: str) -> str:
    """Return why a session of Spark Connect does not reach a path."""
    if scheme != "hdfs":
        return f"a session of Spark Connect has no JVM here, and {scheme}:// needs one; give a hdfs:// path"
    return (
        "a session of Spark Connect has no JVM here, and HDFS is reached by WebHDFS then: set"
        f" {WEBHDFS} to the NameNode's web address (HOST:9870)"
    )
