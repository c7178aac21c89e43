"""Which segments of the log are emitted, and which are deleted, in memory: every request once in what is committed."""

from __future__ import annotations

from random import Random

import pytest

from squall_io.http.segments import (
    LostRequests,
    Places,
    Segment,
    SegmentReader,
    file_name,
    merged,
    segment_named,
    writer_name,
)
from squall_io.http.settling import SettledByAcks, SettledByCommits
from squall_io.http.stored_requests import StoredRequest, UnreadableSegment, packed, unpacked


def writer(index: int, number: int, directory: str = "0123abcd") -> str:
    return writer_name(index, directory, f"{number:024x}")


OWN, OLD = writer(0, 9), writer(0, 1)


def files(*segments: tuple[str, int]) -> list[tuple[str, int]]:
    return [(file_name(*each), 10) for each in segments]


def drain(reader: SegmentReader, rows: int = 1) -> list[tuple[str, int]]:
    """Emit everything that is ready, and return it."""
    found = []
    while (segment := reader.ready()) is not None:
        for _ in range(rows - segment.row):
            reader.emitted(segment)
        reader.finished(segment)
        found.append(segment[:2])
    return found


def test_the_name_of_a_file_says_whose_segment_it_is() -> None:
    assert segment_named(file_name(OLD, 7)) == Segment(OLD, 7)
    assert segment_named("_squall") is segment_named(f"{OLD}.7.requests") is None


def test_own_segments_are_emitted_as_they_are_stored_and_listings_do_not_repeat_them() -> None:
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.stored(1, 10)
    reader.listed(files((OWN, 1), (OWN, 2)))
    assert drain(reader) == [(OWN, 1)]
    reader.stored(2, 10)
    assert drain(reader) == [(OWN, 2)]


def test_a_task_reads_earlier_runs_and_later_segments_of_runs_that_were_given_up() -> None:
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.listed(files((OLD, 1)))
    assert drain(reader) == [(OLD, 1)]
    reader.listed(files((OLD, 1), (OLD, 2)))
    assert drain(reader) == [(OLD, 2)]


def test_each_writer_is_read_by_one_task_whatever_their_number() -> None:
    writers = [writer(index, 5 + index) for index in range(7)]
    for tasks in (1, 2, 3):
        found = []
        for index in range(tasks):
            reader = SegmentReader(index, tasks, writer(index, 99), strict=True)
            reader.listed(files(*((each, 1) for each in writers)))
            found += drain(reader)
        assert sorted(found) == sorted((each, 1) for each in writers)


def test_a_listing_that_shows_a_later_segment_first_loses_none() -> None:
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.listed(files((OLD, 7)))  # 6 was put while the files were listed
    assert drain(reader) == []
    assert reader.in_doubt
    reader.listed(files((OLD, 6), (OLD, 7)))
    assert drain(reader) == [(OLD, 6), (OLD, 7)]
    reader.listed(files((OLD, 9)))
    assert drain(reader) == []
    reader.listed(files((OLD, 8), (OLD, 9)))
    assert drain(reader) == [(OLD, 8), (OLD, 9)]


@pytest.mark.parametrize("place", [[3, 0], [3, 1]])
def test_a_segment_that_is_gone_is_an_error_with_epochs(place: list[int]) -> None:
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.rewind({OLD: place})
    with pytest.raises(LostRequests, match=r"0000000003\.requests is gone"):
        for _ in range(2):
            reader.listed(files((OLD, 4)))
    assert drain(reader) == []


def test_without_epochs_what_another_process_has_settled_is_passed() -> None:
    reader = SegmentReader(0, 1, OWN, strict=False)
    reader.listed(files((OLD, 1), (OLD, 2)))
    assert drain(reader) == [(OLD, 1), (OLD, 2)]
    for _ in range(2):
        reader.listed(files((OLD, 5)))
    assert drain(reader) == [(OLD, 5)]


def test_segments_in_a_directory_of_another_host_are_not_missed() -> None:
    far = writer(0, 1, "ffffffff")
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.rewind({far: [3, 1]})
    for _ in range(3):
        reader.listed(files((OLD, 1)))
    assert reader.elsewhere == 1
    assert drain(reader) == [(OLD, 1)]
    assert reader.position()[far] == [3, 1]  # for the task that runs there again


def test_a_position_is_in_the_middle_of_a_segment() -> None:
    reader = SegmentReader(0, 1, OWN, strict=True)
    reader.stored(1, 10)
    segment = reader.ready()
    assert segment is not None
    reader.emitted(segment)
    assert reader.position() == {OWN: [1, 1]}
    reader.rewind({OWN: [1, 0]})
    assert reader.ready() == Segment(OWN, 1, 0)
    reader.rewind(None)
    assert reader.ready() == Segment(OWN, 1, 0)


def test_positions_of_all_tasks_become_one() -> None:
    assert merged([{OWN: [1, 2]}, {OLD: [4, 0], OWN: [1, 1]}]) == {OWN: [1, 2], OLD: [4, 0]}


def test_without_epochs_a_segment_goes_when_it_and_all_before_it_are_settled() -> None:
    reader, log = SegmentReader(0, 1, OWN, strict=False), SettledByAcks()
    numbers = {}
    for number in (1, 2):
        reader.stored(number, 10)
        segment = Segment(OWN, number)
        numbers[number] = log.emitted(segment)
        log.finished(segment)
        reader.finished(segment)
    log.settle(numbers[2], Segment(OWN, 2))
    assert log.deletable(reader) == []
    log.settle(numbers[1], Segment(OWN, 1))
    assert log.deletable(reader) == [Segment(OWN, 1), Segment(OWN, 2)]


