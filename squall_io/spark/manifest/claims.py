"""Ownership of writer ids: a claim names the owner of an epoch, and a fence fixes which batches of the previous epoch count.

A task that starts takes over its writer id: it puts the next epoch's claim (only one task can do so), and then makes sure that
the fence of each epoch exists. The fence of epoch n fixes for good which batches of epoch n - 1 count. The fence is made
from a listing that begins after claim n was put. Any task that finds the fence missing may make it; the first fence that is put
is final. See `commit` for the proof.

A sweeper that only deletes leftovers of a dead task also claims the writer id (`retire`), but writes no rows. If the task
turns out to be alive, it takes the writer id back (`take_back`), unless another task has claimed it.

**Rewriters' claims and fences are deleted** when a checkpoint has *closed* their epochs; each compaction would leave two files
otherwise. (Those of tasks stay: a task leaves two when it starts.) Closed are the epochs before n if all fences up to fence n
existed before the entries of that checkpoint were listed (`closable`). The checkpoint then has all entries of these epochs that
count: a fence names only entries that existed when it was made. So of a closed epoch, what no checkpoint has never counts. Who
misses a claim or a fence because it was deleted, or listed the folder while others came and went, reads the newest checkpoint
after that, which was put before the deletion, or is newer: a reader (`state`), a rewriter that looks whether it is still the
owner (`require_owner`), and one that has put a claim, maybe in the place of a deleted one (`_claim_next`). A fence that is made
again for a closed epoch decides nothing.
Must not know: Spark, what batches hold.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files
from squall.stores.settled import put_once
from squall_io.spark.manifest import layout
from squall_io.spark.manifest.checkpoints import read_closed
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.holders import Holder
from squall_io.spark.manifest.layout import REWRITER, WriterId
from topology_api import SquallError

CLAIM: Final = "claim"
FENCE: Final = "fence"


class Superseded(SquallError):
    """A newer owner has claimed the writer id: later writes of this owner do not count."""

    def __init__(self, writer_id: WriterId, epoch: int, by: str) -> None:
        super().__init__(writer_id, epoch, by)
        self.writer_id = writer_id
        self.epoch = epoch
        self.by = by

    def __str__(self) -> str:
        return f"{self.writer_id} was taken over by {self.by}: what this task writes does not count any more"


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of an epoch's owner."""

    incarnation: tuple[int, int]
    #: Host and process, as information for users.
    owner: str
    #: Seconds since 1970.
    since: float
    #: Whether a sweeper put the claim to end the previous epoch; then no task writes in this epoch.
    retired: bool = False
    #: If the answer to a put was lost, a task that takes its writer id back recognizes its own claim by this token.
    token: str = ""
    #: Of a rewriter: who it is, for others that would wait for it.
    holder: Holder | None = None

    def __str__(self) -> str:
        return f"{self.owner}, incarnation {self.incarnation[0]}.{self.incarnation[1]}"


class _Fence(msgspec.Struct):
    counts: frozenset[int]


@dataclass(frozen=True)
class Listing:
    """The existing claims and fences, by (writer id, epoch)."""

    claims: frozenset[tuple[WriterId, int]]
    fences: frozenset[tuple[WriterId, int]]

    def newest(self, writer_id: WriterId) -> int:
        """Return the newest epoch of a writer id, 0 if it was never claimed."""
        return max((epoch for claimed, epoch in self.claims if claimed == writer_id), default=0)

    @property
    def writer_ids(self) -> set[WriterId]:
        """Every writer id that was ever claimed."""
        return {writer_id for writer_id, _ in self.claims}


def list_claims(files: Files) -> Listing:
    """List the folder of claims."""
    known = {named for status in files.list(layout.CLAIMS) if (named := layout.claim_of(status.name))}
    claims, fences = (frozenset(each[:2] for each in known if each[2] == kind) for kind in (CLAIM, FENCE))
    return Listing(claims, fences)


def read_claim(files: Files, writer_id: WriterId, epoch: int) -> Claim:
    """Return the claim of an epoch. Raises `UnreadableRecord`."""
    path = layout.claim_path(writer_id, epoch)
    return decode(CLAIM, Claim, files.read(path), path)


def read_fence(files: Files, writer_id: WriterId, epoch: int) -> frozenset[int]:
    """Return the batch numbers in the fence of an epoch: the batches of the previous epoch that count. Raises
    `UnreadableRecord`.
    """
    path = layout.fence_path(writer_id, epoch)
    return decode(FENCE, _Fence, files.read(path), path).counts


def take_over(
    files: Files,
    writer_id: WriterId,
    incarnation: tuple[int, int],
    owner: str,
    now: float,
    holder: Holder | None = None,
) -> int:
    """Become the owner of a writer id; return its new epoch. Raises `Superseded` if a newer incarnation has already claimed it.

    Of two tasks of the same incarnation, the later one wins. If the answer to a claim is lost, the next try claims the next
    epoch; nothing was ever written in the epoch of the lost answer.
    """

    def require_no_newer(newest: int) -> None:
        claim = _known_claim(files, writer_id, newest) if newest else None
        if claim is not None and claim.incarnation > incarnation:
            raise Superseded(writer_id, newest, str(claim))

    return _claim_next(files, writer_id, Claim(incarnation, owner, now, holder=holder), require_no_newer)


