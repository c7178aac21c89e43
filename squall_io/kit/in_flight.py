"""What a source has emitted and what is settled of it: the position before which everything is done.

Positions grow: offsets of a partition, numbers of rows, bytes of a file. A position is settled when its tree is acked, and when
it failed for good: if it were not, a row that no bolt can handle would come back after each restart.
Must not know: tuples, servers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice


class ItemsInFlight:
    """The items of one partition that are under way.

    position: where reading begins; after that, each item has a greater position.
    """

    def __init__(self, position: int) -> None:
        #: Where reading continues: after the last emitted item.
        self.next = position
        self._under_way: deque[int] = deque()
        self._settled: set[int] = set()

    def taken(self, position: int, after: int) -> None:
        """Record that the item at `position` was emitted; the next item is at `after` or later."""
        self._under_way.append(position)
        self.next = after

    def taken_many(self, positions: Sequence[int], after: int) -> None:
        """Record that these items were emitted, in their order, as `taken` does for each."""
        self._under_way.extend(positions)
        self.next = after

    def take_back(self, position: int) -> None:
        """Record that the items from `position` on were not emitted after all; none of them is settled."""
        under_way = self._under_way
        while under_way and under_way[-1] >= position:
            under_way.pop()
        self.next = position

    def settle_many(self, positions: list[int]) -> None:
        """Record that these items are settled, as `settle` does for each; it is fastest in the order of their emission."""
        under_way, settled = self._under_way, self._settled
        if list(islice(under_way, len(positions))) == positions:
            for _ in positions:
                under_way.popleft()
        else:
            settled.update(positions)
        while under_way and under_way[0] in settled:
            settled.discard(under_way.popleft())

    def settle(self, position: int) -> None:
        """Record that the item at `position` is settled; called once for each emitted item."""
        under_way, settled = self._under_way, self._settled
        if under_way and under_way[0] == position:
            under_way.popleft()
            while under_way and under_way[0] in settled:
                settled.discard(under_way.popleft())
        else:
            settled.add(position)

    @property
    def position(self) -> int:
        """The position before which everything is settled."""
        try:  # not in two steps: metrics are read in another thread
            return self._under_way[0]
        except IndexError:
            return self.next

    @property
    def waiting(self) -> int:
        """How many items were emitted from `position` on, settled ones included: what would be read again after a failure."""
        return len(self._under_way)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was emitted is settled."""
        return not self._under_way
