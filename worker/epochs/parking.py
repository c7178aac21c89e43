"""Tuples and timers whose call raised: tried again in the task where they failed, then dead letters.

A parked tuple is a part of its task's state: parking settles its edge, a rewind brings it back with the failures that it had,
and it is tried again after the delays of its spout's `Replay`. It is never emitted again from the root, since the bolts
before this one have counted it. At the limit the task takes no input.
A dead letter belongs to the epoch in which the last try failed.
Must not know: user code, who reads letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from squall.dead_letters.letter import clean
from topology_api import Replay
from worker.tracking.outages import FailureHistory
from worker.tracking.replay_policy import replay_delay

if TYPE_CHECKING:
    from worker.epochs.snapshot_files import TaskSnapshot


class ParkedLetter(Struct, frozen=True):
    """A tuple or timer that was given up: what the bolt got, and why it failed."""

    #: The same at every attempt to show it: shown twice, it is still one letter.
    id: str
    item: Any
    failure: str
    attempts: int


@dataclass(slots=True, eq=False)
class Parked:
    """A tuple or timer that waits for its next try."""

    item: Any
    #: The failures that count against it.
    attempts: int
    due: float
    #: All failures in this process: the pauses grow with them.
    tries: int = 0
    #: Its failures in this process, with what they mean; None: it has none.
    history: FailureHistory | None = None


class Parking:
    """The parked tuples and timers of one task."""

    def __init__(self, task: str, limit: int) -> None:
        self.task = task
        self.limit = limit
        self.parked: list[Parked] = []
        #: How many committed letters could not be kept outside so far.
        self.unkept = 0
        #: The letters of the open epoch.
        self.letters: list[tuple[Any, str, int]] = []
        #: Whether bolts read the letters of this task; and the letters that these have yet to get, the oldest first. A letter
        #: is put there when its epoch ends, at the latest, and is part of each snapshot until its task has emitted it.
        self.is_read = False
        self.unread: list[tuple[Any, str, int]] = []
        #: Further letters of epochs that are not the open one.
        self.others: dict[int, list[tuple[Any, str, int]]] = {}
        #: The letters that were sent again to this task, by id, so that none counts twice although its file may be found once
        #: more: the epoch in which it counts (None: the open one), and when the letter expires by the wall clock.
        self.taken: dict[str, tuple[int | None, float | None]] = {}

    @property
    def full(self) -> bool:
        """Whether the task takes no input."""
        return len(self.parked) + self.unkept >= self.limit

    def park(self, item: Any, failure: str, replay: Replay, now: float) -> None:
        """A call for a tuple or timer raised for the first time."""
        self.failed(Parked(item, 0, now), failure, replay, now)

    def failed(self, parked: Parked, failure: str, replay: Replay, now: float) -> None:
        """A try failed, which counts: wait for the next one, or give up."""
        parked.attempts += 1
        parked.tries += 1
        most = replay.max_attempts
        if most is not None and parked.attempts >= most:
            self.give_up(parked, failure)
        else:
            self.wait(parked, now + replay_delay(replay, parked.tries))

    def wait(self, parked: Parked, due: float) -> None:
        """Let a tuple or timer wait for its next try. `due`: the time of that."""
        parked.due = due
        self.parked.append(parked)

    def give_up(self, parked: Parked, failure: str, read: bool = False) -> None:
        """A tuple or timer becomes a dead letter. `read`: its readers get it at once."""
        letter = parked.item, clean(failure), parked.attempts
        self.letters.append(letter)
        if not read:
            self.owe([letter])

    def owe(self, letters: list[tuple[Any, str, int]]) -> None:
        """The readers of letters are yet to get some."""
        if self.is_read:
            self.unread += letters

    def give_up_in(self, epoch: int, item: Any, failure: str) -> None:
        """A tuple of another epoch than the open one, which ends or will begin, becomes a dead letter."""
        self.others.setdefault(epoch, []).append((item, clean(failure), 1))

    def take_again(self, id: str, expires: float | None, item: Any, now: float) -> None:
        """A letter is sent again: it is tried at once, with attempts of its own. `item`: None if it is a timer."""
        self.taken[id] = None, expires
        if item is not None:
            self.parked.append(Parked(item, 0, now))

    def forget_taken(self, before: float) -> None:
        """Forget the letters that had expired before a time: no host has them any more."""
        for id, (_, expires) in list(self.taken.items()):
            if expires is not None and expires < before:
                del self.taken[id]

    def counts(self, id: str, committed: int) -> bool:
        """Return whether a letter that was taken is part of a commit."""
        epoch = self.taken[id][0]
        return epoch is not None and epoch <= committed

    def due(self, now: float) -> Parked | None:
        """Remove and return a tuple or timer to try now. If the try fails, pass it to `failed`."""
        for position, parked in enumerate(self.parked):
            if parked.due <= now:
                return self.parked.pop(position)
        return None

    def next_due(self) -> float | None:
        """Return the time of the next try."""
        return min((parked.due for parked in self.parked), default=None)

    def close(self, epoch: int) -> list[ParkedLetter]:
        """Return the letters of the epoch that ends."""
        others = self.others.pop(epoch, [])
        self.owe(others)
        letters = self.made(str(epoch), self.letters + others)
        self.letters = []
        self.taken = {id: (epoch if at is None else at, expires) for id, (at, expires) in self.taken.items()}
        return letters

    def close_late(self, snapshot: TaskSnapshot) -> list[ParkedLetter]:
        """Return the letters of the epoch that ends which came behind the marker."""
        late = self.others.pop(snapshot.epoch, [])
        self.owe(late)
        snapshot.unread += late if self.is_read else []
        return self.made(f"{snapshot.epoch}/late", late)

    def made(self, epoch: str, letters: list[tuple[Any, str, int]]) -> list[ParkedLetter]:
        """Return letters with their ids."""
        return [
            ParkedLetter(f"{self.task}/{epoch}/{number}", item, failure, attempts)
            for number, (item, failure, attempts) in enumerate(letters)
        ]

    def content(self, now: float) -> list[tuple[Any, int, float]]:
        """Return the parked tuples for a snapshot. Clocks of processes differ, so it keeps the seconds that are left."""
        return [(parked.item, parked.attempts, max(0.0, parked.due - now)) for parked in self.parked]

    def fill(self, snapshot: TaskSnapshot, now: float) -> None:
        """Put into a snapshot what it keeps, once the letters of its epoch are closed."""
        snapshot.parked = [*snapshot.parked, *self.content(now)]
        snapshot.resent = [(id, expires) for id, (_, expires) in self.taken.items()]
        snapshot.unread = list(self.unread)

    def restore(
        self,
        content: Iterable[tuple[Any, int, float]],
        now: float,
        taken: Iterable[tuple[str, float | None]] = (),
        unread: Iterable[tuple[Any, str, int]] = (),
    ) -> None:
        """Return to a snapshot."""
        self.taken = {id: (0, expires) for id, expires in taken}
        self.parked = [Parked(item, attempts, now + left, attempts) for item, attempts, left in content]
        self.letters, self.others, self.unread = [], {}, list(unread)
