"""`squall reprocess JOB.py --input PATH --output PATH`: run a PySpark job over committed rows and publish its result
atomically.

The command reads the options, checks in the manifest whether the result exists already, runs the job with a progress bar, and
prints how many rows were read and written. Must not know: how a result is published, or how a job is found (see the imported
modules).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import click

from squall.stores.paths import overlap
from squall_cli.options.kinds import files
from squall_cli.options.spark_options import check_places, names, result_options, span_of, table_option
from squall_cli.spark.started_spark import ResultOptions, version_in_json, why_already
from squall_cli.terminal import formats
from squall_cli.terminal.lines import write, write_json
from squall_cli.terminal.user_output import keep_stdout
from squall_io.spark.results.versions import Published, Run

if TYPE_CHECKING:
    from squall_io.spark.results.reprocess import Job


#: How many characters of a job's name are shown.
LONGEST_NAME: Final = 60


@dataclass(frozen=True, kw_only=True)
class ReprocessOptions(ResultOptions):
    """The command's options."""

    source: str
    target: str
    key: tuple[str, ...] | None


@click.command()
@click.argument("job_file", metavar="[JOB.py]", required=False, shell_complete=files)
@click.option("--sql", metavar="TEXT", help="A query of the table `rows`, instead of JOB.py.")
@table_option("--input", "source", "A table that a SparkSink writes, or a table of results.")
@table_option("--output", "target", "The table for the result.")
@click.option(
    "--since", metavar="TIME", help="Only rows committed at or after TIME, such as 2026-03-01T12:00:00Z."
)
@click.option("--until", metavar="TIME", help="Only rows committed before TIME.")
@click.option(
    "--key",
    metavar="NAMES",
    callback=names,
    help="Columns: of several rows with equal values in all of these, read only the first.",
)
@result_options(
    again="Run even if the same job made the newest version from the same rows, for example"
    " because the job also reads something else."
)
def reprocess(
    job_file: str | None,
    sql: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Run a PySpark job over committed rows and publish its result as the newest version of another table.

    JOB.py defines  def reprocess(spark, rows)  which returns a DataFrame; --sql is one query of the table `rows` instead. A
    reader of the output sees the previous version or the new version, and nothing in between. If the command is killed and
    repeated, or runs twice, it publishes only once: it does nothing if the newest version was made by the same job from the
    same rows.

    \b
    Examples:
      squall reprocess recount.py --input /tables/delays --output /tables/again
      squall reprocess --master spark://host:7077 \\
          --sql "select carrier, avg(delay) delay from rows group by carrier" \\
          --input hdfs://nn:9000/delays --output hdfs://nn:9000/by-carrier
      squall reprocess recount.py --input /tables/delays --output /tables/march \\
          --since 2026-03-01T00:00:00Z --until 2026-04-01T00:00:00Z

    Exit status: 0 published, now or by an earlier run; 1 failed, and nothing was published; 2 wrong usage.
    """
    options = ReprocessOptions(span=span_of(since, until), **others)
    check_paths(options)
    out = keep_stdout() if as_json else sys.stdout
    job = job_of(job_file, sql)
    began = time.monotonic()
    published, run = run_job(job, options)
    show(out, published, run, options, time.monotonic() - began, as_json)


def job_of(job_file: str | None, sql: str | None) -> Job:
    """Return the requested job."""
    from squall_cli.packing.reprocess_job import load_job
    from squall_io.spark.results.reprocess import Job

    if (job_file is None) == (sql is None):
        raise click.UsageError("give a job: either JOB.py or --sql TEXT")
    if sql is None:
        return load_job(job_file or "")
    if not sql.strip():
        raise click.UsageError("--sql is empty: give a query, such as --sql 'select count(*) n from rows'")
    return Job.of_sql(sql)


def check_paths(options: ReprocessOptions) -> None:
    """Raise `UsageError` if the result would be written into the input, or if Spark cannot reach a path."""
    check_places(options.master, options.conf, reads=[options.source], writes=[options.target])
    problem = overlap(options.source, options.target)
    if problem is not None:
        raise click.UsageError(
            f"--input and --output must be separate tables, but {problem}: give another --output"
        )


def run_job(job: Job, options: ReprocessOptions) -> tuple[Published, Run]:
    """Run a job unless its result exists already."""
    from squall_cli.packing.reprocess_job import JobFailed
    from squall_io.spark.reading.committed import choose
    from squall_io.spark.results.job_errors import spark_errors_as
    from squall_io.spark.results.reprocess import reprocess as carry_out
    from squall_io.spark.results.reprocess import run_of

    with options.started() as started:
        source = started.held_store(options.source, "squall reprocess")
        choice = choose(source, options.span, options.key)
        output = options.open_output(started.store(options.target))
        run = run_of(job, choice, output, options.again)
        session = partial(started.watched, f"running {called(job.name)}")
        with spark_errors_as(
            lambda reason, error: JobFailed(f"{called(job.name)} failed: {reason}\nNothing was published.")
        ):
            return carry_out(job, choice, run, output, session, started.progress.cancel), run


def called(job: str) -> str:
    """Return a job's name on one line, cut to LONGEST_NAME characters: SQL may be long."""
    return formats.cropped(job, LONGEST_NAME)


def show(
    out: IO[str], published: Published, run: Run, options: ReprocessOptions, seconds: float, as_json: bool
) -> None:
    """Print the outcome."""
    version = published.version
    rows_in = sum(read.rows or 0 for read in version.inputs)
    if as_json:
        outcome = {
            **version_in_json(published),
            "run": run.id,
            "job": version.job,
            "input": options.source,
            "output": options.target,
            "rows_in": rows_in,
            "rows_out": version.rows,
            "seconds": round(seconds, 3),
        }
        write_json(out, outcome)
        return
    counts = f"{formats.plural(rows_in, 'row')} in, {formats.plural(version.rows, 'row')} out"
    write(out, f"{called(version.job)}: {counts}")
    where = f"version {version.number} of {options.target}"
    if published.ours:
        what = f"{formats.plural(len(version.files), 'file')}, {version.size:,} bytes"
        write(out, f"published as {where}: {what} ({formats.duration(seconds)})")
    else:
        when = formats.moment(version.published)
        write(out, f"published already, as {where} on {when}: {why_already(options.again)}")
