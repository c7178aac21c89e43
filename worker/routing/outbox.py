"""The tuples of one task for another task on one stream, until they leave as a batch.

An outbox keeps the rows as the user emitted them, and the root and edge ids as columns beside them. The columns of
the wire are made only when a batch is encoded: in plain Python this order is faster (measured on CPython 3.11, three fields:
90 ns a tuple against 237 with a list for each field), and inside a process these columns are never needed.
Must not know: credit, links, user code.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, NamedTuple

from squall.transport.credit import FrameLimit
from squall.transport.frames import NO_MORE, Batch, More
from squall.transport.id_columns import Ids, from_raw, raw
from squall.transport.row_columns import from_columns, new_rows
from topology_api.tuples import Source

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython


class OutboxContents(NamedTuple):
    """The tuples of an outbox, by columns."""

    columns: list[Any]
    size: int
    #: 64-bit little-endian integers.
    roots: bytes | memoryview
    more: More


#: The columns of an empty outbox; never written to.
NO_ROWS: Final = new_rows(0)
NO_IDS: Final = Ids()


class Outbox:
    """Rows, roots and edges of the tuples that wait for the next batch. `emit` appends to the three columns directly."""

    __slots__ = ("credited", "cycle", "edges", "limit", "more", "roots", "rows", "source", "target")

    def __init__(
        self,
        source: Source,
        target: int,
        credited: bool = True,
        cycle: int = -1,
        frame: int = 256,
        first: int = 256,
    ) -> None:
        """`frame`: the most tuples in a frame, so that a window fits into the reader's queue; `first`: the same for the first
        frame.
        """
        self.source = source
        self.target = target
        #: False on an edge that closes a cycle: its batches take no credit.
        self.credited = credited
        #: Index of the cycle, if this is an inner edge of a cycle; else -1.
        self.cycle = cycle
        self.limit = FrameLimit(frame, first)
        # An outbox has its own columns only while it holds tuples: two components of 500 tasks have 250,000 outboxes, and a
        # million objects cost the garbage collector more than the tuples do.
        self.rows = NO_ROWS
        self.roots = NO_IDS
        self.edges = NO_IDS
        self.more: More = NO_MORE

    def begin(self) -> Any:
        """Give an empty outbox columns to append to; return its rows."""
        rows = self.rows = new_rows(len(self.source.names))
        self.roots = Ids()
        self.edges = Ids()
        return rows

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: tuple[Any, ...], roots: list[tuple[int, int]]) -> None:
        """Add a tuple of any number of trees; `roots` are (root, edge) pairs."""
        if not self.rows:
            self.begin()
        if len(roots) > 1:
            if not self.more:
                self.more = {}
            first = roots[0][1]
            self.more[len(self.rows)] = tuple([(root, edge ^ first) for root, edge in roots[1:]])
        root, edge = roots[0] if roots else (0, 0)
        self.rows.append(row)
        self.roots.append(root)
        self.edges.append(edge)

    def take_back(self) -> int:
        """Remove the newest tuple, which is of one tree or of none; return its edge."""
        del self.rows[-1]
        self.roots.pop()
        edge: int = self.edges.pop()
        if not self.rows:
            self.rows, self.roots, self.edges = NO_ROWS, NO_IDS, NO_IDS
        return edge

    def dequeue(self, most: int) -> Batch:
        """Remove and return the oldest `most` tuples as a batch."""
        if len(self.rows) <= most:
            batch = Batch(self.source, self.target, self.rows, self.roots, self.edges, self.more)
            self.rows, self.roots, self.edges, self.more = NO_ROWS, NO_IDS, NO_IDS, NO_MORE
        else:
            more = {at: pairs for at, pairs in self.more.items() if at < most}
            batch = Batch(
                self.source, self.target, self.rows[:most], self.roots[:most], self.edges[:most], more
            )
            del self.rows[:most], self.roots[:most], self.edges[:most]
            self.more = {at - most: pairs for at, pairs in self.more.items() if at >= most}
        batch.cycle = self.cycle
        batch.limit = self.limit
        return batch

    def pop_all(self) -> OutboxContents:
        """Remove all tuples, and return them without their edges."""
        rows, roots, more = self.rows, self.roots, self.more
        self.rows, self.roots, self.edges, self.more = NO_ROWS, NO_IDS, NO_IDS, NO_MORE
        if cython.compiled:
            columns = rows.columns()
        else:  # `zip(*rows)` is ten times slower for a thousand rows: it makes an iterator for each row
            columns = [list(map(itemgetter(place), rows)) for place in range(len(rows[0]) if rows else 0)]
        return OutboxContents(columns, len(rows), raw(roots), more)

    def fill(self, contents: OutboxContents) -> None:
        """Fill the outbox with tuples without edges: no tracker gets acks for these tuples."""
        self.rows, self.more = from_columns(contents.columns, contents.size), contents.more
        self.roots = from_raw(contents.roots)
        self.edges = from_raw(bytes(8 * contents.size))

    def waiting_roots(self) -> set[int]:
        """Return the trees whose tuples wait here."""
        roots = set(self.roots)
        for pairs in self.more.values():
            roots.update(root for root, _ in pairs)
        roots.discard(0)
        return roots
