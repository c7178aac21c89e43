"""How the log of epochs is read, written and trimmed, as steps that the caller carries out one by one.

Without trimming, each commit would leave a record for ever, and each start would read all of them. So the leader now and then
puts a *floor*: what the first n records say together (`LogView.floor_here`), in a file named n. Then it removes these records,
and the floors below. A start reads the newest floor, and the records after it.

Why two coordinators never both commit
--------------------------------------

A number that was taken looks free once its record is removed: to a writer that has not read on, since it was frozen, or slow.
So a put counts only after a second look, and what was read counts only after one:

1. A floor n is put before any of the records up to n is removed, and a floor is removed only after a higher one was put. So
   from the first removal of a record of number m on there is, at each moment, a floor of m or higher.
2. The folder of floors has a handful of files, and stores list such a folder as it is at one moment. So who lists it after m
   was removed sees a floor of m or higher.
3. A writer looks at the floors *after* its put of number m was stored. If m was free because its record had been removed,
   there is a floor of m or higher: the put is answered as taken, and its file is removed again, unread. If no
   floor is so high, m was free because it had never been used: the record stands. (A floor that was put between the put and
   the look may cover a record that did stand. Only who leads trims, so its author led after this record; the writer reads
   on, and finds that it leads no longer.)
4. A reader looks at the floors before and after it reads. If no floor is higher than where it began to read, nothing that it
   has read can be missing, or be a file of a writer as in 3. Otherwise it begins again, with the higher floor.
5. What a floor says is a fold of records that were read by 4 or written by 3: it is right, by whom and how late it is put:
   one that a thawed coordinator puts below the newest is ignored, and is removed with the next one.

A put whose answer is lost may arrive after all this: as a file below the floor. The next trimming removes it.
What remains of the first record is a mark that is no record: an older release of Squall, which knows no floors, refuses the log
and does not begin from nothing.
Must not know: stores (the caller makes the calls), what records lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from worker.epochs.log import PutAnswer
from worker.epochs.records import BadLog, CommitFacts, FloorRecord, LogRecord, decode_floor, encode_record

#: The folders of records and of floors: in each, files are named by numbers.
LOG: Final = "log"
FLOORS: Final = "floors"
#: What is left of the first record.
TRIMMED: Final = b"trimmed: see the folder floors"
#: How many records are removed at a time.
MOST_REMOVED: Final = 1_000

_Found = TypeVar("_Found")


class PutNumbered(msgspec.Struct, frozen=True):
    """Put a file of a folder if there is none of its number; the answer is whether there was none."""

    folder: str
    number: int
    data: bytes


class ListNumbers(msgspec.Struct, frozen=True):
    """List a folder. The answer is: number -> when the file was written, in seconds since 1970."""

    folder: str


class ReadNumbered(msgspec.Struct, frozen=True):
    """Read a file of a folder. The answer is its content; None: there is none."""

    folder: str
    number: int


class ReadRun(msgspec.Struct, frozen=True):
    """Read the records after a number, up to the first that is not there. The answer is a list; None: records went meanwhile.
    Raises BadLog."""

    after: int
    #: Whether there may be many.
    many: bool


class RemoveNumbers(msgspec.Struct, frozen=True):
    """Remove files of a folder, as far as they are there."""

    folder: str
    numbers: tuple[int, ...]


class MarkTrimmed(msgspec.Struct, frozen=True):
    """Replace the first record by a mark."""


LogStep = PutNumbered | ListNumbers | ReadNumbered | ReadRun | RemoveNumbers | MarkTrimmed
#: Yields steps, and is sent their answers; an error of a step is thrown in, and ends it.
LogSteps = Generator[LogStep, Any, _Found]


def put_record(number: int, record: LogRecord) -> LogSteps[PutAnswer]:
    """Put a record, if its number was never used."""
    if not (yield PutNumbered(LOG, number, encode_record(record))):
        return PutAnswer.TAKEN
    if newest((yield ListNumbers(FLOORS))) >= number:
        yield RemoveNumbers(LOG, (number,))
        return PutAnswer.TAKEN
    return PutAnswer.STORED


def read_log(after: int) -> LogSteps[list[LogRecord]]:
    """Return the records after a number. If the next one was trimmed, the first of the list is a floor. Raises BadLog."""
    while True:
        floor = newest((yield ListNumbers(FLOORS)))
        found: list[LogRecord] = []
        if floor > after:
            if (data := (yield ReadNumbered(FLOORS, floor))) is None:
                continue  # there is a higher one
            found.append(decode_floor(floor, data))
        begin = max(floor, after)
        try:
            records = yield ReadRun(begin, many=after == 0 or floor > after)
        except BadLog:
            if not is_outrun(begin, (yield ListNumbers(FLOORS))):
                raise
            continue
        if not is_outrun(begin, (yield ListNumbers(FLOORS))) and records is not None:
            return [*found, *records]


def trim_log(floor: FloorRecord) -> LogSteps[None]:
    """Put a floor, and remove the records that it stands for: of a log that an earlier release has made long, some each time,
    since commits wait for it. May be done again, and by several at a time."""
    records = yield ListNumbers(LOG)
    number = floor.number
    last = newest((yield ListNumbers(FLOORS)))
    before = (yield ReadNumbered(FLOORS, last)) if last else None
    facts = decode_floor(last, before).facts if before is not None else {}
    yield PutNumbered(FLOORS, number, encode_record(with_times(floor, records, facts)))
    floors = yield ListNumbers(FLOORS)
    yield RemoveNumbers(FLOORS, tuple(each for each in sorted(floors) if each < number))
    yield MarkTrimmed()
    yield RemoveNumbers(LOG, tuple(each for each in sorted(records) if 1 < each <= number)[:MOST_REMOVED])


def newest(floors: Iterable[int]) -> int:
    """Return the number of the newest floor; 0: there is none."""
    return max(floors, default=0)


def is_outrun(begin: int, floors: Iterable[int]) -> bool:
    """Return whether records after a number have been removed."""
    return newest(floors) > begin


def with_times(
    floor: FloorRecord, written: Mapping[int, float], before: Mapping[int, CommitFacts]
) -> FloorRecord:
    """Return a floor that says when its commits were written. `written`: number of a record -> when; `before`: what the floor
    before says of the commits whose records are gone."""

    def time_of(epoch: int, fact: CommitFacts) -> float:
        if fact.at is not None:
            return fact.at
        if fact.number in written and fact.number > 1:
            return written[fact.number]
        return before[epoch].at or 0.0 if epoch in before else 0.0

    return replace(
        floor, facts={epoch: replace(fact, at=time_of(epoch, fact)) for epoch, fact in floor.facts.items()}
    )


def carry_out(steps: LogSteps[_Found], perform: Callable[[LogStep], Any]) -> _Found:
    """Make the calls of some steps, one after the other, and return what they come to. Raises what a call raises."""
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        found: _Found = stop.value
        return found
