"""A task of a TokenSink in a topology with epochs: it writes the rows of an epoch after its commit.

Must not know: links, coordinators, files, what rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topology_api import RowsRefused, SquallError, TokenSink
from worker.epochs.sinks import ShowAnswer, WriteRows
from worker.tasks.gathering import GatheringTask
from worker.tasks.sink_rows import RefusedRow, pack, reasons_of, unpack


class EpochSinkTask(GatheringTask):
    """One task of a token sink."""

    instance: TokenSink

    def packed_rows(self, epoch: int) -> bytes | None:
        return pack(self, *self.taken_rows(epoch))

    # The outside. A call that raises is reported, and counts as not answered.

    def read_token(self, token: str, done: Callable[[int | None], None]) -> None:
        """Read a token. The worker calls `done` with its number, or None."""
        try:
            number = int(self.instance.read_token(token))
        except BaseException as error:
            self.answered(partial(done, None), "read_token", error)
        else:
            self.answered(partial(done, number))

    def write_rows(
        self,
        show: WriteRows,
        token: str,
        done: Callable[[ShowAnswer], None],
        refused: Callable[[list[RefusedRow]], None],
    ) -> None:
        """Write the rows of an epoch, but for those that were refused before. The worker calls `done` with what the outside
        says, or `refused` with further rows that it never takes."""
        text = f"the rows of epoch {show.epoch}"
        try:
            kept = unpack(show.rows)
            left = [at for at in range(len(kept.rows)) if at not in show.refused]
            why = {at: kept.unreadable[at] for at in left if at in kept.unreadable}
            if why:
                raise RowsRefused(
                    {left.index(at): f"it cannot be read: {fault}" for at, fault in why.items()}
                )
            written = self.instance.write(show.epoch, [kept.rows[at] for at in left], show.expected, token)
        except RowsRefused as error:
            try:
                found = kept.refused(reasons_of(error, left))
            except SquallError as wrong:
                self.answered(partial(done, ShowAnswer.UNKNOWN), "write", wrong, text)
            else:
                self.answered(partial(refused, found), "write", error, text)
        except BaseException as error:
            self.answered(partial(done, ShowAnswer.UNKNOWN), "write", error, text)
        else:
            self.answered(partial(done, ShowAnswer.DONE if written else ShowAnswer.REFUSED))
