"""What the spouts that read files have in common: a spout whose task is a `ReadingTask`.

An item's message id is (piece, position). An item is settled when its tree is acked, and also when that failed for good:
it is
then in the dead letters, or counted as failed; otherwise a row that no bolt can handle would come again after each
restart.
An item that was cut off by the end of a topology is not settled, and comes again.
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
    """A spout that shares what it reads among several tasks, and stores how far it has read. Subclasses make its units."""

    threaded = True  # reading blocks
    _positions: str | None = None
    _task: ReadingTask

    def _units(self) -> Units:
        """Return what this task may read."""
        raise NotImplementedError

    def open(self, context: Context) -> None:
        """Find out what there is to read, and what is left of it."""
        self._task = ReadingTask(self._units(), context, self._positions)
        try:
            self._task.start()
        except FilesUnavailable:
            pass  # next_tuple tries again, and logs it
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
        """Settle an item."""
        self._task.settle(cast("tuple[object, int]", message_id))

    def fail(self, message_id: object, failure: Failure) -> None:
        """Settle an item that failed for good."""
        if failure.reason != "stopped":
            self._task.settle(cast("tuple[object, int]", message_id))

    def deactivate(self) -> None:
        """Store how far the task has read."""
        self._task.save()

    def close(self) -> None:
        """Store how far the task has read, and close everything."""
        self._task.close()

    def _emit(self, values: tuple[object, ...], message_id: tuple[object, int]) -> None:
        self.emit(values, message_id=message_id)


def replay_problems(replay: object) -> Iterator[str]:
    """Yield what is wrong with a spout's `replay` argument."""
    if replay is not None and not isinstance(replay, Replay):
        yield f"replay is {typed(replay)}: give a Replay, or None (what failed once is not emitted again)"


def follow_problems(follow: object) -> Iterator[str]:
    """Yield what is wrong with a spout's `follow` argument."""
    if not isinstance(follow, bool):
        yield f"follow is {typed(follow)}: give True or False"


def path_problems(path: object, what: str) -> Iterator[str]:
    """Yield what is wrong with the path of a table or folder; `what` names the argument."""
    try:
        check_path(path)  # type: ignore[arg-type]
    except InvalidPath as error:
        yield str(error) if what == "path" else f"{what}: {error}"
    except TypeError:
        yield f"{what} is {typed(path)}: give text"


def positions_problems(positions: object) -> Iterator[str]:
    """Yield what is wrong with a spout's `positions` argument."""
    return path_problems(positions, "positions") if positions is not None else iter(())
