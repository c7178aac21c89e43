"""A spout whose dead letters cannot be kept waits, says so, and loses nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from squall.clock import ManualClock
from squall.dead_letters.folder import LetterFolder
from tests.worker.lone_spout import lone_spout
from tests.worker.test_letter_files import given_up
from topology_api import Failure, Fields, Replay, Spout
from worker.loop.snapshot import idle_reason
from worker.process.letter_files import LetterFiles
from worker.tasks.spout import SpoutTask
from worker.tracking.dead_letters import GivenUp, MemoryLetters, NotKept

POISON = Failure("failed", "store", 2, "poison", 1)


class Noted(Spout):
    """Notes its calls."""

    outputs = Fields("number")
    replay = Replay(max_attempts=1)

    def open(self, context: object) -> None:
        self.number = 0
        self.calls: list[str] = []

    def next_tuple(self) -> None:
        self.number += 1
        self.calls.append(f"next {self.number}")
        self.emit((self.number,), message_id=self.number)

    def fail(self, message_id: object, failure: Failure) -> None:
        self.calls.append(f"fail {message_id} {failure.reason}")


class Small(MemoryLetters):
    """Has room for a few letters."""

    gathers = True

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def keep(self, given_up: Sequence[GivenUp]) -> int:
        kept = super().keep(given_up[: self.room - len(self.letters)])
        self.why_not = None if kept == len(given_up) else NotKept("no room for dead letters", "drop some")
        return kept


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def task(clock: ManualClock) -> SpoutTask:
    """Has four open trees, which is its limit."""
    made = lone_spout(Noted(), 1, clock.now, topology_max_spout_pending=4, topology_on_outage="give-up")
    made.run()
    assert calls_of(made) == ["next 1", "next 2", "next 3", "next 4"]
    return made


def calls_of(task: SpoutTask) -> list[str]:
    """Return the calls of the user's spout since the last question."""
    calls: list[str] = task.instance.calls
    found = list(calls)
    calls.clear()
    return found


def fail_trees(task: SpoutTask, many: int) -> None:
    for root in list(task.tracker.open_roots())[:many]:
        task.tracker.fail(root, POISON)


def test_without_room_nothing_is_failed_or_emitted_until_there_is_room(
    task: SpoutTask, clock: ManualClock
) -> None:
    keeper = task.letters.keeper = Small(room=1)
    fail_trees(task, 3)
    task.run()
    assert calls_of(task) == ["fail 1 failed"], "two trees less are open, but next_tuple is not called"
    assert (idle_reason(task), task.pending) == ("no room for dead letters", 3)
    assert "the spout waits: drop some" in [report.text for report in task.reports]
    assert not task.wants_run()
    assert task.next_time() == clock.now() + 1.0, "the worker sleeps meanwhile"
    keeper.room = 3
    clock.move_to(clock.now() + 1.0)
    assert task.wants_run()
    task.run()
    assert calls_of(task) == ["fail 2 failed", "fail 3 failed", "next 5", "next 6", "next 7"]
    assert idle_reason(task) != "no room for dead letters" and len(keeper.letters) == 3


def test_the_reason_is_reported_once_while_it_is_the_same(task: SpoutTask, clock: ManualClock) -> None:
    task.letters.keeper = Small(room=0)
    fail_trees(task, 1)
    for _ in range(5):
        task.run()
        clock.move_to(clock.now() + 1.0)
    assert [report.text for report in task.reports] == ["the spout waits: drop some"]
    assert calls_of(task) == []


def test_what_cannot_be_kept_when_the_task_is_stopped_is_stopped(task: SpoutTask) -> None:
    keeper = task.letters.keeper = Small(room=1)
    fail_trees(task, 2)
    task.run()
    task.close()
    assert sorted(calls_of(task)) == ["fail 1 failed", "fail 2 stopped", "fail 3 stopped", "fail 4 stopped"]
    assert len(keeper.letters) == 1 and task.pending == 0


def test_all_letters_of_a_round_are_one_file_before_the_first_fail(task: SpoutTask, tmp_path: Path) -> None:
    folder = LetterFolder(tmp_path)
    task.letters.keeper = LetterFiles(folder, 1, 1_000_000, None, float, lambda: 1000.0)
    seen: list[int] = []

    def look(*_: object) -> None:
        seen.append(sum(len(folder.read(each.name)[0]) for each in folder.files()))

    task.instance.fail = look
    fail_trees(task, 3)
    task.run()
    assert seen == [3, 3, 3] and len(folder.files()) == 1


def test_a_letter_is_synced_with_its_name_and_all_its_folders_before_fail_is_called(
    task: SpoutTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    folders = {"letters": state / "letters", "topology": state / "letters" / "words", "state": state}
    task.letters.keeper = LetterFiles(
        LetterFolder(folders["topology"]), 1, 1_000_000, None, float, lambda: 1000.0
    )
    calls: list[str] = task.instance.calls
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        this = os.fstat(descriptor)
        if stat.S_ISREG(this.st_mode):
            calls.append(
                f"sync of {this.st_size > 100 and 'the whole file'}, mode {stat.S_IMODE(this.st_mode):o}"
            )
            return
        [name] = [
            name for name, path in folders.items() if path.exists() and os.path.samestat(path.stat(), this)
        ]
        calls.append(f"sync of {name}")

    def renamed(old: str, new: str) -> None:
        rename(old, new)
        calls.append(f"name {Path(new).suffix}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    fail_trees(task, 1)
    task.run()
    found = calls_of(task)
    assert found[:2] == ["sync of the whole file, mode 600", "name .letters"]
    assert found[2:5] == ["sync of topology", "sync of letters", "sync of state"]
    assert found[5:] == ["fail 1 failed", "next 5"]


def test_a_letter_that_fails_again_is_kept_though_its_spout_replays_nothing(clock: ManualClock) -> None:
    spout: Spout = Noted()
    spout.replay = None
    task = lone_spout(spout, 1, clock.now, topology_max_spout_pending=1)
    keeper = task.letters.keeper = Small(room=2)
    task.run()
    fail_trees(task, 1)
    letter = given_up("00aa", fields=("number",)).letter
    task.letters.to_resend.append((letter, lambda: (7,)))
    task.run()
    assert not keeper.letters and calls_of(task) == ["next 1", "fail 1 failed"]
    fail_trees(task, 1)
    task.run()
    assert [(each.id, each.resent) for each in keeper.letters.values()] == [("00aa", 1)]
