"""Calls to Java by Py4J, and what it means when one fails: an exception in Java, an error of Py4J's own, or no Java any more.

Once a process has had a Spark session, PySpark converts each exception that Py4J brings, and asks the *session's* JVM about it,
whichever JVM it came from. To that one the name of another's exception is the name of nothing, or of something else: the
conversion fails, in any way, or makes an exception of another class of it. (As it does when there is no session any more.) So
what Py4J raised first is looked for behind what has arrived, and asked in its own JVM.
Must not know: files, sessions.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from squall_io.spark.manifest.files import FilesError, FilesUnavailable
from squall_io.spark.stores.hadoop_errors import Thrown, causes_in, error_of
from topology_api import SquallError

#: The causes of an exception that are looked at.
_CAUSES: Final = 8
#: How Py4J says that Java has answered, and with an error that is no exception of what was called.
_TRACE: Final = " Trace:\n"

_log = logging.getLogger(__name__)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn what calls to Java raise into the errors of `Files`. what: which call it is, "cannot read hdfs://..."."""
    handled = sys.exc_info()[1]
    try:
        yield
    except SquallError:
        raise
    except Exception as error:
        meaning = _meaning(what, error, handled)
        if meaning is None:
            raise
        raise meaning from None


def _meaning(what: str, error: BaseException, handled: BaseException | None) -> FilesError | None:
    """The error of `Files` that an exception stands for; None: no call to Java has failed."""
    thrown = _thrown_before(error, handled)
    try:
        if thrown is not None:
            return error_of(what, _chain(thrown))
    except Exception as gone:  # the JVM has ended while it was asked about its exception
        error = gone
    if not isinstance(error, OSError) and not _is_py4js(error):
        return None
    call, answered, trace = str(error).partition(_TRACE)
    if answered:
        _log.debug("%s: %s", what, error)
        return _own_error(f"{what}: {call.strip()}", trace)
    said = (call.splitlines() or [type(error).__name__])[0]
    return FilesUnavailable(f"{what}: the JVM of Spark does not answer, it may have ended ({said})")


def _thrown_before(error: BaseException | None, handled: BaseException | None) -> Any:
    """Java's exception that all of it began with, since `handled`; None: there was none."""
    thrown = None
    while error is not None and error is not handled:
        if _is_py4js(error):
            thrown = getattr(error, "java_exception", None) or thrown
        error = error.__context__
    return thrown


def _is_py4js(error: BaseException) -> bool:
    """Whether it is an exception of Py4J's."""
    return any(kind.__module__.partition(".")[0] == "py4j" for kind in type(error).__mro__)


def _chain(thrown: Any) -> list[Thrown]:
    """An exception of Java and its causes."""
    chain: list[Thrown] = []
    while thrown is not None and len(chain) < _CAUSES:
        classes = []
        above = thrown.getClass()
        while above is not None:
            classes.append(str(above.getName()))
            above = above.getSuperclass()
        if classes[0] == "org.apache.hadoop.ipc.RemoteException":
            classes.insert(0, str(thrown.getClassName()))
        chain.append(Thrown(classes, str(thrown.getMessage() or "")))
        thrown = thrown.getCause()
    return chain


def _own_error(what: str, trace: str) -> FilesUnavailable:
    """The error of a call that Py4J's server did not make, as it does not while Java goes down."""
    causes = [f"{cause.message} ({cause.classes[0]})".strip() for cause in causes_in(trace)]
    said = ", caused by ".join(causes) or trace.strip().partition("\n")[0]
    return FilesUnavailable(
        f"{what} {said}; Java goes down, or its Spark is another one than the PySpark here"
    )
