"""A simulation of the log of epochs alone: several coordinators claim the lead, commit and trim, and are killed and frozen at
any step of that; calls are slow, lose their answers, and have their effect late.

The model is the sequence of the records that were put at numbers never used before. What a writer takes for its own record that
stands must be that of the model; what it knows must be what the model's first records say.
Must not know: tasks, snapshots.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec.structs import replace

from tests.epochs.epoch_stores import Broken, Outside
from tests.epochs.epoch_timeline import Process, Timeline
from worker.epochs import trimming
from worker.epochs.log import (
    LeadLost,
    LogEffect,
    LogRead,
    LogView,
    LogWriter,
    PutAnswer,
    PutRecord,
    ReadLog,
    RecordStands,
)
from worker.epochs.records import CommitRecord, FloorRecord, LeadRecord, LogRecord, RewindRecord, SnapshotFile

#: Seconds of simulated time with faults, and those after them.
FAULTS, PEACE = 0.6, 1.0


@dataclass
class Facts:
    """What a run has shown."""

    records: int = 0
    trimmed: int = 0
    #: Puts at numbers that had been used, and were free again.
    late: int = 0


class Claimant(Process):
    """A coordinator as far as its log goes."""

    def __init__(self, name: str, assignment: int, keep: int, trim_every: int) -> None:
        super().__init__(name)
        self.writer = LogWriter(LogView(keep), name)
        self.writer.view.trim_every = trim_every
        self.assignment = assignment
        self.begun = self.lost = False


class LogStory:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"log {seed}")
        self.line = Timeline(random)
        fault, slow = random.choice((0.0, 0.05, 0.15)), random.choice((0.002, 0.01, 0.03))
        self.outside = Outside(self.line, fault, slow, random.choice((0.0, 0.1)))
        self.outside.on_record = self.record
        self.keep, self.trim_every = random.choice((1, 3)), random.choice((1, 2, 3, 6))
        self.model: list[LogRecord] = []
        self.view = LogView(self.keep)
        #: What the first n records say.
        self.folds = [known_of(self.view)]
        self.claimants: list[Claimant] = []
        self.facts = Facts()
        #: Seconds between a leader's records, at most.
        self.pace = 0.01
        self.claim()
        for _ in range(random.randint(2, 8)):
            self.line.after(random.uniform(0.0, FAULTS), None, self.disturb)
        self.line.after(FAULTS, None, self.be_at_peace)

    # Faults.

    def claim(self) -> None:
        """Another coordinator begins."""
        assignment = len(self.claimants) + self.random.choice((0, 1))
        claimant = Claimant(f"c{len(self.claimants)}", assignment, self.keep, self.trim_every)
        self.claimants.append(claimant)
        self.line.soon(0.01, claimant, self.perform, claimant, claimant.writer.read())

    def disturb(self) -> None:
        """Kill or freeze one, and let another begin; or only that."""
        one = self.random.choice(self.claimants)
        what = self.random.random()
        if what < 0.2:
            one.alive = False
        elif what < 0.85 and not one.frozen:
            one.frozen = True
            self.line.after(self.random.choice((0.03, 0.1, 0.3)), None, self.line.thaw, one)
        self.claim()

    def be_at_peace(self) -> None:
        """No more faults; a last one leads."""
        self.outside.fault = self.outside.tail = 0.0
        self.outside.slow, self.pace = 0.001, 0.05
        self.claim()

    # The model.

    def record(self, number: int, record: LogRecord) -> None:
        """A number was used for the first time."""
        if number != len(self.model) + 1:
            raise Broken(f"record {number} is put behind {len(self.model)} records")
        self.model.append(record)
        self.view.add(record)
        self.folds.append(known_of(self.view))

    def check(self, claimant: Claimant) -> None:
        """A writer knows what the first records say."""
        view = claimant.writer.view
        known, right = known_of(view), self.folds[view.last]
        if known != right:
            raise Broken(
                f"{claimant.name} has read {view.last} records, and knows {known} instead of {right}"
            )

    # Writers.

    def perform(self, claimant: Claimant, effects: list[LogEffect]) -> None:
        """Do what a writer wants."""
        self.check(claimant)
        for effect in effects:
            if isinstance(effect, PutRecord):
                steps = trimming.put_record(effect.number, effect.record)
                self.outside.carry_out(
                    claimant,
                    steps,
                    lambda answer: self.perform(claimant, claimant.writer.put_answered(answer)),
                    PutAnswer.UNKNOWN,
                )
            elif isinstance(effect, ReadLog):
                self.outside.carry_out(
                    claimant,
                    trimming.read_log(effect.after),
                    lambda records: self.perform(claimant, claimant.writer.records_read(records)),
                    None,
                )
            elif isinstance(effect, LeadLost):
                claimant.lost = True
            elif isinstance(effect, RecordStands):
                self.stands(claimant, effect.record)
            else:
                assert isinstance(effect, LogRead)
                self.lead(claimant)

    def lead(self, claimant: Claimant) -> None:
        """Claim the lead once the log is read."""
        view = claimant.writer.view
        if claimant.begun or claimant.assignment < view.assignment:
            return
        claimant.begun = True
        record = LeadRecord(claimant.writer.new_token(), claimant.name, claimant.assignment)
        self.perform(claimant, claimant.writer.write(record))

    def stands(self, claimant: Claimant, record: LogRecord) -> None:
        """A writer takes a record for one that stands."""
        number = claimant.writer.view.last
        if self.model[number - 1] != record:
            raise Broken(f"{claimant.name} believes that {record} stands at {number}")
        self.facts.records += 1
        view = claimant.writer.view
        if view.is_long:
            view.floor = view.last
            self.facts.trimmed += 1
            self.outside.carry_out(claimant, trimming.trim_log(view.floor_here()), lambda _: None, None)
        self.line.soon(self.pace, claimant, self.go_on, claimant)

    def go_on(self, claimant: Claimant) -> None:
        """The leader writes its next record."""
        writer, view = claimant.writer, claimant.writer.view
        if claimant.lost or writer.busy:
            return
        token = writer.new_token()
        if self.random.random() < 0.1:
            record: LogRecord = RewindRecord(token, claimant.assignment)
        else:
            files = {"a/0": SnapshotFile(f"{view.next_epoch}-{view.rewind}-0-a.0", "d")}
            record = CommitRecord(token, view.next_epoch, view.rewind, files)
        self.perform(claimant, writer.write(record))

    # The run.

    def run(self) -> Facts:
        """Let everything happen. Raises Broken, or whatever the core raises."""
        while self.line.now < FAULTS + PEACE and self.line.step():
            pass
        leaders = [each.name for each in self.claimants if each.alive and not each.lost and each.writer.leads]
        if leaders != [self.view.leader]:
            raise Broken(f"{leaders} lead, and {self.view.leader} does by the log")
        self.check_size()
        self.facts.late = self.outside.late
        return self.facts

    def check_size(self) -> None:
        """However many records there were, few files are left: those since the last two floors, and what arrived late."""
        left = len(self.outside.numbered[trimming.LOG])
        most = 2 * self.trim_every + 2 + self.outside.late
        if left > most or len(self.outside.numbered[trimming.FLOORS]) > 3:
            raise Broken(f"{left} records and {self.outside.numbered[trimming.FLOORS].keys()} are left")


def known_of(view: LogView) -> dict[str, Any]:
    """What a view says of the records, without the times of files."""
    said = {name: copy(getattr(view, name)) for name in FloorRecord.__struct_fields__ if name != "number"}
    kept = {each.epoch for each in view.kept}
    said["facts"] = {epoch: replace(fact, at=None) for epoch, fact in view.facts.items() if epoch in kept}
    return said


def play(seed: int) -> str | None:
    """The story of a seed; return what is wrong."""
    try:
        LogStory(seed).run()
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}"
    return None


def find_in_log(name: str, most: int) -> str | None:
    """What the first run that misses a removed guard says; None: no run of these seeds misses it."""
    from tests.epochs.epoch_mutants import mutated

    with mutated(name):
        return next((problem for seed in range(most) if (problem := play(seed)) is not None), None)
