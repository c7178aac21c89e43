"""What a coordinator remembers of its epochs for people: no decision depends on it.

Another thread may read it at any time, so each field is replaced as a whole.
Must not know: clocks (times come as arguments), stores, who shows it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Of how many epochs the duration is kept.
MOST_DURATIONS: Final = 100


class EpochFacts:
    """One life of a coordinator, in times of its worker's clock."""

    def __init__(self) -> None:
        #: The epoch to which all tasks returned first; None: they have not been asked to.
        self.began: int | None = None
        #: When the last commit stood in the log; None: not known.
        self.committed_at: float | None = None
        #: How long the last epochs took to end, from the barriers to the commit.
        self.durations: deque[float] = deque(maxlen=MOST_DURATIONS)
        #: The bytes of the last commit's snapshots; None: this coordinator has committed nothing.
        self.bytes: int | None = None
        #: The task whose snapshot came last in the last committed epoch, and the seconds that it took.
        self.slowest: tuple[str, float] | None = None
        self.rewound_at: float | None = None
        self.rewind_reason = ""
        #: Why a rewind is wanted, until its record stands; "": none is.
        self.reason = ""
        #: Since when the tasks have been asked for what they have not all done: to end an epoch, or to return to a commit.
        self.asked_at: float | None = None
        #: Of the epoch that ends: the bytes so far, and the task that answered last.
        self.bytes_so_far = 0
        self.latest: tuple[str, float] | None = None
        #: Since when a version on trial has all that its next commit needs.
        self.held_at: float | None = None

    def found_commit(self, at: float) -> None:
        """The last commit in the log is of an earlier coordinator, and this is when it was written."""
        if self.committed_at is None:
            self.committed_at = at

    def end_begun(self, now: float) -> None:
        """The barriers of an epoch were sent."""
        self.asked_at, self.bytes_so_far, self.latest, self.held_at = now, 0, None, None

    def snapshot_written(self, task: str, size: int, now: float) -> None:
        """A task's snapshot of the epoch that ends is in the store."""
        self.bytes_so_far += size
        if self.asked_at is not None:
            self.latest = task, now - self.asked_at

    def held(self, now: float) -> None:
        """The epoch could be committed, and waits for the end of the trial."""
        self.held_at = now

    def trial_ended(self, now: float) -> None:
        """The epoch is being committed: how long it has waited says nothing about it."""
        if self.asked_at is not None and self.held_at is not None:
            self.asked_at += now - self.held_at
        self.held_at = None

    def committed(self, now: float) -> None:
        """The commit of the epoch stands in the log."""
        if self.asked_at is not None:
            self.durations.append(now - self.asked_at)
        self.bytes, self.slowest = self.bytes_so_far, self.latest
        self.committed_at, self.asked_at = now, None

    def rewind_wanted(self, reason: str) -> None:
        """A rewind is wanted. What follows from its first reason, such as tuples that were lost with a process, is none."""
        self.reason = self.reason or reason

    def rewound(self, epoch: int, now: float) -> None:
        """The record of a rewind stands in the log: all tasks are asked to return to the last commit, that of an epoch."""
        if self.began is None:
            self.began = epoch
        self.rewound_at = self.asked_at = now
        self.rewind_reason, self.reason = self.reason, ""

    def restored(self) -> None:
        """All tasks have returned to it."""
        self.asked_at = None
