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
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

from squall.transport.frames import COUNTS, NO_MORE, Batch
from topology_api import Failure, Replay, StateError
from topology_api.packing import dumps_by_value
from topology_api.state_types import keeping_problems, keeps_of
from topology_api.tuples import SETTLED, Source, Tuple
from worker.epochs.alignment import Alignment
from worker.epochs.emissions import Emissions
from worker.epochs.messages import Rows, SnapshotMarker
from worker.epochs.parking import Parked, Parking
from worker.epochs.snapshot_files import TaskSnapshot
from worker.errors.reports import failure_text
from worker.state.contents import count_keys
from worker.state.keys import canonical, original
from worker.state.saved import Clock, Saved, load_states, load_timers, save_states, save_timers
from worker.state.timers import KeyTimers
from worker.tasks.bolt import BoltTask
from worker.tasks.emitter import Emitter
from worker.tasks.stateful_bolt import StatefulBoltTask

#: What helps where a snapshot does not fit the topology.
ANOTHER_PATH: Final = "submit the topology as it was, or set another topology.state.path"


def not_kept(where: str, what: str, error: Exception) -> StateError:
    """Return the error for something that cannot be pickled."""
    return StateError(
        f"{where}: {what} cannot be kept in a snapshot: {failure_text(error)}. With topology.state.path all values must be "
        "such that pickle can carry them"
    )


def unreadable(where: str, epoch: int, error: Exception) -> StateError:
    """Return the error for a snapshot that does not fit its task."""
    if isinstance(error, StateError):
        return error
    return StateError(f"{where} cannot read its snapshot of epoch {epoch}: {failure_text(error)}")


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
    alignment: Alignment
    parking: Parking
    #: What a spout task has emitted since the last commit.
    emissions: Emissions
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
    #: Whether a staged sink has rows to stage.
    stages: bool = False


def rows_in_outboxes(emitter: Emitter, names: dict[int, str]) -> list[tuple[str, str, list[Any]]]:
    """Return (target task, stream, rows), the rows as one pickle, of each outbox that holds some. Raises StateError."""
    found: list[tuple[str, str, list[Any]]] = []
    for box in emitter.dirty:
        if box.rows:
            try:
                packed = dumps_by_value([tuple(row) for row in box.rows], 5)
            except Exception as error:
                raise not_kept(emitter.where(), f"a tuple on stream {box.source.stream!r}", error) from error
            found.append((names[box.target], box.source.stream, [packed]))
    return found


def fill_outboxes(emitter: Emitter, content: list[tuple[str, str, list[Any]]], names: dict[int, str]) -> None:
    """Put rows back into the outboxes from which they were taken. They are in no tree: their spouts have counted them. Raises
    StateError for an outbox that is gone.
    """
    boxes = {(names[box.target], box.source.stream): box for box in emitter.boxes()}
    for target, stream, packed in content:
        box = boxes.get((target, stream))
        if box is None:
            raise StateError(
                f"{emitter.where()} has tuples on stream {stream!r} for task {target}, which does not read it any more: "
                f"{ANOTHER_PATH}"
            )
        for row in pickle.loads(packed[0]):
            if len(row) != len(box.source.fields):
                raise StateError(
                    f"{emitter.where()} has tuples on stream {stream!r} for task {target}, and the stream has other fields now "
                    f"({', '.join(box.source.fields)}): {ANOTHER_PATH}"
                )
            emitter.put(box, row, [])


def drop_outboxes(emitter: Emitter) -> None:
    """Forget what has not left: what is not committed was not emitted."""
    while emitter.dirty:
        box = emitter.dirty.pop()
        box.dequeue(len(box.rows))


