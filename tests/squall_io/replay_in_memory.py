"""A replay without Spark: the work of Spark (grouping records by target, sorting them) in twenty lines.

The tasks are the real ones; so the behaviour of bolts in a replay is tested on every Python, and Spark's part is tested beside
it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from squall_io.spark.replay import records
from squall_io.spark.replay.plan import ReplayPlan, plan_replay
from squall_io.spark.replay.portions import Portion
from squall_io.spark.replay.records import (
    BEGIN,
    ERRORS,
    NO_TASK,
    TOTALS,
    Buffer,
    Checked,
    ErrorNote,
    Record,
    Totals,
    Tuples,
    arrived,
    decode_note,
)
from squall_io.spark.replay.sources import SourceRows, route_rows
from squall_io.spark.replay.tasks import run_tasks
from squall_io.spark.rows.schema import parse_schema
from topology_api import Topology
from worker.routing.router import StreamOutput

Row = tuple[Any, ...]
#: Rows by partition.
Partitions = Sequence[Sequence[Row]]


class PickledRows:
    """Rows of a source without Arrow, which not every Python of the tests has: each row is looked at."""

    def __init__(self, rows: Sequence[Row], first: int) -> None:
        self.all = list(rows)
        self.first = first

    def __len__(self) -> int:
        return len(self.all)

    def rows(self) -> list[Row]:
        return self.all

    def chosen(self, positions: Sequence[int]) -> Iterator[Buffer]:
        some = [self.all[at] for at in positions]
        roots = array("q", [self.first + at for at in positions]).tobytes()
        tuples = Tuples([list(column) for column in zip(*some)], len(some), roots, {})
        return records.encode_all(tuples, lambda refused: None)

    def spread(self, output: StreamOutput) -> None:
        return None


def rows_of(rows: Sequence[Row], first: int) -> list[SourceRows]:
    """Rows as a source of Spark's gives them, if this Python has Arrow."""
    if not rows or not find_spec("pyarrow"):
        return [PickledRows(rows, first)]
    import pyarrow as pa

    return [Portion([pa.array(column) for column in zip(*rows)], len(rows), first)]


@dataclass
class Replayed:
    """The result."""

    plan: ReplayPlan
    outputs: dict[str, list[Row]] = field(default_factory=dict)
    errors: list[ErrorNote] = field(default_factory=list)
    totals: list[Totals] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    @property
    def output(self) -> list[Row]:
        """The rows of the only output."""
        (rows,) = self.outputs.values()
        return rows

    def of(self, component: str) -> list[Totals]:
        """The totals of a component's tasks."""
        return [totals for totals in self.totals if totals.component == component]


def replay(
    topology: Topology,
    sources: Mapping[str, Partitions],
    outputs: Sequence[str],
    max_errors: int | None = None,
    schemas: Mapping[str, str] | None = None,
) -> Replayed:
    """Run the components that the outputs depend on over the partitions of the sources."""
    plan = plan_replay(topology, sources, outputs, max_errors, now=1_000_000.0, topology_id="replay-1")
    wanted = {plan.outputs[name]: parse_schema(ddl) for name, ddl in (schemas or {}).items()}
    plan = replace(plan, schemas=wanted)
    every: list[Record] = []
    for key, partitions in zip(plan.sources, sources.values()):
        for number, rows in enumerate(partitions):
            every += route_rows(plan, key, number, lambda first, _, rows=rows: rows_of(rows, first))  # type: ignore[misc]
    for step in plan.steps:
        tasks = plan.tasks_of[step]
        own = [record for record in every if record.target in tasks]
        every = [record for record in every if record.target not in tasks]
        own += [Record(task, BEGIN, -1, -1, b"") for task in tasks]
        every += run_tasks(plan, sorted(own, key=lambda record: record[:4]))
    done = Replayed(plan, records=every)
    found: dict[int, list[Row]] = defaultdict(list)
    for record in every:
        assert record.target == NO_TASK
        if record.stream == ERRORS:
            done.errors += decode_note(arrived(record))
        elif record.stream == TOTALS:
            done.totals.append(decode_note(arrived(record)))
        else:
            assert isinstance(record.blob, Checked)
            found[record.stream] += zip(*record.blob.columns.values)
    done.outputs = {name: found[plan.number_of[key]] for name, key in plan.outputs.items()}
    return done
