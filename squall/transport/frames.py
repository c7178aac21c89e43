"""The frames that workers send each other: batches of tuples, and control frames.

A `Batch` holds the tuples that one task sends to one other task on one stream, or the mark that the sending task has
ended. A `Control` frame holds everything that is not a tuple: XORs of acked tuples, failures, credit grants,
keep-alives, flush requests, and the questions and answers that show whether a cycle is quiet.

The same objects travel inside one process and, encoded by `squall.transport.wire`, between processes.
Must not know: sockets, tasks, user code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from squall.transport.credit import FrameLimit, ReceiveWindow
from squall.transport.id_columns import as_ids
from squall.transport.row_columns import as_rows
from topology_api import Failure
from topology_api.tuples import Source

#: Further trees of the tuples of a batch: position -> (root, edge XOR the first edge) pairs.
More = dict[int, tuple[tuple[int, int], ...]]

#: In `Failure.attempts` of a failure on its way to the tracker, which alone knows the number of attempts: the failure waits for
#: a verdict (see `worker.tracking.outages`).
OPEN: Final = 0
#: The same: the failure counts at once, and is evidence of nothing.
COUNTS: Final = -1
#: The same, of a loss: the tuple was not executed, since workers have died in its calls, and is given up. (A worker of an
#: earlier release takes it for a loss as any other, and tries the tuple again.)
DEADLY: Final = -2
#: The reason of an entry among the failures that reports a success: its `attempts` is the root of the tuple that succeeded. Its
#: own root is that of a tree that has failed, so a worker of an earlier release ignores it.
RECOVERED: Final = "recovered"
#: The reasons of entries that report in which call a worker died by the call's own fault, and which call did not return until
#: its worker was ended. A worker of an earlier release ignores both once it knows of the loss.
DIED: Final = "died"
HUNG: Final = "hung"
#: The reasons of entries by which a bolt task tells its verdict, which rests on the failures of all spout tasks: it is down;
#: and, just before `RECOVERED`, it did not work for a while (`attempts`: how many tuples of other spout tasks failed meanwhile,
#: as far as it knows). Their own root is that of a tree that has failed, as above.
DOWN: Final = "down"
BURST: Final = "burst"
#: The reasons of all entries that are no failure of a tree.
REPORTS: Final = frozenset((RECOVERED, DIED, HUNG, DOWN, BURST))

#: Shared by all batches in which no tuple belongs to several trees; never written to.
NO_MORE: Final[More] = {}


class Batch:
    """The tuples of one batch. Each tuple has a row of values, a root id and an edge id (both are 0 if it is in no tree).

    `frame` is the batch's number, from 1, among the batches with credit that one worker sends to the target task; 0 marks a
    batch that takes no credit. `cycle` is the index of the cycle on whose inner edge the batch travels, or -1. `ended` marks
    the last batch of its source task; such a batch has no rows.
    """

    __slots__ = (
        "cycle",
        "edges",
        "ended",
        "frame",
        "limit",
        "more",
        "position",
        "roots",
        "rows",
        "sender",
        "skipped",
        "source",
        "target",
        "window",
    )

    def __init__(
        self,
        source: Source,
        target: int,
        rows: Any,
        roots: Sequence[int],
        edges: Sequence[int],
        more: More = NO_MORE,
    ) -> None:
        self.source = source
        self.target = target
        self.rows = as_rows(rows)
        self.roots = as_ids(roots)
        self.edges = as_ids(edges)
        self.more = more
        self.sender = ""
        self.frame = 0
        self.cycle = -1
        self.ended = False
        #: How many of the batch's tuples have been executed.
        self.position = 0
        #: The limit that is adapted to the batch's size in bytes; None: no limit depends on this batch.
        self.limit: FrameLimit | None = None
        #: How many tuples were dropped before they could be executed.
        self.skipped = 0
        #: The receiver's window that counts the batch; set when the batch arrives.
        self.window: ReceiveWindow | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def waiting_roots(self, start: int) -> set[int]:
        """Return the root ids of the tuples from position `start` on."""
        roots = set(self.roots[start:])
        for position, pairs in self.more.items():
            if position >= start:
                roots.update(root for root, _ in pairs)
        roots.discard(0)
        return roots


class KeepAlive(msgspec.Struct, frozen=True):
    """Trees whose tuples wait, unexecuted, at a task: these trees must not time out."""

    component: str
    task: int
    roots: tuple[int, ...]


class CycleProbe(msgspec.Struct, frozen=True):
    """Asks a worker, on behalf of a cycle's coordinator, whether the cycle is quiet there."""

    cycle: int
    round: int


