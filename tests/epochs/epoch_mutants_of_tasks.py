"""Guards of tasks, alignment, delivery and sinks, removed: each function makes a method without it.

Must not know: which mutants there are, how they are found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from tests.epochs.epoch_rescale import NewNumbers
from tests.epochs.epoch_stores import Outside
from tests.epochs.epoch_tasks import SimulatedTask
from tests.epochs.epoch_topologies import Part
from worker.epochs.after_commit import AfterCommit
from worker.epochs.alignment import Alignment
from worker.epochs.cycle_bound import CycleBound
from worker.epochs.delivery import ReceivingSide
from worker.epochs.emissions import Emissions
from worker.epochs.messages import Barrier, RestoreTask, Rows, SnapshotMarker
from worker.epochs.parking import Parking
from worker.epochs.participant import AckEmissions, FrameAdmission, Participant, TaskPhase
from worker.epochs.sinks import ReadToken, ShowAnswer, Showing, WriteRows, heir_of
from worker.routing.key_hash import key_hash

#: The outside of the run at hand.
OUTSIDES: Final[list[Outside]] = []


def constant(value: Any) -> Callable[[Any], Any]:
    """A method that returns the same always."""
    return lambda old: lambda self, *args, **kwargs: value


# Tasks.


def asks_once(old: Any) -> Any:
    """A task that has asked for a commit never asks again."""

    def method(self: Participant, *args: Any) -> Any:
        asked = self.asked
        found = old(self, *args)
        self.asked = asked
        return found

    return method


def never_drained(old: Any) -> Any:
    """A task of a cycle that was full stays so."""

    def method(self: CycleBound, now: float) -> bool:
        return self.full_since is None and bool(old(self, now))

    return method


def admit_all(old: Any) -> Any:
    """Frames of older rewind numbers are executed."""

    def method(self: Participant, rewind: int) -> FrameAdmission:
        found: FrameAdmission = old(self, rewind)
        return (
            FrameAdmission.NOW
            if found is FrameAdmission.REFUSE and self.phase is TaskPhase.RUNNING
            else found
        )

    return method


def older_restore(old: Any) -> Any:
    """A task follows the message of a coordinator that was deposed."""

    def method(self: Participant, message: Any) -> Any:
        if message.rewind < self.rewind:
            if isinstance(message, RestoreTask):
                return self.restore(message)
            message = structs.replace(message, rewind=self.rewind)
        return old(self, message)

    return method


def half_encoded(old: Any) -> Any:
    """A snapshot is written although some parts are missing."""

    def method(self: Participant) -> Any:
        if self.ending is not None:
            self.ending.data.whole = True
        return old(self)

    return method


def chain_goes_on(old: Any) -> Any:
    """The next changes are on top of the last snapshot that was written, also after a rewind has made it void."""
    return lambda self, snapshot, submission: None if self.links else old(self, snapshot, submission)


def late_answers(old: Any) -> Any:
    """The answer to a snapshot that was written before a rewind counts after it."""
    return lambda self, rewind, stored: old(self, self.rewind, stored)


def late_handles(old: Any) -> Any:
    """A handle that was prepared before a rewind is neither refused nor aborted, but used."""
    return lambda self, rewind, epoch, handle: old(self, self.rewind, epoch, handle)


def barrier_behind(old: Any) -> Any:
    """The barrier goes out behind the rows in the outboxes, which are in the snapshot too."""

    def method(self: SimulatedTask, barrier: Barrier) -> None:
        for target, rows in self.outboxes.items():
            while rows:
                self.cluster.links.send_frame(self, target, *self.side(target).send(Rows((rows.popleft(),))))
        old(self, barrier)

    return method


def without(name: str) -> Callable[[Any], Any]:
    """The snapshot lacks something."""

    def make(old: Any) -> Any:
        def method(self: Participant, marker: Any, content: Any, *args: Any) -> Any:
            setattr(content, name, type(getattr(content, name))())
            return old(self, marker, content, *args)

        return method

    return make


def snapshot_late(old: Any) -> Any:
    """The snapshot holds what came after the marker, too: ended inputs as they are now."""

    def method(self: Participant, marker: Any, content: Any, *args: Any) -> Any:
        content.ended = sorted(self.alignment.ended)
        return old(self, marker, content, *args)

    return method


def acks_at_barrier(old: Any) -> Any:
    """Emissions are acked when their epoch ends, before its commit."""

    def method(self: Participant, marker: SnapshotMarker, *args: Any) -> Any:
        effects = old(self, marker, *args)
        ids = self.emissions.commit(marker.epoch)
        return [*effects, AckEmissions(tuple(ids))] if ids else effects

    return method


def acks_twice(old: Any) -> Any:
    """Emissions are not forgotten when they are acked."""

    def method(self: Emissions, epoch: int) -> Any:
        return [i for e, kept in self.closed.items() if e <= epoch for i, _ in kept if i is not None]

    return method


def acks_of_void(old: Any) -> Any:
    """Emissions of void epochs are acked with a later commit."""

    def method(self: Emissions) -> None:
        closed = dict(self.closed)
        old(self)
        if self.rewindable:
            self.closed = closed

    return method


def no_again(old: Any) -> Any:
    """A spout that cannot rewind does not emit again."""

    def method(self: Emissions) -> None:
        old(self)
        self.again.clear()

    return method


def again_twice(old: Any) -> Any:
    """A living spout that cannot rewind takes what is to be emitted again from the snapshot, too."""

    def method(self: Participant, *args: Any) -> Any:
        self.new = True
        return old(self, *args)

    return method


def no_acks_in_rewind(old: Any) -> Any:
    """A task that hears of a commit by a rewind does not ack its emissions."""

    def method(self: Participant, message: Any) -> Any:
        return [effect for effect in old(self, message) if not isinstance(effect, AckEmissions)]

    return method


# Alignment.


def released_early(old: Any) -> Any:
    """What comes behind a barrier is executed at once."""

    def method(self: Alignment, source: str, item: Any) -> Any:
        if source in self.behind and isinstance(item, Rows):
            return [(source, item)]
        return old(self, source, item)

    return method


def first_barrier(old: Any) -> Any:
    """The marker enters with the first barrier."""

    def method(self: Alignment) -> Any:
        if self.epoch and self.behind:
            inputs, self.inputs = self.inputs, frozenset(self.behind)
            try:
                return old(self)
            finally:
                self.inputs = inputs
        return old(self)

    return method


def ended_waits(old: Any) -> Any:
    """An input that has ended is waited for."""

    def method(self: Alignment) -> Any:
        ended, self.ended = self.ended, set()
        try:
            return old(self)
        finally:
            self.ended |= ended

    return method


def not_recorded(old: Any) -> Any:
    """What comes over closing edges is not recorded."""

    def method(self: Alignment, source: str, item: Any) -> Any:
        found = old(self, source, item)
        self.recorded = []
        return found

    return method


# Delivery, parking, sinks.


def doubles(old: Any) -> Any:
    """Frames that come twice are executed twice."""
    return lambda self, number, item: [item] if number <= self.upto else old(self, number, item)


def steps_over(old: Any) -> Any:
    """Gaps are stepped over."""

    def method(self: ReceivingSide, number: int, item: Any) -> Any:
        if number > self.upto:
            self.upto = number - 1
        return old(self, number, item)

    return method


def letters_at_once(old: Any) -> Any:
    """Dead letters are visible before their commit."""

    def method(self: Parking, epoch: int) -> Any:
        letters = old(self, epoch)
        OUTSIDES[-1].keep_letters(letters)
        return letters

    return method


def open_letters_stay(old: Any) -> Any:
    """A rewind does not take back the letters of the open epoch."""

    def method(self: Parking, content: Any, now: float) -> None:
        letters = self.letters
        old(self, content, now)
        self.letters = letters

    return method


def shown_early(old: Any) -> Any:
    """Outcomes are shown when their epoch ends."""

    def method(self: AfterCommit, outcome: Any) -> None:
        old(self, outcome)
        self.committed = outcome.epoch

    return method


def dropped_handles(old: Any) -> Any:
    """Only the outcomes of the last epoch are restored: older ones that were not confirmed are forgotten."""
    return lambda self, outcomes, epoch: old(self, [each for each in outcomes if each.epoch == epoch], epoch)


def forgotten_at_once(old: Any) -> Any:
    """A lost answer of the outside counts as "done"."""
    return lambda self, answer: old(self, ShowAnswer.DONE)


def restored_before_shown(old: Any) -> Any:
    """Outcomes are dropped with a rewind: it does not wait until they are visible."""

    def method(self: AfterCommit, outcomes: Any, epoch: int) -> None:
        old(self, [], epoch)

    return method


def token_not_compared(old: Any) -> Any:
    """The transaction of a token sink does not compare the token."""

    def method(self: Outside, part: Part, show: WriteRows) -> Any:
        expected = self.tokens.get((part.name, show.index), 0)
        return old(self, part, structs.replace(show, expected=expected))

    return method


def own_token(old: Any) -> Any:
    """An heir writes another index's rows under its own token."""

    def method(self: Showing) -> Any:
        show = old(self)
        if isinstance(show, ReadToken | WriteRows):
            return structs.replace(show, index=0)
        return show

    return method


