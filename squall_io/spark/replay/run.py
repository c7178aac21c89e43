"""The replay of a topology as a job: frames in, frames out, and the errors.

The job computes everything once. Spark keeps the outputs' records until `unpersist`, and the results are views of them. The
records of a component are also kept if several components read them; everything else streams through.
Must not know: how tasks run, how records are made.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from squall_io.spark.replay import frames
from squall_io.spark.replay.inference import NOTHING, TypeConflict, merge_all, schema_of
from squall_io.spark.replay.plan import ReplayPlan, StreamKey, plan_replay
from squall_io.spark.replay.problems import CannotReplay, ReplayFailed, TooManyErrors
from squall_io.spark.replay.records import FIRST, TOTALS, ComponentTotals, Totals, decode_note
from squall_io.spark.replay.shipping import modules_of, ship
from squall_io.spark.results.job_errors import spark_errors_as, worker_died
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import Column, SchemaError, Type, same_name
from squall_io.spark.session.sessions import changed_settings
from topology_api import Topology
from topology_api.wording import listed, shown, typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Limits the bytes of records that Spark passes to a Python worker at a time; by default the limit is ten thousand records of
#: any size.
_BYTES_AT_ONCE: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20)}
#: Packages that Spark's workers must have.
_NEEDED: Final = ("squall_io", "worker", "topology_api", "squall", "pyarrow")


class Replayed(dict[str, "DataFrame"]):
    """The outputs of a replay, by the requested names.

    errors: a frame with a row per failed tuple and per call that raised. components: counts of each component and source.
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
        """The number of tuples that bolts neither acked nor failed; in a stream they would time out."""
        return sum(totals.unsettled for totals in self.components.values())

    @property
    def failures(self) -> int:
        """The number of errors."""
        return sum(totals.errors for totals in self.components.values())

    def unpersist(self) -> None:
        """Free the records that Spark keeps. If a frame is used afterwards, it is computed again."""
        while self._kept:
            self._kept.pop().unpersist()

    def __enter__(self) -> Replayed:
        return self

    def __exit__(self, *raised: object) -> None:
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
    """Run the bolts of a topology over frames, and return what they emit as frames.

    sources: frames that replace streams, by "component" (its default stream) or "component:stream"; columns are found by
        the names of the stream's fields.
    outputs: the wanted streams, by names of the same form; a single name need not be in a list. All bolts between the sources
        and these streams run; spouts and sinks never do.
    max_errors: if more tuples fail, the replay fails and names the first ones; None: any number may fail.
    schemas: DDL of outputs whose types should not be inferred, `{"count": "word string, count bigint"}`.
    parallelism: numbers of tasks, by component, that replace the topology's; state by key is spread over a component's tasks.
    modules: your files that Spark's workers need, by their place in an archive of modules; None: the files that the driver has
        imported from the folders of the topology's modules.

    If Spark loses a machine, it computes parts of a source again. So a source must give the same rows in the same order each
    time, as files do.
    Raises CannotReplay, with all reasons, if the request is impossible, and TooManyErrors or ReplayFailed if the replay fails.
    """
    refuse_others(topology, sources)
    if isinstance(outputs, str):
        outputs = [outputs]
    if parallelism:
        topology = topology.with_parallelism(parallelism)
    now = time.time()
    run_id = f"replay-{topology.name}-{int(now)}_{secrets.token_hex(4)}"  # unique even within one second
    plan = plan_replay(topology, sources, outputs, max_errors, now, run_id)
    given = {key: sources[name] for name, key in plan.given.items()}
    plan = replace(plan, schemas=schemas_of(plan, given, schemas or {}))
    ship(spark, modules_of(plan.topology) if modules is None else modules)
    kept: list[DataFrame] = []
    try:
        with changed_settings(spark, _BYTES_AT_ONCE), readable_errors(plan.steps):
            return compute(spark, plan, given, kept)
    except BaseException:
        for frame in kept:
            frame.unpersist()
        raise


def refuse_others(topology: object, sources: object) -> None:
    """Raise `CannotReplay` if `topology` is not a topology, or a source is not a Spark frame."""
    from pyspark.sql import DataFrame

    if not isinstance(topology, Topology):
        hint = "; TopologyBuilder.build() makes one" if hasattr(topology, "build") else ""
        raise CannotReplay(type(topology).__name__, [f"{typed(topology)} is not a topology{hint}"])
    if not isinstance(sources, Mapping):
        help_ = "give {'component': frame}, with Spark's DataFrames"
        raise CannotReplay(topology.name, [f"sources: {typed(sources)} is not a dict: {help_}"])
    problems = [
        f"source {shown(name)}: {typed(frame)} is not a Spark DataFrame; spark.createDataFrame(...) makes one from rows, or"
        " from a pandas frame"
        for name, frame in sources.items()
        if not isinstance(frame, DataFrame)
    ]
    if problems:
        raise CannotReplay(topology.name, problems)


def schemas_of(
    plan: ReplayPlan, given: Mapping[StreamKey, DataFrame], ddls: Mapping[str, str]
) -> dict[StreamKey, Schema]:
    """Return the given schemas of outputs, with columns in the order of the fields. Raises `CannotReplay`, also for columns
    that a source lacks."""
    problems: list[str] = []
    for key in plan.sources:
        if problem := missing_columns(plan, key, given[key].columns):
            problems.append(f"{problem}; frame.toDF({', '.join(map(repr, plan.fields_of(key)))}) names them")
    schemas: dict[StreamKey, Schema] = {}
    for name, ddl in ddls.items():
        if (output := plan.outputs.get(name)) is None:
            outputs = listed(plan.outputs)
            problems.append(f"a schema is given, and {name!r} is not an output (there are: {outputs})")
            continue
        try:
            schemas[output] = in_order_of_fields(plan.fields_of(output), ddl)
        except SchemaError as error:
            problems.append(f"schema of {name!r}: {error}")
    if problems:
        raise CannotReplay(plan.topology.name, problems)
    return schemas


