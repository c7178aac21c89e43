"""Calls to Java by Py4J, and what a failed one means: an exception in Java, an error of Py4J itself, or a dead Java.

Once a process has had a Spark session, PySpark converts each exception that Py4J raises, and asks the *session's* JVM
about it,
whichever JVM it came from. There the name of another JVM's exception means nothing, or something else: the
conversion fails in some way, or makes an exception of a wrong class. (It also fails once there is no session.) So
the exception that Py4J raised first is recovered from the context of the one that arrived, and asked about in its own JVM.
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

#: Causes of an exception that are examined.
_CAUSES: Final = 8
#: In Py4J's text when Java has answered with an error that the called method did not raise.
_TRACE: Final = " Trace:\n"

_log = logging.getLogger(__name__)


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Raise errors of calls to Java as those of `Files`. what: names the call, "cannot read hdfs://..."."""
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
    """Return the error of `Files` that an exception stands for; None: no call to Java has failed."""
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
    """Return the Java exception that was raised first since `handled`, if any."""
    thrown = None
    while error is not None and error is not handled:
        if _is_py4js(error):
            thrown = getattr(error, "java_exception", None) or thrown
        error = error.__context__
    return thrown


def _is_py4js(error: BaseException) -> bool:
    """Whether it is an exception of Py4J."""
    return any(kind.__module__.partition(".")[0] == "py4j" for kind in type(error).__mro__)


def _chain(thrown: Any) -> list[Thrown]:
    """Return a Java exception and its causes."""
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
    """Return the error of a call that Py4J's server did not make, for example while Java shuts down."""
    causes = [f"{cause.message} ({cause.classes[0]})".strip() for cause in causes_in(trace)]
    said = ", caused by ".join(causes) or trace.strip().partition("\n")[0]
    return FilesUnavailable(
        f"{what} {said}; Java goes down, or its Spark is another one than the PySpark here"
    )