class CycleReply(msgspec.Struct, frozen=True):
    """A worker's answer: whether its tasks of the cycle are idle, and how many tuples they sent and executed in the cycle."""

    cycle: int
    round: int
    worker: str
    idle: bool
    sent: int
    executed: int
    #: How many times the coordinator has declared the cycle quiet.
    phase: int = 0


class CyclePhase(msgspec.Struct, frozen=True):
    """Declares a cycle quiet for the `phase`-th time."""

    cycle: int
    phase: int


CycleMessage = CycleProbe | CycleReply | CyclePhase


class Unsent(msgspec.Struct, frozen=True):
    """A tuple that was lost because its values could not be encoded or decoded. A worker sends this to itself only."""

    component: str
    task: int
    values: tuple[Any, ...]
    error: str
    #: The index of the cycle on whose inner edge the tuple was to travel, or -1.
    cycle: int
    #: The task that was to receive the tuple.
    target: int = 0
    #: The user's call that failed; "" if decoding at the receiver failed.
    call: str = "emit"
    #: The tuple's stream, and (root, edge) of its trees.
    source: Source | None = None
    trees: tuple[tuple[int, int], ...] = ()
    #: In a topology with epochs: see `EpochFrame`.
    rewind: int = 0
    epoch: int = 0


class Unread(msgspec.Struct, frozen=True):
    """A tuple whose values the receiver cannot read: those that it can, with an `Unreadable` in the place of the others."""

    row: tuple[Any, ...]
    #: (root, edge) of its trees.
    trees: tuple[tuple[int, int], ...]


class FailureClaim(msgspec.Struct, frozen=True):
    """What a spout task knows of the failures at a bolt task since its last success."""

    #: How many of its tuples failed there that are no suspects; more than `MOST_CLAIMED` are as good as that many.
    tuples: int
    #: How many seconds ago the first of them failed.
    age: float
    #: The last error.
    error: str | None = None
    #: Whether the task is down by these failures: it is to pause.
    is_down: bool = False


#: The most tuples in a claim.
MOST_CLAIMED: Final = 3


@dataclass
class Control:
    """Everything between two workers that is not a tuple. A control frame never waits for credit, and is always received."""

    sender: str
    #: XORs of acked tuples by spout task: (roots, xors).
    xors: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    #: Absolute grants by destination task: frames up to this number may be sent.
    grants: dict[int, int] = field(default_factory=dict)
    keep_alives: list[KeepAlive] = field(default_factory=list)
    flush: bool = False
    cycles: list[CycleMessage] = field(default_factory=list)
    unsent: list[Unsent] = field(default_factory=list)
    #: (bolt task, 0 or less: see `worker.loop.detours`), or, from a worker of an earlier release, (bolt task, a root id of the
    #: spout task that considers it down: it is to pause).
    down: list[tuple[int, int]] = field(default_factory=list)
    #: (bolt task, a root id of the spout task, what it knows of the failures there).
    claims: list[tuple[int, int, FailureClaim]] = field(default_factory=list)
    #: The sender's rewind number, to which its grants belong; 0 in a topology without epochs.
    rewind: int = 0
    #: Messages of the epochs' coordinator and tasks, packed.
    epochs: list[bytes] = field(default_factory=list)
    #: The numbers of messages from this frame's receiver that did not arrive, as ranges (first, last).
    missing: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.xors
            or self.failures
            or self.grants
            or self.keep_alives
            or self.flush
            or self.cycles
            or self.unsent
            or self.down
            or self.claims
            or self.epochs
            or self.missing
        )


class EpochBarrier(msgspec.Struct, frozen=True):
    """The end of an epoch, on all streams of one source task to the tasks of one worker."""

    source: int
    epoch: int
    last: bool = False


@dataclass(slots=True, eq=False)
class EpochFrame:
    """What travels in order between two tasks of a topology with epochs, and the rewind number to which it belongs."""

    rewind: int
    item: Batch | EpochBarrier
    #: Of a batch: the last epoch whose barrier its source had sent before.
    epoch: int = 0
    #: Of a batch: tuples that came with it, and cannot be read here.
    unread: list[Unread] = field(default_factory=list)


Frame = Batch | Control | EpochFrame
