"""Decides what an error during a commit means (retry, give up, or unknown), and runs the retries.

Spark's errors have a Java stack trace. The exception classes in the trace decide, as for file systems
(`squall.stores.hadoop_errors`). The JVM is not asked, since it may have died.
Must not know: sessions, batches, the work that is retried.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from squall.stores.files import FilesError, FilesRefused, FilesUnavailable
from squall.stores.hadoop_errors import Thrown, error_of, shortened
from squall.stores.java.java_calls import causes_in
from squall.stores.java.jvm import JavaFailed
from squall_io.kit.waiting import LOG_AGAIN, DoublingWait
from squall_io.spark.manifest.commit import BatchLost
from squall_io.spark.session.request import NoConnectServer
from topology_api import SquallError

#: The beginning of an error of Spark Connect, "(java.io.EOFException) End of File"; such an error may have no trace.
_CONNECT: Final = re.compile(r"\A\s*\(((?:[a-z][\w]*\.)+[A-Z][\w$]*)\) ")
#: Packages of the exceptions that storage and the network raise.
_OUTSIDE: Final = (
    "java.io.",
    "java.net.",
    "java.nio.channels.",
    "java.nio.file.",
    "javax.net.",
    "javax.security.sasl.",
    *(f"org.apache.hadoop.{package}." for package in ("fs", "hdfs", "io.retry", "ipc", "net", "security")),
)
#: Only these exceptions of java.io are errors of storage: the others report objects, texts or classes in a wrong format.
_OUTSIDE_IO: Final = re.compile(
    r"java\.io\.(?:EOF|FileNotFound|IO|InterruptedIO|SyncFailed|UncheckedIO)Exception"
)
#: All exceptions of java.net except these are errors of the network.
_NO_NETWORK: Final = frozenset({"java.net.MalformedURLException", "java.net.URISyntaxException"})
#: Exceptions of executors that do not have the driver's classes.
_OTHER_CLASSES: Final = ("java.io.InvalidClassException", "java.io.StreamCorruptedException")
#: Spark's messages about lost executors, drivers and sessions.
_GONE: Final = re.compile(
    r"ExecutorLostFailure|executor (?:driver )?(?:lost|exited)|FetchFailed|[Ss]topped SparkContext|shut ?down"
    r"|UNAVAILABLE|RETRIES_EXCEEDED|SESSION_(?:NOT_FOUND|CHANGED|CLOSED)"
)
#: gRPC's codes for failures that a retry cannot help.
_SENSELESS: Final = re.compile(
    r"INVALID_ARGUMENT|UNAUTHENTICATED|PERMISSION_DENIED|UNIMPLEMENTED|RESOURCE_EXHAUSTED|OUT_OF_RANGE"
)
#: Matches the message in gRPC's error about a Spark Connect server.
_DETAILS: Final = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
#: Spark's own wrapper exceptions, which do not name the reason.
_WRAPPING: Final = ("org.apache.spark.", "py4j.")
#: Names the failed call in the error of a batch that cannot be stored.
WRITE: Final = "Spark cannot write"

#: Retries end after this many consecutive errors of unknown meaning.
UNKNOWN_TRIES: Final = 3
#: The reason for ending retries that might still succeed.
STOPPED: Final = "its worker ends"
#: The most seconds of a single sleep: progress is reported between sleeps.
_LONGEST_SLEEP: Final = 1.0


class NotCommitted(SquallError):
    """An external step was given up: a batch is not in the table, or the table was not opened."""


class ErrorClass(Enum):
    """What to do after an error."""

    #: Retry without limit: storage or Spark is unavailable.
    AGAIN = "again"
    #: Do not retry: the call fails until someone changes something.
    REFUSED = "refused"
    #: Retry a few times.
    UNKNOWN = "unknown"


def classify(error: BaseException) -> ErrorClass:
    """Return the class of an error. Retries are unlimited only if storage or Spark is unavailable."""
    if isinstance(error, (FilesUnavailable, JavaFailed, NoConnectServer, ConnectionError)):
        return ErrorClass.AGAIN
    if isinstance(error, SquallError):
        # A batch's files may have been lost by accident. But if something deletes or hides the files of each batch, the error
        # comes again. Waiting does not help either if a file is missing or already exists. So retries are limited.
        unknown = isinstance(error, (BatchLost, FilesError)) and not isinstance(error, FilesRefused)
        return ErrorClass.UNKNOWN if unknown else ErrorClass.REFUSED
    module = type(error).__module__.partition(".")[0]
    if module not in ("py4j", "pyspark", "grpc"):
        return ErrorClass.UNKNOWN
    if (meaning := _meaning(error)) is not None:
        return classify(meaning)
    text = _trace_of(error)
    if any(map(_is_no_storage, _causes_of(error))):
        return ErrorClass.UNKNOWN
    if module == "grpc":
        return ErrorClass.UNKNOWN if _SENSELESS.search(text) else ErrorClass.AGAIN
    # If Java did not answer, Py4J's error has no trace.
    no_answer = type(error).__name__ in ("Py4JError", "Py4JNetworkError") and "Trace:" not in text
    return ErrorClass.AGAIN if no_answer or _GONE.search(text) else ErrorClass.UNKNOWN


def reason_of(error: BaseException, call: str = WRITE) -> str:
    """Return an error as one line for users. `call` names the call that failed, if storage or the network failed."""
    if isinstance(error, SquallError):
        return str(error)
    if (meaning := _meaning(error, call)) is not None:
        return str(meaning)
    if causes := [cause for cause in _causes_of(error) if not cause.classes[0].startswith(_WRAPPING)]:
        said = shortened(f"Spark: {causes[-1].message} ({causes[-1].name})")
        if causes[-1].classes[0] in _OTHER_CLASSES:
            said += "; do Spark's executors have the same Spark and Java as this worker?"
        return said
    text = text_of(error)
    if details := _DETAILS.search(text):
        return shortened(f"Spark Connect: {details.group(1)}")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shortened(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _meaning(error: BaseException, call: str = WRITE) -> FilesError | None:
    """Return the error of a file system or the network that made a Spark job fail; None if there was none."""
    causes = _causes_of(error)
    if any(map(_is_no_storage, causes)):
        return None
    outside = [cause for cause in causes if cause.classes[0].startswith(_OUTSIDE)]
    return error_of(call, outside[::-1]) if outside else None


def _causes_of(error: BaseException) -> list[Thrown]:
    """Return the Java exceptions in an error, from the outermost to the innermost."""
    return causes_in(_CONNECT.sub(r"\1: ", _trace_of(error)))


def _is_no_storage(cause: Thrown) -> bool:
    """Return whether a cause is in a package of storage or network errors, but is not such an error."""
    name = cause.classes[0]
    return name in _NO_NETWORK or (name.startswith("java.io.") and not _OUTSIDE_IO.fullmatch(name))


def text_of(error: BaseException) -> str:
    """Return an error's text; "" if the text must be read from Java, and Java is gone."""
    with suppress(Exception):
        return str(error)
    return ""


