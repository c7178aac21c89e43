"""`squall reprocess JOB.py --input PATH --output PATH`: committed rows through a PySpark job, the result published at once.

Reads what was typed, asks the manifest whether the result is there already, runs the job with a progress bar, and says what was
read and written. Must not know: how a result is published, or a job found (see the modules it imports).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import click

from squall_cli import figures
from squall_cli.file_names import files as files_completed
from squall_cli.file_names import folders
from squall_cli.interrupts import all_as_ctrl_c
from squall_cli.loading import WrongSource
from squall_cli.plain_lines import write
from squall_cli.spark_options import check_places, names, result_options, table_path
from squall_cli.spark_progress import SparkProgress
from squall_cli.started_spark import INTERRUPTED, StartedSpark
from squall_cli.user_output import keep_stdout
from squall_io.spark.reading.moments import Span, WrongMoment
from squall_io.spark.results.versions import Published, Run
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall_io.spark.results.reprocess import Job

HELP = """Run a PySpark job over committed rows and publish its result as the newest version of another table.

JOB.py holds  def reprocess(spark, rows)  and returns a DataFrame; --sql does with one query of the table `rows`.
A reader of the output sees the version before or the new one, never anything between. Killed, or run twice, it
publishes once: when the newest version is of the same job over the same rows, nothing is done.

\b
Examples:
  squall reprocess recount.py --input /tables/delays --output /tables/again
  squall reprocess --master spark://host:7077 \\
      --sql "select carrier, avg(delay) delay from rows group by carrier" \\
      --input hdfs://nn:9000/delays --output hdfs://nn:9000/by-carrier
  squall reprocess recount.py --input /tables/delays --output /tables/march \\
      --since 2026-03-01T00:00:00Z --until 2026-04-01T00:00:00Z

