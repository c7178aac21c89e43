"""Spout tasks of topologies with epochs: an emission is acked once, with the commit of its epoch, and never fails.

Trees still count what is pending; their ends call neither `ack` nor `fail`. A spout with `position` and `rewind` is asked for
its position between two calls of `next_tuple`; the values of every other spout are kept until their commit.
Must not know: links, bolts, coordinators, files.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from squall.transport.frames import REPORTS
from squall.unreadable import loads_rows, why_unreadable
from topology_api import Failure, RewindableSpout, SquallError, StateError
from topology_api.packing import dumps_by_value
from topology_api.state_types import keeping_problems, keeps_of
from topology_api.wording import typed
from worker.epochs.emissions import Emissions, Kept
from worker.epochs.messages import SnapshotMarker
from worker.epochs.snapshot_files import TaskSnapshot
from worker.errors.reports import failure_text
from worker.tasks.acks_at_once import call_ack_many
from worker.tasks.emitter import short
from worker.tasks.epoch_bolt import EpochSetup, ReachedMarker
from worker.tasks.epoch_emitter import EpochSpoutEmitter
from worker.tasks.fitting import unreadable
from worker.tasks.hooks import ObservedSpoutEmitter
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task
from worker.tasks.unsent_rows import LostRow, can_be_kept, drop_outboxes, fill_outboxes, give_up_row
from worker.tracking.tracker import Emission


class PickledEmissions(Emissions):
    """Emissions whose values are a pickle in snapshots: ids and values may be of any class."""

    #: Gets what no snapshot can keep, of what is to be emitted again.
    give_up: Callable[[Kept], None]

    def content(self) -> list[Kept]:
        if not self.again:
            return []
        try:
            return [(None, dumps_by_value(list(self.again), 5))]
        except Exception:
            return self.content_without_unkept()

    def content_without_unkept(self) -> list[Kept]:
        """Return what a snapshot keeps. The rest counts as emitted in the epoch that ends, and is given up."""
        every, self.again = self.again, deque()
        packed: list[Kept] = []
        for each in every:
            message_id, values = each
            if can_be_kept(values):
                self.again.append(each)
                packed.append((message_id if can_be_kept((message_id,)) else None, values))
            else:
                self.closed[max(self.closed)].append(each)
                self.give_up(each)
        return [(None, dumps_by_value(packed, 5))] if packed else []

    def restore(self, again: Iterable[Kept]) -> None:
        every = [each for _, packed in again for each in self.readable(packed)]
        super().restore(every)

    def readable(self, packed: bytes) -> list[Kept]:
        """Return what can be read of what a snapshot has kept. The rest is given up, and counts as emitted in this epoch."""
        kept = []
        entries, unreadable = loads_rows(packed)
        for at, (message_id, values) in enumerate(entries):
            if at in unreadable and why_unreadable((message_id,)):
                message_id = None
            if at in unreadable and why_unreadable((values,)):
                self.add(message_id, values)
                self.give_up((message_id, values))
            else:
                kept.append((message_id, values))
        return kept


class ObservedEpochSpoutEmitter(ObservedSpoutEmitter, EpochSpoutEmitter):
    """emit() of a spout's task in a topology with epochs, with hooks."""


