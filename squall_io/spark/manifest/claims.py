"""Who owns a seat: claims, which are numbered in epochs, and fences, which decide what of an earlier epoch counts.

A task that starts takes over its seat: it puts the claim of the next epoch (one winner each), then sees to it that the
fence of each epoch is there. The fence of epoch n names the batches of epoch n - 1 that count, for ever. It is made from a
listing that begins after claim n was put; whoever finds that it is missing may make it, and the first one put is it. See
`commit` for why that is right.

Who only wants to delete what a task has left that does not come back claims its seat, too (`retire`), and writes nothing. A
task that lives after all takes it back (`take_back`), unless another one has claimed it.
Must not know: Spark, what batches hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from squall_io.spark.manifest.envelopes import UnreadableRecord, seal, unseal
from squall_io.spark.manifest.files import Files, FilesUnavailable
from squall_io.spark.manifest.layout import CLAIMS, COMMITS, Seat, batch_of, claim_of, claim_path, fence_path
from topology_api import SquallError

CLAIM: Final = "claim"
FENCE: Final = "fence"


class Superseded(SquallError):
    """A newer owner has taken over the seat: nothing that this one writes from now on counts."""

    def __init__(self, seat: Seat, epoch: int, by: str) -> None:
        super().__init__(seat, epoch, by)
        self.seat = seat
        self.epoch = epoch
        self.by = by

    def __str__(self) -> str:
        return f"{self.seat} was taken over by {self.by}: what this task writes does not count any more"


@dataclass(frozen=True)
class Claim:
    """Somebody owns a seat."""

    seat: Seat
    epoch: int
    incarnation: tuple[int, int]
    owner: str
    """Host and process, for people."""
    since: float
    """Seconds since 1970."""
    retired: bool = False
    """Nobody writes in this epoch: it was put to end the one before it."""
    token: str = ""
    """By which a task that takes its seat back knows its own claim again, should the answer be lost."""


@dataclass(frozen=True)
class Listing:
    """Which claims and fences there are, by (seat, epoch)."""

    claims: frozenset[tuple[Seat, int]]
    fences: frozenset[tuple[Seat, int]]

    def newest(self, seat: Seat) -> int:
        """The newest epoch of a seat, 0 when nobody has ever claimed it."""
        return max((epoch for each, epoch in self.claims if each == seat), default=0)

    @property
    def seats(self) -> set[Seat]:
        """Every seat that was ever claimed."""
        return {seat for seat, _ in self.claims}


def list_claims(files: Files) -> Listing:
    """What the claims' folder holds now."""
    found = [claim_of(status.name) for status in files.list(CLAIMS)]
    known = [each for each in found if each is not None]
    return Listing(
        frozenset((seat, epoch) for seat, epoch, kind in known if kind == CLAIM),
        frozenset((seat, epoch) for seat, epoch, kind in known if kind == FENCE),
    )


