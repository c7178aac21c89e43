"""Bolt tasks of topologies with epochs: each call is all or nothing, a failed tuple waits here, and a marker ends an epoch.

A tuple whose call raises is not emitted again from its spout, since the bolts before this one have counted it. It is *parked*:
its edge is acked, it is tried again here after the delays of the spout's `Replay`, and becomes a dead letter in the end. When
the task reaches a `SnapshotMarker` in its inbox, it notes what it holds, and does nothing else until the worker has collected
that.
Must not know: links, trackers, coordinators, files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from squall.transport.frames import COUNTS, NO_MORE, Batch
from topology_api import Failure, Replay, StateError
from topology_api.packing import dumps_by_value
from topology_api.tuples import SETTLED, Source, Tuple
from worker.epochs.messages import SnapshotMarker
from worker.epochs.parking import Parked, Parking
from worker.epochs.snapshot_files import TaskSnapshot
from worker.state.keys import canonical, original
from worker.state.saved import Clock, load_states, load_timers, save_states, save_timers
from worker.tasks.bolt import BoltTask, make_tuple
from worker.tasks.emitter import NOTHING, Emitter
from worker.tasks.holding import HoldingEmitter
from worker.tasks.stateful_bolt import StatefulBoltTask


class MarkerBatch(Batch):
    """A snapshot marker in an inbox."""

    def __init__(self, marker: SnapshotMarker, source: Source, target: int) -> None:
        super().__init__(source, target, [], [], [])
        self.marker = marker


@dataclass(frozen=True)
class EpochSetup:
    """What a task of a topology with epochs gets besides what every task gets. Both clocks are functions of one time."""

    to_wall: Clock
    from_wall: Clock
    #: Task id -> "component/index".
    names: dict[int, str]
    #: The policy of the spouts before this task.
    replay: Replay
    parking: Parking
    #: Seconds after which a parked tuple is given up although no failure counts against it; None: never.
    give_up_secs: float | None
    #: How many emissions of a spout task may wait for their commit.
    most_uncommitted: int


@dataclass(frozen=True, slots=True)
class ReachedMarker:
    """A marker that a task has reached, and what the task held there."""

    marker: SnapshotMarker
    content: TaskSnapshot
    #: Whether the task has nothing more to do.
    finished: bool
    #: The rows of a token sink.
    rows: bytes | None = None


def rows_in_outboxes(emitter: Emitter, names: dict[int, str]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (target task, stream, rows), the rows as one pickle, of each outbox that holds some."""
    for box in emitter.dirty:
        if box.rows:
            yield names[box.target], box.source.stream, [dumps_by_value([tuple(row) for row in box.rows], 5)]


def fill_outboxes(emitter: Emitter, content: list[tuple[str, str, list[Any]]], names: dict[int, str]) -> None:
    """Put rows back into the outboxes from which they were taken. They are in no tree: their spouts have counted them."""
    boxes = {(names[box.target], box.source.stream): box for box in emitter.boxes()}
    for target, stream, packed in content:
        for row in pickle.loads(packed[0]):
            emitter.put(boxes[target, stream], row, [])


def drop_outboxes(emitter: Emitter) -> None:
    """Forget what has not left: what is not committed was not emitted."""
    while emitter.dirty:
        box = emitter.dirty.pop()
        box.dequeue(len(box.rows))


