"""Names the holder of the right to replace batches so precisely that another process may know that it is gone.

It is known of a process of the same machine, and of an earlier run of the same task. Of all others it is not: they are given
time. A wrong answer does no harm to a table (see `rewriting`); it would end the work of a process that is alive.
Must not know: tables, what is held, how a machine tells that a process has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from squall_io.spark.manifest.envelopes import build_type_info


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process, and the task that it runs; each may be unknown."""

    #: What names the process on its machine, and the machine.
    process: str = ""
    #: The writer id of a sink's task, and its incarnation.
    task: str = ""
    run: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Myself:
    """This process as a holder, and what it knows of others: `has_ended` says whether a process has surely ended."""

    holder: Holder = field(default_factory=Holder)
    has_ended: Callable[[str], bool] = lambda process: False

    def knows_to_be_gone(self, other: Holder) -> bool:
        """Return whether a holder has surely ended, as far as this process can know."""
        mine = self.holder
        if other.task and other.task == mine.task and other.run < mine.run:
            return True
        return bool(other.process) and self.has_ended(other.process)


build_type_info(Holder)