class EpochSpoutTask(SpoutTask):
    """One task of a spout in a topology with epochs."""

    emitter: EpochSpoutEmitter
    epochs: EpochSetup
    emissions: Emissions
    #: Markers that wait for the end of a call.
    markers: list[SnapshotMarker]
    #: Markers that the task has reached, for the worker to collect.
    reached: list[ReachedMarker]
    #: Whether the last epoch of the assignment has ended: then the task emits nothing.
    halted: bool
    #: Why the task emits nothing, although it is active: some task has reached a limit; "": it may emit. And whether a cycle
    #: has to drain, and not a commit to come.
    held: str
    held_by_cycle: bool
    #: Whether this object has been through a rewind.
    survived: bool
    #: The position of a spout that had finished before this object was made, and was not rewound.
    last_position: Any

    def join_epochs(self, setup: EpochSetup) -> None:
        """Called once, before the task is opened."""
        self.epochs = setup
        self.rewindable = isinstance(self.instance, RewindableSpout)
        self.emissions = setup.emissions
        self.emitter.keep_in(setup.emissions)
        self.markers, self.reached = [], []
        self.halted = self.survived = self.held_by_cycle = False
        self.held = ""
        self.last_position = None
        if isinstance(self.emissions, PickledEmissions):
            self.emissions.give_up = self.give_up_kept

    # Markers.

    @property
    def marker_waits(self) -> bool:
        """Whether a marker waits that may be taken: a position is asked for between two calls of `next_tuple`. A spout without
        one may also be inside a call that waits in `emit`."""
        return bool(self.markers) and not (self.yielded and self.rewindable)

    def take_marker(self) -> bool:
        """Note what the task holds; return whether a marker waited."""
        if not self.marker_waits:
            return False
        marker = self.markers.pop(0)
        setup = self.epochs
        content = TaskSnapshot(setup.names[self.id], marker.epoch, 0, 0)
        content.state = {"ended": self.ended, "class": type(self.instance).__qualname__}
        content.finished = self.finished
        if self.rewindable:
            try:
                content.position = self.last_position or self.packed_position()
            except BaseException as error:  # without a position nothing can be committed
                self.report("position", error)
                self.crash_on_error = True
                return True
        self.reached.append(ReachedMarker(marker, content, self.ended))
        self.halted = marker.last
        return True

    def packed_position(self) -> bytes:
        """Return the position as a snapshot keeps it. Raises StateError for one that it cannot keep."""
        position = self.instance.position()
        try:
            return msgspec.msgpack.encode(position)
        except Exception as error:
            raise StateError(
                f"{self.emitter.where()}: position() returned {typed(position)}, which is no msgpack value: "
                f"{failure_text(error)}. Return numbers, text, bytes, None, or lists and dicts of these"
            ) from error

    def give_up_kept(self, kept: Kept) -> None:
        """Make a dead letter of a tuple that was to be emitted again."""
        _, (stream, direct, row) = kept
        source = self.emitter.outputs[stream].source
        target = self.epochs.names[direct] if direct else "all that read it"
        give_up_row(self, LostRow(source, target, row, ()))

    def forget_unsent(self) -> None:
        """Forget what was emitted before the task became what a commit says: in `open`."""
        drop_outboxes(self.emitter)
        for root in self.tracker.open_roots():
            self.tracker.forget(root)

    def begin_again(self) -> None:
        """A rewind comes, and this object goes on. What it emitted since the last commit is emitted again."""
        self.survived = True
        self.markers.clear()
        self.reached.clear()
        self.halted = self.blocked = self.ended = False
        self.held = ""
        self.forget_unsent()

    def forget_contents(self) -> None:
        """Free the memory of a task that was closed, and whose place another one takes: its counters are still read."""
        getattr(self.instance, "__dict__", {}).clear()

    def begin_with(self, snapshot: TaskSnapshot | None, in_memory: bool = False) -> None:
        """Become what a snapshot says; None: begin. The topology ends if the snapshot does not fit; the task is abandoned if a
        call of the spout raises. It has just been opened, or goes on. A spout's snapshot has no parts, so it is the same
        `in_memory`."""
        position, several = None, []
        if snapshot is not None:
            # One that goes on may have finished since the commit.
            self.finished = snapshot.finished or (self.survived and self.finished)
            self.ended = snapshot.state["ended"]
            try:
                self.check_class(snapshot.state.get("class"))
                for lost in fill_outboxes(self.emitter, snapshot.outboxes, self.epochs.names):
                    give_up_row(self, lost)
                position = msgspec.msgpack.decode(snapshot.position) if snapshot.position else None
                several = [msgspec.msgpack.decode(each) for each in snapshot.state.get("positions", ())]
            except Exception as error:
                # Another process could not read it either, so the topology ends, as with a bolt's.
                self.report("open", unreadable(self.emitter.where(), snapshot.epoch, error))
                self.crash_on_error = True
                return
        if not self.rewindable or self.finished:
            self.last_position = snapshot.position if snapshot is not None and not several else None
            return
        if several:  # their number of tasks was another one
            try:
                position = self.instance.merge_positions(several)
            except BaseException as error:
                self.abandoned = self.report("merge_positions", error)
                return
        if not self.call("rewind", position):
            self.abandoned = self.reports[-1]

    def check_class(self, saved: str | None) -> None:
        """Raise StateError if the position is that of a spout of another class; None: a release that did not note it."""
        own = keeps_of(self.instance)
        for problem in keeping_problems(self.context.topology, self.spec.id, {"class": saved}, own):
            raise StateError(problem)

    # Final calls.

    def ack_committed(self, ids: Iterable[Any]) -> None:
        """Call `ack` for emissions that are committed."""
        if not self.has_ack and self.observer is None:
            self.acked += len(tuple(ids))
            return
        self.acking = True
        self.emitter.close_for("emissions from ack() are not repeated after a rewind: emit in next_tuple")
        if self.ack_many is not None and self.observer is None:
            committed, ids = list(ids), ()
            if committed:
                call_ack_many(self, committed)
        for message_id in ids:
            self.acked += 1
            if self.has_ack:
                try:
                    self.instance.ack(message_id)
                except BaseException as error:
                    self.report("ack", error, f"message id {short(message_id)}")
            if self.observer is not None:
                self.observer.spout_acked(message_id)
        self.acking = False
        self.emitter.open_for(threading.get_ident())

    def give_acks(self, emissions: list[Emission], enough: float) -> list[Emission]:
        """The end of a tree is no ack: that comes with the commit."""
        return []

    def decide(self, emission: Emission, failure: Failure, now: float) -> None:
        """A tree that fails here has timed out: its tuple counts as emitted, and is not emitted again."""
        if failure.reason in REPORTS or failure.reason == "stopped":
            return
        where = "" if failure.component is None else f" at {failure.component}[{failure.task}]"
        text = (
            f"the tuple of message id {short(emission[0])} was neither acked nor failed{where} within the timeout of its tree "
            f"({failure.reason}); it counts as processed, since the bolts before have counted it"
        )
        self.report("next_tuple", SquallError(text))

    def close(self) -> None:
        """Call `close`. Trees that are open are forgotten: what is not committed was not emitted."""
        if self.opened and not self.closed:
            self.take_late()
            Task.close(self)

    # Running.

    @property
    def exhausted(self) -> bool:
        return super().exhausted and not self.emissions.again

    def repeats(self) -> bool:
        """Return whether an earlier emission may be repeated now."""
        ready = self.active and not (self.draining or self.blocked)
        return bool(self.emissions.again) and ready and not self.at_limit()

    def wants_run(self) -> bool:
        # A marker comes first: a spout that always has something to emit would never reach it.
        if self.marker_waits:
            return False
        return (self.opened and self.repeats()) or super().wants_run()

    @property
    def waits_for_commit(self) -> bool:
        """Whether as many emissions wait for their commit as may."""
        return self.emissions.uncommitted >= self.epochs.most_uncommitted

    def at_limit(self) -> bool:
        return self.halted or bool(self.held) or super().at_limit() or self.waits_for_commit

    def may_emit(self, now: float) -> bool:
        if self.yielded and self.rewindable:
            return not self.blocked and self.may_go_on()
        if self.halted:
            return False
        return not self.emissions.again and super().may_emit(now)

    def may_go_on(self) -> bool:
        # A call of a spout with a position has to return before anything can be committed, whatever else waits for it.
        return not super().at_limit() if self.rewindable else super().may_go_on()

    def run(self) -> None:
        super().run()
        enough = self.produced + self.limits.emits
        while self.produced < enough and self.repeats() and (kept := self.emissions.next_again()) is not None:
            self.emitter.again(kept)
