"""What keeps the dead letters of a spout task: the interface, and a keeper in memory.

A spout calls `fail` for a tuple only after its letter is kept. A worker process keeps letters in files
(`worker.process.letter_files`); a cluster in one process keeps them here.
Must not know: files, when a tuple is given up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from squall.dead_letters.letter import DeadLetter

#: The most letters of a topology that are kept in memory; further ones are only counted.
MOST_IN_MEMORY: Final = 10_000


class GivenUp(msgspec.Struct, frozen=True):
    """A letter, and the values that it shows."""

    letter: DeadLetter
    row: tuple[Any, ...]


class NotKept(msgspec.Struct, frozen=True):
    """Why letters cannot be kept at the moment. `idle`: in a few words; `text`: what failed, and what helps."""

    idle: str
    text: str


class LetterKeeper(Protocol):
    """Keeps the letters of one spout task. Called in the task's own thread."""

    #: Whether keeping many letters at once is much cheaper than keeping each by itself.
    gathers: bool
    #: Why the last call of `keep` has not kept all letters; None: it has.
    why_not: NotKept | None

    def time_of(self, moment: float) -> float:
        """Return the time that letters show for a moment of the task's clock."""

    def keep(self, given_up: Sequence[GivenUp]) -> int:
        """Keep letters, for good; return how many of them, from the first, are kept now. A letter that was sent again returns
        to the others."""

    def known(self, ids: Collection[str]) -> set[str]:
        """Return which of these letters are kept."""

    def bolt_done(self, id: str, acked: bool) -> None:
        """The dead-letter bolts have acked a letter, or have failed it."""

    def resent(self, id: str) -> None:
        """A letter was sent again, and its tree is acked: remove it."""

    def known_again(self, id: str) -> bool:
        """Return whether a letter that is sent again is still there."""

    def pass_on(self, id: str, task: int) -> bool:
        """Let another task of this host send a letter again; return whether it will."""

    def withdraw(self, id: str, why: str, task: int = 0) -> None:
        """A letter is not sent again (any more): it returns to the others. `why`: "" if its task was stopped. `task`: the one
        that may send it next; 0: as before."""


class MemoryLetters:
    """The dead letters of a topology in memory. They end with the process."""

    gathers = False
    why_not: NotKept | None = None

    def __init__(self) -> None:
        self.letters: dict[str, DeadLetter] = {}
        #: All letters so far, also those that are not in memory.
        self.count = 0

    def time_of(self, moment: float) -> float:
        """See `LetterKeeper`."""
        return moment

    def keep(self, given_up: Sequence[GivenUp]) -> int:
        """See `LetterKeeper`."""
        for each in given_up:
            self.count += not each.letter.resent
            if len(self.letters) < MOST_IN_MEMORY or each.letter.resent:
                self.letters[each.letter.id] = each.letter
        return len(given_up)

    def known(self, ids: Collection[str]) -> set[str]:
        """See `LetterKeeper`."""
        return self.letters.keys() & ids

    def bolt_done(self, id: str, acked: bool) -> None:
        """See `LetterKeeper`."""
        if acked and id in self.letters:
            self.letters[id] = replace(self.letters[id], acked=True)

    def resent(self, id: str) -> None:
        """See `LetterKeeper`."""
        self.letters.pop(id, None)

    def known_again(self, id: str) -> bool:
        """See `LetterKeeper`."""
        return id in self.letters

    def pass_on(self, id: str, task: int) -> bool:
        """See `LetterKeeper`."""
        return id in self.letters

    def withdraw(self, id: str, why: str, task: int = 0) -> None:
        """See `LetterKeeper`."""
        if id in self.letters:
            letter = self.letters[id]
            self.letters[id] = replace(letter, note=why, task=task or letter.task)
