"""The log of epochs: what its records say together, and the writer that adds one.

`LogView` folds records. `LogWriter` adds records in a way that is safe with several writers and with a store whose answers get
lost. A record goes to the number after the last one read. If that number is taken, the writer reads on; if another's lead is
among what it reads, it leads no longer. If the answer is lost, the writer reads the number: its own token there means "stored";
no record means that the put may still arrive, so the *same* record is put at the *same* number again. Until this is settled,
`busy` is true, and no other record is written.

What is read may begin with a floor, which stands for all records up to its number (`trimming`). A writer that is passed by one
has not read who led meanwhile: a floor names the last leaders.
Must not know: stores, files, what a record leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from worker.epochs.records import (
    BadLog,
    CommitFacts,
    CommitRecord,
    DropRecord,
    EndRecord,
    FloorRecord,
    LeadRecord,
    LogRecord,
    RewindRecord,
    SnapshotFile,
    StartPoint,
    edited,
)

#: Of how many earlier submissions the last commit is kept.
KEPT_SWITCHES: Final = 5
#: How many of the last leaders are known.
KEPT_LEADERS: Final = 20
#: The log is trimmed after this number of records, or twice as many as commits are kept, if that is more: so a floor, which
#: holds these commits, costs less than the records that it stands for.
TRIM_EVERY: Final = 100


@dataclass(slots=True)
class LogView:
    """What the first `last` records of a log say."""

    #: How many of the newest commits are kept, as far as no leader says it.
    keep: int = 10
    last: int = 0
    #: The token of the first record: no other log has it.
    lineage: str = ""
    leader: str = ""
    #: The last leaders, this one included.
    leaders: list[str] = field(default_factory=list)
    #: The number of the newest record that begins a rewind.
    rewind: int = 0
    #: The newest version of the assignment that a leader had, on top of those of earlier submissions.
    assignment: int = 0
    #: The submission of the newest leader, and how many rewinds there have been since its first.
    submission: str | None = None
    rewinds: int = 0
    #: Submission -> the newest version before its first leader.
    bases: dict[str, int] = field(default_factory=dict)
    #: The number of the next epoch. Each rewind passes over one number, since one epoch may have been begun: so no two
    #: attempts have the same number, and what an outside system got for a void epoch is never mistaken for a later one's.
    next_epoch: int = 0
    commits: list[CommitRecord] = field(default_factory=list)
    #: The last commits of the submissions before the one that has committed last: what `--state` may want back.
    switches: list[CommitRecord] = field(default_factory=list)
    #: The submissions that have led last, and that have committed last.
    led_by: str = ""
    committed_by: str = ""
    #: Where the submission that leads has begun, until it commits; and what its lineage will be then.
    start: StartPoint | None = None
    next_lineage: str = ""
    #: What operators have deleted: see `DropRecord`.
    edits: dict[str, SnapshotFile | None] = field(default_factory=dict)
    end: EndRecord | None = None
    #: Epoch -> what is known of its commit; at least of the kept ones.
    facts: dict[int, CommitFacts] = field(default_factory=dict)
    #: The number of the newest floor that was read, or that this process has begun to put.
    floor: int = 0
    #: After how many records the log is trimmed.
    trim_every: int = field(init=False)

    def __post_init__(self) -> None:
        self.trim_every = max(TRIM_EVERY, 2 * self.keep)

    @property
    def newest(self) -> CommitRecord | None:
        """The commit to which tasks return."""
        if self.start is not None:
            return self.start.commit
        return self.commits[-1] if self.commits else None

    @property
    def epoch(self) -> int:
        """The number of this commit; 0: there is none."""
        newest = self.newest
        return newest.epoch if newest is not None else 0

    @property
    def present_lineage(self) -> str:
        """The lineage of what is committed next."""
        return self.next_lineage if self.start is not None and self.start.foreign else self.lineage

    @property
    def kept(self) -> list[CommitRecord]:
        """The commits whose snapshots are kept."""
        starts = [self.start.commit] if self.start is not None else []
        return [*self.switches, *self.commits, *starts]

    def has_led(self, submission: str) -> bool:
        """Return whether a submission has led, in any of its times with the name."""
        return any(submission_of(each) == submission_of(submission) for each in self.bases)

    def add(self, record: LogRecord) -> None:
        """Add the record after the last one, or a floor above it. Raises BadLog."""
        if isinstance(record, FloorRecord):
            self.begin_with(record)
            return
        self.last += 1
        self.lineage = self.lineage or record.token
        if isinstance(record, LeadRecord):
            self.leader, self.end = record.leader, None
            self.leaders = [*self.leaders, record.leader][-KEPT_LEADERS:]
            self.begin_submission(record)
            self.rewinds = self.rewinds + 1 if record.submission == self.submission else 0
            self.submission = record.submission
            self.keep = record.keep or self.keep
            if record.submission:
                self.bases.setdefault(record.submission, self.assignment)
            self.begin_rewind(record.assignment)
        elif isinstance(record, DropRecord) and self.rewind:
            self.drop(record)
        elif self.end is not None or not self.rewind:
            raise BadLog(f"record {self.last} of the log of epochs: {record} without a leader")
        elif isinstance(record, CommitRecord):
            if (record.rewind, record.epoch) != (self.rewind, self.next_epoch):
                raise BadLog(
                    f"record {self.last} of the log of epochs commits epoch {record.epoch} of rewind {record.rewind}, "
                    f"where epoch {self.next_epoch} of rewind {self.rewind} was expected: do not edit the log"
                )
            self.commit(edited(record, self.edits))
        elif isinstance(record, EndRecord):
            self.end = record
            if (fact := self.facts.get(record.epoch)) is not None:
                self.facts[record.epoch] = replace(fact, end=record.reason)
        elif isinstance(record, RewindRecord):
            self.rewinds += 1
            self.begin_rewind(record.assignment)

    def begin_submission(self, record: LeadRecord) -> None:
        """A submission leads, perhaps another one, and perhaps not from the last commit."""
        submission = submission_of(record.submission)
        if record.start is not None:
            self.start, self.next_lineage = record.start, record.token
            self.next_epoch = max(self.next_epoch, record.start.commit.epoch)
        elif submission != self.led_by:
            self.start = None
        self.led_by = submission

    def commit(self, record: CommitRecord) -> None:
        """An epoch counts."""
        if self.commits and self.committed_by != self.led_by:
            self.switches.append(self.commits[-1])
            del self.switches[:-KEPT_SWITCHES]
        self.lineage, self.start = self.present_lineage, None
        self.committed_by = self.led_by
        self.commits.append(record)
        self.facts[record.epoch] = CommitFacts(self.last, self.led_by)
        del self.commits[: -self.keep]
        self.next_epoch += 1

    def drop(self, record: DropRecord) -> None:
        """Snapshots were deleted. A commit that was being written meanwhile may name them once more."""
        self.edits |= record.files
        self.commits = [edited(each, self.edits) for each in self.commits]
        self.switches = [edited(each, self.edits) for each in self.switches]
        if self.start is not None:
            self.start = StartPoint(edited(self.start.commit, self.edits), self.start.foreign)

    @property
    def is_long(self) -> bool:
        """Whether the log is long enough to be trimmed."""
        return self.last - self.floor >= self.trim_every

    def floor_here(self) -> FloorRecord:
        """Return what all records so far say together."""
        kept = {each.epoch for each in self.kept}
        self.facts = {epoch: fact for epoch, fact in self.facts.items() if epoch in kept}
        fields: dict[str, Any] = {name: copy(getattr(self, name)) for name in _SHARED}
        return FloorRecord(number=self.last, **fields)

    def begin_with(self, floor: FloorRecord) -> None:
        """Go on from a floor, unless it is below what was read."""
        if floor.number > self.last:
            keep = floor.keep or self.keep
            for name in _SHARED:
                setattr(self, name, copy(getattr(floor, name)))
            self.keep = keep
            self.last = floor.number
        self.floor = max(self.floor, floor.number)

    def base_of(self, submission: str) -> int:
        """Return what is added to the versions of a submission, so that they are higher than those of all before it."""
        return self.bases.get(submission, self.assignment) if submission else 0

    def begin_rewind(self, assignment: int) -> None:
        """The last record begins a rewind."""
        self.rewind = self.last
        self.assignment = max(self.assignment, assignment)
        self.next_epoch += 1


#: The fields of `LogView` that a floor has, too.
_SHARED: Final = tuple(name for name in FloorRecord.__struct_fields__ if name != "number")


def token_of(record: LogRecord) -> str:
    """Return the token of a record; a floor has none."""
    return "" if isinstance(record, FloorRecord) else record.token


def submission_of(tenure: str) -> str:
    """Return the submission whose tenure leads: `WorkerPlan.tenure` adds a number to those after the first."""
    return tenure.partition("+")[0]


class PutAnswer(Enum):
    """What a store says about a put."""

    STORED = auto()
    #: There is a record at this number.
    TAKEN = auto()
    #: The answer was lost, or the store failed: the record is there, or not, or will be.
    UNKNOWN = auto()


class PutRecord(msgspec.Struct, frozen=True):
    """Put a record at a number if there is none, and pass the answer to `LogWriter.put_answered`."""

    number: int
    record: LogRecord


class ReadLog(msgspec.Struct, frozen=True):
    """Read all records after a number, and pass them to `LogWriter.records_read`; None if that failed."""

    after: int


class RecordStands(msgspec.Struct, frozen=True):
    """The writer's own record stands in the log."""

    record: LogRecord