def _trace_of(error: BaseException) -> str:
    """Return an error's text with the JVM's stack trace, if possible without a call to the JVM."""
    if isinstance(trace := getattr(error, "_stackTrace", None), str):
        return trace
    trace = getattr(error, "_stacktrace", None)  # the trace of Spark Connect, without the first message
    return f"{text_of(error)}\n{trace}" if isinstance(trace, str) else text_of(error)


@dataclass
class Retries:
    """The retries of one piece of work.

    what: the trouble, for the log and the error: "batch x of 10 rows is not in hdfs://...". limit: retries end this many
        seconds after the first failure, even if a later retry might succeed; None: no limit. stopped: whether the worker is
        ending, which also ends the retries.
    """

    what: str
    log: logging.Logger
    progress: Callable[[str], None]
    limit: float | None = None
    stopped: Callable[[], bool] = lambda: False
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    #: When the first attempt failed; None if none has.
    since: float | None = field(default=None, init=False)
    failures: int = field(default=0, init=False)
    #: Consecutive errors of unknown meaning.
    unknown: int = field(default=0, init=False)
    _backoff: DoublingWait = field(default_factory=DoublingWait, init=False)
    _logged: float = field(default=0.0, init=False)

    def failed(self, error: Exception, in_doubt: bool = False) -> None:
        """Wait until the next attempt is due, or end the retries: raise `NotCommitted`.

        in_doubt: the attempt may have succeeded, so retries must not end while the worker runs.
        """
        now = self.now()
        if self.since is None:
            self.since = now
        self.failures += 1
        kind = classify(error)
        self.unknown = self.unknown + 1 if kind is ErrorClass.UNKNOWN else 0
        lasting = now - self.since
        late = self.limit is not None and lasting >= self.limit
        if not in_doubt and (kind is ErrorClass.REFUSED or late or self.unknown >= UNKNOWN_TRIES):
            tried = f" (tried {self.failures} times in {lasting:.0f} s)" if self.failures > 1 else ""
            raise NotCommitted(f"{self.what}{tried}: {reason_of(error)}") from error
        if self.failures == 1 or now - self._logged >= LOG_AGAIN:
            self._logged = now
            for_long = f", for {lasting:.0f} s now" if self.failures > 1 else ""
            self.log.warning("%s%s: %s; trying again", self.what, for_long, reason_of(error))
        self.pause(self._backoff.next(), reason_of(error))

    def succeeded(self, what: str) -> None:
        """End the retries, since the work is done. If an attempt had failed, log this; `what` says what is done."""
        if self.since is not None:
            self.log.info("%s after %d failures in %.1f s", what, self.failures, self.now() - self.since)
            self.since = None
            self.progress("")

    @property
    def trouble(self) -> float:
        """Seconds since the first failure; 0 if there was none."""
        # Read once: metrics are read in another thread, while the task's thread sets `since`.
        return 0.0 if (since := self.since) is None else self.now() - since

    def pause(self, seconds: float, reason: str) -> None:
        """Sleep, and report progress and the reason. Raises `NotCommitted` once the worker is ending."""
        until = self.now() + seconds
        while True:
            if self.stopped():
                raise NotCommitted(f"{self.what}: {reason}; {STOPPED}")
            self.progress(f"waiting for storage for {self.trouble:.0f} s: {reason}")
            if (left := until - self.now()) <= 0:
                return
            self.sleep(min(left, _LONGEST_SLEEP))
