"""`squall replay FILE --source lines=PATH --output count=PATH`: a topology's bolts over stored rows, as a Spark job.

Reads what was typed, finds out whether the results are there already, runs the job with a progress bar, publishes each output
as a version of its table, and says what was read, written and failed.
Must not know: how a replay runs, how a result is published (see the modules it imports).
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from squall_cli import figures
from squall_cli.file_names import files as files_completed
from squall_cli.file_names import folders
from squall_cli.interrupts import all_as_ctrl_c
from squall_cli.loading import WrongSource, load_topology
from squall_cli.numbers import Whole
from squall_cli.plain_lines import write
from squall_cli.spark_options import any_path, check_places, result_options, table_path
from squall_cli.spark_progress import SparkProgress
from squall_cli.started_spark import INTERRUPTED, StartedSpark
from squall_cli.user_modules import Before, find_modules
from squall_cli.user_output import keep_stdout
from squall_io.spark.reading.moments import Span, WrongMoment
from squall_io.spark.replay.plan import ReplayPlan, plan_replay
from squall_io.spark.results.versions import Published, Run
from topology_api.errors import SquallError
from topology_api.topology import Topology

if TYPE_CHECKING:
    from squall_io.spark.replay import Replayed
    from squall_io.spark.replay.inputs import FileSource, TableSource
    from squall_io.spark.results.publishing import Output

HELP = """Run the bolts of a topology over stored rows, as a Spark job: history through the same code as the stream.

FILE holds `topology`, as for squall run; its arguments stand after --. Each --source stands for the tuples of a
component, and each --output is one whose tuples are wanted: the bolts between them are run, spouts and sinks never
are. A source is a table that a SparkSink writes, or files (.parquet, .orc, .json, .csv; else lines of text). The
result of each output is published as the newest version of a table.

\b
Examples:
  squall replay word_count.py --source lines=/data/books \\
      --output count=/tables/counts
  squall replay clicks.py --source clicks=hdfs://nn:9000/clicks \\
      --since 2026-03-01T00:00:00Z --output sessions=hdfs://nn:9000/sessions \\
      --max-errors 100 --errors hdfs://nn:9000/failed \\
      --master spark://host:7077

Nothing is published before all of the outputs are written.

Exit status: 0 published, or there already; 1 failed, and nothing was published but what is named; 2 wrong usage.
"""

#: What the errors are called among the outputs; no component has a colon in its name.
ERRORS: Final = ":errors"


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    source: str
    arguments: tuple[str, ...]
    sources: Mapping[str, str]
    outputs: Mapping[str, str]
    errors: str | None
    span: Span
    max_errors: int
    schemas: Mapping[str, str]
    parallelism: Mapping[str, int]
    file_format: str | None
    partition_by: tuple[str, ...] | None
    keep: int
    again: bool
    master: str | None
    conf: Mapping[str, str]

    def path_of(self, output: str) -> str | None:
        """Where an output goes, or the errors."""
        return self.errors if output == ERRORS else self.outputs[output]


@dataclass
class Outcome:
    """What came of it."""

    published: Mapping[str, Published]
    errors: int | None
    unsettled: int | None
    """Both as they were counted when the outputs were made; None: nobody knows."""


def _pairs(
    ctx: click.Context, parameter: click.Parameter, given: Sequence[str], what: str
) -> list[tuple[str, str]]:
    """NAME=VALUE of an option that may be repeated."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r}: write {what}", ctx, parameter)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, parameter)
        found[name] = value
    return list(found.items())


def _paths(
    ctx: click.Context,
    parameter: click.Parameter,
    given: Sequence[str],
    check: Callable[[click.Context, click.Parameter, str], str | None] = table_path,
) -> dict[str, str]:
    pairs = _pairs(ctx, parameter, given, "COMPONENT=PATH, or COMPONENT:STREAM=PATH")
    return {name: check(ctx, parameter, path) or path for name, path in pairs}