class LogRead(msgspec.Struct, frozen=True):
    """All records that there are have been read, and nothing is being written."""


class LeadLost(msgspec.Struct, frozen=True):
    """Another coordinator leads; the pending record does not stand, and never will."""


LogEffect = PutRecord | ReadLog | RecordStands | LogRead | LeadLost


class LogWriter:
    """Writes one record after the other to the log."""

    def __init__(self, view: LogView, leader: str) -> None:
        self.view = view
        self.leader = leader
        self.pending: LogRecord | None = None
        #: Where the pending record was put.
        self.number = 0
        self.tokens = 0

    @property
    def busy(self) -> bool:
        """Whether a record is being written: it may stand in the log, or not."""
        return self.pending is not None

    @property
    def leads(self) -> bool:
        """Whether this coordinator leads, as far as the log was read."""
        return self.view.leader == self.leader

    def new_token(self) -> str:
        """Return a token for a record."""
        self.tokens += 1
        return f"{self.leader}:{self.tokens}"

    def read(self) -> list[LogEffect]:
        """Read what there is."""
        return [ReadLog(self.view.last)]

    def write(self, record: LogRecord) -> list[LogEffect]:
        """Begin to write a record."""
        if self.pending is not None:
            raise RuntimeError(f"{record} is to be written while {self.pending} is")
        self.pending = record
        return self.put()

    def has_led(self) -> bool:
        """Return whether this coordinator has led, for a moment that it does not know of: its lead stood, and another one's
        after it, perhaps both below a floor."""
        return self.leader in self.view.leaders

    def is_outdated(self) -> bool:
        """Return whether it wants to lead with an older assignment than another leader had: two that do not know of each other
        would take the lead from each other for ever."""
        return isinstance(self.pending, LeadRecord) and self.pending.assignment < self.view.assignment

    def put(self) -> list[LogEffect]:
        """Put the pending record at the number after the last one read."""
        assert self.pending is not None
        self.number = self.view.last + 1
        return [PutRecord(self.number, self.pending)]

    def put_answered(self, answer: PutAnswer) -> list[LogEffect]:
        """Go on when the store has answered a put."""
        if answer is PutAnswer.STORED:
            return self.stands()
        return self.read()

    def stands(self) -> list[LogEffect]:
        """The pending record is in the log, at its number."""
        record, self.pending = self.pending, None
        assert record is not None
        self.view.add(record)
        return [RecordStands(record)]

    def records_read(self, records: Sequence[LogRecord] | None) -> list[LogEffect]:
        """Go on when the log has been read from `view.last` on."""
        if records is None:
            return self.read()
        led = self.leads
        stands: list[LogEffect] = []
        for record in records:
            pending = self.pending
            if pending is not None and token_of(record) == token_of(pending):
                stands = self.stands()
            else:
                self.view.add(record)
        if ((led or self.has_led()) and not self.leads) or self.is_outdated():
            self.pending = None
            return [LeadLost()]
        if stands:
            return stands
        if self.pending is None:
            return [LogRead()]
        return self.put()
