"""emit() of a stateful bolt: what a call emits is held until the call has returned, and dropped if it raises.

The tasks that get a tuple are chosen, and the call's mistakes found, when it is emitted, as in every other bolt.
Must not know: links, state.
"""

from __future__ import annotations

from random import Random
from typing import Any

from topology_api.tuples import Tuple
from worker.routing.outbox import Outbox
from worker.routing.router import Row, StreamOutput
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
        self.held: list[Held] = []

    @cython.locals(output=StreamOutput, row=tuple)
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
        trees = self.trees(anchors)
        self.held.append((row, output.choose(row), trees, stream))

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit_direct`."""
        if get_ident() != self.owner:
            self.refuse()
        output, boxes = self.direct_output(stream, task)
        self.held.append((self.checked_row(output, values), boxes, self.trees(anchors), stream))

    def release(self) -> None:
        """Put what the call has emitted into the outboxes."""
        held, self.held = self.held, []
        for row, boxes, anchors, stream in held:
            self.send(row, boxes, anchors, stream)

    def send(self, row: Row, boxes: list[Outbox], anchors: list[Tuple], stream: str) -> None:
        """Put one row into its outboxes."""
        self.spread(row, boxes, anchors)

    def drop(self) -> None:
        """Forget what the call has emitted."""
        self.held.clear()
