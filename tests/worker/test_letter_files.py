"""The letters of a spout task on the disk: their space is bounded, and what cannot be written makes the spout wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall.dead_letters.folder import LetterFolder, LettersBusy, folder_name
from squall.dead_letters.letter import DeadLetter
from tests.worker.lone_spout import lone_spout
from topology_api import Failure, Fields, Spout
from worker.process import letter_files
from worker.process.letter_files import LetterFiles, Letters
from worker.tracking.dead_letters import GivenUp

#: The space of a small file.
BLOCK = 4096


def given_up(id: str, text: str = "a", **changes: Any) -> GivenUp:
    values = {
        "topology": "words", "topology_id": "words-1", "component": "lines", "task": 1, "stream": "default",
        "message_id": "7", "fields": ("line",), "values": (text,), "failure": Failure("failed", "store", 4, "poison", 3),
        "attempts": 3, "emitted_at": 1.0, "given_up_at": 2.0,
    }  # fmt: skip
    return GivenUp(DeadLetter(id=id, **{**values, **changes}), (text,))


def keeper(path: Path, most: int = 100 * BLOCK, keep_secs: float | None = 100.0) -> LetterFiles:
    def same(moment: float) -> float:
        return moment

    return LetterFiles(LetterFolder(path), 1, most, keep_secs, same, lambda: 1000.0)


def ids(folder: LetterFolder) -> list[str]:
    return [each.letter.id for file in folder.files() for each in folder.read(file.name)[0]]


class Lines(Spout):
    outputs = Fields("line")

    def next_tuple(self) -> None:
        pass


def test_letters_given_up_together_are_one_file_with_their_expiry(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    assert files.keep([given_up("00aa"), given_up("00ab")]) == 2
    (file,) = files.folder.files()
    assert [each.letter.expires_at for each in files.folder.read(file.name)[0]] == [1100.0, 1100.0]
    assert keeper(tmp_path, keep_secs=None).keep([given_up("00ac")]) == 1
    assert files.folder.read(files.folder.files()[-1].name)[0] is not None


def test_letters_are_known_also_while_they_are_sent_again(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    assert files.keep([given_up("00aa"), given_up("00ab")]) == 2
    (file,) = files.folder.files()
    (moved,) = files.folder.take_letters(file.name, lambda each: each.letter.id == "00aa")
    files.folder.add_resend(2, moved)
    assert files.known(["00aa", "00ab", "00ac"]) == {"00aa", "00ab"}


def test_acked_letters_make_room_and_others_do_not(tmp_path: Path) -> None:
    files = keeper(tmp_path, most=2 * BLOCK)
    assert files.keep([given_up("00aa")]) == files.keep([given_up("00ab")]) == 1
    assert files.keep([given_up("00ac")]) == 0
    assert files.why_not is not None and files.why_not.idle == "no room for dead letters"
    assert "topology.dead.letters.mb" in files.why_not.text and "squall dead-letters" in files.why_not.text
    files.bolt_done("00ab", acked=True)
    assert files.keep([given_up("00ac")]) == 1
    assert files.why_not is None and sorted(ids(files.folder)) == ["00aa", "00ac"]


def test_as_many_are_kept_as_fit(tmp_path: Path) -> None:
    files = keeper(tmp_path, most=2 * BLOCK)
    many = [given_up(f"00{number:02x}", "x" * 1000) for number in range(20)]
    kept = files.keep(many)
    assert 0 < kept < 20 and len(ids(files.folder)) == kept
    assert files.folder.used() <= 2 * BLOCK


def test_a_file_is_marked_when_the_bolts_have_answered_for_each_letter(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    files.keep([given_up("00aa"), given_up("00ab")])
    files.bolt_done("00aa", acked=True)
    files.bolt_done("0099", acked=True)  # of an earlier process
    assert [file.acked for file in files.folder.files()] == [False]
    files.bolt_done("00ab", acked=False)
    acked = {
        each.letter.id: each.letter.acked
        for file in files.folder.files()
        for each in files.folder.read(file.name)[0]
    }
    assert acked == {"00aa": True, "00ab": False}
    assert not files.files and not files.waiting and not files.acked


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")]
)
def test_what_cannot_be_written_is_named_and_kept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    files = keeper(tmp_path)

    def refuse(*_: object) -> str:
        raise error

    with monkeypatch.context() as away:
        away.setattr(files.folder, "add", refuse)
        assert files.keep([given_up("00aa")]) == 0
    assert files.why_not is not None and str(error.strerror) in files.why_not.text
    assert files.keep([given_up("00aa")]) == 1 and files.why_not is None


def test_a_letter_that_failed_again_returns_to_the_others(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    files.keep([given_up("00aa")])
    (file,) = files.folder.files()
    (kept,) = files.folder.read(file.name)[0]
    files.folder.add_resend(1, kept)
    files.folder.remove(file.name)
    files.keep([given_up("00aa", resent=1, attempts=6)])
    assert ids(files.folder) == ["00aa"] and files.folder.resends() == []
    files.folder.add_resend(1, kept)
    files.withdraw("00aa", "")
    assert len(files.folder.resends()) == 1, "a stopped task sends it again in its next process"
    files.withdraw("00aa", "the source has ended")
    notes = [each.letter.note for file in files.folder.files() for each in files.folder.read(file.name)[0]]
    assert "the source has ended" in notes and files.folder.resends() == []


def test_errors_of_the_disk_after_a_letter_was_sent_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = keeper(tmp_path)
    files.keep([given_up("00aa")])

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    steps: list[tuple[str, Callable[[], None]]] = [
        ("remove_resend", lambda: files.resent("00aa")),
        ("mark_acked", lambda: files.bolt_done("00aa", acked=True)),
    ]
    for name, step in steps:
        monkeypatch.setattr(files.folder, name, refuse)
        step()
        assert "Input/output error" in caplog.text
        caplog.clear()


def test_a_file_has_few_bytes_or_one_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_files, "MOST_A_FILE", 4000)
    files = keeper(tmp_path)
    sizes = [10, 10, 1000, 9000, 10, 10]
    assert files.keep([given_up(f"00a{number}", "x" * size) for number, size in enumerate(sizes)]) == len(
        sizes
    )
    parts = [[each.letter.id for each in files.folder.read(file.name)[0]] for file in files.folder.files()]
    assert sorted(parts) == [["00a0", "00a1", "00a2"], ["00a3"], ["00a4", "00a5"]]


def test_a_letter_that_no_room_holds_is_kept_as_text_and_costs_no_other_its_place(tmp_path: Path) -> None:
    files = keeper(tmp_path, most=2 * BLOCK)
    files.keep([given_up("00aa")])
    files.bolt_done("00aa", acked=True)
    assert files.keep([given_up("00ab", "x" * 20_000)]) == 1
    assert files.why_not is None and sorted(ids(files.folder)) == ["00aa", "00ab"]
    all_letters = [each for file in files.folder.files() for each in files.folder.read(file.name)[0]]
    (large,) = [each for each in all_letters if each.letter.id == "00ab"]
    assert (large.body, large.letter.codec, large.letter.as_text) == (b"", "", (0,))
    assert "topology.dead.letters.mb" in large.letter.why_no_values and len(large.letter.values[0]) <= 2000


def test_a_letter_that_failed_again_has_its_room_already(tmp_path: Path) -> None:
    files = keeper(tmp_path, most=2 * BLOCK)
    for id in ("00aa", "00ab"):
        files.keep([given_up(id)])
    for file in files.folder.files():
        (kept,) = files.folder.read(file.name)[0]
        files.folder.add_resend(1, kept)
        files.folder.remove(file.name)
    assert files.keep([given_up("00ac")]) == 0, "the folder is full"
    files.most = BLOCK // 2  # a new version has a smaller limit
    assert files.keep([given_up(id, "x" * 3000, resent=1) for id in ("00aa", "00ab")]) == 2
    assert sorted(ids(files.folder)) == ["00aa", "00ab"] and files.folder.resends() == []
    assert all(each.body for file in files.folder.files() for each in files.folder.read(file.name)[0])


def test_a_task_that_comes_to_a_running_worker_gets_the_letters_that_wait_for_it(tmp_path: Path) -> None:
    files = keeper(tmp_path / folder_name("words"))
    files.keep([given_up("00aa")])
    (kept,) = files.folder.read(files.folder.files()[0].name)[0]
    files.folder.add_resend(7, kept)
    conf = {"topology.dead.letters.mb": 1, "topology.dead.letters.days": 1}
    plan = SimpleNamespace(topology=SimpleNamespace(name="words"), conf=conf)
    worker: Any = SimpleNamespace(plan=plan, tasks={})
    letters = Letters(tmp_path, worker, lambda moment: moment, lambda: None)
    letters.find_resends()
    for _ in range(2):  # it leaves, and comes back
        task = worker.tasks[7] = lone_spout(Lines(), 7, lambda: 0.0)
        letters.find_resends()
        letters.find_resends()
        assert [letter.id for letter, _ in task.letters.to_resend] == ["00aa"]
        del worker.tasks[7]
        letters.find_resends()
    files.folder.remove_resend(7, "00aa")
    (tmp_path / "words" / "resend").rmdir()
    letters.find_resends()
    assert not letters.tasks and not letters.handed, "no closed task is kept in memory"


def test_a_letter_that_is_sent_again_while_it_returns_is_not_lost(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    assert files.keep([given_up("00aa")]) == 1
    (kept,) = files.folder.read(files.folder.files()[0].name)[0]
    files.folder.remove(files.folder.files()[0].name)
    files.folder.add_resend(1, kept)

    class Watched(LetterFolder):
        """An operator wants to send each letter again as soon as it is in a file."""

        def add(self, *letters: Any) -> str:
            name = super().add(*letters)
            with pytest.raises(LettersBusy), LetterFolder(self.path).locked():
                raise AssertionError("its copy among those that are sent again is still to be removed")
            return name

    files.folder = Watched(tmp_path)
    assert files.keep([given_up("00aa", resent=1)]) == 1
    files.folder.add_resend(1, kept)
    files.withdraw("00aa", "its stream is gone")
    assert files.folder.resends() == [] and ids(files.folder) == ["00aa", "00aa"]


def test_a_damaged_file_is_neither_marked_nor_changed(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    assert files.keep([given_up("00aa"), given_up("00ab")]) == 2
    (file,) = files.folder.files()
    damaged = (tmp_path / file.name).read_bytes()[:-3]
    (tmp_path / file.name).write_bytes(damaged)
    for id in ("00aa", "00ab"):
        files.bolt_done(id, acked=True)
    assert [each.name for each in files.folder.files()] == [file.name], (
        "it does not go first when the folder is full"
    )
    with files.folder.locked():
        (taken,) = files.folder.take_letters(file.name, lambda each: True)
    assert taken.letter.id == "00aa" and files.folder.files() == []
    assert [each.read_bytes() for each in tmp_path.glob("*.damaged")] == [damaged], "the rest is kept"
