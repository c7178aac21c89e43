"""SettlingSpout: the base of rewindable spouts whose task stores how far its messages are settled.

Must not know: what is read, where positions are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from topology_api import RewindableSpout

if TYPE_CHECKING:
    from topology_api import Failure


class SettlingTask(Protocol):
    """What reads for a spout, once it is open."""

    def settle_many(self, message_ids: list[Any]) -> None:
        """Take messages for done: they are not read again."""

    def save(self) -> None:
        """Store what is settled."""

    def close(self) -> None:
        """Store what is settled, and close everything."""


class SettlingSpout(RewindableSpout):
    """A spout that settles a message when its tree is processed, or has failed for good. Subclasses set `_task` when they are
    opened."""

    threaded = True  # reading blocks
    _task: SettlingTask

    def ack(self, message_id: object) -> None:
        """Settle a message."""
        self._task.settle_many([message_id])

    def ack_many(self, message_ids: list[Any]) -> None:
        """Settle messages."""
        self._task.settle_many(message_ids)

    def fail(self, message_id: object, failure: Failure) -> None:
        """Settle a message that failed for good; one that was cut off is read again."""
        if failure.reason != "stopped":
            self._task.settle_many([message_id])

    def deactivate(self) -> None:
        """Store how far messages are settled."""
        self._task.save()

    def close(self) -> None:
        """Store how far messages are settled, and close everything; also if it was never opened."""
        if hasattr(self, "_task"):
            self._task.close()
