"""Turns the outboxes of a task into records: groups tuples into blobs, and handles values that cannot be sent.

Must not know: Spark, how outboxes are filled.
"""

from __future__ import annotations

from typing import Final

from squall_io.spark.replay import records
from squall_io.spark.replay.inference import TypeConflict, kinds_of, merge_all, schema_of
from squall_io.spark.replay.plan import ReplayPlan, StreamKey
from squall_io.spark.replay.records import Buffer, Checked, ErrorNote, Record, Row, Totals, Tuples
from squall_io.spark.rows.checker import Columns, RowChecker
from topology_api.tuples import Source
from worker.routing.outbox import Outbox
from worker.routing.router import Route, StreamOutput
from worker.tasks.emitter import short

#: The number of errors that are sent together.
_ERRORS_AT_ONCE: Final = 100
#: How many tuples an outbox gathers as long as the size of the tuples is unknown.
_FIRST: Final = 64
#: How many rows are sampled to estimate the size of a row.
_LOOKED_AT: Final = 8


class OutputRoute(Route):
    """A route to the frame of an output."""

    __slots__ = ("box", "boxes")

    def __init__(self, box: Outbox) -> None:
        self.box = box
        self.boxes = [box]

    def pick(self, row: Row) -> Outbox:
        return self.box


