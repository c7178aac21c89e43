"""The replay of a topology as a job: frames in, frames out, and what failed.

Everything is computed once, by this call, and kept by Spark until `unpersist`; what comes back are views of that. A component's
records are kept when several read them, and those of the outputs; everything else streams through.
Must not know: how tasks run, how records are made.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from squall_io.spark.replay import frames
from squall_io.spark.replay.inference import NOTHING, Conflict, merge_all, schema_of
from squall_io.spark.replay.notes import FIRST, Totals, decode_totals
from squall_io.spark.replay.plan import ReplayPlan, StreamKey, plan_replay
from squall_io.spark.replay.problems import CannotReplay, ReplayFailed, TooManyErrors
from squall_io.spark.replay.records import TOTALS
from squall_io.spark.replay.shipping import SHIPPING, modules_of
from squall_io.spark.results.job_errors import told_by, worker_died
from squall_io.spark.rows.schema import Column, Schema, SchemaError, parse_schema
from squall_io.spark.rows.types import same_name
from topology_api import Topology
from topology_api.wording import listed, shown, typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark hands a Python worker records of so many bytes at a time; by number alone it would be ten thousand of them.
_BYTES_SETTING: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BYTES: Final = str(16 << 20)
#: Packages that Spark's workers must have.
_NEEDED: Final = ("squall_io", "worker", "topology_api", "squall", "pyarrow")


@dataclass(frozen=True)
class ComponentTotals:
    """What the tasks of a component did together."""

    executed: int = 0
    emitted: int = 0
    failed: int = 0
    unsettled: int = 0
    """Tuples that its rich bolt neither acked nor failed."""
    errors: int = 0


class Replayed(dict[str, "DataFrame"]):
    """The outputs of a replay, by the names that were asked for.

    errors: a frame with a row per failed tuple and per call that raised. components: what each component did; sources too.
    """

    def __init__(
        self,
        outputs: Mapping[str, DataFrame],
        errors: DataFrame,
        components: Mapping[str, ComponentTotals],
        kept: Sequence[DataFrame],
    ) -> None:
        super().__init__(outputs)
        self.errors = errors
        self.components = components
        self._kept = list(kept)

    @property
    def unsettled(self) -> int:
        """Tuples that bolts neither acked nor failed: in a stream they would time out."""
        return sum(totals.unsettled for totals in self.components.values())

    @property
    def failures(self) -> int:
        """How many errors there are."""
        return sum(totals.errors for totals in self.components.values())

    def unpersist(self) -> None:
        """Let Spark forget what it keeps; the frames would be computed anew."""
        while self._kept:
            self._kept.pop().unpersist()

    def __enter__(self) -> Replayed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unpersist()


def replay_topology(
    spark: SparkSession,
    topology: Topology,
    sources: Mapping[str, DataFrame],
    outputs: Sequence[str] | str,
    *,
    max_errors: int | None = 0,
    schemas: Mapping[str, str] | None = None,
    parallelism: Mapping[str, int] | None = None,
    modules: Mapping[str, Path] | None = None,
) -> Replayed:
    """Run the bolts of a topology over frames, and give what they emit as frames.

    sources: frames that stand for streams, by "component" (its default stream) or "component:stream"; the columns are found by
        the names of the stream's fields.
    outputs: the streams that are wanted, by the same names; a single one need not be in a list. What they depend on is run, up
        to the sources; spouts and sinks never are.
    max_errors: with more failed tuples than this the replay fails and names the first; None: any number may fail.
    schemas: DDL of outputs whose types are not to be found in the values, `{"count": "word string, count bigint"}`.
    parallelism: other numbers of tasks than the topology has; state by key is then spread over as many.
    modules: files of yours, by their place in an archive of modules, that Spark's workers are to have; None: those that the
        driver has imported beside the topology's.

    A source must give the same rows in the same order when a part of it is computed again, as files do: Spark does that when a
    machine is lost.
    CannotReplay: what was asked for cannot be, with all reasons. TooManyErrors, ReplayFailed: it was run, and failed.
    """
    refuse_others(topology, sources)
    if isinstance(outputs, str):
        outputs = [outputs]
    if parallelism:
        topology = topology.with_parallelism(parallelism)
    now = time.time()
    run_id = f"replay-{topology.name}-{int(now)}_{secrets.token_hex(4)}"  # not that of another one in the same second
    plan = plan_replay(topology, sources, outputs, max_errors, now, run_id)
    given = {key: sources[name] for name, key in plan.given.items()}
    wanted = schemas_of(plan, given, schemas or {})
    SHIPPING.ship(spark, modules_of(plan.topology) if modules is None else modules)
    kept: list[DataFrame] = []
    try:
        with small_batches(spark), told_plainly(plan.steps):
            return compute(spark, plan, given, wanted, kept)
    except BaseException:
        for frame in kept:
            frame.unpersist()
        raise


def refuse_others(topology: object, sources: object) -> None:
    """`CannotReplay` for what is no topology, and for sources that are no frames of Spark's."""
    from pyspark.sql import DataFrame

    if not isinstance(topology, Topology):
        hint = "; TopologyBuilder.build() makes one" if hasattr(topology, "build") else ""
        raise CannotReplay(type(topology).__name__, [f"{typed(topology)} is no topology{hint}"])
    if not isinstance(sources, Mapping):
        raise CannotReplay(
            topology.name,
            [f"sources: {typed(sources)} is no dict: give {{'component': frame}}, with Spark's DataFrames"],
        )
    problems = [
        f"source {shown(name)}: {typed(frame)} is no DataFrame of Spark's; spark.createDataFrame(...) makes one of rows, or of"
        " a pandas frame"
        for name, frame in sources.items()
        if not isinstance(frame, DataFrame)
    ]
    if problems:
        raise CannotReplay(topology.name, problems)


