"""Spout, Bolt and BatchBolt: the bases of what users write.

They hold no state and have no constructor, so that subclasses need no `super().__init__()`. What acts (emit,
ack, ...) is handed to the task object that the runtime puts into the instance's `__dict__` as `_squall_task`;
this module must not know what that object is. Reserved are the names on this page and those that begin with
`_squall_`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topology_api.errors import EmitError, SquallError
from topology_api.fields import DEFAULT_STREAM, Fields, Stream
from topology_api.values import Replay

if TYPE_CHECKING:
    from topology_api.context import Context
    from topology_api.tuples import Tuple
    from topology_api.values import Failure

__all__ = ["BatchBolt", "Bolt", "Outputs", "Spout"]

Outputs = Fields | Stream | str | Sequence[str] | Mapping[str, Fields | Stream | str | Sequence[str]]


def _task_of(component: Spout | Bolt, call: str) -> Any:
    # vars(): a user's __getattr__ must not be asked, and the class never has this name.
    task = vars(component).get("_squall_task")
    if task is None:
        kind = type(component).__name__
        first = "open" if isinstance(component, Spout) else "prepare"
        raise EmitError(
            f"{kind}.{call} was called outside a running task: it works from {first} on, not before"
            " (in a test without a topology, use local_cluster.testing)"
        )
    return task


class Spout:
    """A source of tuples. `next_tuple` must be there; all else is optional. Never called concurrently.

    The instance is made where the topology is built, pickled, and runs as a copy per task in the workers:
    what cannot be pickled (files, connections, threads) is made in `open`.

    outputs: the output streams; a class or instance attribute, or a property: Fields (or a string, or a
        sequence of strings) for the stream `default`, or a dict from stream names to Fields or Stream.
        Missing: no output.
    replay: a Replay: the runtime keeps the values of tracked emissions and emits a failed tree again; None:
        `fail` is called on the first failure and replays are the spout's own.
    threaded: True runs the task in a thread of its own, for code that blocks.
    """

    outputs: Outputs = {}
    replay: Replay | None = Replay()
    threaded: bool = False

    def open(self, context: Context) -> None:
        """Runs once in the task, before the first `next_tuple`. May emit."""

    def next_tuple(self) -> float | None:
        """Called again and again: emits something, or nothing when there is nothing.

        May return the seconds to wait before its next call (`context.wake()` ends the wait); None: soon.
        """
        raise SquallError(f"{type(self).__name__} has no next_tuple(): a spout must have one")

    def ack(self, message_id: object) -> None:
        """The tree of an emission with this message id is done: every bolt that it reached has acked."""

    def fail(self, message_id: object, failure: Failure) -> None:
        """The tree of an emission with this message id failed for good: no replay is left to try."""

    def activate(self) -> None:
        """The topology has been activated again after `deactivate`."""

    def deactivate(self) -> None:
        """The topology is inactive now: no `next_tuple` until `activate`; acks and fails still come."""

    def close(self) -> None:
        """The task ends. Not called when the process is killed."""

    def emit(
        self, values: Sequence[object], *, message_id: object = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emits one tuple.

        values: a sequence, one value per field of the stream; the values are not to be mutated afterwards.
        message_id: any value but None tracks the tuple's tree, and `ack` or `fail` is called with it exactly
            once; it need not be unique. None: not tracked, delivered at most once.
        stream: one of the output streams.
        Raises EmitError (wrong number of values, unknown or direct stream, a thread not the task's).
        """
        _task_of(self, "emit").emit(values, message_id=message_id, stream=stream)

    def emit_direct(
        self, task: int, values: Sequence[object], *, message_id: object = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """As `emit`, on a direct stream, to one task: an id out of `context.tasks(component)`."""
        _task_of(self, "emit_direct").emit_direct(task, values, message_id=message_id, stream=stream)

    def finish(self) -> None:
        """The source has ended: `next_tuple` is not called again. Pending trees and replays go on."""
        _task_of(self, "finish").finish()


class Bolt:
    """Takes tuples, does something, may emit. Subclasses must have `execute` (a BatchBolt: `execute_batch`).

    The instance is made where the topology is built, pickled, and runs as a copy per task in the workers.

    outputs: as for Spout.
    auto_anchor: emits inside `execute` are anchored to its tuple, so that the tuple's tree waits for them.
    auto_ack: the tuple is acked when `execute` returns and failed when it raises. With both False every input
        must be acked or failed by `ack` and `fail`, later and in any order if you like.
    threaded: True runs the task in a thread of its own, for code that blocks.
    max_concurrency: how many calls of an `async def execute` run at a time, per task.
    tick_interval: seconds between calls of `tick`; None: `topology.tick.tuple.freq.secs` says.
    """

    outputs: Outputs = {}
    auto_anchor: bool = True
    auto_ack: bool = True
    threaded: bool = False
    max_concurrency: int = 100
    tick_interval: float | None = None

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Runs where the topology is built: what is wrong with what the bolt reads, each problem a sentence; none by default.

        inputs: the fields of each stream that it reads, by (component, stream). For bolts that need certain fields, so that
        it is known before the topology runs; a problem makes `build()` raise InvalidTopology.
        """
        return ()

    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        """Runs where the topology is built, after `input_problems`: why the bolt cannot be in one topology with others, each
        problem a sentence; none by default. earlier: the bolts that were declared before it, so that a pair is asked once.
        """
        return ()

    def prepare(self, context: Context) -> None:
        """Runs once in the task, before the first `execute`. May emit (unanchored unless said)."""

    def execute(self, tup: Tuple) -> Awaitable[None] | None:
        """Called with each input tuple. May be `async def`: then up to `max_concurrency` calls run at a time.

        An exception fails the tuple and is reported; FailTuple fails it without a report. The task lives on.
        """
        raise SquallError(f"{type(self).__name__} has no execute(tup): a bolt must have one")

    def tick(self) -> None:
        """Called every `tick_interval` seconds, between calls of `execute`. May emit, unanchored."""

    def end_of_input(self) -> None:
        """Called once when all inputs have ended, which only finite sources do (`Spout.finish`). May emit."""

    def cleanup(self) -> None:
        """The task ends. Must not emit. Not called when the process is killed."""

    def emit(
        self,
        values: Sequence[object],
        *,
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emits one tuple.

        values: a sequence, one value per field of the stream; the values are not to be mutated afterwards.
        anchors: an input tuple or several, whose trees then wait for this tuple; `()`: unanchored;
            None: the tuple of this `execute` if `auto_anchor` is set, else unanchored.
        stream: one of the output streams.
        Raises EmitError (wrong number of values, unknown or direct stream, an anchor that is settled already,
        a thread that is not the task's, in `cleanup`).
        """
        _task_of(self, "emit").emit(values, anchors=anchors, stream=stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[object],
        *,
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """As `emit`, on a direct stream, to one task: an id out of `context.tasks(component)`."""
        _task_of(self, "emit_direct").emit_direct(task, values, anchors=anchors, stream=stream)

    def ack(self, tup: Tuple) -> None:
        """This input is done. Only with `auto_ack = False`; EmitError if it is settled already."""
        _task_of(self, "ack").ack(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        """Fails an input: its spout replays it or gets `fail`, with the reason as `Failure.error`."""
        _task_of(self, "fail").fail(tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        """An input held for long is alive: its tree has the full message timeout again."""
        _task_of(self, "reset_timeout").reset_timeout(tup)


class BatchBolt(Bolt):
    """A bolt that gets its input in batches: subclasses must have `execute_batch` instead of `execute`.

    batch_size: a batch is handed over when it has this many tuples (an int >= 1),
    batch_interval: or so many seconds after its first tuple (a number > 0); also when the spouts wait at
        their pending limit, and at the end of the input.
    """

    batch_size: int = 1000
    batch_interval: float = 1.0

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Called with each batch (never empty). All are acked on return, all failed when it raises.

        Emits in it are unanchored unless `anchors=` is given.
        """
        raise SquallError(f"{type(self).__name__} has no execute_batch(tups): a batch bolt must have one")