Exit status: 0 published, or there already; 1 failed, and nothing was published; 2 wrong usage.
"""


#: Characters of a job's name that are shown.
LONGEST_NAME: Final = 60


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    input: str
    output: str
    span: Span
    key: tuple[str, ...] | None
    file_format: str | None
    partition_by: tuple[str, ...] | None
    keep: int
    again: bool
    master: str | None
    conf: Mapping[str, str]


@click.command(help=HELP)
@click.argument("job_file", metavar="[JOB.py]", required=False, shell_complete=files_completed)
@click.option("--sql", metavar="TEXT", help="A query of the table `rows`, instead of JOB.py.")
@click.option(
    "--input",
    "source",
    metavar="PATH",
    required=True,
    callback=table_path,
    shell_complete=folders,
    help="The table that a SparkSink writes, or a reprocessed one.",
)
@click.option(
    "--output",
    "target",
    metavar="PATH",
    required=True,
    callback=table_path,
    shell_complete=folders,
    help="The table of results.",
)
@click.option("--since", metavar="TIME", help="Only what was committed from then on: 2026-03-01T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only what was committed before then.")
@click.option(
    "--key", metavar="NAMES", callback=names, help="Leave out replays: rows equal in these columns."
)
@result_options(
    again="Also when the newest version is of the same job and rows: it reads something else, too."
)
@click.pass_context
def reprocess(
    ctx: click.Context,
    /,
    job_file: str | None,
    sql: str | None,
    source: str,
    target: str,
    since: str | None,
    until: str | None,
    as_json: bool,
    **others: Any,
) -> None:
    try:
        asked = Asked(source, target, Span.of(since, until), **others)
    except WrongMoment as error:
        raise click.UsageError(str(error), ctx) from None
    check_paths(ctx, asked)
    out = keep_stdout() if as_json else sys.stdout
    job = job_of(ctx, job_file, sql)
    began = time.monotonic()
    with all_as_ctrl_c():
        try:
            published, run = run_job(job, asked)
        except KeyboardInterrupt:
            raise SquallError(INTERRUPTED) from None
    show(out, published, run, asked, time.monotonic() - began, as_json)


def job_of(ctx: click.Context, job_file: str | None, sql: str | None) -> Job:
    """The job that was typed."""
    from squall_cli.reprocess_job import load_job
    from squall_io.spark.results.reprocess import Job

    if (job_file is None) == (sql is None):
        raise click.UsageError("give a job: either JOB.py or --sql TEXT", ctx)
    if job_file is None:
        if not (sql or "").strip():
            raise click.UsageError(
                '--sql is empty: give a query, as in --sql "select count(*) n from rows"', ctx
            )
        return Job.of_sql(sql or "")
    try:
        return load_job(job_file)
    except WrongSource as error:
        raise click.UsageError(str(error), ctx) from None


def check_paths(ctx: click.Context, asked: Asked) -> None:
    """UsageError when the result would lie among what is read, or Spark does not get there."""
    from squall_io.spark.results.reprocess import overlap

    check_places(ctx, asked.master, asked.conf, reads=[asked.input], writes=[asked.output])
    problem = overlap(asked.input, asked.output)
    if problem is not None:
        raise click.UsageError(
            f"--input and --output must be two tables, and {problem}: give another --output", ctx
        )


def run_job(job: Job, asked: Asked) -> tuple[Published, Run]:
    """Run a job, unless its result is there already."""
    from squall_io.spark.reading.committed import choose
    from squall_io.spark.results.publishing import open_output
    from squall_io.spark.results.reprocess import reprocess as carry_out
    from squall_io.spark.results.reprocess import run_of

    with ExitStack() as stack, SparkProgress() as progress:
        started = StartedSpark(asked.master, asked.conf, progress, stack)
        span = asked.span
        choice = choose(started.store(asked.input), span.since, span.until, asked.key)
        output = open_output(started.store(asked.output), asked.file_format, asked.partition_by, asked.keep)
        run = run_of(job, choice, span, output, asked.again)

        def session() -> Any:
            spark = started.session()
            progress.say(f"running {called(job.name)}")
            progress.follow(spark)
            return spark

        with errors_of(job):
            return carry_out(job, choice, run, output, session, progress.cancel), run


def errors_of(job: Job) -> AbstractContextManager[None]:
    """What Spark raises while it carries out a job, as a person reads it."""
    from squall_cli.reprocess_job import JobFailed
    from squall_io.spark.results.job_errors import told_by

    return told_by(
        lambda reason, error: JobFailed(f"{called(job.name)} failed: {reason}\nNothing was published.")
    )


def called(job: str) -> str:
    """A job's name on a line: SQL may be long."""
    return figures.cropped(job, LONGEST_NAME)


def show(out: IO[str], published: Published, run: Run, asked: Asked, seconds: float, as_json: bool) -> None:
    """Print what came of it."""
    version = published.version
    rows_in = sum(each.rows or 0 for each in version.inputs)
    if as_json:
        outcome = {
            "published": published.ours,
            "version": version.number,
            "run": run.id,
            "job": version.job,
            "input": asked.input,
            "output": asked.output,
            "rows_in": rows_in,
            "rows_out": version.rows,
            "files": len(version.files),
            "bytes": version.size,
            "schema": version.schema,
            "seconds": round(seconds, 3),
        }
        write(out, json.dumps(outcome, indent=2))
        return
    write(
        out,
        f"{called(version.job)}: {figures.plural(rows_in, 'row')} in, {figures.plural(version.rows, 'row')} out",
    )
    if published.ours:
        what = f"{figures.plural(len(version.files), 'file')}, {version.size:,} bytes"
        write(
            out,
            f"published as version {version.number} of {asked.output}: {what} ({figures.duration(seconds)})",
        )
    else:
        when = figures.moment(version.published)
        write(
            out,
            f"published already, as version {version.number} of {asked.output} on {when}: the same job over the same rows"
            " (--again runs it all the same)",
        )
