"""What a slot may forget: the place in the log to which no task goes back any more.

With epochs a topology may be sent back to any commit that it keeps, so the place follows a number of commits behind. Without
epochs the place is where everything is acked. Must not know: connections, messages.
"""

from __future__ import annotations

from collections import deque

from squall_io.kit.in_flight import ItemsInFlight

#: Positions beyond the kept commits: of the epochs that are under way.
UNDER_WAY = 2


class Emitted:
    """The changes that were emitted, by number, and the transactions that they are of."""

    def __init__(self, lsn: int) -> None:
        self._flight = ItemsInFlight(0)
        self._first = 0
        self._lsn = lsn
        #: The number of the first change of each transaction that is not settled, and its commit.
        self._begins: deque[tuple[int, int]] = deque()

    def restart(self, lsn: int) -> None:
        """Begin again at a place: what was emitted is emitted again."""
        self._first = self._flight.next
        self._flight = ItemsInFlight(self._first)
        self._begins.clear()
        self._lsn = lsn

    @property
    def count(self) -> int:
        """The number of the next change."""
        return self._flight.next

    @property
    def settled(self) -> int:
        """The number before which all changes are settled."""
        return self._flight.position

    def add(self, lsn: int) -> int:
        """Note a change that is emitted now, of the transaction with this commit; return its number."""
        number = self._flight.next
        if not self._begins or self._begins[-1][1] != lsn:
            self._begins.append((number, lsn))
        self._flight.taken(number, number + 1)
        return number

    def settle(self, number: int) -> None:
        """Note that a change is acked, or failed for good."""
        if number >= self._first:
            self._flight.settle(number)

    def place(self, lsn: int) -> int:
        """Return the place before which all transactions are settled. lsn: where reading is."""
        settled, begins = self._flight.position, self._begins
        while len(begins) > 1 and begins[1][0] <= settled:
            begins.popleft()
        if self._flight.is_settled:
            if begins and begins[0][1] != lsn:  # not within it: no more of it comes
                begins.clear()
            return lsn
        return begins[0][1]


class KeptPositions:
    """The places of the last positions that a spout was asked for.

    keep: how many commits the topology keeps.
    """

    def __init__(self, keep: int) -> None:
        self._most = keep + UNDER_WAY
        #: How many changes were emitted before each position, and its place.
        self._asked: deque[tuple[int, int]] = deque()

    def restart(self, emitted: int, lsn: int) -> None:
        """Begin again at a position."""
        self._asked.clear()
        self._asked.append((emitted, lsn))

    def ask(self, emitted: int, lsn: int) -> None:
        """Note a position."""
        self._asked.append((emitted, lsn))

    def place(self, settled: int) -> int:
        """Return the place before which nothing is needed; 0: none is known. settled: what is committed, as emissions."""
        asked = self._asked
        committed = sum(1 for emitted, _ in asked if emitted <= settled)
        while committed > self._most:
            asked.popleft()
            committed -= 1
        return asked[0][1] if committed >= self._most else 0
