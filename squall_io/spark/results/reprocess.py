"""Reprocessing: committed rows go through a user's job, and its result becomes the newest version of another table.

The manifest determines which rows are read, before Spark is involved. A digest of this selection, of the job and of the
output's settings identifies the run: if the newest version is already the result of this run, the job is not run again.
Must not know: command lines, terminals, how the job was found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from squall_io.spark.manifest.envelopes import digest_of
from squall_io.spark.reading.committed import Selection
from squall_io.spark.results import versions
from squall_io.spark.results.publishing import OutputTable, Result, publish_frame
from squall_io.spark.results.versions import Published, Run
from topology_api import SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The name by which a query refers to the rows.
ROWS = "rows"


class WrongResult(SquallError):
    """A job has returned something that is not a frame."""


@dataclass(frozen=True)
class Job:
    """The user's job: it turns the rows into the result."""

    #: The job's name for people.
    name: str
    #: A digest of the job's text.
    code: str
    apply: Callable[[SparkSession, DataFrame], Any]
    #: The user's modules that the job's functions may need on Spark's executors.
    modules: tuple[ModuleType, ...] = ()

    @classmethod
    def of_sql(cls, text: str) -> Job:
        """Return the job that runs one SQL query over `rows`."""

        def apply(spark: SparkSession, rows: DataFrame) -> DataFrame:
            rows.createOrReplaceTempView(ROWS)
            return spark.sql(text)

        return cls(f"--sql {text}", digest_of(text.encode()), apply)


def run_of(job: Job, choice: Selection, output: OutputTable, again: bool = False) -> Run:
    """Return the run of a job over a selection; `again`: make it differ from the run of the newest version."""
    settings = {"key": list(choice.key)} if choice.key else {}
    run = Run("reprocess", job.name, job.code, (choice.read,), settings, output.table)
    return versions.again(output.files, run) if again else run


def reprocess(
    job: Job,
    choice: Selection,
    run: Run,
    output: OutputTable,
    session: Callable[[], SparkSession],
    cancel: Callable[[], None] = lambda: None,
) -> Published:
    """Make the job's result the newest version of the output. If that version already is this result, `session` is not called.

    `cancel` makes Spark give up its work.
    """

    def make() -> DataFrame:
        from pyspark.cloudpickle import register_pickle_by_value
        from pyspark.sql import DataFrame

        spark = session()
        for module in job.modules:  # pickled by value: Spark's executors lack the files
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        quieten()
        if isinstance(made := job.apply(spark, choice.frame(spark)), DataFrame):
            return made
        hint = "; is there a 'return' at its end?" if made is None else ""
        raise WrongResult(f"{job.name}: it returned {typed(made)}, and must return a DataFrame{hint}")

    return publish_frame(Result(output, run, make), cancel)


def quieten() -> None:
    """Stop PySpark from logging each error of a query with its Java stack trace, and Py4J from logging each interrupted call: a
    command reports both in a sentence.
    """
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