def _schemas(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    return dict(_pairs(ctx, parameter, given, "OUTPUT=DDL, as in 'count=word string, count bigint'"))


def _tasks(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, int]:
    found = {}
    for name, number in _pairs(ctx, parameter, given, "COMPONENT=N"):
        if not number.isdecimal() or not int(number):
            raise click.BadParameter(f"{name}={number}: N is a whole number from 1 on", ctx, parameter)
        found[name] = int(number)
    return found


@click.command(help=HELP)
@click.argument("source", metavar="FILE[:NAME]", shell_complete=files_completed)
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--source",
    "sources",
    metavar="COMPONENT=PATH",
    multiple=True,
    required=True,
    callback=partial(_paths, check=any_path),
    help="What stands for a component's tuples. May be repeated; COMPONENT:STREAM=PATH for another stream.",
)
@click.option(
    "--output",
    "outputs",
    metavar="COMPONENT=PATH",
    multiple=True,
    required=True,
    callback=_paths,
    help="A component whose tuples are wanted, and the table they go to. May be repeated.",
)
@click.option("--since", metavar="TIME", help="Of tables, only what was committed from then on.")
@click.option("--until", metavar="TIME", help="Of tables, only what was committed before then.")
@click.option(
    "--max-errors",
    metavar="N",
    type=Whole(0),
    default=0,
    help="With more failed tuples than N the replay fails.  [default: 0]",
)
@click.option(
    "--errors",
    metavar="PATH",
    callback=table_path,
    shell_complete=folders,
    help="The table that failed tuples go to, with what they failed by.",
)
@click.option(
    "--schema",
    "schemas",
    metavar="OUTPUT=DDL",
    multiple=True,
    callback=_schemas,
    help="The columns of an output.  [default: found in its values]",
)
@click.option(
    "--parallelism",
    metavar="COMPONENT=N",
    multiple=True,
    callback=_tasks,
    help="Other numbers of tasks than the topology has. May be repeated.",
)
@result_options(again="Also when the newest versions are of the same code and rows.")
@click.pass_context
def replay(ctx: click.Context, /, since: str | None, until: str | None, as_json: bool, **others: Any) -> None:
    try:
        asked = Asked(span=Span.of(since, until), **others)
        check_paths(ctx, asked)
        before = Before.now()
        out = keep_stdout() if as_json else sys.stdout
        topology = load_topology(asked.source, asked.arguments).with_parallelism(asked.parallelism)
    except (WrongMoment, WrongSource) as error:
        raise click.UsageError(str(error), ctx) from None
    plan = plan_replay(topology, asked.sources, list(asked.outputs), asked.max_errors, 0.0)
    began = time.monotonic()
    with all_as_ctrl_c(), ExitStack() as stack, SparkProgress() as progress:
        job = ReplayJob(topology, plan, find_modules(before).files, asked, progress, stack)
        try:
            outcome = job.run()
        except KeyboardInterrupt:
            raise SquallError(INTERRUPTED) from None
    show(out, asked, outcome, time.monotonic() - began, as_json)


def check_paths(ctx: click.Context, asked: Asked) -> None:
    """UsageError when a result would lie among what is read, or two in one place, or Spark does not get there."""
    from squall_io.spark.results.reprocess import overlap

    written = [*asked.outputs.values(), *([] if asked.errors is None else [asked.errors])]
    check_places(ctx, asked.master, asked.conf, reads=asked.sources.values(), writes=written)
    for place, path in enumerate(written):
        for other in [*written[:place], *asked.sources.values()]:
            problem = overlap(other, path)
            if problem is not None:
                raise click.UsageError(
                    f"what is read and what is written must lie apart, and {problem}: give another path", ctx
                )


