"""A reading task whose store is unavailable, loses answers, or dies with it: nothing is skipped, and little comes again."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from squall.stores.files import FilesRefused, FilesUnavailable
from squall_io.kit.waiting import FIRST_WAIT, LONGEST_WAIT
from squall_io.lines import cutting
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.spouts import reading_spout
from squall_io.spark.spouts.lines import HdfsLines
from squall_io.spark.spouts.positions import ReaderMismatch, agree
from squall_io.spark.spouts.reading_spout import SAVE_SECONDS, ReadingTask
from squall_io.spark.stores import open_files
from topology_api import Context


class FlakyStore:
    """A local store whose calls each ask first whether to fail: before they take effect, or after."""

    def __init__(self, path: str, fails: Callable[[str, str], str]) -> None:
        self._files = open_files(path)
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._files, name)
        if name in ("root", "close"):
            return value

        def call(path: str, *rest: object) -> object:
            fault = self._fails(name, f"{self._files.root}/{path}")
            if fault == "before":
                raise FilesUnavailable(f"cannot {name} {path}: as the test has it")
            if fault == "refused":
                raise FilesRefused(f"cannot {name} {path}: as the test has it")
            result = value(path, *rest)
            if fault == "after":
                raise FilesUnavailable(f"cannot {name} {path}: the answer was lost")
            return result

        return call


class Metrics:
    """A Context's metrics that are not read."""

    def counter(self, name: str) -> Any:
        return self

    def add(self, count: int = 1) -> None: ...

    gauge = histogram = cast(Any, None)


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0


def context(time: Time, index: int = 0, parallelism: int = 1, restart: int = 0) -> Context:
    return Context(
        topology="reader", topology_id="reader-1", component="lines", task=1, index=index, parallelism=parallelism,
        incarnation=(1, restart), conf={}, tasks=lambda component: [], log=logging.getLogger("task"),
        metrics=Metrics(), resources={}, directory=lambda: "", now=lambda: time.now, random=random.Random(0),
        wake=lambda: None,
    )  # fmt: skip


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with 60 lines in three files, whose store may be made to fail."""
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(3):
        lines_here = "".join(f"{number}/{line} {'x' * 100}\n" for line in range(20))
        (folder / f"{number}.txt").write_text(lines_here)
    return folder


def expected(text: Path) -> Counter[str]:
    return Counter(line for path in text.glob("*.txt") for line in path.read_text().splitlines())


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[str, str], str]]:
    """`fails["now"]` is called at each call of every store."""
    now: dict[str, Callable[[str, str], str]] = {"now": lambda call, path: ""}
    monkeypatch.setattr(
        reading_spout,
        "open_steady",
        lambda path, conf, follow_links=False: FlakyStore(path, lambda call, path: now["now"](call, path)),
    )
    return now


Fails = dict[str, Callable[[str, str], str]]


def task_of(text: Path, time: Time, index: int = 0, parallelism: int = 1, restart: int = 0) -> ReadingTask:
    spout = HdfsLines(str(text), split_bytes=1024)
    return ReadingTask(spout._units(), context(time, index, parallelism, restart), None)


def test_all_items_of_a_call_are_settled_before_their_positions_are_stored(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storing may raise any error; which items were settled is not said again."""
    time = Time()
    task = task_of(text, time)
    ids: list[object] = []
    task.start()
    while not task.finished:
        task.next(lambda values, message_id: ids.append(message_id))
    time.now += 10

    def fails_to_save() -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(task, "save", fails_to_save)
        with pytest.raises(MemoryError):
            task.settle_many(ids)
    task.save()
    again: list[object] = []
    after = task_of(text, time, restart=1)
    while not after.finished:
        after.next(lambda values, message_id: again.append(message_id))
    assert len(ids) == 60 and again == []


def test_a_task_whose_store_is_unavailable_at_the_start_waits_and_begins_later(
    text: Path, fails: Fails
) -> None:
    time, waits = Time(), []
    got: list[object] = []
    fails["now"] = lambda call, path: "before"
    task = task_of(text, time)
    with pytest.raises(FilesUnavailable):
        task.start()
    for _ in range(8):
        waits.append(task.next(lambda values, message_id: got.append(values[0])))
    assert waits == [min(FIRST_WAIT * 2**n, LONGEST_WAIT) for n in range(8)] and not got
    fails["now"] = lambda call, path: ""
    while not task.finished:
        task.next(lambda values, message_id: got.append(values[0]))
    assert Counter(got) == expected(text)