def take_back(files: Files, writer_id: WriterId, epoch: int, claim: Claim) -> int:
    """Become the owner again after a sweeper ended the epoch; return the new epoch. Raises `Superseded` if another task has
    claimed the writer id.

    epoch: the last epoch that this task owned. claim: the claim to put; its token is unique to this task. If a claim with that
        token exists, an earlier try put that claim, and the answer was lost; nothing was ever written in the claim's epoch.
    """

    def require_no_other(newest: int) -> None:
        for later in range(epoch + 1, newest + 1):
            try:
                other = read_claim(files, writer_id, later)
            except UnreadableRecord as problem:
                raise Superseded(writer_id, later, f"a task whose claim {problem}") from None
            if other.incarnation > claim.incarnation or not (other.retired or other.token == claim.token):
                raise Superseded(writer_id, later, str(other))

    return _claim_next(files, writer_id, claim, require_no_other)


def _claim_next(files: Files, writer_id: WriterId, claim: Claim, check: Callable[[int], None]) -> int:
    """Put the claim of the epoch after the newest; return the new epoch. Before that, call `check` with the newest epoch;
    `check` may raise `Superseded`.
    """
    while True:
        listing = list_claims(files)
        newest = listing.newest(writer_id)
        check(newest)
        put = files.put_if_absent(layout.claim_path(writer_id, newest + 1), seal(CLAIM, claim))
        if put and newest + 1 >= _closed(files, writer_id):  # otherwise it is in the place of a deleted claim
            publish_fences(files, writer_id, newest + 1, listing)
            return newest + 1


def retire(files: Files, writer_id: WriterId, epoch: int, owner: str, now: float) -> bool:
    """End the newest epoch of a task presumed dead; return whether this call ended it.

    If the task is alive, it is superseded, and takes its writer id back. The claim carries the previous claim's incarnation, so
    that the task can also claim its writer id after a restart.
    """
    claim = _known_claim(files, writer_id, epoch)
    incarnation = (0, 0) if claim is None else claim.incarnation
    record = Claim(incarnation, owner, now, retired=True)
    return files.put_if_absent(layout.claim_path(writer_id, epoch + 1), seal(CLAIM, record))


def _known_claim(files: Files, writer_id: WriterId, epoch: int) -> Claim | None:
    """Return a claim, or None if the claim is damaged, or was deleted a moment ago: which batches count depends on the order of
    the epochs, not on their owners.
    """
    try:
        return read_claim(files, writer_id, epoch)
    except AbsentFile:
        return None
    except UnreadableRecord as problem:
        if problem.newer:
            raise
        return None


def publish_fences(files: Files, writer_id: WriterId, newest: int, listing: Listing) -> None:
    """Make the fences that the listing lacks, up to that of the newest epoch. The caller must have seen the newest claim."""
    for epoch in range(max(2, _closed(files, writer_id)), newest + 1):
        if (writer_id, epoch) not in listing.fences:
            with suppress(AbsentFile):  # another one has made it, and its epoch was closed
                publish_fence(files, writer_id, epoch)


def publish_fence(files: Files, writer_id: WriterId, epoch: int) -> frozenset[int]:
    """Make sure that the fence of an epoch exists; return the batch numbers of the previous epoch that count.

    The caller must have seen the claim of that epoch.
    """
    batches = [layout.batch_of(status.name) for status in files.list(layout.COMMITS)]
    before = (writer_id, epoch - 1)
    counts = sorted({batch.number for batch in batches if batch and (batch.writer_id, batch.epoch) == before})
    path = layout.fence_path(writer_id, epoch)
    # A reader that makes the fence does not fail if the new owner was faster, and has swept the reader's temporary file.
    return decode(FENCE, _Fence, put_once(files, path, seal(FENCE, {"counts": counts})), path).counts


def require_owner(files: Files, writer_id: WriterId, epoch: int) -> None:
    """Raise `Superseded` if the writer id was claimed after this epoch."""
    # The claim first: it is deleted only after a checkpoint has closed the epoch.
    if not files.exists(layout.claim_path(writer_id, epoch + 1)) and epoch >= _closed(files, writer_id):
        return
    try:
        by = str(read_claim(files, writer_id, epoch + 1))
    except UnreadableRecord as problem:
        by = f"a task whose claim {problem}"
    except AbsentFile:
        by = "a later one"
    raise Superseded(writer_id, epoch + 1, by)


def _closed(files: Files, writer_id: WriterId) -> int:
    """Return the first epoch of a writer id whose claim may not be deleted."""
    return read_closed(files) if writer_id == REWRITER else 0


def closable(listing: Listing, closed: int) -> int:
    """Return the epoch of rewriters before which a checkpoint closes all, if its entries are listed after this listing.

    closed: before which epoch the checkpoint before it has closed them.
    """
    epoch = max(1, closed)
    while (REWRITER, epoch + 1) in listing.fences:
        epoch += 1
    return epoch


def delete_closed(files: Files, closed: int) -> None:
    """Delete the claims and fences of rewriters before this epoch, which the newest checkpoint has closed."""
    listing = list_claims(files)
    for make, known in ((layout.claim_path, listing.claims), (layout.fence_path, listing.fences)):
        old = (epoch for writer_id, epoch in known if writer_id == REWRITER and epoch < closed)
        map_concurrently(files.delete, [make(REWRITER, epoch) for epoch in sorted(old)])


build_type_info(Claim, _Fence)