class ReplayJob:
    """One replay: begun when the first output asks for its rows, for all of them."""

    def __init__(
        self,
        topology: Topology,
        plan: ReplayPlan,
        modules: Mapping[str, Path],
        asked: Asked,
        progress: SparkProgress,
        stack: ExitStack,
    ) -> None:
        self.topology = topology
        self.plan = plan
        self.modules = modules
        self.asked = asked
        self.progress = progress
        self.stack = stack
        self.started = StartedSpark(asked.master, asked.conf, progress, stack)
        self.given: dict[str, TableSource | FileSource] = {}
        self.replayed: Replayed | None = None

    def run(self) -> Outcome:
        """Publish every output that is not there yet, and the errors, once all of them are written."""
        from squall_io.spark.replay.inputs import source_at
        from squall_io.spark.replay.run import told_plainly
        from squall_io.spark.results.publishing import Result, open_output, publish_frames

        asked = self.asked
        for name, path in asked.sources.items():
            self.given[name] = source_at(self.started.store(path), path, asked.span)
        outputs = {
            name: open_output(self.started.store(path), asked.file_format, asked.partition_by, asked.keep)
            for name, path in asked.outputs.items()
        }
        if asked.errors is not None:
            outputs[ERRORS] = open_output(self.started.store(asked.errors), None, None, asked.keep)
        results = {
            name: Result(output, self.run_of(name, output), partial(self.frame, name), self.counts)
            for name, output in outputs.items()
        }
        done: dict[str, Published] = {}
        try:
            with told_plainly():
                publish_frames(results, done, self.progress.cancel)
        except SquallError as error:
            named = [
                f"version {each.version.number} of {asked.path_of(name)}"
                for name, each in done.items()
                if each.ours
            ]
            if not named:
                raise
            raise SquallError(f"{error}\nPublished before that: {', '.join(named)}") from None
        published = {name: done[name] for name in results}
        if self.replayed is not None:
            return Outcome(published, self.replayed.failures, self.replayed.unsettled)
        refuse_errors(asked, published)
        return Outcome(published, recorded("errors", published), recorded("unsettled", published))

    def run_of(self, output: str, table: Output) -> Run:
        """What an output is computed of."""
        asked = self.asked
        settings: dict[str, Any] = {
            "output": output,
            "arguments": list(asked.arguments),
            "parallelism": dict(asked.parallelism),
            "schemas": dict(asked.schemas),
        }
        if asked.again:
            settings["again"] = time.time_ns()
        reads = {name: given.read for name, given in self.given.items()}
        settings["sources"] = {name: read.path for name, read in reads.items()}
        return Run("replay", asked.source, self.code(), tuple(reads.values()), settings, table.table)

    def code(self) -> str:
        """A digest of the user's modules, and of the topology that they have made."""
        parts = {place: file.read_bytes() for place, file in self.modules.items()}
        parts |= {f":{component}": data for component, data in self.topology.pickles.items()}
        parts[":"] = json.dumps(self.topology.describe(), sort_keys=True, default=str).encode()
        found = hashlib.sha256()
        for place, data in sorted(parts.items()):
            found.update(f"{place} {len(data)}\n".encode("utf-8", "surrogateescape") + data)
        return f"sha256:{found.hexdigest()}"

    def frame(self, output: str) -> Any:
        """The rows of an output, or of the errors."""
        from squall_io.spark.replay import replay_topology

        if self.replayed is None:
            spark = self.started.session()
            self.progress.say(f"replaying {self.topology.name}")
            self.progress.follow(spark)
            frames = {
                name: given.frame(spark, self.plan.fields_of(self.plan.given[name]))
                for name, given in self.given.items()
            }
            self.check_columns(frames)
            self.replayed = replay_topology(
                spark,
                self.topology,
                frames,
                list(self.asked.outputs),
                max_errors=self.asked.max_errors,
                schemas=self.asked.schemas,
                modules=self.modules,
            )
            self.stack.callback(self.forget, self.replayed)
        return self.replayed.errors if output == ERRORS else self.replayed[output]

    def check_columns(self, frames: Mapping[str, Any]) -> None:
        """`CannotReplay` for columns that sources lack, with what helps here: `replay_topology` knows frames only."""
        from squall_io.spark.replay.inputs import TableSource
        from squall_io.spark.replay.problems import CannotReplay
        from squall_io.spark.replay.run import missing_columns

        problems = []
        for name, frame in frames.items():
            key = self.plan.given[name]
            problem = missing_columns(self.plan, key, frame.columns)
            if problem and isinstance(self.given[name], TableSource):
                problems.append(
                    f"{problem}; make a table that has them, and give it as the source: squall reprocess"
                    f" --sql 'select ... as {self.plan.fields_of(key)[0]}, ... from rows' --input {self.asked.sources[name]}"
                    " --output PATH"
                )
            elif problem:
                problems.append(
                    f"{problem}; give files whose columns are called so, or replay from Python: replay_topology takes any"
                    " DataFrame"
                )
        if problems:
            raise CannotReplay(self.topology.name, problems)

    def counts(self) -> dict[str, int]:
        """What is kept beside the rows of each output."""
        if self.replayed is None:
            return {}
        return {"errors": self.replayed.failures, "unsettled": self.replayed.unsettled}

    @staticmethod
    def forget(replayed: Replayed) -> None:
        """Let go of what Spark keeps, if it still runs."""
        with suppress(Exception):
            replayed.unpersist()