def test_a_store_that_fails_in_the_middle_of_a_split_causes_no_line_twice(
    text: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "SLICE", 150)
    time, rounds = Time(), random.Random(3)
    got: list[object] = []
    task = task_of(text, time)
    task.start()
    fails["now"] = lambda call, path: "before" if call == "read" and rounds.random() < 0.5 else ""
    waits = []
    while not task.finished:
        waits.append(task.next(lambda values, message_id: got.append(values[0])))
    assert Counter(got) == expected(text)
    assert any(waits), "the store never failed: the test shows nothing"


def test_while_positions_cannot_be_written_reading_goes_on_and_they_are_written_later(
    text: Path, fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    task = task_of(text, time)
    task.start()
    fails["now"] = lambda call, path: "before" if call == "replace" else ""
    for _ in range(30):
        task.next(lambda values, message_id: ids.append(message_id))
        task.settle(ids[-1])
        time.now += SAVE_SECONDS
    assert len(ids) == 30
    assert sum("cannot store how far it has read" in record.message for record in caplog.records) == 1
    fails["now"] = lambda call, path: ""
    time.now += 60
    task.next(lambda values, message_id: ids.append(message_id))  # and is killed: nothing is closed
    again = task_of(text, time, restart=1)
    again.start()
    assert again.next(lambda values, message_id: ids.append(message_id)) is None
    assert ids[31] == ids[30], "only the current one comes again"


def test_positions_are_written_at_most_once_a_second_and_only_after_changes(text: Path, fails: Fails) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    written: list[float] = []
    task = task_of(text, time)
    task.start()

    def note(call: str, path: str) -> str:
        if call == "replace":
            written.append(time.now)
        return ""

    fails["now"] = note
    for _ in range(40):
        task.next(lambda values, message_id: ids.append(message_id))
        task.settle(ids[-1])
        time.now += 0.25
    for _ in range(20):
        time.now += 5
        task.save()
    assert len(written) in range(8, 12)


@pytest.mark.parametrize("seed", range(60))
def test_kills_lost_answers_and_rebalances_at_any_moment_skip_nothing(
    text: Path, fails: Fails, seed: int
) -> None:
    """Lives of tasks end by a kill at a random call of a store; acked lines are never read again unless their position was not
    yet written, and unacked ones always are.
    """
    rounds, time, acked = random.Random(seed), Time(), Counter[str]()
    zombies: list[ReadingTask] = []
    for life in range(200):
        parallelism = rounds.choice([1, 2, 3])
        calls_left = rounds.randrange(200) if life < 12 else None
        tasks = [task_of(text, time, index, parallelism, restart=life) for index in range(parallelism)]

        def fault(call: str, path: str) -> str:
            nonlocal calls_left
            if calls_left is None:
                return ""
            calls_left -= 1
            if calls_left < 0:
                raise Killed
            return rounds.choice(["", "", "", "before", "after"])

        fails["now"] = fault
        try:
            if all(run_to_the_end(task, time, rounds, acked) for task in tasks):
                break
        except Killed:
            zombies.append(rounds.choice(tasks))
            fails["now"] = lambda call, path: ""
            if rounds.random() < 0.5:
                rounds.choice(zombies).save()  # a task that was only frozen writes its knowledge
    assert set(acked) == set(expected(text))
    fails["now"] = lambda call, path: ""
    assert run_to_the_end(
        task_of(text, time, restart=1000), time, rounds, acked
    )  # in case the last position was not written
    total = acked.total()
    assert run_to_the_end(task_of(text, time, 1, 2, restart=1001), time, rounds, acked)
    assert run_to_the_end(task_of(text, time, 0, 2, restart=1001), time, rounds, acked)
    assert acked.total() == total, "an acked and recorded line came again"


class Killed(BaseException):
    """The process has died."""


def run_to_the_end(task: ReadingTask, time: Time, rounds: random.Random, acked: Counter[str]) -> bool:
    """Run a task; a third of its emissions are acked much later, and never in order."""
    open_ids: list[tuple[tuple[object, int], str]] = []
    while not (task.finished and not open_ids):
        if not task.finished:
            task.next(lambda values, message_id: open_ids.append((message_id, str(values[0]))))
        rounds.shuffle(open_ids)
        while open_ids and (task.finished or rounds.random() < 0.6):
            message_id, line = open_ids.pop()
            acked[line] += 1
            task.settle(message_id)
        time.now += 0.3
    task.close()
    return True


def test_the_last_acks_are_written_though_the_task_is_killed_then(text: Path, fails: Fails) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    task = task_of(text, time)
    task.start()
    while not task.finished:
        task.next(lambda values, message_id: ids.append(message_id))
    for message_id in ids:
        task.settle(message_id)
    again = task_of(text, time, restart=1)
    again.start()
    assert (
        again.next(lambda values, message_id: pytest.fail(f"{values} comes again")) is None and again.finished
    )


@pytest.mark.parametrize("emitted", [10, 60], ids=["the limit of pending trees", "the end of the source"])
def test_while_no_more_emissions_are_allowed_acks_cause_a_write_once_a_second(
    text: Path, fails: Fails, emitted: int
) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    written: list[float] = []
    task = task_of(text, time)
    task.start()
    while len(ids) < emitted or (emitted == 60 and not task.finished):
        task.next(lambda values, message_id: ids.append(message_id))

    def note(call: str, path: str) -> str:
        if call == "replace":
            written.append(time.now)
        return ""

    fails["now"] = note
    for message_id in ids[:9]:
        time.now += SAVE_SECONDS / 2
        task.settle(message_id)
    assert written == [1000 + SAVE_SECONDS * n for n in (1, 2, 3, 4)]
    left: list[tuple[object, int]] = []
    again = task_of(text, time, restart=1)  # the other one was killed: nothing is closed
    again.start()
    while not again.finished:
        again.next(lambda values, message_id: left.append(message_id))
    assert len(left) == 60 - 8, "lines acked before the last write do not come again, all others do"


def test_an_ack_does_not_immediately_retry_a_failed_write(text: Path, fails: Fails) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    tried: list[float] = []
    task = task_of(text, time)
    task.start()
    while not task.finished:
        task.next(lambda values, message_id: ids.append(message_id))

    def note(call: str, path: str) -> str:
        tried.append(time.now - 1000)
        return "before"

    fails["now"] = note
    for message_id in ids[:20]:
        time.now += SAVE_SECONDS
        task.settle(message_id)
    assert tried == [1, 3, 7, 15], "the waits are 2, 4, 8 seconds"


def test_a_position_that_could_not_be_written_is_written_later_without_further_changes(
    text: Path, fails: Fails
) -> None:
    time = Time()
    ids: list[tuple[object, int]] = []
    task = task_of(text, time)
    task.start()
    task.next(lambda values, message_id: ids.append(message_id))
    task.settle(ids[0])
    fails["now"] = lambda call, path: "before" if call == "replace" else ""
    task.save()
    fails["now"] = lambda call, path: ""
    task.save()
    again = task_of(text, time, restart=1)
    again.start()
    again.next(lambda values, message_id: ids.append(message_id))
    assert ids[1] != ids[0]


def test_two_tasks_that_look_at_once_both_take_the_list_of_the_first_to_write(
    text: Path,
) -> None:
    with open_files(f"{text}-positions") as files:

        def seen_too_late() -> dict[str, int]:
            assert agree(files, "reader-1", lambda: {"records": 1})["records"] == 1
            return {"records": 2}

        assert agree(files, "reader-1", seen_too_late)["records"] == 1
        assert agree(files, "reader-2", lambda: {"records": 3})["records"] == 3


def test_where_positions_cannot_be_kept_the_error_has_advice(text: Path, fails: Fails) -> None:
    fails["now"] = lambda call, path: "refused" if call == "put_if_absent" else ""
    with pytest.raises(
        FilesRefused,
        match=r"stores its positions .*_squall/readers/reader-1\.lines: .*another folder as positions",
    ):
        task_of(text, Time()).start()


def test_a_damaged_position_is_named_and_not_ignored(text: Path, fails: Fails) -> None:
    time = Time()
    task = task_of(text, time)
    task.start()
    task.next(lambda values, message_id: task.settle(message_id))
    task.settle((0, 0))
    task.close()
    (record,) = (text / "_squall/readers/reader-1.lines/tasks").iterdir()
    record.write_bytes(record.read_bytes()[:-40])
    with pytest.raises(UnreadableRecord, match=r"tasks/0of1\.reader-1\.1\.0\.json is truncated"):
        task_of(text, time, restart=1).start()


def test_two_readers_are_distinguished_by_their_kind_and_their_input(text: Path, fails: Fails) -> None:
    time = Time()
    task_of(text, time).start()
    units = HdfsLines(f"{text}/0.txt")._units()
    with pytest.raises(ReaderMismatch) as caught:
        ReadingTask(units, context(time), f"{text}/_squall/readers/reader-1.lines").start()
    assert f"theirs: lines of topology reader, which reads {text}\n" in str(caught.value)
    assert f"this:   lines of topology reader, which reads {text}/0.txt\n" in str(caught.value)
