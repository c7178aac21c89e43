"""The letters of a spout task on the disk: their space is bounded, and what cannot be written makes the spout wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall.dead_letters.folder import LetterFolder
from squall.dead_letters.letter import DeadLetter
from topology_api import Failure
from worker.process import letter_files
from worker.process.letter_files import LetterFiles
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


def test_letters_given_up_together_are_one_file_with_their_expiry(tmp_path: Path) -> None:
    files = keeper(tmp_path)
    assert files.keep([given_up("00aa"), given_up("00ab")]) == 2
    (file,) = files.folder.files()
    assert [each.letter.expires_at for each in files.folder.read(file.name)[0]] == [1100.0, 1100.0]
    assert keeper(tmp_path, keep_secs=None).keep([given_up("00ac")]) == 1
    assert files.folder.read(files.folder.files()[-1].name)[0] is not None


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
