"""A task of a StatefulBolt: each call has the state of its tuple's key at hand, and is all or nothing.

When a call raises, the changes of state, the timers, the emissions and the acks that it made are dropped; then its tuple fails
as it does in every other bolt. A timer whose call raises is tried again, with growing pauses.
Must not know: links, trackers, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.transport.frames import Batch
from squall.transport.id_columns import IdColumn, view_of
from squall.transport.row_columns import RowColumns
from topology_api import Bolt, FailTuple, StateError, StatefulBolt, Topology
from topology_api.stateful import key_fields
from topology_api.tuples import SETTLED, Source, Tuple
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import shown, typed
from worker.state import build
from worker.state.keys import canonical, original
from worker.state.plain_values import LEAST_AHEAD, MOST_AHEAD, PlainValueHandle
from worker.state.table import NONE, StateTable
from worker.state.timers import Due, KeyTimers, current
from worker.tasks.bolt import BoltTask, BoundedInputs
from worker.tasks.emitter import NOTHING
from worker.tasks.holding import MOST_KEPT, HoldingEmitter
from worker.tasks.task import TaskSetup

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: Seconds until a timer whose call raised is tried again: the first pause, and the longest; they double.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: The most values of a state that a run drops because their time is over.
MOST_SWEPT = 1000
#: The most timers that a run fires: between two runs the worker does all else, such as the end of an epoch.
MOST_FIRED = 256
#: The least seconds until a timer fires that `on_timer` sets: one that is set again at once could be due for ever.
LEAST_AGAIN = 0.001
#: SETTLED as a C number, which the hot loop compares without a Python object.
_SETTLED = cython.declare(cython.longlong, SETTLED)
_KEPT = cython.declare(cython.Py_ssize_t, MOST_KEPT)
#: (component, stream) -> the positions of the key's fields; None: all tasks get the stream's tuples, so that there is no key.
Positions = Mapping[tuple[str, str], tuple[int, ...] | None]


class StatefulBoltTask(BoltTask):
    """One task of a stateful bolt."""

    emitter: HoldingEmitter
    instance: StatefulBolt

    def __init__(
        self, setup: TaskSetup, emitter: HoldingEmitter, inputs: BoundedInputs, positions: Positions
    ) -> None:
        super().__init__(setup, emitter, inputs)
        self.positions = positions
        if self.threaded:  # the loop may look at the outboxes while a call runs
            emitter.holds_all = True
        self.table = self.new_table(emitter.where())
        self.states = build.handles(self.table, type(setup.instance))
        #: The states with a `ttl`.
        self.expiring: list[Any] = [
            handle
            for handle in self.states.values()
            if handle.expiry is not None  # type: ignore[attr-defined]
        ]
        #: The state whose values are looked up for several calls at once; None: there is none of this kind.
        self.looked_up: PlainValueHandle | None = next(
            (handle for handle in self.states.values() if isinstance(handle, PlainValueHandle)), None
        )
        self.timers = KeyTimers(self.table)
        #: (key, name) of a timer whose call raised -> when it is tried again, its own time, and its next pause.
        self.retried: dict[tuple[Any, str], tuple[float, float, float]] = {}
        #: Whether the running call is one of `on_timer`.
        self.firing = False
        #: When the end of input was due: timers that are due by then fire before it. -1: it was not yet.
        self.end_due_at = -1.0
        #: The tuples that the running call has acked or failed, each with its root and, if it failed, the reason.
        self.finals: list[tuple[Tuple, int, tuple[Any, ...]]] = []
        #: Checks the states after each call, in the testing tools.
        self.watch: Any = None
        vars(setup.instance).update(self.states)

    def new_table(self, where: str) -> StateTable:
        """Return what the states share."""
        return StateTable(where, self.now)

    # Methods that the user's instance gets.

    def current_key(self) -> Any:
        """Implement `StatefulBolt.current_key`."""
        return original(current(self.table, "current_key"))

    def timer_after(self, seconds: float, name: str) -> None:
        """Implement `StatefulBolt.timer_after`."""
        key = current(self.table, "timer_after")
        if problem := number_problem(seconds, 0, MAX_SECONDS, "seconds"):
            raise StateError(f"{self.table.where}: timer_after(seconds={seconds!r}): it {problem}")
        least = LEAST_AGAIN if self.firing else 0.0
        self.timers.set(key, self.checked_name(name), self.now() + max(seconds, least))

    def cancel_timer(self, name: str) -> bool:
        """Implement `StatefulBolt.cancel_timer`."""
        return self.timers.cancel(current(self.table, "cancel_timer"), self.checked_name(name))

    def checked_name(self, name: object) -> str:
        """Return the name of a timer. Raises StateError if it is not a string."""
        if not isinstance(name, str):
            raise StateError(f"{self.table.where}: the name of a timer is {typed(name)}: give a str")
        return name

    def ack(self, tup: Tuple) -> None:
        """Implement `Bolt.ack`: the tuple is acked when the call has returned."""
        self.check_open(tup, "ack")
        self.finals.append((tup, tup._root, ()))
        tup._root = SETTLED

    def fail(self, tup: Tuple, reason: str | FailTuple | None = None) -> None:
        """Implement `Bolt.fail`: the tuple fails when the call has returned."""
        self.check_open(tup, "fail")
        self.finals.append((tup, tup._root, (reason,)))
        tup._root = SETTLED

    # A call.

    def commit(self) -> None:
        """Keep what the call did: its state, then its emissions, then its acks."""
        finals = self.finals
        if finals:
            self.finals = []
            for tup, root, _ in finals:
                tup._root = root
        self.table.commit()
        if self.emitter.holds():
            self.emitter.release()
        for tup, _, failed in finals:
            if failed:
                BoltTask.fail(self, tup, failed[0])
            else:
                self.ack_checked(tup)

    def undo(self) -> None:
        """Drop what the call did."""
        for tup, root, _ in self.finals:
            tup._root = root
        self.finals.clear()
        self.table.undo()
        self.emitter.drop()

    def call(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        """Call a method of the user's that has no key at hand."""
        self.table.begin(NONE)
        return self.call_at_hand(name, *args, tuple_text=tuple_text)

    def call_at_hand(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        """Call a method of the user's; keep what it did if it returns, and drop it otherwise."""
        returned = super().call(name, *args, tuple_text=tuple_text)
        if returned and self.watch is not None:
            try:
                self.watch.after(name)
            except StateError as error:
                self.report(name, error, tuple_text)
                returned = False
        if returned:
            self.commit()
        else:
            self.undo()
        return returned

    # Running.

    def wants_run(self) -> bool:
        return BoltTask.wants_run(self) or (self.overdue() and not self.yielded)

    def overdue(self) -> bool:
        """Return whether a timer is due. While the task is down, timers wait: what they call is away too."""
        time = self.timers.next_time()
        if time is None or self.probing is not None:
            return False
        return not self.end_called and self.opened and self.now() >= time

    def next_deadline(self) -> float | None:
        """Return the time of the first timer."""
        if self.end_called or not self.opened or self.probing is not None:
            return None
        return self.timers.next_time()

    def run(self) -> None:
        if not self.yielded:
            self.fire_timers()
        super().run()
        if not self.yielded:
            now = self.now()
            for handle in self.expiring:
                handle.sweep(now, MOST_SWEPT)

    def finish_if_due(self, enough: int) -> None:
        if self.end_due and not self.end_called:
            if self.end_due_at < 0.0:
                self.end_due_at = self.now()
            if self.owes_timers():
                return
        BoltTask.finish_if_due(self, enough)

    def owes_timers(self) -> bool:
        """Return whether the end of input waits for timers. While the task is down it does not: they may be due for ever."""
        time = self.timers.next_time()
        return time is not None and time <= self.end_due_at and self.probing is None

    def fire_timers(self) -> None:
        """Call `on_timer` for each timer that is due, as far as the task may emit."""
        if self.probing is not None or not self.overdue():
            return
        emitter = self.emitter
        self.open_here()
        enough = emitter.emitted + self.limits.emits
        now = self.now()
        for _ in range(MOST_FIRED):
            if emitter.emitted >= enough or self.crashing() or (due := self.timers.due(now)) is None:
                break
            self.fire(due)

    def fire(self, due: Due) -> None:
        """Call `on_timer` for one timer."""
        again, time, pause = self.retried.pop((due.key, due.name), (due.time, due.time, FIRST_PAUSE))
        if again != due.time:  # the timer was set again after its call had raised
            time, pause = due.time, FIRST_PAUSE
        self.emitter.anchor = NOTHING
        self.table.begin(due.key)
        self.timers.cancel(due.key, due.name)
        text = f"timer {due.name!r} of key {shown(original(due.key))}"
        self.firing = True
        returned = self.call_at_hand("on_timer", due.name, time, tuple_text=text)
        self.firing = False
        if not returned:
            again = self.now() + pause
            self.retried[due.key, due.name] = (again, time, min(2 * pause, LONGEST_PAUSE))
            self.timers.put(due.key, due.name, again)
        self.table.end()

    @cython.locals(
        batch=Batch,
        stop=cython.Py_ssize_t,
        most_emits=cython.longlong,
        emitter=HoldingEmitter,
        table=StateTable,
        source=Source,
        rows=RowColumns,
        roots=cython.longlong[::1],
        edges=cython.longlong[::1],
        at=cython.Py_ssize_t,
        start=cython.Py_ssize_t,
        only=cython.Py_ssize_t,
        values=tuple,
        tup=Tuple,
        enough=cython.longlong,
        anchors=cython.bint,
    )
    def execute_rows(self, batch: Batch, stop: int, most_emits: int) -> int:
        """Execute rows of a batch, each as a call of its own; return how many."""
        if (
            self.auto_ack
            and self.auto_anchor
            and self.observer is None
            and self.watch is None
            and not batch.more
        ):
            return run_calls(self, batch, stop, most_emits)
        emitter, table, execute, observer = self.emitter, self.table, self.execute, self.observer
        source, start, at = batch.source, batch.position, batch.position - 1
        rows, roots, edges = batch.rows, view_of(batch.roots), view_of(batch.edges)
        positions, anchors = self.positions[source.component, source.stream], self.auto_anchor
        only = positions[0] if positions is not None and len(positions) == 1 else -1
        enough = emitter.emitted + most_emits
        for at in range(start, min(stop, len(rows))):
            tup = Tuple.__new__(Tuple)
            values = rows.row(at) if cython.compiled else rows[at]
            tup._values = values
            tup._source = source
            tup._root = roots[at]
            tup._xor = edges[at]
            tup._more = batch.more.get(at, ()) if batch.more else ()
            if only >= 0:
                key = values[only]
                if type(key) is not str:
                    key = canonical(key)
            else:
                key = NONE if positions is None else key_of(values, positions)
            table.begin(key)
            table.for_all = positions is None
            if anchors:
                emitter.anchor = tup
            if observer is not None:
                observer.executing(tup)
            error: BaseException | None = None
            try:
                execute(tup)
                if self.watch is not None:
                    self.watch.after(self.method)
            except BaseException as raised:
                error = raised
            if observer is not None:
                observer.executed(tup)
            if error is None:
                self.commit()
            else:
                self.undo()
                if self.raised(tup, error):
                    enough = 0
                error = None  # break a reference cycle: the error's traceback refers to this frame
            if self.auto_ack and tup._root != SETTLED:
                self.ack_checked(tup)
            if emitter.emitted >= enough:
                break
        emitter.anchor = NOTHING
        table.end()
        batch.position = at + 1
        return at + 1 - start


@cython.locals(
    task=StatefulBoltTask,
    batch=Batch,
    stop=cython.Py_ssize_t,
    most_emits=cython.longlong,
    emitter=HoldingEmitter,
    table=StateTable,
    source=Source,
    rows=RowColumns,
    roots=cython.longlong[::1],
    edges=cython.longlong[::1],
    acked_roots=IdColumn,
    acked_xors=IdColumn,
    last=cython.longlong,
    xor=cython.longlong,
    root=cython.longlong,
    acked=cython.longlong,
    at=cython.Py_ssize_t,
    start=cython.Py_ssize_t,
    only=cython.Py_ssize_t,
    values=tuple,
    tup=Tuple,
    enough=cython.longlong,
    handle=PlainValueHandle,
    keys=list,
    looked=cython.Py_ssize_t,
)
def run_calls(task: StatefulBoltTask, batch: Batch, stop: int, most_emits: int) -> int:
    """Run the hot loop, without observers: emits are anchored to the tuple, which is acked when `execute` returns."""
    emitter, table, execute, source = task.emitter, task.table, task.execute, batch.source
    start, rows = batch.position, batch.rows
    roots, edges = view_of(batch.roots), view_of(batch.edges)
    acked_roots, acked_xors = task.xors.roots, task.xors.xors  # as in `worker.tasks.bolt.run_basic`
    positions = task.positions[source.component, source.stream]
    table.for_all = positions is None
    only = positions[0] if positions is not None and len(positions) == 1 else -1
    last = _SETTLED if task.failed_for else 0
    xor, acked, at = 0, 0, start - 1
    enough = emitter.emitted + most_emits
    keys, handle, stop = keys_ahead(task.looked_up, rows, only), task.looked_up, min(stop, len(rows))
    looked = stop if keys is None else start
    for at in range(start, stop):
        if at >= looked:
            looked = min(at + MOST_AHEAD, stop)
            handle.look_ahead(keys, at, looked)  # type: ignore[union-attr]
        tup = Tuple.__new__(Tuple)
        values = rows.row(at) if cython.compiled else rows[at]
        tup._values, tup._source, tup._more = values, source, ()
        tup._root, tup._xor = roots[at], edges[at]
        key = values[only] if only >= 0 else NONE if positions is None else key_of(values, positions)
        if type(key) is not str and only >= 0:
            key = canonical(key)
        table.turn, table.key, emitter.anchor = table.turn + 1, key, tup
        try:
            execute(tup)
        except BaseException as error:
            task.acked, acked = task.acked + acked, 0  # a failure looks at it
            task.undo()
            enough = 0 if task.raised(tup, error) else enough
        else:
            if task.finals:
                task.acked, acked = task.acked + acked, 0
                task.commit()
            else:
                keep_call(emitter, table)
        root = tup._root  # settled if the tuple has failed, or the call has acked it
        acked += root != _SETTLED
        if root == last:
            xor ^= tup._xor
        else:
            if last > 0:
                acked_roots.append(last)
                acked_xors.append(xor)
            elif last == _SETTLED and (task.failed_for or task.probing is not None):
                task.succeeded(root)
            last, xor = root, tup._xor
        tup._root = _SETTLED
        if emitter.emitted >= enough:
            break
    if handle is not None:
        handle.ahead_count = 0
    task.xors.add(last, xor)
    task.acked += acked
    emitter.anchor = NOTHING
    table.end()
    batch.position = at + 1
    return at + 1 - start


@cython.locals(emitter=HoldingEmitter, table=StateTable)
def keep_call(emitter: HoldingEmitter, table: StateTable) -> None:
    """Keep what a call did that has acked and failed no tuple itself, as `StatefulBoltTask.commit` does."""
    table.first = None
    if table.others:
        table.others.clear()
    if emitter.held or emitter.filled > _KEPT:
        emitter.release()
    emitter.filled = 0


@cython.locals(handle=PlainValueHandle, rows=RowColumns, only=cython.Py_ssize_t)
def keys_ahead(handle: PlainValueHandle | None, rows: Any, only: int) -> Any:
    """Return the column of the keys of a batch if the values of several calls are looked up at once, which is worth it in a
    large state only."""
    if not cython.compiled or handle is None or only < 0 or len(handle.cells) < LEAST_AHEAD:
        return None
    return rows.first if only == 0 else rows.others[only - 1]


def key_of(values: tuple[Any, ...], positions: tuple[int, ...]) -> Any:
    """Return the key of several fields."""
    return canonical(tuple([values[each] for each in positions]))


def positions_of(topology: Topology, component: str, bolt: Bolt) -> Positions:
    """Return where the key is in the tuples of each input of a bolt; a bolt without state has none."""
    fields = key_fields(bolt) if isinstance(bolt, StatefulBolt) else ()
    found: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for entry in topology.component(component).inputs:
        names = topology.component(entry.source).outputs[entry.stream].fields
        keyed = fields and entry.grouping.kind == "fields"
        found[entry.source, entry.stream] = tuple(names.index(name) for name in fields) if keyed else None
    return found
