"""What an error on the way of a batch into the table means: try again, give the batch up, or nobody knows.

Spark's errors come as a stack trace of Java; the classes in it decide, as they do for file systems
(`stores.hadoop_errors`). The JVM is not asked: it may be what has died.
Must not know: sessions, batches.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from squall_io.spark.java import NotInstalled
from squall_io.spark.jvm import JavaFailed
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.commit import BatchConflict, BatchLost
from squall_io.spark.manifest.files import FilesError, FilesRefused, FilesUnavailable
from squall_io.spark.stores.hadoop_errors import Thrown, error_of
from squall_io.spark.wishes import NoServer
from topology_api import SquallError

__all__ = ["NotCommitted", "Verdict", "causes_in", "reason_of", "verdict_on"]

#: "Caused by: java.io.IOException: No space left on device", the same at the beginning of a trace, and what a NameNode has
#: thrown: "Caused by: org.apache.hadoop.ipc.RemoteException(java.io.IOException): File /a could only be written to 0 of ...".
_CAUSE: Final = re.compile(
    r"^(?:: |Caused by: |py4j\.protocol\.Py4JJavaError: )?((?:[a-z][\w]*\.)+[A-Z][\w$]*)(?:\(([\w.$]+)\))?(?:: (.*))?$",
    re.MULTILINE,
)
#: How an error of Spark Connect begins, "(java.io.EOFException) End of File": its trace may be missing.
_CONNECT: Final = re.compile(r"\A\s*\(((?:[a-z][\w]*\.)+[A-Z][\w$]*)\) ")
#: Classes of what goes wrong outside, and may go right again.
_OUTSIDE: Final = ("java.io.", "java.net.", "java.nio.", "javax.net.", "org.apache.hadoop.")
#: What Spark says when those who worked for it are gone.
_GONE: Final = re.compile(
    r"ExecutorLostFailure|executor (?:driver )?(?:lost|exited)|FetchFailed|[Ss]topped SparkContext|shut ?down"
    r"|UNAVAILABLE|RETRIES_EXCEEDED|SESSION_(?:NOT_FOUND|CHANGED|CLOSED)"
)
#: What gRPC says of a call to a Spark Connect server, among much else.
_DETAILS: Final = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
#: Spark's own wrappings, which say nothing of the reason.
_WRAPPING: Final = ("org.apache.spark.", "py4j.")
_LONGEST: Final = 400


class NotCommitted(SquallError):
    """What a sink has to do outside was given up: a batch is not in the table, or the table was not opened."""


class Verdict(Enum):
    """What to do after an error."""

    AGAIN = "again"
    """Try again, for as long as it takes: something outside is away."""
    REFUSED = "refused"
    """Trying again is of no use until somebody changes something."""
    UNKNOWN = "unknown"
    """Try a few times."""


def verdict_on(error: BaseException) -> Verdict:
    """What an error means."""
    if isinstance(error, (FilesUnavailable, BatchLost)):
        return Verdict.AGAIN
    if isinstance(error, (FilesRefused, BatchConflict, Superseded, NotInstalled)):
        return Verdict.REFUSED
    if isinstance(error, (JavaFailed, NoServer, ConnectionError)):
        return Verdict.AGAIN
    if isinstance(error, SquallError):
        return Verdict.REFUSED if not isinstance(error, FilesError) else Verdict.AGAIN
    module = type(error).__module__.partition(".")[0]
    if module not in ("py4j", "pyspark", "grpc"):
        return Verdict.UNKNOWN
    meaning = _meaning(error)
    if meaning is not None:
        return Verdict.REFUSED if isinstance(meaning, FilesRefused) else Verdict.AGAIN
    no_java_error = module == "grpc" or type(error).__name__ in ("Py4JError", "Py4JNetworkError")
    return Verdict.AGAIN if no_java_error or _GONE.search(_text_of(error)) else Verdict.UNKNOWN


def reason_of(error: BaseException) -> str:
    """An error in one line, for people."""
    if isinstance(error, SquallError):
        return str(error)
    meaning = _meaning(error)
    if meaning is not None:
        return str(meaning)
    causes = [cause for cause in causes_in(_text_of(error)) if not cause.classes[0].startswith(_WRAPPING)]
    if causes:
        return _short(f"Spark: {causes[-1].message} ({_plain(causes[-1].classes[0])})")
    if details := _DETAILS.search(str(error)):
        return _short(f"Spark Connect: {details.group(1)}")
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return _short(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def causes_in(trace: str) -> list[Thrown]:
    """The exceptions that a stack trace of Java names, from the outermost to the innermost."""
    trace = _CONNECT.sub(r"\1: ", trace)
    return [Thrown((found[2] or found[1],), found[3] or "") for found in _CAUSE.finditer(trace)]


def _meaning(error: BaseException) -> FilesError | None:
    """The error of a file system, or of the network, that made a Spark job fail; None: it was nothing of the kind."""
    outside = [cause for cause in causes_in(_text_of(error)) if cause.classes[0].startswith(_OUTSIDE)]
    return error_of("Spark cannot write", outside[::-1]) if outside else None


def _text_of(error: BaseException) -> str:
    """What an error says, with the trace of the JVM; without asking the JVM, if it can be had so."""
    trace = getattr(error, "_stackTrace", None)
    if isinstance(trace, str):
        return trace
    trace = getattr(error, "_stacktrace", None)  # Spark Connect's, without the first message
    if isinstance(trace, str):
        return f"{error}\n{trace}"
    try:
        return str(error)
    except Exception:  # it is asked after all, and is gone
        return ""


def _plain(name: str) -> str:
    return name.rpartition(".")[2].rpartition("$")[2]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
