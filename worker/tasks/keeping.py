"""The tasks of bolts that settle tuples themselves, in a topology with epochs: at a marker they may have tuples in their hands.

A tuple that was executed and neither acked nor failed is *held*. It is part of the task's snapshot, and the new object that a
rewind makes executes it again. A call that returns stands, also if it has failed some tuples: these are parked, and what it
has emitted with them as its only anchors is dropped, since their next try emits it again. A tuple that is held for longer than
the message timeout was forgotten: it is reported with the name of its holder, and is a dead letter.
Must not know: links, trackers, coordinators, files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any, Final

from squall.transport.frames import COUNTS
from topology_api import Failure
from topology_api.packing import dumps_by_value
from topology_api.tuples import SETTLED, UNTRACKED, Tuple
from worker.epochs.parking import Parked
from worker.epochs.snapshot_files import TaskSnapshot
from worker.errors.reports import ErrorReport, one_line
from worker.routing.router import StreamOutput
from worker.tasks import parked_verdicts
from worker.tasks.bolt import BoundedInputs, trees_of
from worker.tasks.emitter import NOTHING, short
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.holding import HoldingEmitter
from worker.tasks.hooks import ObservedHoldingEmitter
from worker.tasks.parked_tuples import mark_of, new_parked
from worker.tasks.special_batches import AgainBatch
from worker.tasks.stateful_bolt import Positions, StatefulBoltTask
from worker.tasks.task import TaskSetup
from worker.tasks.unsent_rows import can_be_kept

#: `Tuple._more` of a tuple that became a dead letter while the bolt held it: what the bolt does with it has no effect, and what
#: it emits for it alone is dropped.
FORGOTTEN: Final = ((0, 0),)


class KeepingEmitter(HoldingEmitter):
    """emit() of a task that settles tuples itself: it knows for which tuples the running call has emitted what."""

    def __init__(self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random) -> None:
        super().__init__(component, task, outputs, random)
        #: The anchors of each held emission, those that are in no tree too.
        self.named: list[tuple[Any, ...]] = []

    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit`."""
        named = self.anchors_of(anchors)
        super().emit(values, anchors=anchors if named is None else named, stream=stream)
        self.named.append(self.default_anchors if named is None else named)

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """See `topology_api.Bolt.emit_direct`."""
        named = self.anchors_of(anchors)
        super().emit_direct(task, values, anchors=anchors if named is None else named, stream=stream)
        self.named.append(self.default_anchors if named is None else named)

    def anchors_of(self, anchors: Any) -> tuple[Any, ...] | None:
        """Return the anchors that a call names; None: it names none, or something that the emitter refuses."""
        if isinstance(anchors, Tuple):
            return (anchors,)
        return tuple(anchors) if isinstance(anchors, Iterable) else None

    @property
    def default_anchors(self) -> tuple[Any, ...]:
        """The anchors of an emission that names none."""
        return () if self.anchor is NOTHING else (self.anchor,)

    def release(self) -> None:
        self.named.clear()
        super().release()

    def drop(self) -> None:
        self.named.clear()
        super().drop()

    def drop_failed(self, failed: Collection[int]) -> None:
        """Drop what the call has emitted for tuples that it has failed, or that are dead letters, and for no others. `failed`:
        ids of the objects of failed ones."""
        kept = [
            held
            for held, named in zip(self.held, self.named)
            if not named or any(id(each) not in failed and each._more is not FORGOTTEN for each in named)
        ]
        self.held, self.named = kept, [()] * len(kept)


class ObservedKeepingEmitter(ObservedHoldingEmitter, KeepingEmitter):
    """The same with hooks."""


@dataclass(slots=True, eq=False)
class Held:
    """A tuple that was executed, and is neither acked nor failed."""

    tup: Tuple
    #: Since when the bolt has it; `reset_timeout` changes this.
    since: float
    #: When the task looks next whether the bolt has forgotten it.
    look_at: float
    #: Its earlier failures; None: it has none.
    parked: Parked | None
    #: Whether the end of the input waits until it is settled, as it does for the tuples of a tree.
    awaited: bool


