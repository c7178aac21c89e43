"""`squall replay FILE --source lines=PATH --output count=PATH`: a topology's bolts over stored rows, as a Spark job.

The command reads the options, finds out whether the results exist already, runs the job with a progress bar, publishes each
output as a version of its table, and prints how many rows were published and how many tuples failed.
Must not know: how a replay runs, how a result is published (see the imported modules).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from squall.stores.paths import check_path, overlap
from squall_cli.options.kinds import Whole, files, pairs, task_counts
from squall_cli.options.spark_options import check_places, checked_path, result_options, span_of, table_option
from squall_cli.packing.loading import load_topology
from squall_cli.packing.user_modules import digest_of_parts, find_modules
from squall_cli.spark.started_spark import ResultOptions, StartedSpark, version_in_json, why_already
from squall_cli.terminal import formats
from squall_cli.terminal.lines import write, write_json
from squall_cli.terminal.user_output import keep_stdout
from squall_io.spark.replay.plan import ReplayPlan, plan_replay
from squall_io.spark.results import versions
from squall_io.spark.results.versions import Published, Run
from squall_io.spark.stores.opening import check_table_path
from topology_api.errors import SquallError
from topology_api.topology import Topology

if TYPE_CHECKING:
    from squall_io.spark.reading.committed import Selection
    from squall_io.spark.replay import Replayed
    from squall_io.spark.replay.inputs import FileSource
    from squall_io.spark.results.publishing import OutputTable


#: The name of the table of errors among the outputs; names of components have no colon.
ERRORS: Final = ":errors"


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(ResultOptions):
    """The command's options."""

    source: str
    arguments: tuple[str, ...]
    sources: Mapping[str, str]
    outputs: Mapping[str, str]
    errors: str | None
    max_errors: int
    schemas: Mapping[str, str]
    parallelism: Mapping[str, int]

    def path_of(self, output: str) -> str | None:
        """Return the path of an output, or of the errors."""
        return self.errors if output == ERRORS else self.outputs[output]


@dataclass
class Outcome:
    """The outputs and counts of a replay."""

    published: Mapping[str, Published]
    errors: int | None
    #: The number of tuples that were neither acked nor failed when the outputs were made; None: unknown.
    unsettled: int | None


def _paths(
    ctx: click.Context, parameter: click.Parameter, given: Sequence[str], check: Callable[[str], str]
) -> dict[str, str]:
    found = pairs(given, "COMPONENT=PATH, or COMPONENT:STREAM=PATH")
    return {name: checked_path(path, check) for name, path in found.items()}


@click.command()
@click.argument("source", metavar="FILE[:NAME]", shell_complete=files)
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--source",
    "sources",
    metavar="COMPONENT=PATH",
    multiple=True,
    required=True,
    callback=partial(_paths, check=check_path),
    help="Rows that replace a component's tuples (COMPONENT:STREAM=PATH: the tuples of one stream). May be repeated.",
)
@click.option(
    "--output",
    "outputs",
    metavar="COMPONENT=PATH",
    multiple=True,
    required=True,
    callback=partial(_paths, check=check_table_path),
    help="A component whose tuples are wanted, and the table for them. May be repeated.",
)
@click.option("--since", metavar="TIME", help="From tables, read only rows committed at or after TIME.")
@click.option("--until", metavar="TIME", help="From tables, read only rows committed before TIME.")
@click.option(
    "--max-errors",
    metavar="N",
    type=Whole(0),
    default=0,
    help="The replay fails if more than N tuples fail.  [default: 0]",
)
@table_option("--errors", "errors", "A table for failed tuples and their errors.", required=False)
@click.option(
    "--schema",
    "schemas",
    metavar="OUTPUT=DDL",
    multiple=True,
    callback=lambda ctx, option, given: pairs(given, "OUTPUT=DDL, as in 'count=word string, count bigint'"),
    help="The columns of an output.  [default: inferred from its values]",
)
@click.option(
    "--parallelism",
    metavar="COMPONENT=N",
    multiple=True,
    callback=task_counts,
    help="A different number of tasks for a component. May be repeated.",
)
@result_options(again="Run even if the newest versions were made by the same code from the same rows.")
def replay(since: str | None, until: str | None, as_json: bool, **others: Any) -> None:
    """Run the bolts of a topology over stored rows, as a Spark job, so that the same code processes history and stream.

    FILE defines `topology`, as for squall run; arguments of a function follow --. Each --source replaces the tuples of a
    component with rows, and each --output names a component whose tuples are wanted. The bolts between sources and outputs run;
    spouts and sinks do not. A source is a table that a SparkSink writes, or files (.parquet, .orc, .json, .csv; all other files
    are read as lines of text). The result of each output is published as the newest version of a table.

    \b
    Examples:
      squall replay word_count.py --source lines=/data/books \\
          --output count=/tables/counts
      squall replay clicks.py --source clicks=hdfs://nn:9000/clicks \\
          --since 2026-03-01T00:00:00Z --output sessions=hdfs://nn:9000/sessions \\
          --max-errors 100 --errors hdfs://nn:9000/failed \\
          --master spark://host:7077

    The command publishes nothing before all outputs are written.

    Exit status: 0 published, now or by an earlier run; 1 failed, and only the outputs that the error message names were
    published; 2 wrong usage.
    """
    options = ReplayOptions(span=span_of(since, until), **others)
    check_paths(options)
    before = frozenset(sys.modules)
    out = keep_stdout() if as_json else sys.stdout
    topology = load_topology(options.source, options.arguments).with_parallelism(options.parallelism)
    plan = plan_replay(topology, options.sources, list(options.outputs), options.max_errors, 0.0)
    began = time.monotonic()
    with options.started() as started:
        outcome = ReplayJob(topology, plan, find_modules(before).files, options, started).run()
    show(out, options, outcome, time.monotonic() - began, as_json)


