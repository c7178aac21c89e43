"""The rows of a source's frame as tuples: routed to the tasks of its readers by the topology's own groupings.

A partition of the frame is the sender; its tuples claim to come from one of the source component's tasks. Every row begins
a tree, whose root is the number of the row.
Must not know: Spark, Arrow.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from random import Random

from squall_io.spark.replay.notes import Totals
from squall_io.spark.replay.plan import ReplayPlan, StreamKey
from squall_io.spark.replay.records import Record, Row, first_root, partition_sender
from squall_io.spark.replay.sending import Sender, values_text
from topology_api import Context, EmitError, FailTuple
from worker.errors.reports import describe, failure_text
from worker.loop.build import build_outputs, tasks_of
from worker.routing.outbox import Outbox
from worker.tasks.metrics import TaskMetrics
from worker.tasks.scratch import Scratch


def route_rows(
    plan: ReplayPlan, key: StreamKey, partition: int, batches: Iterable[list[Row]]
) -> Iterator[Record]:
    """Yield the records of one partition of the source `key`."""
    with tempfile.TemporaryDirectory(prefix="squall-replay-") as directory:
        routing = Routing(plan, key, partition, directory)
        for rows in batches:
            routing.route(rows)
            yield from routing.sender.pop_records()
        routing.end()
        yield from routing.sender.pop_records()


class Routing:
    """One partition of a source being routed."""

    def __init__(self, plan: ReplayPlan, key: StreamKey, partition: int, directory: str) -> None:
        number = plan.number_of[key]
        tasks = plan.tasks_of[key.component]
        self.index = partition % len(tasks)
        self.totals = Totals(key.component, tasks[self.index])
        self.sender = Sender(
            plan, partition_sender(number, partition), plan.heir_of(key), self.totals, self.index, {}
        )
        self.dirty: list[Outbox] = []
        self.root = first_root(number, partition)
        spec = plan.component(key.component)
        worker_plan = plan.for_worker(directory)
        name = key.component
        context = Context(
            topology=plan.topology.name,
            topology_id=plan.topology_id,
            component=name,
            task=self.totals.task,
            index=self.index,
            parallelism=spec.parallelism,
            conf=worker_plan.conf_of(name),
            _tasks=lambda other: tasks_of(worker_plan, other),
            log=logging.getLogger(f"squall.{plan.topology.name}.{name}.{self.index}"),
            _metrics=TaskMetrics(),
            resources={},
            _directory=lambda: Scratch().make(worker_plan.scratch(name, self.index)),
            _now=lambda: plan.now,
            random=Random(f"{worker_plan.seed}/{name}/{partition}/user"),
            _wake=lambda: None,
        )
        self.output = None
        try:
            # Round robin begins elsewhere for each partition, so that many short ones do not all fill the same task.
            self.output = build_outputs(worker_plan, context, partition)[key.stream]
        except Exception as error:  # a grouping of the user's cannot be unpickled or prepared
            self.totals.fatal = f"source {str(key)!r}: {describe(error)}"

    def route(self, rows: list[Row]) -> None:
        """Route rows."""
        output, root = self.output, self.root
        if output is None or self.sender.too_many:
            return
        for row in rows:
            try:
                boxes = output.choose(row)
            except (EmitError, FailTuple) as error:
                trees = [root]
                self.sender.fail("choose", output.source, values_text(row), trees, failure_text(error))
                boxes = []
            for box in boxes:
                if not box.rows:
                    box.begin()
                    self.dirty.append(box)
                box.rows.append(row)
                box.roots.append(root)
                box.edges.append(0)
            root += 1
        self.totals.emitted += len(rows)
        self.root = root
        self.dirty = self.sender.drain(self.dirty)

    def end(self) -> None:
        """Send what is left, and the notes."""
        self.sender.drain(self.dirty, everything=True)
        self.sender.finish()
