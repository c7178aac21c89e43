"""Explains the failure of a user's Spark job: with Spark's text about a query, or with the error, file and line of the user's
function. Error, file and line come from the traceback that a Python worker sent, or from the stack that it left when it died.

A job reads and writes in the same task. If storage or the network fails, Spark's text shows whether it was reading or writing.
If Java itself has ended, the resulting errors of Py4J and PySpark are useless to users.
Must not know: tables, what the job was for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from traceback import walk_tb
from typing import Final

from squall.stores.hadoop_errors import shortened
from squall_io.spark.sink.errors import WRITE, reason_of, text_of
from topology_api import SquallError

_TRACEBACK: Final = "Traceback (most recent call last):"
#: A frame of a traceback, or of `faulthandler`, which writes no second comma.
_FRAME: Final = re.compile(r'^  File "([^"]+)", line (\d+),? in (.+)$', re.MULTILINE)
#: Spark's text about a lost Python worker. If `faulthandler` was enabled, its text follows: the error, and a stack with the
#: innermost frame first.
_DIED: Final = re.compile(r"Python worker exited unexpectedly \(crashed\)(?:: (Fatal Python error: .+))?")
#: The setting that enables `faulthandler` in Python workers.
_FAULTHANDLER: Final = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
#: Frames of these files belong to PySpark, or to libraries that it uses.
_NOT_THEIRS: Final = re.compile(r"[/\\]pyspark[/\\]|site-packages|pyspark\.zip|^<frozen|lib[/\\]python3")
#: Finds, in Spark's condition and message, what a task was doing, and with which path.
_AT: Final = re.compile(
    r"\[(FAILED_READ_FILE|TASK_WRITE_FAILED)\b[\w.]*\] .*? (?:reading file|writing rows to) (.+?)\.(?:\s|$)",
    re.MULTILINE,
)
#: The beginning of Py4J's text if Java did not answer, or raised an exception. The text for an exception has a stack trace.
_CALLING: Final = "An error occurred while calling"
_NO_JAVA: Final = (
    "the Java process of Spark's driver has ended, or does not answer: it was killed, perhaps for lack of memory, or it"
    " crashed\n  more memory for it: --conf spark.driver.memory=4g"
)
_CALLS: Final = {"FAILED_READ_FILE": "Spark cannot read", "TASK_WRITE_FAILED": WRITE}
#: The beginnings of lines of a query's plan, and of Java's stack trace.
_PLAN: Final = ("'", "+-", "== ", "JVM stacktrace")


def reason_in(error: BaseException) -> str | None:
    """Return the reason in an error of Spark's, as one or two readable lines; None for all other errors."""
    if _java_is_gone(error):
        return _NO_JAVA
    if not _is_sparks(error):
        return None
    text = text_of(error)
    if (worker := _of_dead_worker(text) or _from_worker(text)) is not None:
        return worker
    if text.startswith("[") or _has_condition(error):
        return shortened(_first_paragraph(text))
    return reason_of(error, _call_in(text))


@contextmanager
def spark_errors_as(make: Callable[[str, Exception], SquallError]) -> Iterator[None]:
    """Replace Spark's errors in the `with` block by the error that `make` returns, given the readable reason and the original
    error.
    """
    try:
        yield
    except SquallError:
        raise
    except Exception as error:
        if (reason := reason_in(error)) is None:
            raise
        raise make(reason, error) from None


def worker_died(error: BaseException) -> bool:
    """Return whether Spark reports that a Python worker is gone, without an error from the worker."""
    return _DIED.search(text_of(error)) is not None


def _is_sparks(error: BaseException) -> bool:
    """Return whether the error comes from Spark, or from the libraries that carry its calls."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _java_is_gone(error: BaseException | None) -> bool:
    """Return whether the error, or an earlier error of Spark's that led to it, shows that Java did not answer a call of
    Py4J.
    """
    while error is not None:
        kind = type(error).__name__
        if kind == "Py4JNetworkError" or (isinstance(error, OSError) and _is_of_py4js_code(error)):
            return True
        if not _is_sparks(error):
            return False
        text = text_of(error) if kind == "Py4JError" else ""
        if text.startswith(_CALLING) and "Trace:" not in text:
            return True
        error = error.__context__
    return False


def _is_of_py4js_code(error: BaseException) -> bool:
    """Return whether Py4J's code raised the error, as it does if a connection fails."""
    frames = list(walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).partition(".")[0] == "py4j"


def _has_condition(error: BaseException) -> bool:
    """Return whether Spark has a name for the error; the text of such an error is readable."""
    with suppress(Exception):  # this calls Java, which may have died
        return bool(getattr(error, "getCondition", lambda: None)())
    return False


def _call_in(text: str) -> str:
    """Return what Spark was doing when storage failed: the innermost call that it reports."""
    if not (told := _AT.findall(text)):
        return "storage or the network failed"  # Spark does not report which call failed
    condition, path = told[-1]
    return f"{_CALLS[condition]} {path}"


def _of_dead_worker(text: str) -> str | None:
    """Return a text saying that a Python worker has died, and what may help; None if no worker has died. (Spark also reports a
    closed connection, but that is only a consequence.)
    """
    if (found := _DIED.search(text)) is None:
        return None
    what = "a Python worker of Spark's died: it was killed (perhaps for lack of memory), ended itself, or crashed in a library"
    if found[1] is None:
        return (
            f"{what}\n  fewer tasks at a time leave more memory to each (--master 'local[1]');"
            f" --conf {_FAULTHANDLER}=true shows the line of a crash"
        )
    frames = _FRAME.findall(text, found.end())
    theirs = [frame for frame in frames if not _NOT_THEIRS.search(frame[0])] or frames
    return f"a Python worker of Spark's died: {shortened(found[1])}{_places(theirs[:1])}"


def _from_worker(text: str) -> str | None:
    """Return the error that a Python worker sent, with the user's own line, if there is one."""
    _, found, trace = text.rpartition(_TRACEBACK)
    if not found:
        return None
    frames = [frame for frame in _FRAME.findall(trace) if not _NOT_THEIRS.search(frame[0])]
    said = [line for line in trace.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return shortened(said[0] if said else "an error") + _places(frames[-1:])


def _places(frames: list[tuple[str, str, str]]) -> str:
    """Return a line for each frame."""
    return "".join(f"\n  at {file}:{line}, in {name}" for file, line, name in frames)


def _first_paragraph(text: str) -> str:
    """Return Spark's text about a query, without the plan that follows."""
    lines = takewhile(lambda line: line.strip() and not line.startswith(_PLAN), text.splitlines())
    return " ".join(map(str.strip, lines)).rstrip(";") or text.strip().partition("\n")[0]