class EpochBolt(BoltTask):
    """What bolt tasks of topologies with epochs share."""

    emitter: HoldingEmitter
    epochs: EpochSetup
    #: Markers that the task has reached, for the worker to collect after the run.
    reached: list[ReachedMarker]
    #: The parked tuple that is being tried.
    trying: Parked | None

    def join_epochs(self, setup: EpochSetup) -> None:
        """Called once, before the task is opened."""
        self.epochs = setup
        self.parking = setup.parking
        self.reached = []
        self.trying = None

    # Markers.

    def take_input(self, most_emits: int) -> None:
        if not self.take_marker():
            super().take_input(most_emits)

    def take_marker(self) -> bool:
        """Note what the task holds if a marker is the next in its inbox; return whether there was one."""
        first = self.inbox[0] if self.inbox else None
        if not isinstance(first, MarkerBatch) or self.reached:
            return False
        self.inbox.popleft()
        setup, marker = self.epochs, first.marker
        content = TaskSnapshot(setup.names[self.id], marker.epoch, 0, 0)
        try:
            content.state = self.saved()
        except StateError as error:
            self.report(self.method, error)
            self.crash_on_error = True
            return True
        content.outboxes = list(rows_in_outboxes(self.emitter, setup.names))
        content.ended = [setup.names[task] for task in self.epoch_inputs() if task not in self.inputs.open]
        self.reached.append(ReachedMarker(marker, content, self.ended and not self.parking.parked))
        return True

    def epoch_inputs(self) -> list[int]:
        """Return the tasks whose end marks this task waits for."""
        return [task for task in self.epochs.names if task in self.sources]

    #: The tasks whose end marks this task gets.
    sources: frozenset[int] = frozenset()

    @property
    def marker_waits(self) -> bool:
        """Whether a marker is the next in the inbox. The loop may ask while the task's thread takes its input."""
        try:
            return isinstance(self.inbox[0], MarkerBatch)
        except IndexError:
            return False

    def may_execute(self, now: float) -> bool:
        if self.reached or (self.parking.full and not self.marker_waits):
            return False
        return self.marker_waits or super().may_execute(now)

    def idle(self) -> bool:
        return not (self.reached or self.parking.parked) and super().idle()

    def forget_unsent(self) -> None:
        """Forget what was emitted before the task became what a commit says: in `prepare`."""
        drop_outboxes(self.emitter)

    # What a snapshot holds.

    def saved(self) -> dict[str, Any]:
        """Return what the task's own snapshot holds."""
        return {"end_called": self.end_called, "ended": self.ended}

    def begin_with(self, snapshot: TaskSnapshot) -> None:
        """Become what a snapshot says; the task is abandoned if it cannot. It has just been prepared."""
        try:
            self.load(snapshot)
        except StateError as error:
            self.abandoned = self.report("prepare", error)

    def load(self, snapshot: TaskSnapshot) -> None:
        """Become what a snapshot says. Raises StateError for state that does not fit the bolt."""
        names = {name: task for task, name in self.epochs.names.items()}
        for name in snapshot.ended:
            if name in names:
                self.inputs.ended(names[name])
        self.end_called, self.ended = snapshot.state["end_called"], snapshot.state["ended"]
        fill_outboxes(self.emitter, snapshot.outboxes, self.epochs.names)

    # Parked tuples.

    def give_up(self, tup: Tuple, failure: Failure) -> None:
        """Park a tuple instead of failing its trees."""
        self.failed += 1
        if self.on_failure is not None:
            self.on_failure(tup, failure)
        self.last_error = failure.error
        self.park(tup, failure)
        self.xors.add_tuple(tup)
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.failed(tup, failure)

    def park(self, tup: Tuple, failure: Failure) -> None:
        """Let a tuple wait for its next try, or make it a dead letter."""
        now, replay, parking, text = self.now(), self.epochs.replay, self.parking, failure.error or ""
        parked, self.trying = self.trying, None
        if parked is None:
            source = tup._source
            values = dumps_by_value(tuple(tup._values), 5)
            parked = Parked([source.component, source.task, source.stream, values], 0, now, since=now)
            parked.successes = self.acked
        most = self.epochs.give_up_secs
        if most is not None and self.waits_for_stores and parked.tries and now - parked.since >= most:
            parking.give_up(parked, text)
            return
        counts = failure.attempts == COUNTS or not self.waits_for_stores or self.counts(parked)
        parked.successes = self.acked
        parking.failed(parked, text, replay, now, counts)

    def counts(self, parked: Parked) -> bool:
        """Return whether a failure counts against a tuple: the task has worked for others since the one before, or nothing else
        is left to work for."""
        if parked.tries and self.acked > parked.successes:
            return True
        return self.inputs.outside_ended and not self.inbox and len(self.parking.parked) == 0

    def parked_due(self) -> bool:
        """Return whether a parked tuple may be tried now."""
        due = self.parking.next_due()
        return due is not None and self.opened and not (self.yielded or self.reached) and self.now() >= due

    def try_parked(self) -> None:
        """Try the parked tuples that are due, each once."""
        if not self.parked_due():
            return
        emitter = self.emitter
        self.open_here()
        now, enough = self.now(), emitter.emitted + self.limits.emits
        for _ in range(len(self.parking.parked)):
            if emitter.emitted >= enough or self.crashing():
                break
            parked = self.parking.due(now)
            if parked is None:
                break
            component, task, stream, values = parked.item
            self.trying = parked
            source = Source(component, task, stream, self.fields_of(component, stream))
            batch = Batch(source, self.id, [pickle.loads(values)], [0], [0], NO_MORE)
            self.execute_rows(batch, 1, self.limits.emits)
            self.trying = None
            self.executed += 1

    #: The fields of an input stream, by component and stream.
    fields_of: Callable[[str, str], Any]

    # Running.

    def wants_run(self) -> bool:
        if self.yielded:
            return not self.blocked
        if self.parked_due():
            return True
        if self.parking.full and not self.marker_waits:
            return bool(self.notices or self.tick_due)
        if (
            self.end_due and self.parking.parked and not self.inbox
        ):  # the end of input waits for the parked tuples
            return bool(self.notices or self.tick_due) or self.overdue()
        return super().wants_run()

    def overdue(self) -> bool:
        """Return whether something is due although nothing arrives."""
        return self.parked_due()

    def next_deadline(self) -> float | None:
        """Return when the next parked tuple is due."""
        return self.parking.next_due() if self.opened else None

    def run(self) -> None:
        if not self.yielded:
            self.try_parked()
        super().run()


