"""A task of a TokenSink in a topology with epochs: it writes the rows of an epoch after its commit.

Must not know: links, coordinators, files, what rows are.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

from topology_api import TokenSink
from topology_api.packing import dumps_by_value
from worker.epochs.sinks import ShowAnswer, WriteRows
from worker.tasks.gathering import GatheringTask


class EpochSinkTask(GatheringTask):
    """One task of a token sink."""

    instance: TokenSink

    def packed_rows(self, epoch: int) -> bytes | None:
        packed = dumps_by_value(self.rows, 5) if self.rows else None
        self.taken_rows(epoch)
        return packed

    # The outside. A call that raises is reported, and counts as not answered.

    def read_token(self, token: str, done: Callable[[int | None], None]) -> None:
        """Read a token. The worker calls `done` with its number, or None."""
        try:
            number = int(self.instance.read_token(token))
        except BaseException as error:
            self.answered(partial(done, None), "read_token", error)
        else:
            self.answered(partial(done, number))

    def write_rows(self, show: WriteRows, token: str, done: Callable[[ShowAnswer], None]) -> None:
        """Write the rows of an epoch. The worker calls `done` with what the outside says."""
        try:
            written = self.instance.write(show.epoch, pickle.loads(show.rows), show.expected, token)
        except BaseException as error:
            self.answered(
                partial(done, ShowAnswer.UNKNOWN), "write", error, f"the rows of epoch {show.epoch}"
            )
        else:
            self.answered(partial(done, ShowAnswer.DONE if written else ShowAnswer.REFUSED))
