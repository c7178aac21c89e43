"""emit() of a stateful bolt: what a call has emitted is taken back if it raises.

Most emissions go into their outbox at once, since the worker's loop looks at outboxes only between two calls. Those that cannot
be taken back by a look at the outbox alone are held until the call has returned, and so are all of a threaded task. The tasks
that get a tuple are chosen, and the call's mistakes found, when it is emitted, as in every other bolt.
Must not know: links, state.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

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

#: The most outboxes that a list remembers after the call.
MOST_KEPT: Final = 1024
#: A held emission: the row, the outboxes of the tasks that get it, its anchors, and its stream.
Held = tuple[Row, list[Outbox], list[Tuple], str]


class HoldingEmitter(BoltEmitter):
    """emit() of a stateful bolt's task."""

    def __init__(self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random) -> None:
        super().__init__(component, task, outputs, random)
        #: The outboxes of the call's first emissions, `filled` of them, as long as each goes to one outbox and has the tuple at
        #: hand as its only anchor. Almost all are such, and this form costs no object. The list's rest is of earlier calls.
        self.boxes_filled: list[Outbox] = []
        self.filled = 0
        #: What the call has emitted after these.
        self.held: list[Held] = []
        #: Whether every emission is held: it is for `send` of a subclass, or the loop may look at outboxes during a call.
        self.holds_all = type(self) is not HoldingEmitter

    @cython.locals(
        output=StreamOutput,
        row=tuple,
        anchor=Tuple,
        root=cython.longlong,
        route=Route,
        box=Outbox,
        rows=RowColumns,
        edge=cython.longlong,
        filled=cython.Py_ssize_t,
        boxes=list,
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
        if route is None or root < 0 or anchors is not None or anchor._more or self.held or self.holds_all:
            trees = self.trees(anchors)
            self.held.append((row, output.choose(row), trees, stream))
            return
        box = route.pick(row)  # what follows is as in `BoltEmitter.emit`
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
        boxes, filled = self.boxes_filled, self.filled
        if filled < len(boxes):
            boxes[filled] = box
        else:
            boxes.append(box)
        rows.append(row)
        box.roots.append(root)
        box.edges.append(edge)
        anchor._xor ^= edge
        self.filled = filled + 1
        self.emitted += 1

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit_direct`."""
        if get_ident() != self.owner:
            self.refuse()
        output, boxes = self.direct_output(stream, task)
        self.held.append((self.checked_row(output, values), boxes, self.trees(anchors), stream))

    def holds(self) -> bool:
        """Return whether the call has emitted anything."""
        return bool(self.filled or self.held)

    def release(self) -> None:
        """Keep what the call has emitted: put what is held into the outboxes."""
        self.filled = 0
        if len(self.boxes_filled) > MOST_KEPT:
            self.boxes_filled.clear()
        if self.held:
            held, self.held = self.held, []
            for row, boxes, anchors, stream in held:
                self.send(row, boxes, anchors, stream)

    def send(self, row: Row, boxes: list[Outbox], anchors: list[Tuple], stream: str) -> None:
        """Put one row into its outboxes."""
        self.spread(row, boxes, anchors)

    @cython.locals(anchor=Tuple, edge=cython.longlong)
    def drop(self) -> None:
        """Take back what the call has emitted."""
        self.held.clear()
        anchor = self.anchor
        while self.filled:
            box = self.boxes_filled[self.filled - 1]
            edge = box.take_back()
            anchor._xor ^= edge
            if not len(box):
                self.dirty.remove(box)
            self.filled -= 1
            self.emitted -= 1