class EpochBoltTask(EpochBolt):
    """One task of a bolt without state of its own: what a call emits is dropped if it raises."""

    def execute_rows(self, batch: Batch, stop: int, most_emits: int) -> int:
        """Execute rows of a batch, each as a call of its own; return how many."""
        emitter, observer = self.emitter, self.observer
        enough = emitter.emitted + most_emits
        done = 0
        for position in range(batch.position, min(stop, len(batch.rows))):
            tup = make_tuple(batch, position)
            emitter.anchor = tup
            if observer is not None:
                observer.executing(tup)
            error: BaseException | None = None
            try:
                self.execute(tup)
            except BaseException as raised:
                error = raised
            if observer is not None:
                observer.executed(tup)
            done += 1
            if error is None:
                emitter.release()
                self.ack_checked(tup)
            else:
                emitter.drop()
                if self.raised(tup, error):
                    enough = 0
                error = None  # break a reference cycle: the error's traceback refers to this frame
            emitter.anchor = NOTHING
            if emitter.emitted >= enough:
                break
        batch.position += done
        return done

    def call(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        returned = super().call(name, *args, tuple_text=tuple_text)
        if returned:
            self.emitter.release()
        else:
            self.emitter.drop()
        return returned


class EpochStatefulBoltTask(EpochBolt, StatefulBoltTask):
    """One task of a stateful bolt."""

    def saved(self) -> dict[str, Any]:
        to_wall = self.epochs.to_wall
        retried = [
            (original(key), name, to_wall(again), to_wall(time), pause)
            for (key, name), (again, time, pause) in self.retried.items()
        ]
        return {
            **super().saved(),
            "states": save_states(self.states, to_wall),
            "timers": save_timers(self.timers, to_wall),
            "retried": dumps_by_value(retried, 5) if retried else b"",
        }

    def load(self, snapshot: TaskSnapshot) -> None:
        super().load(snapshot)
        from_wall = self.epochs.from_wall
        saved = snapshot.state
        load_states(self.states, saved["states"], from_wall)
        load_timers(self.timers, saved["timers"], from_wall)
        for key, name, again, time, pause in pickle.loads(saved["retried"]) if saved["retried"] else ():
            # The timer's own time is the one at which it is tried again, as it was loaded.
            again = self.timers.times[canonical(key)][name]
            self.retried[canonical(key), name] = (again, from_wall(time), pause)

    def overdue(self) -> bool:
        return self.parked_due() or StatefulBoltTask.overdue(self)

    def next_deadline(self) -> float | None:
        times = (StatefulBoltTask.next_deadline(self), EpochBolt.next_deadline(self))
        return min((time for time in times if time is not None), default=None)
