"""Loads the job in `JOB.py`: imports the file, finds its function, and computes a digest of the modules imported with it.

Modules beside the file, or below its folder, belong to the job: if one of these modules changes, the job is a different job.
All of them are sent to Spark's executors with the job. Errors name the user's file and line, without frames of Squall.
Must not know: tables, sessions.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Final

from squall.packages.ours import OURS
from squall_cli.packing import loading
from squall_cli.packing.loading import CannotLoad, SourceName
from squall_cli.packing.user_modules import digest_of_parts
from squall_io.spark.results.job_errors import reason_in
from squall_io.spark.results.reprocess import Job
from topology_api.errors import SquallError
from topology_api.wording import nearest, typed
from worker.errors.reports import place_of

FUNCTION: Final = "reprocess"
#: Modules that never belong to a job, even if they are below the job's folder, which may be any folder.
_NOT_THEIRS: Final = frozenset({*OURS, *sys.stdlib_module_names, "__main__"})
SIGNATURE: Final = f"def {FUNCTION}(spark, rows)"
#: PySpark's error condition for a call that needs a running Spark session.
_TOO_EARLY: Final = "SESSION_OR_CONTEXT_NOT_EXISTS"


class JobFailed(SquallError):
    """The user's job has raised an error. The text names the error and its place."""


def load_job(text: str) -> Job:
    """Return the job in a file; raise `WrongSource` for a wrong name, `CannotLoad` for an error in the file."""
    path = Path(text)
    loading.check_file(path)
    module = _imported(path)
    function = _function_in(module, path)
    modules = [module, *_neighbours(path.resolve())]
    return Job(path.name, _digest(modules, path.resolve().parent), _applied(function, path), tuple(modules))


def _imported(path: Path) -> ModuleType:
    """Import the file and return its module. Raises `CannotLoad` if the import fails, for example because the file uses Spark
    too early."""
    try:
        return loading.import_file(SourceName(path, path.stem, FUNCTION))
    except CannotLoad as problem:
        error = problem.__context__
        if error is None or not _is_too_early(error):
            raise
        place = place_of(error)
        raise CannotLoad(
            f"{path} cannot be imported: it uses Spark, which starts after the import\n"
            f"  make columns and UDFs in {FUNCTION}(); a UDF outside of {FUNCTION}() needs a type that is not text:"
            " @udf(LongType()), not @udf('long')" + (f"\n  at {place}" if place else "")
        ) from None


def _is_too_early(error: BaseException) -> bool:
    """Whether PySpark raised the error because a call needs a session: an error with this condition, or, for columns, an
    AssertionError."""
    frames = list(walk_tb(error.__traceback__))
    where = str(frames[-1][0].f_globals.get("__name__")) if frames else ""
    asserts = isinstance(error, AssertionError) and where.partition(".")[0] == "pyspark"
    return asserts or _TOO_EARLY in str(error)


def _function_in(module: ModuleType, path: Path) -> Callable[[Any, Any], Any]:
    """Return the job's function. Raises `CannotLoad` if it is missing or takes different arguments."""
    function: Callable[[Any, Any], Any] | None = getattr(module, FUNCTION, None)
    if function is None:
        near = nearest(FUNCTION, [name for name in vars(module) if not name.startswith("_")])
        raise CannotLoad(
            f"{path} has no function {FUNCTION!r}{near}; it must have  {SIGNATURE}  and return a DataFrame"
        )
    if not callable(function):
        raise CannotLoad(f"{FUNCTION!r} in {path} is {typed(function)}, and must be a function:  {SIGNATURE}")
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # a callable written in C may have no signature
        pass
    except TypeError as error:
        given = f"{FUNCTION}{inspect.signature(function)}"
        raise CannotLoad(
            f"{given} in {path} must be  {SIGNATURE}: {error}{loading.defined_at(function)}"
        ) from None
    return function


def _neighbours(path: Path) -> list[ModuleType]:
    """Return the imported modules in the file's folder, or below it."""
    found = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.partition(".")[0] in _NOT_THEIRS or loading.same_file(file, path):
            continue
        place = Path(file).resolve()
        if place.suffix == ".py" and path.parent in place.parents and "site-packages" not in place.parts:
            found.append(module)
    return found


def _digest(modules: Iterable[ModuleType], folder: Path) -> str:
    """Return a digest of the modules' source, independent of the folder's path."""
    files = [Path(str(module.__file__)).resolve() for module in modules]
    return digest_of_parts((str(file.relative_to(folder)), file.read_bytes()) for file in files)


def _described(head: str, error: BaseException) -> str:
    """Return an error of the user's function as text. If Spark raised the error, only its first line is used."""
    reason = reason_in(error)
    if reason is None:
        return loading.trouble(head, error)
    place = place_of(error)
    return f"{head}: {reason}" + (f"\n  at {place}" if place else "")


def _applied(function: Callable[[Any, Any], Any], path: Path) -> Callable[[Any, Any], Any]:
    """Return the function, wrapped so that it raises readable errors."""

    def apply(spark: Any, rows: Any) -> Any:
        try:
            return function(spark, rows)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise JobFailed(_described(f"{FUNCTION}() in {path} failed", error)) from None

    return apply