def check_paths(options: ReplayOptions) -> None:
    """Raise `UsageError` if a result would be written into a source or into a different result, or if Spark cannot reach a
    path."""
    read = list(options.sources.values())
    written = [*options.outputs.values(), *([] if options.errors is None else [options.errors])]
    check_places(options.master, options.conf, reads=read, writes=written)
    for place, path in enumerate(written):
        problem = next(filter(None, (overlap(other, path) for other in [*written[:place], *read])), None)
        if problem is not None:
            raise click.UsageError(
                f"sources and results must be in separate places, and {problem}: give another path"
            )


@dataclass(eq=False)
class ReplayJob:
    """One replay. It starts when the rows of the first output are requested, and then computes all outputs."""

    topology: Topology
    plan: ReplayPlan
    modules: Mapping[str, Path]
    options: ReplayOptions
    started: StartedSpark
    given: dict[str, Selection | FileSource] = field(default_factory=dict)
    replayed: Replayed | None = None

    def run(self) -> Outcome:
        """Publish every output that does not exist yet, and the errors, after all outputs are written."""
        from squall_io.spark.replay.inputs import source_at
        from squall_io.spark.replay.run import readable_errors
        from squall_io.spark.results.publishing import Result, open_output, publish_frames

        options = self.options
        for name, path in options.sources.items():
            fields = self.plan.fields_of(self.plan.given[name])
            store = self.started.held_store(path, "squall replay")
            self.given[name] = source_at(store, path, options.span, fields)
        outputs = {
            name: options.open_output(self.started.store(path)) for name, path in options.outputs.items()
        }
        if options.errors is not None:
            outputs[ERRORS] = open_output(self.started.store(options.errors), None, None, options.keep)
        results = {
            name: Result(output, self.run_of(name, output), partial(self.frame, name), self.counts)
            for name, output in outputs.items()
        }
        done: dict[str, Published] = {}
        try:
            with readable_errors():
                publish_frames(results, done, self.started.progress.cancel)
        except SquallError as error:
            named = [
                f"version {each.version.number} of {options.path_of(name)}"
                for name, each in done.items()
                if each.ours
            ]
            if not named:
                raise
            raise SquallError(f"{error}\nPublished before that: {', '.join(named)}") from None
        published = {name: done[name] for name in results}
        if self.replayed is not None:
            return Outcome(published, self.replayed.failures, self.replayed.unsettled)
        refuse_errors(options, published)
        return Outcome(published, recorded("errors", published), recorded("unsettled", published))

    def run_of(self, output: str, table: OutputTable) -> Run:
        """Return the run that an output results from."""
        options = self.options
        reads = {name: given.read for name, given in self.given.items()}
        settings: dict[str, Any] = {
            "output": output,
            "arguments": list(options.arguments),
            "parallelism": dict(options.parallelism),
            "schemas": dict(options.schemas),
            "sources": {name: read.path for name, read in reads.items()},
        }
        run = Run("replay", options.source, self.code(), tuple(reads.values()), settings, table.table)
        return versions.again(table.files, run) if options.again else run

    def code(self) -> str:
        """Return a digest of the user's modules, and of the topology that these modules made."""
        parts = {place: file.read_bytes() for place, file in self.modules.items()}
        parts |= {f":{component}": data for component, data in self.topology.pickles.items()}
        parts[":"] = json.dumps(self.topology.describe(), sort_keys=True, default=str).encode()
        return digest_of_parts(sorted(parts.items()))

    def frame(self, output: str) -> Any:
        """Return the rows of an output, or of the errors."""
        from squall_io.spark.replay import replay_topology

        if self.replayed is None:
            spark = self.started.watched(f"replaying {self.topology.name}")
            frames = {name: given.frame(spark) for name, given in self.given.items()}
            self.check_columns(frames)
            self.replayed = replay_topology(
                spark,
                self.topology,
                frames,
                list(self.options.outputs),
                max_errors=self.options.max_errors,
                schemas=self.options.schemas,
                modules=self.modules,
            )
            self.started.stack.callback(forget, self.replayed)
        return self.replayed.errors if output == ERRORS else self.replayed[output]

    def check_columns(self, frames: Mapping[str, Any]) -> None:
        """Raise `CannotReplay`, with advice for this command, if a source lacks columns. `replay_topology` checks the columns
        too, but its advice cannot name paths or options."""
        from squall_io.spark.replay.inputs import FileSource
        from squall_io.spark.replay.problems import CannotReplay
        from squall_io.spark.replay.run import missing_columns

        problems = []
        for name, frame in frames.items():
            key = self.plan.given[name]
            problem = missing_columns(self.plan, key, frame.columns)
            if problem is None:
                continue
            help_ = "give files with these columns, or use Python: replay_topology takes any DataFrame"
            if not isinstance(self.given[name], FileSource):
                help_ = (
                    "make a table that has these columns, and give that table as the source: squall reprocess"
                    f" --sql 'select ... as {self.plan.fields_of(key)[0]}, ... from rows' --input {self.options.sources[name]}"
                    " --output PATH"
                )
            problems.append(f"{problem}; {help_}")
        if problems:
            raise CannotReplay(self.topology.name, problems)

    def counts(self) -> dict[str, int]:
        """Return the counts that are stored with each output."""
        if self.replayed is None:
            return {}
        return {"errors": self.replayed.failures, "unsettled": self.replayed.unsettled}


