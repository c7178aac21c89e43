"""RewindableSpout: the base class of spouts that can return to an earlier place in their source.

Like the other base classes it holds nothing and has no constructor. Must not know: who keeps positions, and when.
"""

from __future__ import annotations

from typing import Any

from topology_api.components import Spout
from topology_api.errors import SquallError


class RewindableSpout(Spout):
    """A spout whose source can be read again from a position: a file, a log, a table. Subclasses define `next_tuple`,
    `position` and `rewind`.

    A position divides the source: what `next_tuple` has emitted is before it, all the rest is behind it. So a spout that was
    rewound to a position emits exactly the rest, in an order that the source could have had.

    Without `topology.state.path`, the runtime calls neither method. So without a call of `rewind` the spout must start at the
    beginning, as any spout does.

    `next_tuple` must return: its position is asked for between two calls, and nothing can be committed before.

    Emit in `next_tuple` only. What `ack` emits is behind no position: with `topology.state.path` it raises `EmitError`.
    """

    def position(self) -> Any:
        """Return the position after everything that `next_tuple` has emitted; called between two calls of `next_tuple`.

        Any value that msgpack can hold: numbers, text, bytes, lists, dicts. Return a new value, since the runtime keeps it.
        Must not block, and must not emit.
        """
        raise SquallError(f"{type(self).__name__} has no position(): define it")

    def rewind(self, position: Any) -> None:
        """Continue at a position; called after `open` and before the first `next_tuple`. Must not emit.

        If the source does not go back so far, raise an error that says what is missing, and where.

        position: what `position` returned, maybe in an earlier process; a tuple has become a list. None: the beginning of the
            source.
        """
        raise SquallError(f"{type(self).__name__} has no rewind(position): define it")

    def merge_positions(self, positions: list[Any]) -> Any:
        """Return the position with which every task begins after their number has changed; called after `open`. Must not emit.

        Each new task is rewound to this same position, and then emits its own share of what is behind it. So the shares must
        follow from the number of tasks alone, such as "file `crc32(path) % context.parallelism`", and a position must name what
        it belongs to. Without this method, the number of tasks of the spout cannot change.

        positions: those of all tasks before, in the order of their indexes; a tuple has become a list.
        """
        raise SquallError(f"{type(self).__name__} has no merge_positions(positions): define it")


def keeps_tasks(spout: Spout) -> bool:
    """Return whether the number of a spout's tasks cannot change: it has positions, and nothing merges them."""
    return (
        isinstance(spout, RewindableSpout) and type(spout).merge_positions is RewindableSpout.merge_positions
    )