def missing_columns(plan: ReplayPlan, key: StreamKey, columns: Sequence[str]) -> str | None:
    """Return a sentence that names the fields for which a source has no column; None if it has all."""
    known = set(map(same_name, columns))
    if not (missing := [name for name in plan.fields_of(key) if same_name(name) not in known]):
        return None
    return f"source {str(key)!r} has no column {listed(missing)}, a field of the stream (it has {listed(columns)})"


def in_order_of_fields(fields: Sequence[str], ddl: str) -> Schema:
    """Return the schema of a stream's rows; raise `SchemaError` if its columns are not the stream's fields."""
    if not isinstance(ddl, str):
        raise SchemaError(f"{typed(ddl)} is not DDL: write 'word string, count bigint'")
    schema = parse_schema(ddl)
    columns: list[Column] = []
    for name in fields:
        if (column := schema.column(name)) is None:
            raise SchemaError(f"field {name!r} has no column in {ddl!r}")
        columns.append(column)
    if more := [column.name for column in schema.columns if column not in columns]:
        raise SchemaError(f"the stream has no field {listed(more)} (it has {listed(fields)})")
    return Schema(tuple(columns))


# The job.


def compute(
    spark: SparkSession, plan: ReplayPlan, given: Mapping[StreamKey, DataFrame], kept: list[DataFrame]
) -> Replayed:
    """Build the job, run it, and check the reports of its tasks."""
    records: dict[StreamKey | str, DataFrame] = {}
    for key in plan.sources:
        records[key] = frames.source_records(given[key], plan, key)
        if len(plan.readers_of(key)) > 1:
            kept.append(records[key].persist())
    for step in plan.steps:
        inputs = dict.fromkeys(key if key in records else key.component for key in plan.inputs_of(step))
        records[step] = frames.component_records(spark, plan, step, [records[key] for key in inputs])
        if plan.is_output(step) or len(plan.readers_of(step)) > 1:
            kept.append(records[step].persist())
    ends = [records[step] for step in plan.steps if plan.is_output(step)]
    reports = (frames.noted(end, TOTALS).select("blob").collect() for end in ends)
    totals = [decode_note(row.blob) for rows in reports for row in rows]
    judge(plan, totals)
    outputs = {}
    for name, key in plan.outputs.items():
        schema = plan.schemas.get(key) or found_schema(plan, name, totals)
        outputs[name] = frames.output_rows(records[key.component], plan, key, schema)
    return Replayed(outputs, frames.error_rows(ends, plan), by_component(plan, totals), kept)


def judge(plan: ReplayPlan, totals: Sequence[Totals]) -> None:
    """Raise `ReplayFailed` if a task could not run, `TooManyErrors` if more tuples failed than allowed."""
    ordered = sorted(totals, key=lambda total: total.task)
    if fatal := [total for total in ordered if total.fatal is not None]:
        more = "" if len(fatal) == 1 else f"\n(and {len(fatal) - 1} more tasks)"
        raise ReplayFailed(
            f"the replay of topology {plan.topology.name!r} failed: task {fatal[0].task} of {fatal[0].component!r}:"
            f" {fatal[0].fatal}{more}"
        )
    errors = sum(total.errors for total in totals)
    if plan.max_errors is not None and errors > plan.max_errors:
        first_texts = [text for total in ordered for text in total.first]
        raise TooManyErrors(plan.topology.name, errors, plan.max_errors, first_texts[:FIRST])


def found_schema(plan: ReplayPlan, output: str, totals: Sequence[Totals]) -> Schema:
    """Return the schema of an output, from the types that its tasks saw."""
    key = plan.outputs[output]
    number = plan.number_of[key]
    fields = plan.fields_of(key)
    kinds: list[Type] = [NOTHING] * len(fields)
    try:
        for total in totals:
            if number in total.conflicts:
                raise TypeConflict(total.conflicts[number])
            kinds = merge_all(fields, kinds, total.kinds.get(number, kinds))
        return schema_of(fields, kinds)
    except TypeConflict as conflict:
        raise ReplayFailed(
            f"output {output!r} of topology {plan.topology.name!r}: {conflict}; give the output a schema:"
            f" schemas={{{output!r}: ...}}, or on the command line --schema '{output}=...'"
        ) from None


def by_component(plan: ReplayPlan, totals: Sequence[Totals]) -> dict[str, ComponentTotals]:
    """Return the sums of the tasks' counts by component, upstream first."""
    counts = [count.name for count in fields(ComponentTotals)]
    found = {}
    for name in (*(key.component for key in plan.sources), *plan.steps):
        own = [total for total in totals if total.component == name]
        sums = {count: sum(getattr(each, count) for each in own) for count in counts}
        found[name] = ComponentTotals(**sums)
    return found


# Readable errors.


def readable_errors(steps: Sequence[str] = ()) -> AbstractContextManager[None]:
    """Raise Spark's errors as `ReplayFailed`, without Java stacks. `steps`: the components that Spark's workers run."""

    def failed(reason: str, error: Exception) -> ReplayFailed:
        if steps and worker_died(error):
            reason += f"\n  it ran tasks of {listed(steps)}"
        missing = next((name for name in _NEEDED if f"No module named '{name}'" in str(error)), None)
        if missing:
            reason = (
                f"Spark's Python workers have no module {missing!r}: Squall must be installed where the executors run"
                " (with its extra `spark`), in the Python that PYSPARK_PYTHON names"
            )
        return ReplayFailed(f"Spark failed: {reason}")

    return spark_errors_as(failed)
