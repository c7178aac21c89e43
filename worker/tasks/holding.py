"""emit() of a stateful bolt: what a call emits is held until the call has returned, and dropped if it raises.

The tasks that get a tuple are chosen, and the call's mistakes found, when it is emitted, as in every other bolt.
Must not know: links, state.
"""

from __future__ import annotations

from random import Random
from typing import Any

from squall.transport.row_columns import RowColumns
from topology_api.tuples import Tuple
from worker.routing.outbox import Outbox
from worker.routing.router import Route, Row, StreamOutput
from worker.tasks.emitter import BoltEmitter

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    from threading import get_ident

#: A held emission: the row, the outboxes of the tasks that get it, its anchors, and its stream.
Held = tuple[Row, list[Outbox], list[Tuple], str]


class HoldingEmitter(BoltEmitter):
    """emit() of a stateful bolt's task."""

    def __init__(self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random) -> None:
        super().__init__(component, task, outputs, random)
        #: The first emissions of the call, as long as each goes to one outbox and has the tuple at hand as its only anchor:
        #: their rows, and their outboxes. Almost all are such, and this form costs no object.
        self.held_rows: list[Row] = []
        self.held_boxes: list[Outbox] = []
        #: What the call has emitted after these.
        self.held: list[Held] = []
        #: Whether `send` is one of a subclass, which is to get every emission.
        self.sends = type(self) is not HoldingEmitter

    @cython.locals(output=StreamOutput, row=tuple, anchor=Tuple, route=Route)
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
        route = output.only
        if not (
            route is None
            or anchor._root < 0
            or anchors is not None
            or anchor._more
            or self.held
            or self.sends
        ):
            self.held_boxes.append(route.pick(row))
            self.held_rows.append(row)
            return
        trees = self.trees(anchors)
        self.held.append((row, output.choose(row), trees, stream))

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit_direct`."""
        if get_ident() != self.owner:
            self.refuse()
        output, boxes = self.direct_output(stream, task)
        self.held.append((self.checked_row(output, values), boxes, self.trees(anchors), stream))

    def holds(self) -> bool:
        """Return whether the call has emitted anything."""
        return bool(self.held_rows or self.held)

    @cython.locals(
        held_rows=list,
        held_boxes=list,
        at=cython.Py_ssize_t,
        anchor=Tuple,
        root=cython.longlong,
        edge=cython.longlong,
        xor=cython.longlong,
        box=Outbox,
        rows=RowColumns,
    )
    def release(self) -> None:
        """Put what the call has emitted into the outboxes."""
        held_rows, held_boxes = self.held_rows, self.held_boxes
        if held_rows:
            anchor = self.anchor
            root, xor = anchor._root, 0
            for at in range(len(held_rows)):
                box = held_boxes[at]
                edge = 0
                if root:
                    if cython.compiled:
                        edge = self.edges.draw()
                    else:
                        edge = self.edge()
                rows = box.rows
                if rows.count == 0 if cython.compiled else not rows:
                    rows = box.begin()
                    self.dirty.append(box)
                rows.append(held_rows[at])
                box.roots.append(root)
                box.edges.append(edge)
                xor ^= edge
            anchor._xor ^= xor
            self.emitted += len(held_rows)
            held_rows.clear()
            held_boxes.clear()
        if self.held:
            held, self.held = self.held, []
            for row, boxes, anchors, stream in held:
                self.send(row, boxes, anchors, stream)

    def send(self, row: Row, boxes: list[Outbox], anchors: list[Tuple], stream: str) -> None:
        """Put one row into its outboxes."""
        self.spread(row, boxes, anchors)

    def drop(self) -> None:
        """Forget what the call has emitted."""
        self.held_rows.clear()
        self.held_boxes.clear()
        self.held.clear()