class KeepingTask(EpochBoltTask):
    """One task of a bolt that settles tuples itself."""

    emitter: KeepingEmitter

    def __init__(
        self, setup: TaskSetup, emitter: KeepingEmitter, inputs: BoundedInputs, positions: Positions
    ) -> None:
        super().__init__(setup, emitter, inputs, positions)
        conf: Any = self.context.conf
        #: Seconds after which a held tuple was forgotten.
        self.forgotten_after = float("inf")
        if conf["topology.enable.message.timeouts"]:
            self.forgotten_after = float(conf["topology.message.timeout.secs"])
        #: By the id of the tuple's object; those that are looked at first come first.
        self.held: dict[int, Held] = {}
        #: The earlier failures of tuples that are executed again, by the id of the tuple's object.
        self.tries: dict[int, Parked] = {}
        #: Whether tuples that the bolt still has may be dead letters.
        self.has_forgotten = False
        #: Whether tuples of the batch at hand keep the end of the input waiting although they are in no tree.
        self.awaited = False

    # Calls.

    def begin_call(self, tup: Tuple) -> None:
        """A call begins that executes a tuple."""
        if self.trying is not None:
            self.tries[id(tup)], self.trying = self.trying, None

    def hold(self, tup: Tuple) -> None:
        """The call of a tuple has returned, and the tuple is neither acked nor failed."""
        now, parked = self.now(), self.tries.pop(id(tup), None)
        awaited = tup._root > UNTRACKED or parked is not None or self.awaited
        self.held[id(tup)] = Held(tup, now, now + self.forgotten_after, parked, awaited)

    def commit(self) -> None:
        failed = {id(tup) for tup, _, reason in self.finals if reason}
        if failed or self.has_forgotten:
            self.emitter.drop_failed(failed)
        StatefulBoltTask.commit(self)

    # The ends of tuples.

    def ack_checked(self, tup: Tuple) -> None:
        parked = self.trying = self.failures_of(tup)
        if tup._more is FORGOTTEN:
            tup._root = SETTLED
        else:
            super().ack_checked(tup)
        self.trying = None
        if parked is not None:
            parked_verdicts.settled(self, parked)

    def give_up(self, tup: Tuple, failure: Failure) -> None:
        if tup._more is FORGOTTEN:
            tup._root = SETTLED
        else:
            super().give_up(tup, failure)

    def failures_of(self, tup: Tuple) -> Parked | None:
        held, tried = self.held.pop(id(tup), None), self.tries.pop(id(tup), None)
        return tried if held is None else held.parked

    def reset_timeout(self, tup: Tuple) -> None:
        super().reset_timeout(tup)
        self.renew(tup)

    def renew(self, tup: Tuple) -> None:
        """The bolt still wants a tuple. May be called while the task runs."""
        held = self.held.get(id(tup))
        if held is not None:
            held.since = self.now()

    def look_at_held(self) -> None:
        """Make dead letters of the tuples that the bolt has forgotten."""
        now = self.now()
        while self.held and (held := next(iter(self.held.values()))).look_at <= now:
            if held.since + self.forgotten_after > now:  # its timeout was reset
                del self.held[id(held.tup)]
                held.look_at = max(now, held.since + self.forgotten_after)
                self.held[id(held.tup)] = held
            else:
                limit = f"{self.forgotten_after:g} s (topology.message.timeout.secs)"
                self.forget(held, f"held for longer than {limit}, and neither acked nor failed")

    def forget(self, held: Held, why: str) -> None:
        """Make a dead letter of a tuple that the bolt has forgotten, and report it."""
        text = f"has forgotten a tuple, which is a dead letter now: {why}. Ack or fail every tuple"
        self.give_up_held(held.tup, why, text)

    def give_up_unkept(self, tup: Tuple) -> None:
        """Make a dead letter of a tuple in the task's hands that no snapshot can keep, and report it."""
        why = mark_of(new_parked(self, tup).item).unkept
        self.give_up_held(
            tup, f"held at the end of an epoch: {why}", f"holds a tuple, which is a dead letter now: {why}"
        )

    def give_up_held(self, tup: Tuple, why: str, text: str) -> None:
        """Make a dead letter of a tuple in the task's hands. `why`: for the letter; `text`: for the report."""
        where = self.spec.id
        failure = Failure("failed", where, self.id, why, COUNTS)
        text = f"{where}[{self.id}] {text}"
        self.reports.append(
            ErrorReport(
                self.context.topology, where, self.id, "", one_line(text), "", (), short(tup, 200), self.now()
            )
        )
        self.failed += 1
        if self.on_failure is not None:
            self.on_failure(tup, failure)
        try:
            parked = self.failures_of(tup) or new_parked(self, tup)
            parked_verdicts.give_up(self, parked, why)
        except Exception as error:
            self.cannot_keep(error)
        self.xors.add_tuple(tup)
        tup._root, tup._more = UNTRACKED, FORGOTTEN
        self.has_forgotten = True
        if self.observer is not None:
            self.observer.failed(tup, failure)

    # Running.

    def take_input(self, most_emits: int) -> None:
        first = self.inbox[0]
        self.awaited = isinstance(first, AgainBatch) and first.awaited
        super().take_input(most_emits)
        self.awaited = False

    def run(self) -> None:
        if not self.yielded:
            self.look_at_held()
        super().run()
        if not self.yielded:
            self.forget_rest()

    def forget_rest(self) -> None:
        """Make dead letters of what the bolt holds after `end_of_input`: nothing can settle it any more."""
        for held in list(self.held.values()) if self.end_called else ():
            self.forget(held, "its input has ended, and it is neither acked nor failed")

    def idle(self) -> bool:
        # The end of the input waits for held tuples: `tick` may settle them, and is not called afterwards.
        return super().idle() and not (self.end_due and any(held.awaited for held in self.held.values()))

    def owes_calls(self) -> bool:
        return super().owes_calls() or any(held.awaited for held in self.held.values())

    def wants_run(self) -> bool:
        if self.end_due and not (self.end_called or self.inbox or self.yielded or self.idle()):
            return bool(self.notices or self.tick_due) or self.overdue()
        return super().wants_run()

    def at_rest(self) -> bool:
        # What `end_of_input` has failed is tried again before the task ends.
        return super().at_rest() and not (self.end_called and self.parking.parked)

    def overdue(self) -> bool:
        time = self.next_look()
        return (time is not None and self.now() >= time and not self.reached) or super().overdue()

    def next_look(self) -> float | None:
        """Return when the task looks at the tuples that it holds."""
        oldest = next(iter(list(self.held.values())), None)
        return oldest.look_at if oldest is not None and oldest.look_at < float("inf") else None

    def next_deadline(self) -> float | None:
        times = (super().next_deadline(), self.next_look())
        return min((time for time in times if time is not None), default=None)

    def waiting_roots(self) -> set[int]:
        # The holder decides when a tuple is forgotten, so its trees do not time out meanwhile.
        roots = super().waiting_roots()
        for held in list(self.held.values()):
            roots.update(trees_of(held.tup))
        return roots

    def holds_trees(self) -> bool:
        return super().holds_trees() or any(held.tup._root > 0 for held in list(self.held.values()))

    def forget_contents(self) -> None:
        super().forget_contents()
        self.held.clear()
        self.tries.clear()

    # What a snapshot holds.

    def unsettled(self) -> Iterator[tuple[Tuple, bool, Parked | None]]:
        """Yield what the task has in its hands: tuple, whether the end of the input waits for it, earlier failures."""
        for held in self.held.values():
            yield held.tup, held.awaited, held.parked

    def fill(self, content: TaskSnapshot) -> None:
        super().fill(content)

        def kind(entry: tuple[Tuple, bool, Parked | None]) -> tuple[str, int, str, bool]:
            source = entry[0]._source
            return source.component, source.task, source.stream, entry[1]

        fresh = []
        for entry in self.unsettled():
            if entry[2] is None:
                fresh.append(entry)
            else:  # it goes on with the failures that it has
                content.parked.append((entry[2].item, entry[2].attempts, 0.0))
        content.held = []
        for of, entries in groupby(fresh, kind):
            if rows := self.packed_held([tup for tup, _, _ in entries]):
                content.held.append([*of, rows])

    def packed_held(self, tuples: list[Tuple]) -> bytes:
        """Return the values of tuples in the task's hands as one pickle; b"": none is left. Those that cannot be kept are dead
        letters."""
        try:
            return dumps_by_value([tuple(tup._values) for tup in tuples], 5)
        except Exception:
            kept = []
            for tup in tuples:
                if can_be_kept(values := tuple(tup._values)):
                    kept.append(values)
                else:
                    self.give_up_unkept(tup)
            return dumps_by_value(kept, 5) if kept else b""


class RichBoltTask(KeepingTask):
    """One task of a bolt with `auto_ack = False`."""

    def __init__(
        self, setup: TaskSetup, emitter: KeepingEmitter, inputs: BoundedInputs, positions: Positions
    ) -> None:
        super().__init__(setup, emitter, inputs, positions)
        self.execute = self.execute_and_hold

    def execute_and_hold(self, tup: Tuple) -> None:
        """Call the user's `execute`."""
        self.begin_call(tup)
        self.instance.execute(tup)
        if tup._root != SETTLED:
            self.hold(tup)
