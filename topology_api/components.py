"""Spout, Bolt and BatchBolt: the base classes of users' components.

These classes hold no state and have no constructor, so that subclasses need no `super().__init__()`. Calls such as `emit` and
`ack` are delegated to the task object that the runtime stores in the instance's `__dict__` as `_squall_task`. The names in this
module and names that begin with `_squall_` are reserved. Must not know: the class of that task object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topology_api.errors import EmitError, SquallError
from topology_api.fields import DEFAULT_STREAM, Fields, Stream
from topology_api.values import Failure, Replay

if TYPE_CHECKING:
    from topology_api.context import Context
    from topology_api.errors import FailTuple
    from topology_api.tuples import Tuple

Outputs = Fields | Stream | str | Sequence[str] | Mapping[str, Fields | Stream | str | Sequence[str]]


def _task_of(component: Spout | Bolt, call: str) -> Any:
    # vars() bypasses a user's __getattr__. It sees only the instance, but the class never has this attribute.
    if (task := vars(component).get("_squall_task")) is None:
        kind = type(component).__name__
        first = "open" if isinstance(component, Spout) else "prepare"
        raise EmitError(
            f"{kind}.{call} was called outside a running task: call it in {first} or later"
            " (in a test without a topology, use local_cluster.testing)"
        )
    return task


class Spout:
    """A source of tuples. Only `next_tuple` is required. Its methods are never called concurrently.

    You create the instance where you build the topology. It is pickled, and each task in a worker runs a copy: create what
    cannot be pickled (files, connections, threads) in `open`.

    outputs: the output streams, as a class or instance attribute or a property: Fields (or a string, or a
        sequence of strings) for the stream `default`, or a dict from stream names to Fields or Stream.
        Without `outputs` the component cannot emit.
    replay: with a Replay, the runtime keeps the values of tracked emissions and emits a failed tree again. With
        None, `fail` is called on the first failure, and replaying is up to the spout.
    threaded: True runs the task in its own thread, for code that blocks. What a long call emits leaves while it runs, and
        `emit` may wait and call `ack`, `fail`, `activate` and `deactivate` (docs/concepts.md, "Calls that take long").
    """

    outputs: Outputs = {}
    replay: Replay | None = Replay()
    threaded: bool = False

    def guarantee_conditions(self, component: str) -> Iterable[str]:
        """Return what must be true outside of the topology for what `squall explain` says of this component, by default
        nothing. component: its id. Each text follows "if": "all hosts mount /var/hooks".
        """
        return ()

    def open(self, context: Context) -> None:
        """Prepare the task: called once, before the first `next_tuple`. May emit."""

    def next_tuple(self) -> float | None:
        """Emit the next tuple or tuples, or nothing if there are none; called repeatedly. Must not block for long.

        May return the seconds to wait before the next call (`context.wake()` ends the wait); None means soon.
        """
        raise SquallError(f"{type(self).__name__} has no next_tuple(): define it")

    def ack(self, message_id: object) -> None:
        """Handle success: every tuple in the tree of this message id has been acked."""

    def ack_many(self, message_ids: list[Any]) -> None:
        """Handle the success of several trees at once; without this method, `ack` is called for each. Must not emit.

        Define it beside `ack` where one call for a thousand message ids costs less than a thousand calls.
        """
        for message_id in message_ids:
            self.ack(message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        """Handle final failure: the tree of this message id failed, and no replay is left."""

    def activate(self) -> None:
        """Handle reactivation of the topology after `deactivate`."""

    def deactivate(self) -> None:
        """Handle deactivation: no `next_tuple` until `activate`; `ack` and `fail` are still called."""

    def close(self) -> None:
        """Release resources: the task ends. Not called when the process is killed."""

    def emit(
        self, values: Sequence[object], *, message_id: object = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one tuple.

        values: a sequence with one value per field of the stream. Do not mutate the values afterwards.
        message_id: any value but None; the tuple's tree is tracked, and `ack` or `fail` is called with this value
            exactly once. The message id need not be unique. With None the tuple is not tracked, and it is delivered at most
            once.
        stream: one of the output streams.
        Raises EmitError: wrong number of values, unknown or direct stream, called from another thread.
        """
        _task_of(self, "emit").emit(values, message_id=message_id, stream=stream)

    def emit_direct(
        self, task: int, values: Sequence[object], *, message_id: object = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Like `emit`, but to one task, on a direct stream. `task` is an id from `context.tasks(component)`."""
        _task_of(self, "emit_direct").emit_direct(task, values, message_id=message_id, stream=stream)

    def emit_many(
        self,
        rows: Sequence[Sequence[object]],
        *,
        message_ids: Sequence[object] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit several tuples in their order, in a fraction of the time that a call of `emit` for each takes.

        rows: the values of each tuple. message_ids: one for each row; None: none of them is tracked.
        Raises EmitError as `emit` does. The attribute `emitted` of the exception is the number of rows before the one that is
        refused: these are emitted, and none of the others.
        """
        _task_of(self, "emit_many").emit_many(rows, message_ids=message_ids, stream=stream)

    def finish(self) -> None:
        """Declare that the source has ended: `next_tuple` is not called again. Pending trees and replays continue."""
        _task_of(self, "finish").finish()


class Bolt:
    """Processes tuples and may emit. Subclasses must define `execute` (a BatchBolt: `execute_batch`).

    You create the instance where you build the topology. It is pickled, and each task in a worker runs a copy.

    outputs: as for Spout.
    auto_anchor: emissions inside `execute` are anchored to its tuple, so that the tuple's tree waits for them.
    auto_ack: the tuple is acked when `execute` returns and failed when it raises. With False you must call `ack`
        or `fail` for every input, at any time and in any order.
    threaded: True runs the task in its own thread, for code that blocks. What a long call emits leaves while it runs, and
        `emit` waits while the tasks that read it are full.
    max_concurrency: the maximum number of concurrent calls of an `async def execute`, per task.
    tick_interval: seconds between calls of `tick`; with None, `topology.tick.tuple.freq.secs` applies.
    """

    outputs: Outputs = {}
    auto_anchor: bool = True
    auto_ack: bool = True
    threaded: bool = False
    max_concurrency: int = 100
    tick_interval: float | None = None

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Return a sentence for each problem of the bolt's inputs, by default none. `build()` calls this method.

        inputs: the fields of each stream that the bolt reads, by (component, stream).

        With this method a bolt that needs certain fields can refuse a topology before it runs: if there is any problem,
        `build()` raises InvalidTopology.
        """
        return ()

    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        """Return a sentence for each reason why the bolt cannot share a topology with other bolts, by default none.

        Called by `build()` after `input_problems`. earlier: the bolts declared before this bolt, by id, so that each pair of
        bolts is checked once.
        """
        return ()

    def guarantee_conditions(self, component: str) -> Iterable[str]:
        """Return what must be true outside of the topology for what `squall explain` says of this component, by default
        nothing. component: its id. Each text follows "if": "all hosts mount /var/hooks".
        """
        return ()

    def prepare(self, context: Context) -> None:
        """Prepare the task: called once, before the first `execute`. May emit (unanchored unless `anchors` is given)."""

    def execute(self, tup: Tuple) -> Awaitable[None] | None:
        """Process one input tuple. With `async def`, up to `max_concurrency` calls run at a time.

        An exception fails the tuple and is reported; FailTuple fails it without a report. The task continues.
        """
        raise SquallError(f"{type(self).__name__} has no execute(tup): define it")

    def tick(self) -> None:
        """Do periodic work: called every `tick_interval` seconds, between calls of `execute`. May emit, unanchored."""

    def end_of_input(self) -> None:
        """Handle the end of all inputs, called once. Inputs end only if their sources are finite (`Spout.finish`). May emit."""

    def cleanup(self) -> None:
        """Release resources: the task ends. Must not emit. Not called when the process is killed."""

    def emit(
        self,
        values: Sequence[object],
        *,
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple.

        values: a sequence with one value per field of the stream. Do not mutate the values afterwards.
        anchors: one or several input tuples, whose trees then wait for this tuple; `()` means unanchored; None means the tuple
        of this `execute` if `auto_anchor` is set, otherwise unanchored.
        stream: one of the output streams.
        Raises EmitError: wrong number of values, unknown or direct stream, an anchor that was already acked or
        failed, called from another thread or in `cleanup`.
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
        """Like `emit`, but to one task, on a direct stream. `task` is an id from `context.tasks(component)`."""
        _task_of(self, "emit_direct").emit_direct(task, values, anchors=anchors, stream=stream)

    def ack(self, tup: Tuple) -> None:
        """Ack an input. Only with `auto_ack = False`. Raises EmitError if it was already acked or failed."""
        _task_of(self, "ack").ack(tup)

    def fail(self, tup: Tuple, reason: str | FailTuple | None = None) -> None:
        """Fail an input: its spout replays it or gets `fail`, with the reason as `Failure.error`.

        A failure is like an exception; with a `FailTuple` as the reason it is like one that `execute` raises.
        """
        _task_of(self, "fail").fail(tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of an input that the bolt keeps for a long time."""
        _task_of(self, "reset_timeout").reset_timeout(tup)


class BatchBolt(Bolt):
    """A bolt that gets its input in batches. Subclasses define `execute_batch` instead of `execute`.

    batch_size: the number of tuples that completes a batch (an int >= 1).
    batch_interval: an incomplete batch is executed this many seconds after its first tuple arrived (a number > 0). It is
        executed earlier when the spouts wait at their pending limit, and at the end of the input.
    """

    batch_size: int = 1000
    batch_interval: float = 1.0

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Process one batch, which is never empty. All tuples are acked when the method returns, and failed if it raises.

        Emissions are unanchored unless `anchors=` is given.
        """
        raise SquallError(f"{type(self).__name__} has no execute_batch(tups): define it")
