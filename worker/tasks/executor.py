"""Runs a batch: a `Tuple` per row, the user's `execute`, and the XOR of each acked tuple.

Two functions of the same meaning: `run_basic` for Storm's basic bolts (anchored and acked by the runtime, the common case, the
hot loop), `run_general` for everything else (rich bolts, tuples of several trees, hooks).
A run ends early when its task has emitted as much as its outboxes may take, so that no queue grows past its limit plus
what one user call emits.
Must not know: where batches come from, links, clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from squall.transport.frames import Batch
from squall.transport.id_columns import IdColumn, view_of
from squall.transport.row_columns import RowColumns
from topology_api import Failure
from topology_api.tuples import SETTLED, Source, Tuple
from worker.tasks.emitter import NOTHING, BoltEmitter
from worker.tracking.ack_batch import AckBatch

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython


class Observer(Protocol):
    """Called around each execution: hooks, debug logging, the checks of the testing helpers."""

    def executing(self, tup: Tuple) -> None: ...

    def executed(self, tup: Tuple) -> None: ...

    def acked(self, tup: Tuple) -> None: ...

    def failed(self, tup: Tuple, failure: Failure) -> None: ...


class RunnableBolt(Protocol):
    """What the executor needs of a bolt's task."""

    execute: Callable[[Tuple], Any]
    emitter: BoltEmitter
    xors: AckBatch
    auto_ack: bool
    auto_anchor: bool
    observer: Observer | None

    def raised(self, tup: Tuple, error: BaseException) -> bool:
        """Fail the tuple and report the error that user code raised; return whether it ends the topology, and so the run."""

    def ack(self, tup: Tuple) -> None: ...


@cython.locals(tup=Tuple)
def make_tuple(batch: Batch, position: int) -> Tuple:
    """Return the tuple at one position of a batch."""
    tup = Tuple.__new__(Tuple)
    tup._values = batch.rows[position]
    tup._source = batch.source
    tup._root = batch.roots[position]
    tup._xor = batch.edges[position]
    tup._more = batch.more.get(position, ())
    return tup


@cython.locals(
    batch=Batch,
    start=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    source=Source,
    rows=RowColumns,
    roots=cython.longlong[::1],
    edges=cython.longlong[::1],
    at=cython.Py_ssize_t,
    tup=Tuple,
)
def make_tuples(batch: Batch, start: int, stop: int) -> list[Tuple]:
    """Return the tuples at these positions: `make_tuple`, without a call for each."""
    source = batch.source
    rows, roots, edges = batch.rows, view_of(batch.roots), view_of(batch.edges)
    made = []
    for at in range(start, min(stop, len(rows))):
        tup = Tuple.__new__(Tuple)
        tup._values = rows.row(at) if cython.compiled else rows[at]
        tup._source = source
        tup._root = roots[at]
        tup._xor = edges[at]
        tup._more = ()
        made.append(tup)
    for position, pairs in batch.more.items():
        if start <= position < stop:
            made[position - start]._more = pairs
    return made


def is_basic(task: RunnableBolt, batch: Batch) -> bool:
    """Return whether the hot loop can run this batch."""
    return task.auto_ack and task.auto_anchor and task.observer is None and not batch.more


def run_batch(task: RunnableBolt, batch: Batch, stop: int, most_emits: int) -> int:
    """Execute the tuples of a batch from its position up to `stop`, or until `most_emits` were emitted.

    Returns the number executed; moves the batch's position.
    """
    if is_basic(task, batch):
        return run_basic(task, batch, stop, most_emits)
    return run_general(task, batch, stop, most_emits)


@cython.locals(
    batch=Batch,
    stop=cython.Py_ssize_t,
    most_emits=cython.longlong,
    emitter=BoltEmitter,
    source=Source,
    start=cython.Py_ssize_t,
    rows=RowColumns,
    roots=cython.longlong[::1],
    edges=cython.longlong[::1],
    acked_roots=IdColumn,
    acked_xors=IdColumn,
    last=cython.longlong,
    xor=cython.longlong,
    root=cython.longlong,
    enough=cython.longlong,
    at=cython.Py_ssize_t,
    tup=Tuple,
)
def run_basic(task: RunnableBolt, batch: Batch, stop: int, most_emits: int) -> int:
    """Run the hot loop: emits are anchored to the tuple, which is acked when `execute` returns."""
    emitter = task.emitter
    execute = task.execute
    source = batch.source
    start = batch.position
    rows, roots, edges = batch.rows, view_of(batch.roots), view_of(batch.edges)
    # Written to directly, without AckBatch.add: one call less for each change of tree.
    acked_roots, acked_xors = task.xors.roots, task.xors.xors
    last = 0
    xor = 0
    at = start - 1
    enough = emitter.emitted + most_emits
    for at in range(start, min(stop, len(rows))):
        tup = Tuple.__new__(Tuple)
        tup._values = rows.row(at) if cython.compiled else rows[at]
        tup._source = source
        tup._root = roots[at]
        tup._xor = edges[at]
        tup._more = ()
        emitter.anchor = tup
        try:
            execute(tup)
        except BaseException as error:
            if task.raised(tup, error):
                enough = 0
        root = tup._root  # changed if the user or an error acked or failed the tuple
        if root == last:
            xor ^= tup._xor
        else:
            if last > 0:
                acked_roots.append(last)
                acked_xors.append(xor)
            last = root
            xor = tup._xor
        tup._root = SETTLED
        if emitter.emitted >= enough:
            break
    if last > 0:
        acked_roots.append(last)
        acked_xors.append(xor)
    emitter.anchor = NOTHING
    batch.position = at + 1
    return at + 1 - start


def run_general(task: RunnableBolt, batch: Batch, stop: int, most_emits: int) -> int:
    """Run every other kind of bolt: anchoring and acking as the bolt wants, observers called around each execution."""
    emitter = task.emitter
    observer = task.observer
    enough = emitter.emitted + most_emits
    done = 0
    for position in range(batch.position, stop):
        tup = make_tuple(batch, position)
        if task.auto_anchor:
            emitter.anchor = tup
        if observer is not None:
            observer.executing(tup)
        error: BaseException | None = None
        try:
            task.execute(tup)
        except BaseException as raised:
            error = raised
        if observer is not None:
            observer.executed(tup)
        if error is not None:
            if task.raised(tup, error):
                enough = 0
            error = None  # its traceback holds this frame
        emitter.anchor = NOTHING
        if task.auto_ack and tup._root != SETTLED:
            task.ack(tup)
        done += 1
        if emitter.emitted >= enough:
            break
    batch.position += done
    return done
