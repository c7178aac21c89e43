"""Sends the rows of a source's frame to the tasks of its readers.

Each partition of the frame is a sender; its tuples name one of the source component's tasks as their origin. Every row begins a
tree. Rows go through in portions of columns: the portion divides itself among the tasks if its columns suffice. If not (custom
and partial key groupings, a key without a hash), the stream's groupings look at each row, and rows that they refuse are errors.
Must not know: Spark, Arrow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Protocol

from squall_io.spark.replay import records
from squall_io.spark.replay.plan import ReplayPlan, StreamKey
from squall_io.spark.replay.records import Buffer, Record, Row, Totals
from squall_io.spark.replay.sending import Sender
from squall_io.spark.replay.tasks import environment_of
from topology_api import EmitError, FailTuple
from worker.errors.reports import describe, failure_text
from worker.loop.build import build_context, build_outputs
from worker.routing.outbox import Outbox
from worker.routing.router import StreamOutput
from worker.tasks.runners import AsyncThread


class SourceRows(Protocol):
    """Rows of a source, as `portions.Portion` has them."""

    def __len__(self) -> int: ...

    def rows(self) -> list[Row]:
        """Return the rows as plain values."""

    def chosen(self, positions: Sequence[int]) -> Iterator[Buffer]:
        """Yield the rows at these positions as blobs."""

    def spread(self, output: StreamOutput) -> Iterator[tuple[Outbox, Buffer]] | None:
        """Return the blobs for the outboxes that get the rows; None if single rows must be looked at."""


#: Returns the rows of a partition, given the first root and the least number of rows that are worth sending together.
Cut = Callable[[int, int], Iterable[SourceRows]]


def route_rows(plan: ReplayPlan, key: StreamKey, partition: int, cut: Cut) -> Iterator[Record]:
    """Yield the records of one partition of the source `key`."""
    number, name = plan.number_of[key], key.component
    index = partition % plan.topology.component(name).parallelism
    task = plan.tasks_of[name][index]
    totals = Totals(name, task)
    sender = Sender(plan, records.partition_sender(number, partition), plan.heir_of(key), totals)
    first = records.first_root(number, partition)
    with tempfile.TemporaryDirectory(prefix="squall-replay-") as directory:
        environment = environment_of(plan, directory, AsyncThread(name), lambda: None)
        context = build_context(environment, task, name, index)
        context.random = Random(f"{environment.plan.seed}/{name}/{partition}/user")
        output = None
        try:
            # Round robin begins at a different task for each partition, so that many short partitions do not fill the same
            # task.
            output = build_outputs(environment.plan, context, partition)[key.stream]
        except Exception as error:  # a grouping of the user's cannot be unpickled or prepared
            totals.fatal = f"source {str(key)!r}: {describe(error)}"
        readers = sum(len(plan.tasks_of[reader]) for reader in plan.readers_of(key))
        for rows in cut(first, records.MOST_TUPLES * readers):
            if output is not None and not sender.too_many:
                sent = rows.spread(output)
                if sent is None:
                    sent = looked_at(output, rows, first + totals.emitted, sender)
                for box, blob in sent:
                    if box.target in plan.running:
                        sender.put(box.target, number, blob)
                totals.emitted += len(rows)
            yield from sender.pop_records()
        sender.finish()
        yield from sender.pop_records()


def looked_at(
    output: StreamOutput, rows: SourceRows, first: int, sender: Sender
) -> Iterator[tuple[Outbox, Buffer]]:
    """Yield the blobs for the outboxes that get the rows, of which each is looked at. `first`: the root of the first row."""
    places: dict[int, tuple[Outbox, list[int]]] = {}
    for at, row in enumerate(rows.rows()):
        try:
            boxes = output.choose(row)
        except (EmitError, FailTuple) as error:
            sender.fail("choose", output.source, row, [first + at], failure_text(error))
            continue
        for box in boxes:
            places.setdefault(id(box), (box, []))[1].append(at)
    for box, positions in places.values():
        for blob in rows.chosen(positions):
            yield box, blob