def test_with_epochs_a_segment_stays_while_a_kept_commit_may_return_to_it() -> None:
    reader, log = SegmentReader(0, 1, OWN, strict=True), SettledByCommits(keep=2)
    log.restart(reader.position())
    numbers = []
    for number in range(1, 9):
        reader.stored(number, 10)
        segment = Segment(OWN, number)
        numbers.append(log.emitted(segment))
        log.finished(segment)
        reader.finished(segment)
        log.asked(reader.position())
    for number in numbers[:5]:  # the commits after segments 1 to 5 are done
        log.settle(number, Segment(OWN, 0))
    assert [each.number for each in log.deletable(reader)] == [1, 2]


def test_segments_that_only_older_commits_need_are_no_backlog() -> None:
    reader, log = SegmentReader(0, 1, OWN, strict=True), SettledByCommits(keep=10)
    log.restart(reader.position())
    for number in (1, 2):
        reader.stored(number, 10)
        segment = Segment(OWN, number)
        log.settle(log.emitted(segment), segment)
        reader.finished(segment)
    assert log.backlog(reader) == 20  # it is not committed yet
    log.asked(reader.position())
    reader.stored(3, 7)
    assert log.deletable(reader) == []
    assert log.backlog(reader) == 7


def test_a_segment_is_read_as_it_was_written_and_garbage_is_one_error() -> None:
    request = StoredRequest(b"{}", {"a": "b"}, "/hooks", "x=1", 5.5)
    assert unpacked(packed([request]), "file") == [request]
    for data in (b"", b"garbage", packed([request])[:-1], b"\x92\x02\x90"):
        with pytest.raises(UnreadableSegment, match="file"):
            unpacked(data, "file")


class World:
    """A log in memory, the tasks that read it, and zombies that still store. What was committed is what counts."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.files: dict[tuple[str, int], int] = {}
        self.written: dict[str, int] = {}
        self.zombies: list[str] = []
        self.commits: list[tuple[list[Places], list[tuple[str, int, int]]]] = [([], [])]
        self.runs = 0
        #: What was there before a listing ended.
        self.old: set[tuple[str, int]] = set()
        self.begin(1)

    def begin(self, tasks: int) -> None:
        """Rewind new tasks to the last commit."""
        positions, self.emitted = self.commits[-1][0], list(self.commits[-1][1])
        self.readers, self.logs = [], []
        for index in range(tasks):
            self.runs += 1
            name = writer(index, self.runs)
            self.written[name] = 0
            reader, log = SegmentReader(index, tasks, name, strict=True), SettledByCommits(keep=1)
            reader.rewind(merged(positions) if positions else None)
            log.restart(reader.position())
            self.readers.append(reader)
            self.logs.append(log)
            self.zombies.append(name)
        self.numbers: list[list[int]] = [[] for _ in self.readers]

    def store(self) -> None:
        name = self.random.choice(self.zombies[-6:])
        self.written[name] += 1
        rows = self.random.randint(1, 3)
        self.files[name, self.written[name]] = rows
        for reader in self.readers:
            if reader._own == name:
                reader.stored(self.written[name], rows)

    def look(self) -> None:
        for reader in self.readers:
            old = self.old | {each[:2] for each in self.emitted}
            young = [key for key in self.files if key not in old]
            hidden: set[tuple[str, int]] = set()
            if young and self.random.random() < 0.3:
                name, number = self.random.choice(young)
                if (name, number + 1) in self.files:
                    hidden = {(name, number)}  # it was put while the files were listed
            self.old.update(self.files)
            reader.listed(files(*(key for key in self.files if key not in hidden)))

    def emit(self) -> None:
        at = self.random.randrange(len(self.readers))
        reader, log = self.readers[at], self.logs[at]
        if (segment := reader.ready()) is None:
            return
        rows = self.files[segment[:2]]
        self.emitted.append((segment.writer, segment.number, segment.row))
        self.numbers[at].append(log.emitted(segment))
        reader.emitted(segment)
        if segment.row + 1 == rows:
            log.finished(segment)
            reader.finished(segment)

    def commit(self) -> None:
        positions = [reader.position() for reader in self.readers]
        for log, position in zip(self.logs, positions, strict=True):
            log.asked(position)
        self.commits.append((positions, list(self.emitted)))
        for log, numbers in zip(self.logs, self.numbers, strict=True):
            for number in numbers:
                log.settle(number, Segment("", 0))
            numbers.clear()
        for reader, log in zip(self.readers, self.logs, strict=True):
            for segment in log.deletable(reader):
                del self.files[segment[:2]]
                reader.deleted(segment)

    def finish(self) -> None:
        for _ in range(3):
            self.look()
            for _ in range(1000):
                self.emit()
        self.commit()


@pytest.mark.parametrize("seed", range(60))
def test_each_stored_request_is_committed_once_whatever_dies(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    every: dict[tuple[str, int], int] = {}
    for _ in range(300):
        step = random.choices(["store", "look", "emit", "commit", "die"], [6, 3, 12, 2, 0.5])[0]
        if step == "die":
            world.begin(random.randint(1, 3))
        else:
            getattr(world, step)()
        every.update(world.files)
    world.finish()
    expected = sorted((*key, row) for key, rows in every.items() for row in range(rows))
    assert sorted(world.emitted) == expected