def abort_committed(old: Any) -> Any:
    """A rewind aborts every handle that is not confirmed, whatever the log says."""

    def method(self: AfterCommit, epoch: int) -> Any:
        return [*old(self, epoch), *self.outcomes]

    return method


def shown_in_any_order(old: Any) -> Any:
    """The newest committed outcome is shown first."""

    def method(self: AfterCommit) -> Any:
        self.outcomes.sort(key=lambda outcome: -outcome.epoch if outcome.epoch <= self.committed else 0)
        return old(self)

    return method


def only_own_index(old: Any) -> Any:
    """When parallelism shrinks, the outcomes of indices that are gone are forgotten."""
    return lambda self, name: name == self.name


# Key groups.


def own_file(old: Any) -> Any:
    """A task reads the file of its own index only, although the number of tasks is another one."""
    return lambda name, files, *args: {each: file for each, file in files.items() if each == name}


def groups_at_the_edge(old: Any) -> Any:
    """A range that has the last group of another one is taken for one that has none of it."""
    return lambda self, other: (
        self.groups != other.groups or (self.first < other.end - 1 and other.first < self.end - 1)
    )


def edges_not_divided(old: Any) -> Any:
    """Parts with the keys of several tasks are taken over as a whole."""
    return lambda self, other: self.meets(other)


def any_owner(old: Any) -> Any:
    """Keys are divided among tasks without groups, as those of bolts without state, when a task begins."""
    return lambda self, key: key_hash(key) % self.count == self.index


def on_their_way(old: Any) -> Any:
    """Rows that are on their way go to the task of the same index, whatever their key."""

    def method(self: SimulatedTask, target: str, row: Any) -> str:
        component, _, number = target.partition("/")
        return f"{component}/{heir_of(int(number), self.counts[component])}"

    return method


def chain_of_another(old: Any) -> Any:
    """A task with keys of several tasks writes changes on top of the files of the first."""

    def method(self: NewNumbers, snapshots: Any) -> Any:
        made = old(self, snapshots)
        made.chain, made.cells = snapshots[0].chain, snapshots[0].cells
        return made

    return method