def schemas_of(
    plan: ReplayPlan, given: Mapping[StreamKey, DataFrame], ddls: Mapping[str, str]
) -> dict[StreamKey, Schema]:
    """The schemas of outputs that were given, columns in the order of the fields; `CannotReplay` also for columns that a
    source lacks."""
    problems: list[str] = []
    for key in plan.sources:
        problem = missing_columns(plan, key, given[key].columns)
        if problem:
            problems.append(f"{problem}; frame.toDF({', '.join(map(repr, plan.fields_of(key)))}) names them")
    found: dict[StreamKey, Schema] = {}
    for name, ddl in ddls.items():
        output = plan.outputs.get(name)
        if output is None:
            problems.append(
                f"a schema is given, and {name!r} is no output (there are: {listed(plan.outputs)})"
            )
            continue
        try:
            fields = plan.fields_of(output)
            found[output] = in_order_of_fields(fields, ddl)
        except SchemaError as error:
            problems.append(f"schema of {name!r}: {error}")
    if problems:
        raise CannotReplay(plan.topology.name, problems)
    return found


def missing_columns(plan: ReplayPlan, key: StreamKey, columns: Sequence[str]) -> str | None:
    """That a source lacks columns which its stream's fields are; None: it has all."""
    there = set(map(same_name, columns))
    missing = [name for name in plan.fields_of(key) if same_name(name) not in there]
    if not missing:
        return None
    return f"source {str(key)!r} has no column {listed(missing)}, which the stream's fields are (it has {listed(columns)})"


def in_order_of_fields(fields: Sequence[str], ddl: str) -> Schema:
    """The schema of a stream's rows; `SchemaError` when it has other columns than the stream has fields."""
    if not isinstance(ddl, str):
        raise SchemaError(f"{typed(ddl)} is no DDL: write 'word string, count bigint'")
    schema = parse_schema(ddl)
    columns: list[Column] = []
    for name in fields:
        column = schema.column(name)
        if column is None:
            raise SchemaError(f"field {name!r} has no column in {ddl!r}")
        columns.append(column)
    more = [column.name for column in schema.columns if column not in columns]
    if more:
        raise SchemaError(f"the stream has no field {listed(more)} (it has {listed(fields)})")
    return Schema(tuple(columns))


# The job.