class Sender:
    """Makes the records, in order, and the notes of one task, or of one partition of a source."""

    def __init__(self, plan: ReplayPlan, sender: int, heir: int, totals: Totals) -> None:
        """heir: the task that passes on this sender's notes."""
        self.plan = plan
        self.sender = sender
        self.heir = heir
        self.totals = totals
        self.seq = 0
        self.records: list[Record] = []
        self.errors: list[ErrorNote] = []
        #: The checkers of output streams: with the stream's schema, or, without one, with the types seen so far.
        self.checkers = {
            plan.number_of[key]: RowChecker(schema)
            for key, schema in plan.schemas.items()
            if key.component == totals.component
        }
        #: How many tuples an outbox gathers: `least` for a task, `least_rows` for an output. Both fall if tuples are large.
        self.least = self.least_rows = _FIRST

    def pop_records(self) -> list[Record]:
        """Return the records that were made since the last call."""
        made, self.records = self.records, []
        return made

    def drain(self, dirty: list[Outbox], everything: bool = False) -> list[Outbox]:
        """Send the contents of outboxes that are full enough (or, if `everything`, of all); return the other outboxes."""
        left = []
        for box in dirty:
            least = self.least_rows if box.target == records.NO_TASK else self.least
            if len(box.rows) < least and not everything:
                left.append(box)
                continue
            tuples = Tuples(*box.pop_all())
            if box.target == records.NO_TASK:
                self.put_out(box.source, tuples)
            elif box.target in self.plan.running:
                self.send(box.source, box.target, tuples)
        return left

    def send(self, source: Source, target: int, tuples: Tuples) -> None:
        """Send tuples to a task that runs; a tuple that cannot be pickled is an error of its emitter."""

        def refuse(single: Tuples) -> None:
            self.refuse(source, single, 0, why_unpicklable(source, single.row(0)))

        stream = self.plan.number_of[StreamKey(source.component, source.stream)]
        blobs = list(records.encode_all(tuples, refuse))
        for blob in blobs:
            self.put(target, stream, blob)
        if blobs:
            size = max(1, sum(map(len, blobs)) // tuples.size)
            self.least = max(1, min(records.MOST_TUPLES, records.MOST_BYTES // 4 // size))

    def put_out(self, source: Source, tuples: Tuples) -> None:
        """Put tuples into the frame of an output; a tuple that does not fit is an error of its emitter."""
        stream = self.plan.number_of[StreamKey(source.component, source.stream)]
        start = 0
        while start < tuples.size:
            some = tuples.part(start, min(tuples.size, start + self.least_rows))
            if (checker := self.checker_of(stream, source, some)) is None:  # the job fails
                return
            columns, bad = checker.split_columns(some.columns, some.size)
            for at in sorted(bad):
                self.refuse(source, some, at, "; ".join(bad[at]))
            start += some.size
            if columns.rows:
                self.put(records.NO_TASK, stream, Checked(columns, checker))
                self.least_rows = max(1, min(records.MOST_ROWS, records.MOST_BYTES // 4 // size_of(columns)))

    def put(self, target: int, stream: int, blob: Buffer | Checked) -> None:
        """Add one record."""
        self.records.append(Record(target, stream, self.sender, self.seq, blob))
        self.seq += 1

    def checker_of(self, stream: int, source: Source, tuples: Tuples) -> RowChecker | None:
        """Return the checker for tuples of an output. If it has no schema, record the types of these tuples, and return
        the checker for all types so far; None if they have no common schema.
        """
        totals, fields = self.totals, source.fields
        if StreamKey(source.component, source.stream) in self.plan.schemas:
            return self.checkers[stream]
        if stream in totals.conflicts:
            return None
        known = totals.kinds.get(stream)
        try:
            kinds = kinds_of(fields, tuples.columns)
            if known is not None:
                kinds = merge_all(fields, known, kinds)
            if known != kinds:
                totals.kinds[stream] = kinds
                self.checkers[stream] = RowChecker(schema_of(fields, kinds))
        except TypeConflict as conflict:
            totals.conflicts[stream] = str(conflict)
            return None
        return self.checkers[stream]

    def refuse(self, source: Source, tuples: Tuples, at: int, why: str) -> None:
        """Record that a tuple cannot be sent, as an error of its emitter."""
        self.fail("emit", source, tuples.row(at), tuples.trees(at), why)

    def fail(
        self,
        call: str,
        source: Source | None,
        values: Row | str | None,
        roots: list[int],
        error: str | None,
        trace: str = "",
    ) -> None:
        """Record an error of the task. values: the tuple's values, or their text."""
        totals = self.totals
        stream = None if source is None else str(StreamKey(source.component, source.stream))
        origins = tuple(records.origin_of(root) for root in dict.fromkeys(roots) if root > 0)
        component, index = self.plan.place_of[totals.task]
        text = values if values is None or isinstance(values, str) else short(values, 1000)
        note = ErrorNote(component, totals.task, index, call, stream, text, error, trace, origins)
        totals.errors += 1
        if len(totals.first) < records.FIRST:
            totals.first.append(note.text)
        self.errors.append(note)
        if len(self.errors) >= _ERRORS_AT_ONCE:
            self.flush_errors()

    def flush_errors(self) -> None:
        """Send the pending errors."""
        if self.errors:
            self.put(self.heir, records.ERRORS, records.dumps(self.errors))
            self.errors = []

    @property
    def too_many(self) -> bool:
        """Whether this task alone has more errors than the whole job may have."""
        most = self.plan.max_errors
        return most is not None and self.totals.errors > most

    def finish(self) -> None:
        """Send the notes, after everything else."""
        self.flush_errors()
        self.put(self.heir, records.TOTALS, records.dumps(self.totals))


def size_of(columns: Columns) -> int:
    """Return the approximate bytes of a row as a pickle, from a few samples."""
    some = range(0, columns.rows, -(-columns.rows // _LOOKED_AT))
    sizes = [len(records.dumps([values[at] for values in columns.values])) for at in some]
    return sum(sizes) // len(sizes)


def why_unpicklable(source: Source, row: Row) -> str:
    """Return why a row cannot be pickled, with the first field at fault."""
    for name, value in zip(source.fields, row):
        try:
            records.dumps(value)
        except records.Unpicklable as error:
            return (
                f"field {name!r} of stream {source.stream!r} cannot be pickled, so it cannot be sent: {error}"
            )
    return f"a tuple of stream {source.stream!r} cannot be pickled, so it cannot be sent"


def add_output(output: StreamOutput) -> None:
    """Also route a stream's tuples into a frame. The route picks the target, as for a stream with one reader; unlike a fixed
    outbox, such a route keeps the emitter's fast path.
    """
    output.picked.append(OutputRoute(Outbox(output.source, records.NO_TASK)))
    output.only, output.key = None, -1  # resets the cache of the previous routes
    output.shorten()