def read_claim(files: Files, seat: Seat, epoch: int) -> Claim:
    """The claim of an epoch."""
    path = claim_path(seat, epoch)
    fields = unseal(CLAIM, files.read(path), path)
    try:
        version, restart = fields["incarnation"]
        return Claim(
            seat,
            epoch,
            (int(version), int(restart)),
            str(fields["owner"]),
            float(fields["since"]),
            retired=bool(fields.get("retired", False)),
            token=str(fields.get("token", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(path, f"is no claim of a Squall table: {error}") from None


def read_fence(files: Files, seat: Seat, epoch: int) -> frozenset[int]:
    """What the fence of an epoch says: the numbers that count of the epoch before it."""
    path = fence_path(seat, epoch)
    fields = unseal(FENCE, files.read(path), path)
    try:
        return frozenset(int(number) for number in fields["counts"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(path, f"is no fence of a Squall table: {error}") from None


def take_over(files: Files, seat: Seat, incarnation: tuple[int, int], owner: str, now: float) -> int:
    """Become the owner of a seat; its new epoch. `Superseded`: a newer incarnation has claimed it already.

    Of two of the same incarnation the later one owns it. When the answer to a claim is lost, the next try claims the epoch
    after it; nothing was ever written in the one between.
    """
    while True:
        listing = list_claims(files)
        newest = listing.newest(seat)
        if newest:
            claim = _known_claim(files, seat, newest)
            if claim is not None and claim.incarnation > incarnation:
                raise Superseded(seat, newest, _described(claim))
        record = {"incarnation": list(incarnation), "owner": owner, "since": now}
        if files.put_if_absent(claim_path(seat, newest + 1), seal(CLAIM, record)):
            break
    publish_fences(files, seat, newest + 1, listing)
    return newest + 1


def take_back(
    files: Files, seat: Seat, epoch: int, incarnation: tuple[int, int], owner: str, now: float, token: str
) -> int:
    """Become the owner of a seat anew whose epoch was ended for nobody; its new epoch. `Superseded`: another task has it.

    epoch: the last one that was ours. token: ours alone; a claim with it was put by an earlier try, whose answer was lost, and
    nothing was ever written in its epoch.
    """
    record = {"incarnation": list(incarnation), "owner": owner, "since": now, "token": token}
    while True:
        listing = list_claims(files)
        newest = listing.newest(seat)
        for each in range(epoch + 1, newest + 1):
            _require_nobodys(files, seat, each, incarnation, token)
        if files.put_if_absent(claim_path(seat, newest + 1), seal(CLAIM, record)):
            break
    publish_fences(files, seat, newest + 1, listing)
    return newest + 1


def _require_nobodys(files: Files, seat: Seat, epoch: int, incarnation: tuple[int, int], token: str) -> None:
    """See that an epoch is no other task's; `Superseded`."""
    try:
        claim = read_claim(files, seat, epoch)
    except UnreadableRecord as problem:
        raise Superseded(seat, epoch, f"a task whose claim {problem}") from None
    if claim.incarnation > incarnation or not (claim.retired or claim.token == token):
        raise Superseded(seat, epoch, _described(claim))


def retire(files: Files, seat: Seat, epoch: int, owner: str, now: float) -> bool:
    """End an epoch, the newest, of a task that is taken for gone; whether it was us who did.

    Should it live after all, it is superseded, and takes its seat back. The claim has the incarnation of the one before it: a
    task that is started anew gets its seat back, too.
    """
    claim = _known_claim(files, seat, epoch)
    incarnation = (0, 0) if claim is None else claim.incarnation
    record = {"incarnation": list(incarnation), "owner": owner, "since": now, "retired": True}
    return files.put_if_absent(claim_path(seat, epoch + 1), seal(CLAIM, record))


def _known_claim(files: Files, seat: Seat, epoch: int) -> Claim | None:
    """A claim; None: it is damaged, and whoever it was, the order of the epochs decides what counts."""
    try:
        return read_claim(files, seat, epoch)
    except UnreadableRecord as problem:
        if problem.newer:
            raise
        return None


def publish_fences(files: Files, seat: Seat, newest: int, listing: Listing) -> None:
    """See to it that every fence up to the newest epoch is there, but for those that a listing has; its claim was seen."""
    for epoch in range(2, newest + 1):
        if (seat, epoch) not in listing.fences:
            publish_fence(files, seat, epoch)


def publish_fence(files: Files, seat: Seat, epoch: int) -> frozenset[int]:
    """See to it that the fence of an epoch is there: the numbers that count of the epoch before it.

    The claim of that epoch must have been seen before this is called.
    """
    batches = [batch_of(status.name) for status in files.list(COMMITS)]
    before = (seat, epoch - 1)
    counts = frozenset(batch.number for batch in batches if batch and (batch.seat, batch.epoch) == before)
    path = fence_path(seat, epoch)
    try:
        if files.put_if_absent(path, seal(FENCE, {"counts": sorted(counts)})):
            return counts
    except FilesUnavailable:
        # A reader who helps is not to fail for it: the new owner has made the fence, and swept our temporary file away.
        if not files.exists(path):
            raise
    return read_fence(files, seat, epoch)


def require_owner(files: Files, seat: Seat, epoch: int) -> None:
    """Look whether nobody has claimed the seat after this epoch; `Superseded`."""
    if not files.exists(claim_path(seat, epoch + 1)):
        return
    try:
        by = _described(read_claim(files, seat, epoch + 1))
    except UnreadableRecord as problem:
        by = f"a task whose claim {problem}"
    raise Superseded(seat, epoch + 1, by)


def _described(claim: Claim) -> str:
    return f"{claim.owner}, incarnation {claim.incarnation[0]}.{claim.incarnation[1]}"
