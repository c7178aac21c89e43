"""A context for calls to Java through Py4J, which turns errors of Java into errors of `Files` (`hadoop_errors`).

Once a process has had a Spark session, PySpark converts each exception that Py4J raises, and asks the *session's* JVM about
the exception, even if a different JVM raised it. In the session's JVM, a reference to another JVM's exception names no object,
or a wrong object: the conversion fails, or makes an exception of a wrong class. (The conversion also fails once there is no
session.) So this module finds the exception that Py4J raised first in the `__context__` of the final exception, and examines it
in the JVM that raised it.
Must not know: which call was made.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from squall.stores.files import FilesError, FilesUnavailable
from squall.stores.hadoop_errors import Thrown, error_of
from topology_api import SquallError

_log = logging.getLogger(__name__)

#: Matches a line of a Java stack trace that names an exception: "Caused by: java.io.IOException: No space left on device", or
#: the same without "Caused by: " at the beginning of the trace. An exception of a NameNode has a second class in parentheses:
#: "Caused by: org.apache.hadoop.ipc.RemoteException(java.io.IOException): File /a could only be written to 0 of ...".
_CAUSE: Final = re.compile(
    r"^(?:: |Caused by: |py4j\.protocol\.Py4JJavaError: )?((?:[a-z][\w]*\.)+[A-Z][\w$]*)(?:\(([\w.$]+)\))?(?:: (.*))?$",
    re.MULTILINE,
)
#: The most causes of an exception that are examined.
_CAUSES: Final = 8
#: Part of Py4J's text if Java answers with an error that the called method did not raise.
_TRACE: Final = " Trace:\n"


def causes_in(trace: str) -> list[Thrown]:
    """Return the exceptions that a Java stack trace names, from the outermost to the innermost."""
    return [Thrown((found[2] or found[1],), found[3] or "") for found in _CAUSE.finditer(trace)]


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Turn errors of calls to Java into errors of `Files`. `what` names the call: "cannot read hdfs://..."."""
    handled = sys.exc_info()[1]
    try:
        yield
    except SquallError:
        raise
    except Exception as error:
        if (meaning := _meaning(what, error, handled)) is None:
            raise
        raise meaning from None


def _meaning(what: str, error: BaseException, handled: BaseException | None) -> FilesError | None:
    """Return the error of `Files` for an exception; None if no call to Java has failed."""
    thrown = _thrown_before(error, handled)
    try:
        if thrown is not None:
            return error_of(what, _chain(thrown))
    except Exception as gone:  # the JVM ended while it was asked about its exception
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
    """Return whether an exception is one of Py4J's."""
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
    """Return the error for a call that Py4J's server did not carry out, for example while Java shuts down."""
    causes = [f"{cause.message} ({cause.classes[0]})".strip() for cause in causes_in(trace)]
    said = ", caused by ".join(causes) or trace.strip().partition("\n")[0]
    return FilesUnavailable(f"{what} {said}; Java is shutting down, or its Spark does not match this PySpark")
