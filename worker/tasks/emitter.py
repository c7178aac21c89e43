"""emit(): from a user's values to rows in outboxes, with an edge for each row in the tuple's tree.

Each task has its emitter. `BoltEmitter` anchors to the tuple that is being executed, `SpoutEmitter` opens a tree per message
id. With `worker/tasks/bolt.py` this is the hottest code: every line of `emit` costs each tuple (figures:
benchmarks/RESULTS.md).
Must not know: links, credit, user classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, NoReturn, cast

from squall.transport.id_columns import Ids
from squall.transport.row_columns import RowColumns
from topology_api import EmitError
from topology_api.tuples import BOUNDED, SETTLED, Source, Tuple
from topology_api.wording import class_name
from worker.routing.outbox import Outbox
from worker.routing.router import Route, Row, StreamOutput
from worker.tracking.ids import SplitMix, words_of
from worker.tracking.tracker import Emission, Tracker

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    from threading import get_ident

    leave_out = untrack = cast("Any", None)

#: The value of `Emitter.anchor` when there is nothing to anchor to.
NOTHING: Tuple = Tuple.__new__(Tuple)
NOTHING._root = 0
NOTHING._xor = 0
NOTHING._more = ()
NOTHING._values = ()


class Emitter:
    """The common base of the emitters of spouts and bolts."""

    def __init__(self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random) -> None:
        self.component = component
        self.task = task
        self.outputs = outputs
        default = outputs.get("default")
        self.default = None if default is None or default.is_direct else default
        self.random = random
        #: The source of edge ids; in plain Python, a list of ids that are drawn in blocks.
        self.edges: Any = SplitMix(random.getrandbits(64)) if cython.compiled else Ids()
        #: The outboxes that are not empty: a task may have thousands of outboxes, but few in use at a time.
        self.dirty: list[Outbox] = []
        #: The number of calls of emit so far.
        self.emitted = 0
        #: The thread that may emit; 0: no thread may, for the reason in `why_not`.
        self.owner = 0
        self.why_not = "its task is not running yet"

    def open_for(self, thread: int) -> None:
        """Allow this thread to emit."""
        self.owner = thread

    def close_for(self, reason: str) -> None:
        """Forbid emitting; `reason` completes "cannot emit: …"."""
        self.owner = 0
        self.why_not = reason

    def emit(self, *args: Any, **options: Any) -> None:
        """Put a tuple into the outboxes of the tasks that get it."""
        raise AssertionError("every kind of emitter has its own emit")

    def emit_direct(self, *args: Any, **options: Any) -> None:
        """Put a tuple into the outbox of one task that reads a direct stream."""
        raise AssertionError("every kind of emitter has its own emit_direct")

    def output(self, stream: str) -> StreamOutput:
        """Return the output with this name. Raises `EmitError` if the stream is unknown or direct."""
        output = self.outputs.get(stream) if isinstance(stream, str) else None
        if output is None:
            streams = ", ".join(repr(name) for name in self.outputs if not name.startswith("__")) or "none"
            raise EmitError(
                f"{self.where()}: no output stream {stream!r} is declared; its streams are: {streams}"
            )
        if output.is_direct:
            raise EmitError(
                f"{self.where()}: stream {stream!r} is direct; use emit_direct(task, values, stream={stream!r})"
            )
        return output

    def direct_output(self, stream: str, task: int) -> tuple[StreamOutput, list[Outbox]]:
        """Return the direct output with this name, and a list with the outbox of `task` (empty if no task reads the stream)."""
        output = self.outputs.get(stream) if isinstance(stream, str) else None
        if output is None or not output.is_direct:
            raise EmitError(
                f"{self.where()}: stream {stream!r} is not a direct stream; declare it as Stream(fields, direct=True)"
            )
        if task in output.direct:
            return output, [output.direct[task]]
        if not output.direct:
            return output, []
        raise EmitError(
            f"{self.where()}: task {task!r} does not read stream {stream!r} by direct grouping; "
            f"tasks that do: {sorted(output.direct)}"
        )

    def row(self, values: Any) -> Row:
        """Return the values as a tuple; a single string or a value that is not a sequence raises `EmitError`."""
        if isinstance(values, (list, tuple)):
            return tuple(values)
        if isinstance(values, (str, bytes, dict, set)) or not isinstance(values, Iterable):
            raise EmitError(
                f"{self.where()}: emit() takes a tuple or list of values, not {type(values).__name__} {short(values)}; "
                "one value is written (value,)"
            )
        return tuple(values)

    def checked_row(self, output: StreamOutput, values: Any) -> Row:
        """Return the values as a row for this output."""
        row = self.row(values)
        if len(row) != output.arity:
            self.wrong_arity(output, row)
        return row

    def refuse(self) -> NoReturn:
        """Raise an error for a call of emit() that is not allowed."""
        if self.owner == 0:
            raise EmitError(f"{self.where()} cannot emit: {self.why_not}")
        raise EmitError(
            f"{self.where()} cannot emit from another thread: emit in the task's own calls, or hand the values to next_tuple "
            "through a queue.Queue and call context.wake()"
        )

    def wrong_arity(self, output: StreamOutput, row: Row) -> NoReturn:
        """Raise an error for a row with more or fewer values than the stream has fields."""
        fields = ", ".join(output.source.fields)
        raise EmitError(
            f"{self.where()}: stream {output.source.stream!r} has {output.arity} field(s) ({fields}), "
            f"but {len(row)} value(s) were emitted: {short(row)}"
        )

    def where(self) -> str:
        """Return component and task, for messages."""
        return f"component {self.component!r} (task {self.task})"

    def put(self, box: Outbox, row: Row, roots: list[tuple[int, int]]) -> None:
        """Put a row of any number of trees into an outbox; `roots` are (root, edge) pairs."""
        if not box.rows:
            self.dirty.append(box)
        box.add(row, roots)

    def edge(self) -> int:
        """Return a new random edge id."""
        if cython.compiled:
            return self.edges.draw()  # type: ignore[no-any-return]
        if not self.edges:
            self.edges = words_of(self.random)
        return self.edges.pop()  # type: ignore[no-any-return]

    def boxes(self) -> list[Outbox]:
        """Return all outboxes of the task, each once."""
        found: dict[int, Outbox] = {}
        for output in self.outputs.values():
            every = [*output.fixed, *output.direct.values()]
            for route in output.picked:
                every += route.every  # type: ignore[attr-defined]
            for custom in output.many:
                every += custom.boxes.values()
            found.update((id(box), box) for box in every)
        return list(found.values())

    def avoid(self, tasks: frozenset[int]) -> None:
        """Send to these tasks only what must go there: shuffle groupings leave them out."""
        for output in self.outputs.values():
            output.avoid(tasks)

    def lend(self, task: int) -> None:
        """Send a single tuple to a task that is avoided, as soon as there is one."""
        for output in self.outputs.values():
            output.lend(task)


class BoltEmitter(Emitter):
    """emit() of a bolt's task. `anchor` is the tuple being executed, or NOTHING."""

    def __init__(self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random) -> None:
        super().__init__(component, task, outputs, random)
        self.anchor = NOTHING

    @cython.locals(
        output=StreamOutput,
        row=tuple,
        anchor=Tuple,
        root=cython.longlong,
        route=Route,
        box=Outbox,
        rows=RowColumns,
        edge=cython.longlong,
    )
    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit`."""
        if get_ident() != self.owner:
            self.refuse()
        output = self.default if stream == "default" else None
        if output is None:
            output = self.output(stream)
        row: Row = values if type(values) is tuple else self.row(values)
        if len(row) != output.arity:
            self.wrong_arity(output, row)
        anchor = self.anchor
        root = anchor._root
        route = output.only
        if route is None or root < 0 or anchors is not None or anchor._more:
            if output.unread and anchors is None and root >= 0:
                self.emitted += 1
            else:
                trees = self.trees(anchors)
                self.spread(row, output.choose(row), trees)
            return
        if cython.compiled or output.key < 0:
            box = route.pick(row)
        else:
            try:
                box = output.cache[row[output.key]]
            except (KeyError, TypeError):  # a new key, or a key that contains a list
                box = route.pick(row)
        # The edge is drawn first, since this is the deepest call: if a user's recursion leaves no room for it, nothing is
        # emitted.
        edge = 0
        if root:
            if cython.compiled:
                edge = self.edges.draw()
            else:
                edges = self.edges
                if not edges:
                    edges = self.edges = words_of(self.random)
                edge = edges.pop()
        rows = box.rows
        if rows.count == 0 if cython.compiled else not rows:
            rows = box.begin()
            self.dirty.append(box)
        rows.append(row)
        box.roots.append(root)
        box.edges.append(edge)
        anchor._xor ^= edge
        self.emitted += 1

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit_direct`."""
        if get_ident() != self.owner:
            self.refuse()
        output, boxes = self.direct_output(stream, task)
        row = self.checked_row(output, values)
        self.spread(row, boxes, self.trees(anchors))

    def trees(self, anchors: Any) -> list[Tuple]:
        """Return the tracked tuples to anchor to: the given tuples, else the tuple that is being executed."""
        if anchors is None:
            anchors = (self.anchor,)
            if self.anchor._root == SETTLED:
                self.closed_anchor(self.anchor)
        elif isinstance(anchors, Tuple):
            anchors = (anchors,)
        elif not isinstance(anchors, Iterable):
            raise EmitError(
                f"{self.where()}: anchors= takes a tuple that execute() got, or several, not {short(anchors)}"
            )
        found = []
        for anchor in anchors:
            if not isinstance(anchor, Tuple):
                raise EmitError(
                    f"{self.where()}: anchors= takes tuples that execute() got, not {short(anchor)}"
                )
            if anchor._root == SETTLED:
                self.closed_anchor(anchor)
            if anchor._root > 0:
                found.append(anchor)
        return found

    def closed_anchor(self, anchor: Tuple) -> NoReturn:
        """Raise an error for an emission anchored to a tuple that has been acked or failed."""
        raise EmitError(
            f"{self.where()} cannot anchor to {short(anchor)}: it was acked or failed already, so its tree may be complete; "
            "emit before the ack, or unanchored with anchors=()"
        )

    def spread(self, row: Row, boxes: list[Outbox], anchors: list[Tuple]) -> None:
        """Put a row into outboxes; each copy becomes a child of all anchors.

        There may be several anchors, the same anchor twice, or several anchors of one tree: each anchor gets its own edge, and
        the edges into one tree are XORed (Storm's rule).
        """
        self.emitted += 1
        if not anchors:
            for box in boxes:
                self.put(box, row, [])
            return
        only = anchors[0]
        if len(anchors) == 1 and not only._more:
            for box in boxes:
                edge = self.edge()
                self.put(box, row, [(only._root, edge)])
                only._xor ^= edge
            return
        for box in boxes:
            edges: dict[int, int] = {}
            for anchor in anchors:
                edge = self.edge()
                anchor._xor ^= edge
                edges[anchor._root] = edges.get(anchor._root, 0) ^ edge
                for root, _ in anchor._more:
                    edges[root] = edges.get(root, 0) ^ edge
            self.put(box, row, list(edges.items()))


class SpoutEmitter(Emitter):
    """emit() of a spout's task: a message id opens a tree in the task's tracker."""

    def __init__(
        self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random, tracker: Tracker
    ) -> None:
        super().__init__(component, task, outputs, random)
        self.tracker = tracker
        #: The time that emissions are stamped with; set before each run of calls.
        self.now = 0.0

    @cython.locals(output=StreamOutput, row=tuple, box=Outbox, rows=RowColumns)
    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit`."""
        if get_ident() != self.owner:
            self.refuse()
        output = self.default if stream == "default" else None
        if output is None:
            output = self.output(stream)
        row: Row = values if type(values) is tuple else self.row(values)
        if len(row) != output.arity:
            self.wrong_arity(output, row)
        if message_id is None:
            for box in output.choose(row) if output.picked or output.many else output.fixed:
                rows = box.rows
                if rows.count == 0 if cython.compiled else not rows:
                    rows = box.begin()
                    self.dirty.append(box)
                rows.append(row)
                box.roots.append(0)
                box.edges.append(0)
        else:
            self.track((message_id, row, output.source, 0, 1, self.now, None))
        self.emitted += 1

    @cython.locals(output=StreamOutput, row=tuple, ids=list, box=Outbox, at=cython.Py_ssize_t)
    def emit_many(self, rows: Any, *, message_ids: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit_many`."""
        if get_ident() != self.owner:
            self.refuse()
        rows = rows_of(rows)
        ids: list[Any] = ids_of(rows, message_ids)
        output = self.output(stream)
        source, now = output.source, self.now
        at = 0
        try:
            for values in rows:
                row: Row = values if type(values) is tuple else self.row(values)
                if len(row) != output.arity:
                    self.wrong_arity(output, row)
                message_id = ids[at]
                if message_id is None:
                    for box in output.choose(row):
                        self.put(box, row, [])
                else:
                    self.track((message_id, row, source, 0, 1, now, None))
                at += 1
                self.emitted += 1
        except BaseException as error:
            error.emitted = at  # type: ignore[attr-defined]
            raise

    def emit_direct(self, task: int, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit_direct`."""
        if get_ident() != self.owner:
            self.refuse()
        output, boxes = self.direct_output(stream, task)
        row = self.checked_row(output, values)
        if message_id is None:
            for box in boxes:
                self.put(box, row, [])
        else:
            self.track((message_id, row, output.source, task, 1, self.now, None))
        self.emitted += 1

    @cython.locals(
        source=Source,
        output=StreamOutput,
        row=tuple,
        boxes=list,
        tracker=Tracker,
        root=cython.longlong,
        xor=cython.longlong,
        edge=cython.longlong,
        box=Outbox,
        rows=RowColumns,
    )
    def track(self, emission: Emission) -> None:
        """Open a tree for an emission (the first emission, or a replay) and put its row into the outboxes."""
        row, source, task = emission[1], emission[2], emission[3]
        output = self.default
        if output is None or output.source is not source:
            output = self.outputs[source.stream]
        # With no values but texts, numbers and the like it is in no cycle: the garbage collector would visit it in vain, again
        # and again while its tree is pending.
        if cython.compiled and emission[6] is None and leave_out(row) and leave_out(emission[0]):
            untrack(emission)
        if task:
            boxes = [output.direct[task]] if output.direct else []
        elif output.picked or output.many:
            boxes = output.choose(row)
        else:
            boxes = output.fixed
        tracker = self.tracker
        if not tracker.acking:
            tracker.untracked.append(emission)
            for box in boxes:
                self.put(box, row, [])
            return
        root = tracker.open(emission)
        xor = 0
        try:
            for box in boxes:
                edge = self.edge()
                rows = box.rows
                if rows.count == 0 if cython.compiled else not rows:
                    rows = box.begin()
                    self.dirty.append(box)
                rows.append(row)
                box.roots.append(root)
                box.edges.append(edge)
                xor ^= edge
            tracker.start(root, xor)
        except BaseException:
            # A user's recursion left no room for these calls: the emission is refused, and its tree must not stay.
            tracker.forget(root)
            raise


def rows_of(rows: Any) -> Any:
    """Return the rows of `emit_many` as a list or tuple: they are counted, cut into parts, and some are read twice."""
    if isinstance(rows, (list, tuple)):
        return rows
    if isinstance(rows, (str, bytes, dict, set)) or not isinstance(rows, Iterable):
        raise EmitError(
            f"emit_many() takes a list of rows, not {type(rows).__name__} {short(rows)}; one row of one value is [(value,)]"
        )
    return list(rows)


def ids_of(rows: Any, message_ids: Any) -> list[Any]:
    """Return the message id of each row of `emit_many`."""
    ids = [None] * len(rows) if message_ids is None else list(message_ids)
    if len(ids) != len(rows):
        raise EmitError(f"emit_many() got {len(rows)} rows and {len(ids)} message ids: give one for each row")
    return ids


def short(value: object, most: int = 120) -> str:
    """Return a value's text for a message, cut to `most` characters."""
    try:
        text = BOUNDED.repr(value)
    except BaseException as error:  # the value's class, and so its __repr__, may be the user's
        text = f"<{class_name(value)} whose repr raises {class_name(error)}>"
    return text if len(text) <= most else text[: most - 1] + "…"
