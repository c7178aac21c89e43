"""QueueSpout: the base of spouts that read queues, where the server knows which messages are done.

    class OrdersSpout(QueueSpout):
        def __init__(self, ..., max_in_flight=1000, replay=Spout.replay):
            problems = [..., *queue_problems(max_in_flight, replay)]
            ...
            self.set_up(fields, ("queue", "value"), max_in_flight, replay)

        def make_client(self, context):
            return OrdersClient(...)  # a QueueClient; it connects later

Must not know: protocols, codecs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.queue_client import QueueClient
from squall_io.kit.queue_task import UNREADABLE, QueueTask
from squall_io.kit.replays import replay_problems
from topology_api import Fields, Spout
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Failure, Replay

#: The most messages that a task may hold.
MOST_IN_FLIGHT: Final = 65_535


class QueueSpout(Spout):
    """Reads a queue. Subclasses define `make_client`, and call `set_up` in the constructor.

    Each message is delivered at least once. It is acknowledged when its tree is acked, so with `topology.state.path` after the
    commit of its epoch, and rejected when it has failed for good. A message whose worker ends before that is delivered again,
    by the server. What the client cannot decode is emitted on the stream `unreadable`, and rejected after that.

    max_in_flight: the most messages of a task that are neither acked nor failed: beyond, nothing is received.
    """

    threaded = True  # receiving blocks
    max_in_flight: int
    _task: QueueTask | None = None

    def set_up(
        self, fields: Sequence[str], raw: Sequence[str], max_in_flight: int, replay: Replay | None
    ) -> None:
        """Set the arguments that all such spouts have, and the outputs. fields: those of a tuple. raw: those of the stream
        `unreadable`, which gets one more: `error`."""
        self.max_in_flight = max_in_flight
        self.replay = replay
        self.outputs = {"default": Fields(*fields), UNREADABLE: Fields(*raw, "error")}

    @abstractmethod
    def make_client(self, context: Context) -> QueueClient:
        """Return the client of a task, which is not connected yet. Called in `open`: secrets are looked up here, codecs are
        opened, and libraries imported. `self.max_in_flight` is what a server may send ahead."""

    def open(self, context: Context) -> None:
        """Make the client. Raises SquallError for settings and secrets that are not valid here."""
        self._task = QueueTask(self.make_client(context), context, self.max_in_flight)
        self._task.begin()

    def next_tuple(self) -> float | None:
        """Emit the next messages."""
        return self._opened.next(self.emit)

    def ack(self, message_id: Any) -> None:
        """Acknowledge a message."""
        self._opened.ack(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        """Reject a message that failed for good. One that was cut off is left to the server, which delivers it again."""
        if failure.reason == "handed over":  # Squall has written the values to the disk
            self._opened.ack(message_id)
        elif failure.reason != "stopped":
            self._opened.reject(message_id, reason_of(failure))

    def activate(self) -> None:
        """Receive again."""
        self._opened.active = True

    def deactivate(self) -> None:
        """Receive nothing more; the connection stays."""
        self._opened.deactivate()

    def close(self) -> None:
        """Acknowledge what is acked, and close the connection."""
        if self._task is not None:
            self._task.close()

    @property
    def _opened(self) -> QueueTask:
        assert self._task is not None, "open was called"
        return self._task


def queue_problems(max_in_flight: object, replay: object) -> Iterator[str]:
    """Yield what is wrong with the arguments that all spouts of queues have."""
    if type(max_in_flight) is not int or not 1 <= max_in_flight <= MOST_IN_FLIGHT:
        yield (
            f"max_in_flight is {typed(max_in_flight)}: give the most messages of a task that are in flight, 1 to"
            f" {MOST_IN_FLIGHT}"
        )
    yield from replay_problems(replay)


def reason_of(failure: Failure) -> str:
    """Return why a message failed for good, on one line."""
    place = "" if failure.component is None else f" at {failure.component}[{failure.task}]"
    text = "" if failure.error is None else f": {' '.join(failure.error.split())}"
    return f"{failure.reason}{place}{text}"[:1000]
