"""The dead letters of a spout task: tuples that it gave up and has not called `fail` for yet, and tuples that are sent again.

A tuple that is given up waits in `batch` until its letter is kept, and then in `due` until `fail` is called; so a tuple whose
letter cannot be kept stays pending, and the spout waits. A letter travels to the dead-letter bolts as a tree of its own, and a
letter that is sent again as a new emission: the class of its message id distinguishes either from other trees. Nothing here is
called for tuples that do not fail.
Must not know: the user's instance, files, when a tuple is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import msgspec

from squall.dead_letters.letter import HANDED_OVER, DeadLetter, clean, shown_values, text_of
from topology_api import Context, Failure
from worker.tracking.dead_letters import GivenUp, LetterKeeper, MemoryLetters, NotKept
from worker.tracking.tracker import Emission

#: The most letters that are kept by one call.
MOST_AT_ONCE: Final = 256
#: Seconds until letters that could not be kept are tried again.
RETRY_SECS: Final = 1.0


class ForBolt(msgspec.Struct, frozen=True):
    """The message id of a letter on its way to the dead-letter bolts."""

    id: str


class Resent(msgspec.Struct, frozen=True):
    """The message id of a letter that is sent again."""

    letter: DeadLetter


class Kept(msgspec.Struct, frozen=True):
    """A tuple that was given up, and whose letter is kept: its final call is due."""

    emission: Emission
    failure: Failure
    id: str


class SpoutLetters:
    """The letters of one spout task."""

    def __init__(self, context: Context, keeper: LetterKeeper | None = None) -> None:
        self.context = context
        self.keeper: LetterKeeper = keeper or MemoryLetters()
        self.random = Random(0)
        #: The version that gets the pending trees of this one when its task is stopped, since it has the name again; "": none.
        self.heir = ""
        self.batch: list[tuple[Emission, Failure]] = []
        self.due: deque[Kept] = deque()
        #: Why the letters of `batch` cannot be kept; None: they can, or there are none.
        self.waits: NotKept | None = None
        self.retry_at = 0.0
        #: Open trees of letters for dead-letter bolts, and of letters that are sent again.
        self.for_bolts = self.resends = 0
        #: Letters to be sent again, with functions that decode their values; other threads add to them.
        self.to_resend: deque[tuple[DeadLetter, Callable[[], tuple[Any, ...]]]] = deque()

    @property
    def open_trees(self) -> int:
        """The number of open trees that are no emissions of the user's."""
        return self.for_bolts + self.resends

    @property
    def undone(self) -> int:
        """The number of tuples that were given up and have not had their final call."""
        return len(self.batch) + len(self.due)

    def are_due(self, now: float) -> bool:
        """Return whether there are letters to be kept now."""
        return bool(self.batch) and (self.waits is None or now >= self.retry_at)

    def keep(self, now: float) -> NotKept | None:
        """Keep the letters of the tuples that were given up. Return why that fails, once for each reason."""
        before, self.waits = self.waits, None
        while self.batch and self.waits is None:
            given_up = [self.letter_of(*each, now) for each in self.batch[:MOST_AT_ONCE]]
            done = self.keeper.keep(given_up)
            self.due += (Kept(*each, new.letter.id) for each, new in zip(self.batch[:done], given_up))
            del self.batch[:done]
            if done < len(given_up):
                self.waits, self.retry_at = self.keeper.why_not, now + RETRY_SECS
        return self.waits if before is None or self.waits is None or before.idle != self.waits.idle else None

    def letter_of(self, emission: Emission, failure: Failure, now: float) -> GivenUp:
        """Return the letter of a tuple that was given up."""
        message_id, row, source, target, _, since, _ = emission
        failure = replace(failure, error=None if failure.error is None else clean(failure.error))
        given_up_at = self.keeper.time_of(now)
        heir = self.heir if failure.reason == HANDED_OVER else ""
        if type(message_id) is Resent:
            before, attempts = message_id.letter, message_id.letter.attempts + failure.attempts
            again = replace(before, failure=failure, attempts=attempts, given_up_at=given_up_at, acked=False)
            return GivenUp(replace(again, resent=before.resent + 1, note="", heir=heir), row)
        values, as_text = shown_values(row)
        context = self.context
        letter = DeadLetter(
            id=f"{self.random.getrandbits(48):012x}",
            topology=context.topology,
            topology_id=context.topology_id,
            component=context.component,
            task=context.task,
            stream=source.stream,
            message_id=text_of(message_id),
            fields=source.fields,
            values=values,
            as_text=as_text,
            failure=failure,
            attempts=failure.attempts,
            emitted_at=self.keeper.time_of(since),
            given_up_at=given_up_at,
            target=target,
            heir=heir,
        )
        return GivenUp(letter, row)

    def take_ended(self, completed: Sequence[Emission]) -> tuple[list[Emission], list[Emission]]:
        """Return (the user's emissions, the letters that were sent again) among completed trees."""
        own: list[Emission] = []
        resent: list[Emission] = []
        for emission in completed:
            message_id = emission[0]
            if type(message_id) is ForBolt:
                self.ended_at_bolts(message_id, acked=True)
            elif type(message_id) is Resent:
                self.resends -= 1
                self.keeper.resent(message_id.letter.id)
                resent.append(emission)
            else:
                own.append(emission)
        return own, resent

    def ended_at_bolts(self, letter: ForBolt, acked: bool) -> None:
        """Record that the tree of a letter for dead-letter bolts has ended."""
        self.for_bolts -= 1
        self.keeper.bolt_done(letter.id, acked)

    def stopped(self, letter: DeadLetter) -> None:
        """Put a letter back whose tree was stopped."""
        self.resends -= 1
        self.keeper.withdraw(letter.id, "")

    def withdraw_all(self, why: str) -> None:
        """Put the letters back that have not been sent again yet."""
        while self.to_resend:
            self.keeper.withdraw(self.to_resend.popleft()[0].id, why)

    def problem_with(self, letter: DeadLetter, outputs: dict[str, Any]) -> str:
        """Return why a letter cannot be emitted on the streams that the spout has now; "" if it can."""
        if letter.component != self.context.component:
            return f"task {self.context.task} belongs to {self.context.component} now, and not to {letter.component}"
        output = outputs.get(letter.stream)
        if output is None:
            return f"{letter.component} has no stream {letter.stream!r} any more"
        if tuple(output.source.fields) != letter.fields:
            fields = ", ".join(output.source.fields)
            return f"the fields of stream {letter.stream!r} are now ({fields})"
        if bool(letter.target) != output.is_direct:
            return (
                f"stream {letter.stream!r} is {'direct now' if output.is_direct else 'not direct any more'}"
            )
        if letter.target and letter.target not in output.direct:
            return f"it was emitted for task {letter.target}, which does not read stream {letter.stream!r}"
        return ""
