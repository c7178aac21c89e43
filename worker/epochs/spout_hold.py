"""Whether the spouts of a topology pause because some task says that it, or its worker, has reached a limit.

Must not know: limits, messages.
"""

from __future__ import annotations

from worker.epochs.messages import HoldReason


class SpoutHold:
    """What the coordinator's worker knows of it."""

    def __init__(self) -> None:
        #: The tasks because of which they do, and what each has reached, with what it says about it.
        self.full: dict[tuple[str, HoldReason], str] = {}

    def heard(self, task: str, why: str, what: HoldReason) -> tuple[str, HoldReason] | None:
        """A task has said that it has reached a limit, or, by "", that half of it is left. Return why all spouts are to pause
        from now on, with "" if they are to go on, or None if nothing changes."""
        before = self.reason
        if why:
            self.full[task, what] = why
        else:
            self.full.pop((task, what), None)
        after = self.reason
        unchanged = after == before or (before is not None and after is not None and before[1] == after[1])
        return None if unchanged else after or ("", what)

    @property
    def reason(self) -> tuple[str, HoldReason] | None:
        """Why they pause, in the words of the task that has said so first."""
        return next(((why, what) for (_, what), why in self.full.items()), None)
