"""What the tasks of a worker have done since the last end of an epoch began: where nothing happens, nothing is committed.

Must not know: tasks, how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Seconds after which a busy worker looks again whether there is activity to report.
LOOK_SECONDS: Final = 0.1


class EpochActivity:
    """The reports of one worker to a coordinator in another one."""

    def __init__(self, count: Callable[[], int], send: Callable[[bool], None]) -> None:
        """`count`: returns a number that grows with everything that the tasks do. `send`: reports that something has happened;
        its argument says whether all tasks have ended."""
        self.count, self.send = count, send
        self.restart()

    def restart(self) -> None:
        """A rewind begins: the coordinator knows of nothing."""
        self.at_last_end = -1
        self.reported = self.end_reported = False
        self.next_look = 0.0

    def epoch_ends(self) -> None:
        """The end of an epoch begins: what has happened so far is in it. Called for each task."""
        if self.reported or self.at_last_end < 0:
            self.at_last_end, self.reported = self.count(), False

    def report(self, now: float, idle: bool) -> None:
        """Report, once in each epoch, that something has happened."""
        if self.reported or not (idle or now >= self.next_look):
            return
        self.next_look = now + LOOK_SECONDS
        if self.count() != self.at_last_end:
            self.reported = True
            self.send(False)

    def report_end(self) -> None:
        """Report, once, that all tasks have ended."""
        if not self.end_reported:
            self.end_reported = True
            self.send(True)