class EpochBoltTask(StatefulBoltTask):
    """One task of a bolt."""

    epochs: EpochSetup
    #: The tasks whose end marks this task gets.
    sources: frozenset[int]
    #: The fields of an input stream, by component and stream.
    fields_of: dict[tuple[str, str], tuple[str, ...]]
    #: Markers that the task has reached, for the worker to collect after the run.
    reached: list[ReachedMarker]
    #: The parked tuple that is being tried.
    trying: Parked | None
    undeclared: dict[str, Saved]
    #: How many keys had state at the last marker, or in the snapshot; None: no state belongs to keys.
    keys: int | None

    def join_epochs(self, setup: EpochSetup) -> None:
        """Called once, before the task is opened."""
        self.epochs = setup
        self.parking = setup.parking
        self.reached = []
        self.trying = None
        #: What a commit has of states that this version does not declare: another version may declare them.
        self.undeclared = {}
        self.keys = count_keys(self.states)

    # Markers.

    def take_input(self, most_emits: int) -> None:
        if not self.take_marker():
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
        names, marker = self.epochs.names, first.marker
        content = TaskSnapshot(names[self.id], marker.epoch, 0, 0)
        content.ended = [names[task] for task in self.sources if task not in self.inputs.open]
        try:
            content.state = self.saved()
            rows = self.packed_rows(marker.epoch)
        except Exception as error:
            self.cannot_keep(error)
            return True
        self.keys = count_keys(self.states)
        finished = self.ended and not self.parking.parked
        self.reached.append(ReachedMarker(marker, content, finished, rows, self.stages))
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
        if self.reached or (self.parking.full and not self.marker_waits):
            return False
        return self.marker_waits or super().may_execute(now)

    def waiting_roots(self) -> set[int]:
        roots = super().waiting_roots()
        for _, held in list(self.epochs.alignment.held):  # behind a barrier
            if isinstance(held, Rows):
                roots |= held.rows[0].waiting_roots(0)
        return roots

    def idle(self) -> bool:
        return not (self.reached or self.parking.parked) and super().idle()

    def forget_unsent(self) -> None:
        """Forget what was emitted before the task became what a commit says: in `prepare`."""
        drop_outboxes(self.emitter)

    def forget_contents(self) -> None:
        """Free the memory of a task that was closed, and whose place another one takes: its counters are still read."""
        self.states.clear()
        self.table.handles.clear()
        getattr(self.instance, "__dict__", {}).clear()
        self.timers = KeyTimers(self.table)
        self.retried.clear()

    # What a snapshot holds.

    def saved(self) -> dict[str, Any]:
        """Return what the task's own snapshot holds. Raises StateError."""
        to_wall, times = self.epochs.to_wall, self.timers.times
        retried = [
            (original(key), name, to_wall(again), to_wall(time), pause)
            for (key, name), (again, time, pause) in self.retried.items()
            if times.get(key, {}).get(name) == again  # it was neither cancelled nor set to another time since
        ]
        return {
            "end_called": self.end_called,
            "ended": self.ended,
            "key": keeps_of(self.instance).get("key", []),
            "states": {**self.undeclared, **save_states(self.states, to_wall)},
            "timers": save_timers(self.timers, to_wall),
            "retried": dumps_by_value(retried, 5) if retried else b"",
        }

    def begin_with(self, snapshot: TaskSnapshot | None) -> None:
        """Become what a snapshot says; None: begin. The task is abandoned if it cannot. It has just been prepared."""
        if snapshot is None:
            return
        try:
            self.load(snapshot)
        except Exception as error:
            self.abandoned = self.report("prepare", unreadable(self.emitter.where(), snapshot.epoch, error))

    def load(self, snapshot: TaskSnapshot) -> None:
        """Become what a snapshot says. Raises StateError for what does not fit the bolt."""
        setup, saved = self.epochs, snapshot.state
        names = {name: task for task, name in setup.names.items()}
        ended = {
            names[name] for name in snapshot.ended if name in names
        }  # another version may have had other inputs
        for source in ended:
            self.inputs.ended(source)
        self.end_called, self.ended = saved["end_called"], saved["ended"]
        self.check_inputs(ended)
        fill_outboxes(self.emitter, snapshot.outboxes, setup.names)
        self.check_parked(snapshot)
        context = self.context
        states = saved.get("states", {})
        self.check_key(saved.get("key", []), bool(saved.get("timers")))
        self.undeclared = load_states(
            self.states, states, setup.from_wall, context.topology, context.component
        )
        self.keys = count_keys(self.states)
        load_timers(self.timers, saved.get("timers", b""), setup.from_wall)
        for key, name, _, time, pause in pickle.loads(saved["retried"]) if saved.get("retried") else ():
            again = self.timers.times[canonical(key)][name]  # as it was loaded
            self.retried[canonical(key), name] = (again, setup.from_wall(time), pause)

    def check_inputs(self, ended: Set[int]) -> None:
        """Raise StateError if the input has ended, and another version of the topology has given the bolt further inputs."""
        new = sorted(self.epochs.names[task] for task in self.sources - ended)
        if self.end_called and new:
            raise StateError(
                f"{self.emitter.where()}: its input had ended, and now it reads {', '.join(new)} too: give the bolt a new name"
            )

    def check_key(self, key: list[str], timers: bool) -> None:
        """Raise StateError if state was saved for a key of other fields, or timers for a bolt that has none any more."""
        known = {"key": key, "states": {"timers": None} if timers else {}}
        own = {**keeps_of(self.instance)}
        if "states" in own:
            own["states"] = {}
        for problem in keeping_problems(self.context.topology, self.spec.id, known, own):
            raise StateError(problem)

    def check_parked(self, snapshot: TaskSnapshot) -> None:
        """Raise StateError for parked tuples that this version of the bolt cannot get."""
        for item, _, _ in snapshot.parked:
            component, _, stream, values = item
            fields = self.fields_of.get((component, stream))
            place = self.emitter.where()
            where = f"{place} has a tuple of stream {stream!r} of component {component!r} that waits for its next try"
            if fields is None:
                raise StateError(f"{where}, and does not read this stream any more: {ANOTHER_PATH}")
            if len(pickle.loads(values)) != len(fields):
                raise StateError(
                    f"{where}, and the stream has other fields now ({', '.join(fields)}): {ANOTHER_PATH}"
                )

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
        now, parking, text = self.now(), self.parking, failure.error or ""
        parked, self.trying = self.trying, None
        if parked is None:
            source = tup._source
            values = dumps_by_value(tuple(tup._values), 5)
            item = [source.component, source.task, source.stream, values]
            parked = Parked(item, 0, now, since=now, successes=self.acked)
        most = self.epochs.give_up_secs
        if most is not None and self.waits_for_stores and parked.tries and now - parked.since >= most:
            parking.give_up(parked, text)
            return
        counts = failure.attempts == COUNTS or not self.waits_for_stores or self.is_counted(parked)
        parked.successes = self.acked
        parking.failed(parked, text, self.epochs.replay, now, counts)

    def is_counted(self, parked: Parked) -> bool:
        """Return whether a failure counts against a tuple: the task has worked for others since the one before, or nothing else
        is left to work for."""
        if parked.tries and self.acked > parked.successes:
            return True
        stuck = all(each.tries and each.successes == self.acked for each in self.parking.parked)
        return self.inputs.outside_ended and not self.inbox and stuck

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
            source = Source(component, task, stream, self.fields_of[component, stream])
            batch = Batch(source, self.id, [pickle.loads(values)], [0], [0], NO_MORE)
            self.execute_rows(batch, 1, self.limits.emits)
            self.trying = None
            self.executed += 1

    # Running.

    def wants_run(self) -> bool:
        if self.yielded:
            return not self.blocked
        if self.parked_due():
            return True
        full = self.parking.full and not self.marker_waits
        # The end of input waits for the parked tuples.
        waits = self.end_due and not self.inbox and bool(self.parking.parked)
        if full or waits:
            return bool(self.notices or self.tick_due) or self.overdue()
        return super().wants_run()

    def overdue(self) -> bool:
        return self.parked_due() or super().overdue()

    def next_deadline(self) -> float | None:
        times = (super().next_deadline(), self.parking.next_due() if self.opened else None)
        return min((time for time in times if time is not None), default=None)

    def run(self) -> None:
        if not self.yielded:
            self.try_parked()
        super().run()
