"""Tuples whose values cannot travel: they are left out of their batch, and their trees fail.

The worker learns of them by a `Control` frame from itself.
Must not know: links, messages.
"""

from __future__ import annotations

from dataclasses import replace

from squall.transport import wire
from squall.transport.carrier import Parts
from squall.transport.errors import Unencodable
from squall.transport.frames import Batch, Control, Unsent
from squall.transport.streams import Streams
from squall.transport.wire import Undecodable
from topology_api import Failure


def pack_encodable(
    batch: Batch, codec: str, streams: Streams, worker: str
) -> tuple[bytes, Parts, Control | None]:
    """Return the body of a batch, its further parts, and a note to the sending worker on the tuples that were left out."""
    note: Control | None = None
    while True:
        try:
            body, further = wire.pack_batch(batch, codec, streams.numbers)
            return body, further, note
        except Unencodable as error:
            note = note or Control(worker)
            _leave_out(batch, error, note)


def undecodable_note(error: Undecodable, worker: str, component: str | None) -> Control:
    """Return a note to the receiving worker: the trees of a batch fail, whose values it cannot decode."""
    task = error.batch.target
    failure = Failure("failed", component, task, str(error), 0)
    note = Control(worker)
    note.failures = [(root, failure) for root in sorted(error.roots)]
    note.unsent.append(Unsent(component or "?", task, (), str(error), -1, call=""))
    return note


def _leave_out(batch: Batch, error: Unencodable, note: Control) -> None:
    """Take the tuple at fault out of a batch, and its failure into the note."""
    at, source = error.position, batch.source
    failure = Failure("failed", source.component, source.task, str(error), 0)
    roots = [batch.roots[at], *(root for root, _ in batch.more.get(at, ()))]
    note.failures += [(root, replace(failure)) for root in roots if root > 0]
    note.unsent.append(
        Unsent(source.component, source.task, batch.rows[at], str(error), batch.cycle, batch.target)
    )
    del batch.rows[at], batch.roots[at], batch.edges[at]
    batch.more = {place - (place > at): pairs for place, pairs in batch.more.items() if place != at}