def compute(
    spark: SparkSession,
    plan: ReplayPlan,
    given: Mapping[StreamKey, DataFrame],
    schemas: Mapping[StreamKey, Schema],
    kept: list[DataFrame],
) -> Replayed:
    """Build the job, run it, and judge what it noted."""
    records: dict[StreamKey | str, DataFrame] = {}
    for key in plan.sources:
        records[key] = frames.source_records(given[key], plan, key)
        if len(plan.readers_of(key)) > 1:
            kept.append(records[key].persist())
    for step in plan.steps:
        inputs = dict.fromkeys(key if key in records else key.component for key in plan.inputs_of(step))
        read = [records[key] for key in inputs]
        records[step] = frames.component_records(spark, plan, step, read, schemas)
        readers = [
            other for other in plan.steps if any(key.component == step for key in plan.inputs_of(other))
        ]
        if plan.is_output(step) or len(readers) > 1:
            kept.append(records[step].persist())
    ends = [records[step] for step in plan.steps if plan.is_output(step)]
    totals = [
        decode_totals(row.blob) for end in ends for row in frames.noted(end, TOTALS).select("blob").collect()
    ]
    judge(plan, totals)
    outputs = {
        name: frames.output_rows(
            records[key.component], plan, key, schemas.get(key) or found_schema(plan, name, totals)
        )
        for name, key in plan.outputs.items()
    }
    return Replayed(outputs, frames.error_rows(ends, plan), by_component(plan, totals), kept)


def judge(plan: ReplayPlan, totals: Sequence[Totals]) -> None:
    """`ReplayFailed` when a task could not run, or when more failed than may."""
    fatal = [each for each in totals if each.fatal is not None]
    if fatal:
        first = min(fatal, key=lambda each: each.task)
        more = "" if len(fatal) == 1 else f"\n(and {len(fatal) - 1} more tasks)"
        raise ReplayFailed(
            f"the replay of topology {plan.topology.name!r} failed: task {first.task} of {first.component!r}:"
            f" {first.fatal}{more}"
        )
    errors = sum(each.errors for each in totals)
    if plan.max_errors is not None and errors > plan.max_errors:
        first_texts = [text for each in sorted(totals, key=lambda each: each.task) for text in each.first]
        raise TooManyErrors(plan.topology.name, errors, plan.max_errors, first_texts[:FIRST])


def found_schema(plan: ReplayPlan, output: str, totals: Sequence[Totals]) -> Schema:
    """The schema of an output, of the types that its tasks have seen."""
    key = plan.outputs[output]
    number = plan.number_of[key]
    fields = plan.fields_of(key)
    try:
        for each in totals:
            if number in each.conflicts:
                raise Conflict(each.conflicts[number])
        seen = [each.kinds[number] for each in totals if number in each.kinds]
        kinds = seen[0] if seen else [NOTHING] * len(fields)
        for other in seen[1:]:
            kinds = merge_all(fields, kinds, other)
        return schema_of(fields, kinds)
    except Conflict as conflict:
        raise ReplayFailed(
            f"output {output!r} of topology {plan.topology.name!r}: {conflict}; a schema says what its columns are:"
            f" schemas={{{output!r}: ...}}, on the command line --schema '{output}=...'"
        ) from None


def by_component(plan: ReplayPlan, totals: Sequence[Totals]) -> dict[str, ComponentTotals]:
    """What the tasks counted, by component, upstream first."""
    found = {
        name: ComponentTotals()
        for name in dict.fromkeys([*(key.component for key in plan.sources), *plan.steps])
    }
    for each in totals:
        so_far = found[each.component]
        found[each.component] = ComponentTotals(
            so_far.executed + each.executed,
            so_far.emitted + each.emitted,
            so_far.failed + each.failed,
            so_far.unsettled + each.unsettled,
            so_far.errors + each.errors,
        )
    return found


# Around it.


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Let Spark hand over records by their size meanwhile."""
    before = spark.conf.get(_BYTES_SETTING, None)
    spark.conf.set(_BYTES_SETTING, _BYTES)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_BYTES_SETTING)
        else:
            spark.conf.set(_BYTES_SETTING, before)


def told_plainly(steps: Sequence[str] = ()) -> AbstractContextManager[None]:
    """What Spark raises, as what failed: without the stacks of its Java. `steps`: the components that its workers run."""

    def failed(reason: str, error: Exception) -> ReplayFailed:
        if steps and worker_died(error):
            reason += f"\n  it ran tasks of {listed(steps)}"
        lost = [name for name in _NEEDED if f"No module named '{name}'" in str(error)]
        if lost:
            reason = (
                f"Spark's Python workers have no module {lost[0]!r}: Squall must be installed where the executors run"
                " (with its extra `spark`), in the Python that PYSPARK_PYTHON names"
            )
        return ReplayFailed(f"Spark could not do it: {reason}")

    return told_by(failed)
