"""What the spouts that read files have in common: a spout whose task is a `ReadingTask`.

An item's message id is (piece, position). It is settled when its tree is acked, and also when that failed for good: then
dead letters have it, or the counts of what failed; otherwise a row that no bolt can take would come again after each restart.
What the end of a topology cut off is not settled, and comes again.
Must not know: what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from squall_io.spark.manifest.files import FilesUnavailable
from squall_io.spark.spouts.reading_task import ReadingTask, Units
from squall_io.spark.stores import InvalidPath, check_path
from topology_api import Failure, Replay, Spout
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context


class ReadingSpout(Spout):
    """A spout that reads what several tasks share, and keeps how far it has come. Subclasses make its units."""

    threaded = True  # reading blocks
    _positions: str | None = None
    _task: ReadingTask

    def _units(self) -> Units:
        """What is to be read, for this task."""
        raise NotImplementedError

    def open(self, context: Context) -> None:
        """Find out what there is to read, and what is left of it."""
        self._task = ReadingTask(self._units(), context, self._positions)
        try:
            self._task.start()
        except FilesUnavailable:
            pass  # next_tuple tries again, and says so
        except BaseException:
            self._task.close()
            raise

    def next_tuple(self) -> float | None:
        """Emit the next line or row."""
        wait = self._task.next(self._emit)
        if self._task.finished:
            self.finish()
        return wait

    def ack(self, message_id: object) -> None:
        """An item is done."""
        self._task.settle(cast("tuple[object, int]", message_id))

    def fail(self, message_id: object, failure: Failure) -> None:
        """An item failed for good."""
        if failure.reason != "stopped":
            self._task.settle(cast("tuple[object, int]", message_id))

    def deactivate(self) -> None:
        """Write how far the task has come."""
        self._task.save()

    def close(self) -> None:
        """Write how far the task has come, and close everything."""
        self._task.close()

    def _emit(self, values: tuple[object, ...], message_id: tuple[object, int]) -> None:
        self.emit(values, message_id=message_id)


def replay_problems(replay: object) -> Iterator[str]:
    """What is wrong with a spout's `replay` argument."""
    if replay is not None and not isinstance(replay, Replay):
        yield f"replay is {typed(replay)}: give a Replay, or None (what failed once is not emitted again)"


def follow_problems(follow: object) -> Iterator[str]:
    """What is wrong with a spout's `follow` argument."""
    if not isinstance(follow, bool):
        yield f"follow is {typed(follow)}: give True or False"


def positions_problems(positions: object) -> Iterator[str]:
    """What is wrong with a spout's `positions` argument."""
    if positions is None:
        return
    try:
        check_path(positions)  # type: ignore[arg-type]
    except InvalidPath as error:
        yield f"positions: {error}"
    except TypeError:
        yield f"positions is {typed(positions)}: give the path of a folder"
