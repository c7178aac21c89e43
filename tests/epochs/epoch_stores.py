"""What is outside of the processes in the simulation of epochs: the log, snapshot files, and what sinks and letters write to.

Calls take time, fail, and lose their answers. A call whose answer is lost may still have its effect later, even after its
process has died. The oracle hears of each effect at the moment when it happens.
Must not know: tasks, coordinators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.epochs.epoch_timeline import Process, Timeline
from tests.epochs.epoch_topologies import Part
from worker.epochs.records import BadLog, LogRecord, decode_record
from worker.epochs.sinks import ShowAnswer, WriteRows
from worker.epochs.trimming import (
    FLOORS,
    LOG,
    TRIMMED,
    ListNumbers,
    LogStep,
    LogSteps,
    MarkTrimmed,
    PutNumbered,
    ReadNumbered,
    ReadRun,
    RemoveNumbers,
)

#: The answer of a step that got none.
LOST = object()


class Broken(AssertionError):
    """A promise is broken."""


@dataclass
class Stage:
    """What a staged sink has prepared."""

    task: str
    epoch: int
    rows: list[Any]
    state: str = "prepared"


@dataclass
class Outside:
    """All that survives processes."""

    line: Timeline
    #: The chance that a call fails or loses its answer, and its longest time.
    fault: float
    slow: float
    #: The chance that a call takes much longer.
    tail: float = 0.0
    #: Folder -> number -> content.
    numbered: dict[str, dict[int, bytes]] = field(default_factory=lambda: {LOG: {}, FLOORS: {}})
    #: The numbers of records that were ever used: who puts a record at one of these again has put nothing.
    used: set[int] = field(default_factory=set)
    #: How many records were put so.
    late: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    #: By handle: a staged sink names its files by task and epoch, as users do.
    stages: dict[str, Stage] = field(default_factory=dict)
    tokens: dict[tuple[str, int], int] = field(default_factory=dict)
    letters: dict[str, Any] = field(default_factory=dict)
    #: (component, index, epoch) -> rows that are visible.
    visible: dict[tuple[str, int, int], list[Any]] = field(default_factory=dict)
    on_record: Callable[[int, LogRecord], None] = lambda number, record: None
    on_visible: Callable[[str, int, int], None] = lambda component, index, epoch: None

    def call(
        self,
        process: Process,
        effect: Callable[[], Any],
        answer: Callable[[Any], None],
        unknown: Any,
        lasting: bool = True,
        factor: float = 1.0,
    ) -> None:
        """A call from a process: its effect, and its answer; `unknown` if that is lost. `lasting`: the effect may come although
        the answer is lost."""
        line, draw = self.line, self.line.draw
        if draw() >= self.fault:
            line.after(self.duration() * factor, None, self.happen, process, effect, answer)
            return
        if lasting and draw() < 0.7:
            line.after(draw() * self.slow * 3, None, effect)
        line.after(draw() * self.slow * 2, process, answer, unknown)

    def duration(self) -> float:
        """How long a call takes: now and then much longer than others."""
        draw = self.line.draw
        return draw() * self.slow * (15 if draw() < self.tail else 1)

    def happen(self, process: Process, effect: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        """The effect of a call, and then its answer."""
        self.line.after(self.line.draw() * self.slow * 0.2, process, answer, effect())

    # The log.

    def carry_out(
        self, process: Process, steps: LogSteps[Any], done: Callable[[Any], None], unknown: Any
    ) -> None:
        """Carry out steps as a process does, each a call; `unknown` if one gets no answer."""

        def go_on(answer: Any) -> None:
            if answer is LOST:
                done(unknown)
                return
            try:
                step = steps.throw(answer) if isinstance(answer, BadLog) else steps.send(answer)
            except StopIteration as stop:
                done(stop.value)
                return
            self.call(process, lambda: self.perform(step), go_on, LOST, is_lasting(step))

        go_on(None)

    def perform(self, step: LogStep) -> Any:
        """The effect of a step; a BadLog is an answer."""
        log = self.numbered[LOG]
        if isinstance(step, PutNumbered):
            return self.put(step.folder, step.number, step.data)
        if isinstance(step, ListNumbers):
            return dict.fromkeys(self.numbered[step.folder], 0.0)
        if isinstance(step, ReadNumbered):
            return self.numbered[step.folder].get(step.number)
        if isinstance(step, ReadRun):
            try:
                return self.read(step.after)
            except BadLog as error:
                return error
        if isinstance(step, RemoveNumbers):
            for number in step.numbers:
                self.numbered[step.folder].pop(number, None)
        else:
            assert isinstance(step, MarkTrimmed)
            log[1] = TRIMMED
        return None

    def put(self, folder: str, number: int, data: bytes) -> bool:
        """Put a file of the log if there is none."""
        there = self.numbered[folder]
        if number in there:
            return False
        there[number] = data
        if folder == LOG and number in self.used:
            self.late += 1
        elif folder == LOG:
            self.used.add(number)
            self.on_record(number, decode_record(number, data))
        return True

    def read(self, after: int) -> list[LogRecord]:
        """The records after a number."""
        found: list[LogRecord] = []
        while (data := self.numbered[LOG].get(after + len(found) + 1)) is not None:
            found.append(decode_record(after + len(found) + 1, data))
        return found

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.files.pop(name, None)

    # Sinks and letters.

    def prepare(self, task: str, epoch: int, rows: list[Any]) -> str:
        """Stage rows; return the handle."""
        handle = f"{task}-{epoch}"
        self.stages[handle] = Stage(task, epoch, rows)
        return handle

    def commit(self, epoch: int, handle: str) -> ShowAnswer:
        """Make a stage visible; again: nothing."""
        stage = self.stages[handle]
        if stage.state == "aborted":
            raise Broken(f"the handle of {stage.task} for epoch {epoch} is committed after it was aborted")
        if stage.state == "prepared":
            stage.state = "visible"
            component, _, index = stage.task.partition("/")
            self.show(component, int(index), epoch, stage.rows)
        return ShowAnswer.DONE

    def abort(self, epoch: int, handle: str) -> None:
        """Drop a stage."""
        stage = self.stages[handle]
        if stage.state == "visible":
            raise Broken(f"the handle of {stage.task} for epoch {epoch} is aborted after it was committed")
        stage.state = "aborted"

    def write(self, part: Part, show: WriteRows) -> ShowAnswer | list[int]:
        """One transaction: compare and set the token, and write the rows. Returns the positions of rows that are refused; where
        few are, at first those for one reason."""
        key, rows = (
            (part.name, show.index),
            {at: row for at, row in enumerate(show.rows) if at not in show.refused},
        )
        if self.tokens.get(key, 0) != show.expected:
            return ShowAnswer.REFUSED
        for reasons in ((1,), (2,)) if part.refused > 4 else ((1, 2),):
            if part.refused and (
                found := [at for at, row in rows.items() if row[2] % part.refused in reasons]
            ):
                return found
        self.tokens[key] = show.epoch
        self.show(*key, show.epoch, list(rows.values()))
        return ShowAnswer.DONE

    def keep_letters(self, letters: list[Any]) -> ShowAnswer:
        """Keep letters by their ids."""
        for letter in letters:
            self.letters[letter["id"] if isinstance(letter, dict) else letter.id] = letter
        return ShowAnswer.DONE

    def show(self, component: str, index: int, epoch: int, rows: list[Any]) -> None:
        """Rows are visible from now on."""
        if (component, index, epoch) in self.visible:
            raise Broken(f"the rows of {component}/{index} of epoch {epoch} are visible twice")
        self.visible[component, index, epoch] = [tuple(row) for row in rows]
        self.on_visible(component, index, epoch)


def is_lasting(step: LogStep) -> bool:
    """Return whether a step has an effect, which may come although its answer is lost."""
    return isinstance(step, PutNumbered | RemoveNumbers | MarkTrimmed)