def refuse_errors(asked: Asked, published: Mapping[str, Published]) -> None:
    """`ReplayFailed` for outputs that are there already, when they were made with more errors than are allowed now."""
    from squall_io.spark.replay import ReplayFailed

    for name, each in published.items():
        version = each.version
        errors = version.counts.get("errors", 0)
        if errors > asked.max_errors:
            raise ReplayFailed(
                f"{name.lstrip(':')}: version {version.number} of {asked.path_of(name)} is of the same code over the same rows,"
                f" and was made with {figures.plural(errors, 'error')}, of at most {asked.max_errors:,} (--max-errors); --again"
                " runs it all the same"
            )


def recorded(what: str, published: Mapping[str, Published]) -> int | None:
    """What was counted when outputs were made that are there already; None: of one of them nobody knows."""
    counts = [each.version.counts.get(what) for each in published.values()]
    known = [count for count in counts if count is not None]
    return max(known) if len(known) == len(counts) else None


def show(out: IO[str], asked: Asked, outcome: Outcome, seconds: float, as_json: bool) -> None:
    """Print what came of it."""
    if as_json:
        write(out, json.dumps(as_dict(asked, outcome, seconds), indent=2))
        return
    for name, published in outcome.published.items():
        version = published.version
        path = asked.path_of(name)
        what = f"{name.lstrip(':')}: {figures.plural(version.rows, 'row')} published"
        if published.ours:
            write(out, f"{what} as version {version.number} of {path}")
        else:
            when = figures.moment(version.published)
            write(out, f"{what} already, as version {version.number} of {path} on {when}:")
            write(out, "  the same code over the same rows (--again runs it all the same)")
    if outcome.errors:
        where = "; --errors PATH keeps them" if asked.errors is None else ""
        write(out, f"{figures.plural(outcome.errors, 'error')} (of at most {asked.max_errors:,}){where}")
    if outcome.unsettled:
        write(
            out,
            f"{figures.plural(outcome.unsettled, 'tuple')} neither acked nor failed, which would time out in a stream",
        )
    write(out, f"done in {figures.duration(seconds)}")


def as_dict(asked: Asked, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The outcome as JSON values."""
    outputs = {
        name: {
            "path": asked.path_of(name),
            "published": published.ours,
            "version": published.version.number,
            "rows": published.version.rows,
            "files": len(published.version.files),
            "bytes": published.version.size,
            "schema": published.version.schema,
        }
        for name, published in outcome.published.items()
    }
    return {
        "topology": asked.source,
        "sources": dict(asked.sources),
        "outputs": outputs,
        "errors": outcome.errors,
        "unsettled": outcome.unsettled,
        "seconds": round(seconds, 3),
    }