def forget(replayed: Replayed) -> None:
    """Free what Spark cached, if Spark still runs."""
    with suppress(Exception):
        replayed.unpersist()


def refuse_errors(options: ReplayOptions, published: Mapping[str, Published]) -> None:
    """Raise `ReplayFailed` for existing outputs whose run had more errors than are allowed now."""
    from squall_io.spark.replay import ReplayFailed

    for name, each in published.items():
        version = each.version
        errors = version.counts.get("errors", 0)
        if errors > options.max_errors:
            raise ReplayFailed(
                f"{name.lstrip(':')}: version {version.number} of {options.path_of(name)} was made from the same code and rows,"
                f" with {formats.plural(errors, 'error')}; --max-errors allows {options.max_errors:,}. --again runs it anyway"
            )


def recorded(what: str, published: Mapping[str, Published]) -> int | None:
    """Return a count that was recorded when the existing outputs were made; None if one of the outputs lacks it."""
    counts = [each.version.counts.get(what) for each in published.values()]
    known = [count for count in counts if count is not None]
    return max(known) if len(known) == len(counts) else None


def show(out: IO[str], options: ReplayOptions, outcome: Outcome, seconds: float, as_json: bool) -> None:
    """Print the outcome."""
    if as_json:
        write_json(out, as_dict(options, outcome, seconds))
        return
    for name, published in outcome.published.items():
        version = published.version
        what = f"{name.lstrip(':')}: {formats.plural(version.rows, 'row')} published"
        where = f"version {version.number} of {options.path_of(name)}"
        if published.ours:
            write(out, f"{what} as {where}")
        else:
            write(out, f"{what} already, as {where} on {formats.moment(version.published)}:")
            write(out, f"  {why_already(options.again, 'code')}")
    if outcome.errors:
        where = "; --errors PATH keeps them" if options.errors is None else ""
        write(out, f"{formats.plural(outcome.errors, 'error')} (of at most {options.max_errors:,}){where}")
    if outcome.unsettled:
        tuples = formats.plural(outcome.unsettled, "tuple")
        write(out, f"{tuples} neither acked nor failed: in a stream, these would time out")
    write(out, f"done in {formats.duration(seconds)}")


def as_dict(options: ReplayOptions, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    outputs = {
        name: {"path": options.path_of(name), "rows": published.version.rows, **version_in_json(published)}
        for name, published in outcome.published.items()
    }
    return {
        "topology": options.source,
        "sources": dict(options.sources),
        "outputs": outputs,
        "errors": outcome.errors,
        "unsettled": outcome.unsettled,
        "seconds": round(seconds, 3),
    }
