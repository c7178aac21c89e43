"""The transport inside one process: frames from worker to worker, in order, none lost.

With `encode` each frame goes through the codec, as it would on a network: tests use it so that they cover the codec, and so
that a value that cannot be sent is found before there is a network.
Must not know: tasks, user code, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from squall.transport.codec import Unencodable, decode, encode
from squall.transport.frames import Batch, Control, Frame, Unsent
from topology_api import Failure
from topology_api.tuples import Source

Deliver = Callable[[Frame], None]


class Loopback:
    """Joins the workers of one topology."""

    def __init__(
        self,
        streams: Sequence[tuple[str, str, tuple[str, ...]]],
        component_of: dict[int, str],
        encoded: bool = False,
    ) -> None:
        """`streams`: (component, stream, fields) of all streams; `component_of`: the component of each task."""
        self.streams = list(streams)
        self.numbers = {(component, stream): number for number, (component, stream, _) in enumerate(streams)}
        self.component_of = component_of
        self.encoded = encoded
        self.workers: dict[str, Deliver] = {}
        self.sources: dict[tuple[int, int], Source] = {}

    def join(self, worker: str, deliver: Deliver) -> None:
        """From now on frames for this worker go there."""
        self.workers[worker] = deliver

    def leave(self, worker: str) -> None:
        """The worker is gone; frames for it are lost."""
        self.workers.pop(worker, None)

    def send(self, worker: str, frame: Frame) -> None:
        """Hand a frame to a worker."""
        deliver = self.workers.get(worker)
        if deliver is None:
            return
        if self.encoded:
            for part in self.through_codec(frame):
                deliver(part)
        else:
            deliver(frame)

    def through_codec(self, frame: Frame) -> list[Frame]:
        """The frame as it comes out of the codec; tuples with a value that cannot be encoded fail and are left out."""
        note = Control(frame.sender)
        while True:
            try:
                data = encode(frame, lambda component, stream: self.numbers[component, stream])
                break
            except Unencodable as error:
                assert isinstance(frame, Batch)
                self.leave_out(frame, error, note)
        own = self.workers.get(frame.sender)
        if note and own is not None:
            own(note)
        return [decode(data, self.source)]

    def leave_out(self, batch: Batch, error: Unencodable, note: Control) -> None:
        """Take the tuple at fault out of a batch; the note to its worker says so, and that its trees failed."""
        at, source = error.position, batch.source
        failure = Failure("failed", source.component, source.task, str(error), 0)
        roots = [batch.roots[at], *(root for root, _ in batch.more.get(at, ()))]
        note.failures += [(root, replace(failure)) for root in roots if root > 0]
        note.unsent.append(Unsent(source.component, source.task, batch.rows[at], str(error), batch.cycle))
        del batch.rows[at], batch.roots[at], batch.edges[at]
        batch.more = {place - (place > at): pairs for place, pairs in batch.more.items() if place != at}

    def source(self, task: int, number: int) -> Source:
        """The source of a task's stream."""
        found = self.sources.get((task, number))
        if found is None:
            component, stream, fields = self.streams[number]
            found = self.sources[task, number] = Source(component, task, stream, fields)
        return found
