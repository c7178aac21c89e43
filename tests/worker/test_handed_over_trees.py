"""The pending trees of a version that is rolled back: their values are kept for the version that returns, before `fail`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall.clock import ManualClock
from squall.dead_letters.folder import LetterFolder
from squall.dead_letters.letter import DeadLetter
from tests.worker.lone_spout import lone_spout
from tests.worker.test_letter_files import BLOCK
from topology_api import Failure, Fields, Replay, Spout
from worker.process.letter_files import LetterFiles, row_of
from worker.tasks.spout import SpoutTask

HEIR = "words-1-0"
FAILED = Failure("failed", "store", 2, "NameError: prin", 1)


class Queue(Spout):
    """Emits each value once, and notes how many letters there were at each `fail`."""

    outputs = Fields("number")
    replay = Replay(max_attempts=1, first_delay=5.0)

    def open(self, context: object) -> None:
        self.number = 0
        self.calls: list[tuple[Any, str, int]] = []
        self.letters: Callable[[], int] = lambda: 0

    def next_tuple(self) -> None:
        self.number += 1
        self.emit((self.number,), message_id=self.number)

    def fail(self, message_id: object, failure: Failure) -> None:
        self.calls.append((message_id, failure.reason, self.letters()))


class There:
    """A spout task with four open trees, on trial, and the files of its letters."""

    def __init__(self, path: Path, spout: Spout, most: int = 100 * BLOCK) -> None:
        self.clock = ManualClock()
        self.folder = LetterFolder(path)
        self.task = self.another(spout, most)
        self.task.outages.on_trial = True
        self.task.run()
        self.calls: list[tuple[Any, str, int]] = self.task.instance.calls
        self.task.instance.letters = lambda: len(self.letters())

    def another(self, spout: Spout, most: int = 100 * BLOCK) -> SpoutTask:
        task = lone_spout(
            spout, 1, self.clock.now, topology_max_spout_pending=4, topology_on_outage="give-up"
        )
        task.letters.random.seed()  # as in another process
        task.letters.keeper = LetterFiles(self.folder, 1, most, None, float, lambda: 1000.0)
        return task

    def letters(self) -> list[DeadLetter]:
        return [each.letter for file in self.folder.files() for each in self.folder.read(file.name)[0]]

    def roll_back(self) -> None:
        self.task.letters.heir = HEIR
        self.task.close()


def test_pending_trees_are_kept_for_the_version_that_returns_before_fail_says_so(tmp_path: Path) -> None:
    there = There(tmp_path, Queue())
    there.task.tracker.fail(next(iter(there.task.tracker.open_roots())), FAILED)
    there.task.run()
    assert len(there.task.replays) == 1, "one waits for its replay"
    there.roll_back()
    numbers = {each.values[0] for each in there.letters()}
    assert numbers == {each for each, _, _ in there.calls} and {1, 2, 3, 4} <= numbers
    assert {call[1:] for call in there.calls} == {("handed over", len(numbers))}
    assert {(each.heir, each.failure.reason) for each in there.letters()} == {(HEIR, "handed over")}
    assert there.task.reports == [] and there.task.first_failure is None and not there.task.exhausted


def test_a_spout_whose_values_squall_does_not_keep_fails_them_as_stopped(tmp_path: Path) -> None:
    spout: Spout = Queue()
    spout.replay = None
    there = There(tmp_path, spout)
    there.roll_back()
    assert [call[1:] for call in there.calls] == [("stopped", 0)] * 4 and there.letters() == []


def test_a_version_that_is_no_more_on_trial_hands_nothing_over(tmp_path: Path) -> None:
    there = There(tmp_path, Queue())
    there.task.close()
    assert [call[1:] for call in there.calls] == [("stopped", 0)] * 4 and there.letters() == []


def test_what_is_handed_over_needs_no_room_among_the_dead_letters(tmp_path: Path) -> None:
    there = There(tmp_path, Queue(), most=BLOCK // 2)
    there.roll_back()
    assert len(there.letters()) == 4 and {call[1] for call in there.calls} == {"handed over"}


def test_what_cannot_be_written_is_stopped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = There(tmp_path, Queue())

    def refuse(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(there.folder, "add", refuse)
    there.roll_back()
    assert {call[1] for call in there.calls} == {"stopped"} and there.letters() == []
    (report,) = there.task.reports
    assert report.text.startswith("4 pending tuples are not handed over to words-1-0, and fail as stopped: ")
    assert "No space left on device" in report.text


@pytest.mark.parametrize(("heir", "left"), [("", ""), ("words-3-0", "words-3-0")])
def test_a_tuple_that_fails_in_the_version_that_got_it_is_an_ordinary_dead_letter(
    tmp_path: Path, heir: str, left: str
) -> None:
    """... and if that version is rolled back as well, it is handed over again."""
    there = There(tmp_path, Queue())
    there.roll_back()
    (file,) = there.folder.files()
    kept = there.folder.read(file.name)[0][0]
    there.folder.add_resend(1, kept)
    there.folder.remove(file.name)
    task = there.another(Queue())
    task.letters.to_resend.append((kept.letter, lambda: row_of(kept)))
    task.run()
    if heir:
        task.letters.heir = heir
        task.close()
    else:
        task.tracker.fail(next(iter(task.tracker.open_roots())), FAILED)
        task.run()
    (letter,) = [each for each in there.letters() if each.id == kept.letter.id]
    assert (letter.heir, letter.resent) == (left, 1) and there.folder.resends() == []
