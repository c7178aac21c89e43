"""A bolt task in a topology with epochs: each call is all or nothing, a failed tuple waits here, and a marker ends an epoch.

A bolt without state is run as a stateful bolt that declares none.

A tuple whose call raises is not emitted again from its spout, since the bolts before this one have counted it. It is *parked*:
its edge is acked, it is tried again here after the delays of the spout's `Replay`, and becomes a dead letter in the end. When
the task reaches a `SnapshotMarker` in its inbox, it notes what it holds, and does nothing else until the worker has collected
that.
Must not know: links, trackers, coordinators, files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from topology_api import Failure, StateError
from topology_api.letter_streams import is_letter_stream
from topology_api.packing import dumps_by_value
from topology_api.state_types import keeps_of
from topology_api.tuples import SETTLED, Source, Tuple
from worker.epochs.alignment import Alignment
from worker.epochs.emissions import Emissions
from worker.epochs.messages import Rows, SnapshotMarker
from worker.epochs.parking import Parked, Parking
from worker.epochs.snapshot_chain import SnapshotChain
from worker.epochs.snapshot_files import SnapshotData, TaskSnapshot
from worker.state.contents import count_keys
from worker.state.history import StateHistory
from worker.state.keys import canonical, original
from worker.state.saved import Clock, Saved
from worker.state.table import MarkingTable, StateTable
from worker.state.timers import Due, KeyTimers
from worker.state.value_checks import ValueChecks
from worker.tasks import letter_readers, parked_verdicts
from worker.tasks.bolt import BoltTask
from worker.tasks.fitting import ANOTHER_PATH, check_inputs, check_parked, unreadable
from worker.tasks.parked_tuples import TIMER, TIMER_FIELDS, batch_of, item_of, mark_of, new_parked
from worker.tasks.snapshot_slices import SnapshotSlices, load_contents, return_contents
from worker.tasks.special_batches import AgainBatch, MarkerBatch
from worker.tasks.stateful_bolt import StatefulBoltTask
from worker.tasks.unread_tuples import give_up_parked, readable_rows
from worker.tasks.unsent_rows import drop_outboxes, fill_outboxes, give_up_row, not_kept
from worker.tracking.outages import Outages
from worker.tracking.replay_policy import Replays


class EpochSetup(msgspec.Struct, frozen=True):
    """What a task of a topology with epochs gets besides what every task gets. Both clocks are functions of one time."""

    to_wall: Clock
    from_wall: Clock
    #: Task id -> "component/index".
    names: dict[int, str]
    #: The policies of the spouts before this task.
    replays: Replays
    alignment: Alignment
    parking: Parking
    #: What a spout task has emitted since the last commit.
    emissions: Emissions
    #: Seconds after which a parked tuple is given up although no failure counts against it; None: never.
    give_up_secs: float | None
    #: How many emissions of a spout task may wait for their commit.
    most_uncommitted: int
    #: The files of the task's last snapshot.
    chain: SnapshotChain
    #: What the states were at the last markers; of a bolt's task alone.
    history: StateHistory
    #: Returns the message id of an open tree; None: it is not known in this worker.
    id_of: Callable[[int], Any]


class ReachedMarker(msgspec.Struct, frozen=True):
    """A marker that a task has reached, and what the task held there."""

    marker: SnapshotMarker
    content: TaskSnapshot
    #: Whether the task has nothing more to do.
    finished: bool
    #: The rows of a token sink.
    rows: bytes | None = None
    #: Whether a staged sink has rows to stage.
    stages: bool = False
    #: The file of the snapshot, whose parts are perhaps still being encoded.
    data: SnapshotData | None = None


class SpoiltState(msgspec.Struct, frozen=True):
    """What some call has written cannot be kept: all tasks are to return to the last commit, to find this call."""

    error: str


class EpochBoltTask(StatefulBoltTask):
    """One task of a bolt."""

    epochs: EpochSetup
    #: The tasks whose end marks this task gets.
    sources: frozenset[int]
    #: The fields of an input stream, by component and stream.
    fields_of: dict[tuple[str, str], tuple[str, ...]]
    #: Markers that the task has reached, for the worker to collect after the run.
    reached: list[ReachedMarker | SpoiltState]
    #: The parked tuple that is being tried.
    trying: Parked | None
    #: (key, name) of a timer whose call raised -> how many failures count against it, and how many calls had succeeded before.
    timer_failures: dict[tuple[Any, str], tuple[int, int]]
    undeclared: dict[str, Saved]
    #: How many keys had state at the last marker, or in the snapshot; None: no state belongs to keys.
    keys: int | None
    #: Encodes state and timers for snapshots.
    slices: SnapshotSlices

    def new_table(self, where: str) -> StateTable:
        return MarkingTable(where, self.now)

    def join_epochs(self, setup: EpochSetup) -> None:
        """Called once, before the task is opened."""
        self.epochs = setup
        self.parking = setup.parking
        self.parking.is_read = any(map(is_letter_stream, self.emitter.outputs))
        self.outages = Outages(self.waits_for_stores, setup.give_up_secs)
        #: Whether a parked tuple is the next that is tried while the task is down.
        self.tries_parked = False
        self.reached = []
        self.trying = None
        self.slices = SnapshotSlices(setup, self.now, partial(spoil, self))
        if setup.history.checked and self.states and self.watch is None:
            self.watch = ValueChecks(self.table)
        self.timer_failures = {}
        #: What a commit has of states that this version does not declare: another version may declare them.
        self.undeclared = {}
        self.keys = count_keys(self.states)

    # Markers.

    def take_input(self, most_emits: int) -> None:
        if not (isinstance(self.inbox[0], MarkerBatch) and self.take_marker()):
            super().take_input(most_emits)

    @property
    def marker_waits(self) -> bool:
        """Whether a marker is the next in the inbox, and no call is under way. The loop may ask while the thread runs."""
        try:
            return isinstance(self.inbox[0], MarkerBatch) and not self.yielded
        except IndexError:
            return False

    def take_marker(self) -> bool:
        """Note what the task holds if a marker is the next in its inbox; return whether there was one."""
        if not self.marker_waits or self.reached:
            return False
        first = self.inbox.popleft()
        assert isinstance(first, MarkerBatch)
        letter_readers.send_unread(self)
        names, marker = self.epochs.names, first.marker
        content = TaskSnapshot(names[self.id], marker.epoch, 0, 0)
        content.ended = [names[task] for task in self.sources if task not in self.inputs.open]
        try:
            self.fill(content)
            rows = self.packed_rows(marker.epoch)
        except Exception as error:
            self.cannot_keep(error)
            return True
        try:
            self.slices.begin(content, [*self.states.values(), self.timers])
        except Exception as error:
            spoil(self, error)
            return True
        self.keys = count_keys(self.states)
        finished = self.ended and not self.parking.parked
        self.reached.append(ReachedMarker(marker, content, finished, rows, self.stages, self.slices.data))
        return True

    @property
    def stages(self) -> bool:
        """Whether rows of the epoch that ends are to be staged."""
        return False

    def packed_rows(self, epoch: int) -> bytes | None:
        """Return the rows of a token sink in the epoch that ends."""
        return None

    def cannot_keep(self, error: Exception) -> None:
        """End the topology, because of something that no snapshot can hold."""
        if not isinstance(error, StateError):
            error = not_kept(self.emitter.where(), "what it holds", error)
        self.report(self.method, error)
        self.crash_on_error = True

    def may_execute(self, now: float) -> bool:
        if self.marker_waits or self.reached:
            return not self.reached
        if self.parking.full:
            return False
        return self.probing is None or parked_verdicts.may_probe_input(self, now)

    def waiting_roots(self) -> set[int]:
        roots = super().waiting_roots()
        for _, held in list(self.epochs.alignment.held):  # behind a barrier
            if isinstance(held, Rows):
                roots |= held.rows[0].waiting_roots(0)
        return roots

    def idle(self) -> bool:
        return not (self.reached or self.parking.parked) and super().idle()

    def owes_calls(self) -> bool:
        """Return whether tuples wait here for a further call, which may emit."""
        return bool(self.parking.parked)

    def forget_unsent(self) -> None:
        """Forget what was emitted before the task became what a commit says: in `prepare`."""
        drop_outboxes(self.emitter)

    def forget_contents(self) -> None:
        """Free the memory of a task that was closed, and whose place another one takes: its counters are still read. What its
        states hold is left to that one, which may return to a commit with it."""
        self.epochs.history.leave([*self.states.values(), self.timers], self.undeclared)
        self.states.clear()
        self.table.handles.clear()
        getattr(self.instance, "__dict__", {}).clear()
        self.timers = KeyTimers(self.table)
        self.retried.clear()
        self.slices.saving = None

    # What a snapshot holds.

    def fill(self, content: TaskSnapshot) -> None:
        """Put what the task holds into its snapshot. Raises StateError."""
        to_wall, retried = self.epochs.to_wall, []
        for timer in timers_again(self):
            key, name = timer
            again, time, pause = self.retried[timer]
            failures = self.timer_failures.get(timer, (0, 0))[0]
            retried.append((original(key), name, to_wall(again), to_wall(time), pause, failures))
        content.state = {
            "end_called": self.end_called,
            "ended": self.ended,
            "key": keeps_of(self.instance).get("key", []),
            "states": self.undeclared,  # the others are in the parts
            "retried": dumps_by_value(retried, 5) if retried else b"",
        }

    def begin_with(self, snapshot: TaskSnapshot | None, in_memory: bool = False) -> None:
        """Become what a snapshot says; None: begin. The topology ends if it cannot: another process could not either. The task
        has just been prepared. `in_memory`: the snapshot has no parts, and the task before this one has left its states."""
        if snapshot is None:
            return
        try:
            self.load(snapshot, return_contents if in_memory else load_contents)
        except Exception as error:
            self.report("prepare", unreadable(self.emitter.where(), snapshot.epoch, error))
            self.crash_on_error = True

    def load(
        self, snapshot: TaskSnapshot, fill_states: Callable[[EpochBoltTask, TaskSnapshot], None]
    ) -> None:
        """Become what a snapshot says. Raises StateError for what does not fit the bolt."""
        setup, saved = self.epochs, snapshot.state
        names = {name: task for task, name in setup.names.items()}
        ended = {
            names[name] for name in snapshot.ended if name in names
        }  # another version may have had other inputs
        for source in ended:
            self.inputs.ended(source)
        self.end_called, self.ended = saved["end_called"], saved["ended"]
        check_inputs(self, ended)
        for lost in fill_outboxes(self.emitter, snapshot.outboxes, setup.names):
            give_up_row(self, lost)
        check_parked(self, snapshot)
        give_up_parked(self)
        kept = [*snapshot.held, *(packed for _, packed in snapshot.recorded)]
        self.inbox.extendleft(reversed([again_batch(self, *each) for each in kept]))
        fill_states(self, snapshot)
        for row in pickle.loads(saved["retried"]) if saved.get("retried") else ():
            key, name, time, pause = canonical(row[0]), row[1], row[3], row[4]
            again = self.timers.times[key][name]  # as it was loaded
            self.retried[key, name] = (again, setup.from_wall(time), pause)
            self.timer_failures[key, name] = (row[5] if len(row) > 5 else 0), 0

    # Parked tuples.

    def commit(self) -> None:
        if not self.finals:
            super().commit()
            return
        failed = next((final for final in self.finals if final[2]), None)
        if failed is None:
            super().commit()
            return
        # A tuple that its own call fails is like one whose call raises: what the call did has not happened.
        self.undo()
        tup, _, (reason,) = failed
        BoltTask.fail(self, tup, reason)

    def give_up(self, tup: Tuple, failure: Failure) -> None:
        """Park a tuple instead of failing its trees."""
        self.failed += 1
        if self.on_failure is not None:
            self.on_failure(tup, failure)
        self.last_error = failure.error
        try:
            self.park(tup, failure)
        except Exception as error:
            self.cannot_keep(error)
        self.xors.add_tuple(tup)
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.failed(tup, failure)

    def park(self, tup: Tuple, failure: Failure) -> None:
        """Let a tuple wait for its next try, or make it a dead letter."""
        parked = self.failures_of(tup) or new_parked(self, tup)
        if unkept := mark_of(parked.item).unkept:
            self.report(
                self.method, StateError(f"{unkept}; the tuple is not tried again, and is a dead letter")
            )
            parked_verdicts.settled(self, parked)
            letter_readers.give_up(self, Parked(parked.item, 1, self.now()), failure.error or "")
            return
        parked_verdicts.failed(self, parked, failure)

    def failures_of(self, tup: Tuple) -> Parked | None:
        """Remove and return the earlier failures of a tuple that has failed; None: it has none."""
        parked, self.trying = self.trying, None
        return parked

    def succeeded(self, root: int) -> None:
        parked_verdicts.succeeded(self)

    def fire(self, due: Due) -> None:
        """Call `on_timer`. A timer whose attempts are used up becomes a dead letter."""
        timer = due.key, due.name
        earlier, (failures, successes) = self.retried.get(timer), self.timer_failures.pop(timer, (0, -1))
        if earlier is None or earlier[0] != due.time:  # it is new, or was set again
            failures, successes = 0, -1
        super().fire(due)
        failed = self.retried.get(timer)
        if failed is None:
            return
        # With the last input no call can show any more whose fault it is (`parked_verdicts.is_last_resort`).
        failures += not self.waits_for_stores or self.end_due or 0 <= successes < self.acked
        most = self.epochs.replays.most.max_attempts
        if most is None or failures < most:
            self.timer_failures[timer] = failures, self.acked
            return
        del self.retried[timer]
        self.timers.cancel(*timer)
        try:
            row = original(due.key), due.name, self.epochs.to_wall(failed[1])
            text = self.reports[-1].text if self.reports else ""
            item = item_of(TIMER, 0, TIMER, row, TIMER_FIELDS, self.emitter.where())
            letter_readers.give_up(self, Parked(item, failures, 0.0), text)
        except Exception as error:
            self.cannot_keep(error)

    def parked_due(self) -> bool:
        """Return whether a parked tuple may be tried now."""
        if not self.parking.parked or not self.opened or self.yielded or self.reached:
            return False
        return parked_verdicts.may_try_parked(self, self.now())

    def try_parked(self) -> None:
        """Try the parked tuples that are due, each once."""
        for parked in parked_verdicts.tries(self):
            self.trying, mark = parked, self.mark
            if mark is None:
                self.execute_rows(batch_of(self, parked), 1, self.limits.emits)
            else:
                mark.execute_next(self, batch_of(self, parked), self.limits.emits)
            if self.trying is not None:
                self.trying = None
                parked_verdicts.settled(self, parked)
            self.executed += 1

    # Running.

    def wants_run(self) -> bool:
        if self.yielded:
            return not self.blocked
        if self.parked_due():
            return True
        if self.probing is not None and not self.reached and self.marker_waits:
            return True
        if parked_verdicts.may_clear(self):
            return True
        full = self.parking.full and not self.marker_waits
        # The end of input waits for the parked tuples, and for timers.
        waits = self.end_due and not self.inbox and (bool(self.parking.parked) or self.owes_timers())
        if full or waits:
            return bool(self.notices or self.tick_due) or self.overdue()
        return super().wants_run()

    def overdue(self) -> bool:
        return self.parked_due() or super().overdue()

    def owes_timers(self) -> bool:
        if self.end_called or self.probing is not None:
            return False
        return super().owes_timers() or next(timers_again(self), None) is not None

    def next_deadline(self) -> float | None:
        if self.probing is not None:
            return None  # the next probe has a time of its own
        times = (super().next_deadline(), self.parking.next_due() if self.opened else None)
        return min((time for time in times if time is not None), default=None)

    def run(self) -> None:
        if not self.yielded:
            if self.threaded:  # the loop encodes for the others, between their runs
                self.slices.encode()
            if self.parking.unread:
                letter_readers.send_unread(self)
            parked_verdicts.clear_way(self)
            self.try_parked()
        super().run()


def timers_again(task: EpochBoltTask) -> Iterator[tuple[Any, str]]:
    """Yield (key, name) of the timers that have failed, and were neither cancelled nor set to another time since."""
    times = task.timers.times
    for (key, name), (again, _, _) in task.retried.items():
        if times.get(key, {}).get(name) == again:
            yield key, name


def spoil(task: EpochBoltTask, error: Exception) -> None:
    """A state, or a key, holds what no snapshot can hold. Which call has written it is not known: all calls since the last
    commit are made again, and each is checked. If all were checked already, the topology ends."""
    history = task.epochs.history
    if history.checked or not task.states:
        task.cannot_keep(error)
        return
    history.checked = True
    text = str(error)
    if not isinstance(error, StateError):
        where = task.emitter.where()
        text = f"{where}: a key, or the name of a timer, cannot be kept: {type(error).__name__}: {error}"
    task.reached.append(SpoiltState(text))


def again_batch(
    task: EpochBoltTask, component: str, source: int, stream: str, awaited: bool, packed: bytes
) -> AgainBatch:
    """Return tuples that a task executes again. Raises StateError for a stream that it does not read any more, or
    that has other fields."""
    fields = task.fields_of.get((component, stream))
    if fields is None:
        raise StateError(
            f"{task.emitter.where()} has tuples of stream {stream!r} of component {component!r} to execute, and does not "
            f"read this stream any more: {ANOTHER_PATH}"
        )
    rows = readable_rows(task, Source(component, source, stream, fields), packed)
    if any(len(row) != len(fields) for row in rows):
        raise StateError(
            f"{task.emitter.where()} has tuples of stream {stream!r} of component {component!r} to execute, and the stream has "
            f"other fields now ({', '.join(fields)}): {ANOTHER_PATH}"
        )
    return AgainBatch(Source(component, source, stream, fields), task.id, rows, awaited)
