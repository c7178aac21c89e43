"""Hook: the base of task hooks, which observe a task.

`conf={"topology.auto.task.hooks": ["package.module:Class"]}` puts a hook of that class (constructed without
arguments) into every task. Hooks are called in the task's own thread and must be quick; `opened` and `closed` in the thread of
`prepare` and `cleanup`, which is another one in a committing sink (`topology_api.committing_sink`).
Must not know: how the task runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology_api.context import Context
    from topology_api.tuples import Tuple
    from topology_api.values import Failure


class Hook:
    """Base of task hooks. All methods are optional. An error in a hook is reported as an error of its task."""

    def opened(self, context: Context) -> None:
        """Called after the task's `open` or `prepare`."""

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        """Called after an emission by `task`. targets: ids of the receiving tasks (empty if no bolt reads the stream)."""

    def executing(self, tup: Tuple) -> None:
        """Called before `execute` gets the tuple."""

    def executed(self, tup: Tuple) -> None:
        """Called after `execute` returned or raised."""

    def acked(self, tup: Tuple) -> None:
        """Called after a bolt acked the tuple."""

    def failed(self, tup: Tuple, failure: Failure) -> None:
        """Called after a bolt failed the tuple."""

    def spout_acked(self, message_id: object) -> None:
        """Called after the spout's `ack`."""

    def spout_failed(self, message_id: object, failure: Failure) -> None:
        """Called after the spout's `fail`, which follows the last attempt."""

    def closed(self) -> None:
        """Called after the task's `close` or `cleanup`."""
