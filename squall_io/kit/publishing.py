"""PublishingSink: the base of sinks that send messages and await the server's confirmation of each, at least once.

    class OrdersSink(PublishingSink):
        def __init__(self, ...): ...

        def make_publisher(self, context):
            return OrdersPublisher(...)  # a Publisher; it connects later

A sink whose system has transactions that can hold a token is a `TokenSink` instead.
Must not know: protocols, codecs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from squall_io.kit.calls import Call, CallingThread
from squall_io.kit.codecs import CodecAway
from squall_io.kit.waiting import SystemAway, Waiting
from topology_api import BatchBolt, FailTuple, SquallError

if TYPE_CHECKING:
    from topology_api import Context, Tuple

T = TypeVar("T")
#: The most seconds that a batch is waited for.
BATCH_SECONDS: Final = 0.05
#: Seconds between two calls of `Publisher.keep_alive`.
ALIVE_SECONDS: Final = 5.0
#: Seconds without an answer after which that is logged.
SILENCE: Final = 10.0


class Confirmations:
    """What the server has said of the messages of one call of `publish`, by their position in it."""

    def __init__(self, count: int) -> None:
        self._left = dict.fromkeys(range(count))
        self._refused: dict[int, str] = {}

    def sent(self, index: int) -> None:
        """Note that the server has a message."""
        self._left.pop(index, None)

    def refused(self, index: int, reason: str) -> None:
        """Note that the server will never take a message: its tuple fails with this reason."""
        self._left.pop(index, None)
        self._refused[index] = reason

    @property
    def left(self) -> list[int]:
        """The messages of which nothing is known, in order."""
        return list(self._left)

    @property
    def reasons(self) -> dict[int, str]:
        """Why each refused message is."""
        return self._refused


class Publisher(ABC):
    """The connection of one task. `message` is called in the task's thread, all else in another one, one call at a time.

    Each call should end within some ten seconds, also while the server is frozen: give the library a timeout. Calls may raise
    `SystemAway` (`QueueAway` is one), and another SquallError for what a user has to change. After either the sink calls
    `close`, and after a pause `connect`.

    what: the server, for the log and the status: "RabbitMQ at mq:5672".
    delayed: why a call of `publish` waits on, as the server has said; "": it does not. The sink shows it.
    """

    what: str
    delayed: str = ""

    @abstractmethod
    def message(self, tup: Tuple) -> Any:
        """Return the message of a tuple. Raises FailTuple for a tuple that makes none; `CodecAway` is waited for."""

    @abstractmethod
    def connect(self) -> None:
        """Connect. Called before `publish`, and again after `close`."""

    @abstractmethod
    def publish(self, messages: Sequence[Any], confirmations: Confirmations) -> None:
        """Send messages in their order, and say of each in `confirmations` what the server says.

        Messages of which it says nothing, because the call returns or raises SystemAway, are sent again after a pause: so raise
        SystemAway for those of a batch that the server only delays.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Must not raise; may be called without a connection."""

    def keep_alive(self) -> None:
        """Answer heartbeats: called every few seconds while there is a connection and nothing is published."""
        return


class PublishingSink(BatchBolt):
    """Sends a message for each tuple. Subclasses define `make_publisher`.

    A tuple is acked when the server has confirmed its message. One that makes no message, or whose message the server refuses,
    fails alone, with the reason. While the server does not answer, the sink waits with its batch, and `squall status` says so;
    then what was not confirmed is sent again. So each message is there at least once.
    """

    threaded = True  # libraries block
    auto_ack = True
    batch_size = 1000
    batch_interval = BATCH_SECONDS
    tick_interval = ALIVE_SECONDS
    _publishing: Publishing | None = None

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task, which is not connected yet. Called in `prepare`: secrets are looked up here, codecs
        are opened, and libraries imported."""
        raise SquallError(f"{type(self).__name__} has no make_publisher(context): define it")

    def prepare(self, context: Context) -> None:
        """Make the publisher. Raises SquallError for settings and secrets that are not valid here."""
        self._publishing = Publishing(self.make_publisher(context), context)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Send the messages of a batch, and wait until all are confirmed or refused."""
        assert self._publishing is not None, "prepare was called"
        for tup, reason in self._publishing.send(tups):
            self.fail(tup, reason)

    def tick(self) -> None:
        """Keep the connection alive."""
        if self._publishing is not None:
            self._publishing.keep_alive()

    def cleanup(self) -> None:
        """Close the connection."""
        if self._publishing is not None:
            self._publishing.close()


class WorkerHasEnded(Exception):
    """The worker has ended while the server was waited for: the call has no effect any more."""


class Publishing:
    """The work of one task of a PublishingSink."""

    def __init__(self, publisher: Publisher, context: Context) -> None:
        self._publisher = publisher
        self._context = context
        self._waiting = Waiting(publisher.what, context.log, context.progress, context.now)
        self._codec_waits = Waiting("what the codec needs", context.log, context.progress, context.now)
        self._calls = CallingThread(f"{context.component}-publisher")
        self._connected = False
        self._last: Call[None] | None = None
        self._asked_at = 0.0
        self._again = context.counter("messages sent again")

    def send(self, tups: Sequence[Tuple]) -> list[tuple[Tuple, FailTuple]]:
        """Send a message for each tuple; return the tuples that fail. Raises SquallError for what a user has to change."""
        failed: list[tuple[Tuple, FailTuple]] = []
        messages: list[tuple[Tuple, Any]] = []
        try:
            for tup in tups:
                try:
                    messages.append((tup, self._message(tup)))
                except FailTuple as error:
                    failed.append((tup, error))
            while messages:
                confirmations = Confirmations(len(messages))
                self._publish([message for _, message in messages], confirmations)
                reasons = confirmations.reasons
                failed += [(messages[at][0], FailTuple(reason)) for at, reason in sorted(reasons.items())]
                messages = [messages[at] for at in confirmations.left]
                self._again.add(len(messages))
        except WorkerHasEnded:
            return []
        return failed

    def keep_alive(self) -> None:
        """Begin a call of the publisher; do not wait for it."""
        if self._connected and (self._last is None or self._last.is_over()):
            self._last = self._calls.begin(self._keep_alive)

    def close(self) -> None:
        """Close the connection, unless a call is left that does not end."""
        closed = self._calls.begin(self._publisher.close)
        self._calls.end()
        closed.is_over(SILENCE)

    def _message(self, tup: Tuple) -> Any:
        while True:
            try:
                message = self._publisher.message(tup)
            except CodecAway as error:
                self._pause(self._codec_waits.failed(str(error)))
            else:
                self._codec_waits.succeeded()
                return message

    def _publish(self, messages: list[Any], confirmations: Confirmations) -> None:
        """Send messages once; wait if the server is away."""
        self._asked_at = self._context.now()
        try:
            self._make(lambda: self._send_connected(messages, confirmations))
        except SystemAway as error:
            self._pause(self._waiting.failed(str(error)))
            return
        if len(confirmations.left) == len(messages):
            self._pause(self._waiting.failed("it has confirmed nothing"))
        else:
            self._waiting.succeeded()

    def _send_connected(self, messages: list[Any], confirmations: Confirmations) -> None:
        try:
            if not self._connected:
                self._publisher.connect()
                self._connected = True
            self._publisher.publish(messages, confirmations)
        except BaseException:
            self._disconnect()
            raise

    def _keep_alive(self) -> None:
        try:
            if self._connected:
                self._publisher.keep_alive()
        except BaseException as error:  # the next batch says what is wrong
            self._context.log.info("the connection of %s is lost: %s", self._publisher.what, error)
            self._disconnect()

    def _disconnect(self) -> None:
        self._connected = False
        self._publisher.close()

    def _pause(self, seconds: float) -> None:
        self._make(partial(time.sleep, seconds))

    def _make(self, call: Callable[[], T]) -> T:
        """Make a call in the other thread. Raises WorkerHasEnded."""
        if self._context.stopped:
            raise WorkerHasEnded
        return self._calls.make(call, self._no_answer)

    def _no_answer(self) -> None:
        """Say that the server does not answer, while a call waits for it. Raises WorkerHasEnded."""
        context, waiting = self._context, self._waiting
        if context.stopped:
            raise WorkerHasEnded
        if waiting.reason:
            waiting.shown()
        elif self._codec_waits.reason:
            self._codec_waits.shown()
        elif self._publisher.delayed:
            waiting.failed(self._publisher.delayed)
        elif context.now() - self._asked_at >= SILENCE:
            waiting.failed(f"no answer for {SILENCE:.0f} s")
        else:
            context.progress(f"waiting for an answer of {waiting.what}")
