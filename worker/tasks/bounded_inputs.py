"""Tracks the end of bounded streams: which source tasks of a bolt task have sent their end mark.

A mark follows all tuples of its sender on the same link. Marks do not travel on the inner edges of a cycle (they could
never start): there the cycle's coordinator detects that it is quiet (`worker.loop.cycles`).
Must not know: links, user code.
"""

from __future__ import annotations

from collections.abc import Iterable


class BoundedInputs:
    """The source tasks that a bolt task still waits for."""

    __slots__ = ("open", "phase", "phases_wanted")

    def __init__(self, sources: Iterable[int], in_cycle: bool = False) -> None:
        self.open = set(sources)
        #: How often the task's cycle was quiet, and how often it has to be before `end_of_input`.
        self.phase = 0
        self.phases_wanted = 1 if in_cycle else 0

    def ended(self, source: int) -> None:
        """Record the end mark of a source task."""
        self.open.discard(source)

    def renew(self, before: Iterable[int], sources: Iterable[int]) -> None:
        """Change the source tasks: wait for new ones, and no longer for those that went."""
        now = set(sources)
        self.open = (self.open & now) | (now - set(before))

    @property
    def outside_ended(self) -> bool:
        """Whether all source tasks outside the task's cycle have ended."""
        return not self.open

    @property
    def all_ended(self) -> bool:
        """Whether `end_of_input` is due: the sources have ended, and the task's cycle was quiet once."""
        return not self.open and self.phase >= self.phases_wanted

    @property
    def may_pass_on(self) -> bool:
        """Whether the task may send its own end marks: its cycle was quiet again after `end_of_input`."""
        return not self.open and (self.phases_wanted == 0 or self.phase >= 2)
