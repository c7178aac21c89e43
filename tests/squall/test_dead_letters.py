"""Dead letters as values, as bytes and as files of a host."""

from __future__ import annotations

import math
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.dead_letters import folder as folders
from squall.dead_letters.contents import KeptLetter, decode, encode, size_of, values_of, with_values
from squall.dead_letters.folder import LetterFolder, LettersBusy, folder_name, on_disk
from squall.dead_letters.letter import MOST_TEXT, DeadLetter, shown_values
from topology_api import Failure, SquallError

FAILURE = Failure("failed", "store", 4, "ValueError: poison", 3)


def letter(id: str = "00ab", *row: Any, **changes: Any) -> KeptLetter:
    values, as_text = shown_values(row)
    made = DeadLetter(
        id=id, topology="words", topology_id="words-1", component="lines", task=1, stream="default", message_id="7",
        fields=tuple(f"f{number}" for number in range(len(row))), values=values, as_text=as_text, failure=FAILURE,
        attempts=3, emitted_at=1.0, given_up_at=2.5,
    )  # fmt: skip
    return with_values(replace(made, **changes), row)


class Own:
    """A value that only a pickle carries."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.number == self.number

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class NotPickled:
    def __reduce__(self) -> Any:
        raise TypeError("a socket cannot be sent")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)


@given(st.lists(PLAIN, min_size=1, max_size=4))
def test_values_come_back_exactly_and_are_shown_as_json_or_text(row: list[Any]) -> None:
    kept = letter("00ab", *row)
    found, damage = decode(encode([kept]))
    assert damage == "" and found == [kept]
    assert repr(values_of(found[0])) == repr(tuple(row))
    for position, value in enumerate(row):
        if position not in kept.letter.as_text:
            assert kept.letter.values[position] == value


def test_values_of_any_class_are_kept_as_a_pickle_and_shown_as_text() -> None:
    kept = letter("00ab", Own(3), "a")
    assert (kept.letter.codec, kept.letter.as_text) == ("pickle", (0,))
    assert kept.letter.values[0].startswith("<Own instance at") and kept.letter.values[1] == "a"
    assert values_of(decode(encode([kept]))[0][0]) == (Own(3), "a")


def test_what_cannot_be_encoded_is_kept_as_text_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = letter("00ab", NotPickled())
    assert kept.letter.codec == "" and "a socket cannot be sent" in kept.letter.why_no_values
    monkeypatch.setattr("squall.dead_letters.contents.MOST_BYTES", 100)
    kept = letter("00ab", "x" * 200)
    assert kept.body == b"" and "the most that are kept are 100" in kept.letter.why_no_values


def test_long_values_nan_and_lone_surrogates_are_shown_as_text() -> None:
    values, as_text = shown_values(["x" * 100_000, math.nan, "\ud800", 2**70, [1, {"a": (1,)}]])
    assert as_text == (0, 1, 2, 3, 4)
    assert len(values[0]) <= MOST_TEXT
    "".join(values).encode()


def test_the_letters_before_a_damage_are_read_and_the_damage_is_named() -> None:
    data = encode([letter("00aa", "a"), letter("00ab", "b")])
    size = size_of(letter("00ab", "b"))
    for cut in range(1, size):
        found, damage = decode(data[:-cut])
        assert [each.letter.id for each in found] == ["00aa"] and damage
    flipped = bytearray(data)
    flipped[-10] ^= 1
    found, damage = decode(bytes(flipped))
    assert [each.letter.id for each in found] == ["00aa"] and "checksum" in damage
    assert decode(b"something else") == ([], "it does not begin like a file of dead letters")


def test_files_are_private_and_read_in_their_order(tmp_path: Path) -> None:
    folder = LetterFolder(tmp_path / "letters" / folder_name("words"))
    second = folder.add([letter("00ab", "b")], 20.0)
    first = folder.add([letter("00aa", "a"), letter("00ac", "c")], 10.0)
    assert [file.name for file in folder.files()] == [first, second]
    assert [each.letter.id for each in folder.read(first)[0]] == ["00aa", "00ac"]
    assert stat.S_IMODE((folder.path / first).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.used() == sum(on_disk(file.size) for file in folder.files()) > 0
    assert folder.read("10-00000000.letters") == ([], "")


def test_what_user_code_puts_there_is_not_followed(tmp_path: Path) -> None:
    folder = LetterFolder(tmp_path / "words")
    folder.add([letter()], 1.0)
    os.mkfifo(folder.path / "5-00000000.letters")
    (folder.path / "6-00000000.letters").symlink_to("/etc/passwd")
    (folder.path / "strange").write_text("x")
    assert len(folder.files()) <= 3
    for name in ("5-00000000.letters", "6-00000000.letters"):
        found, damage = folder.read(name)
        assert found == [] and "cannot be" in damage
    with pytest.raises(SquallError, match="no id"):
        folder.add_resend(1, letter("../../etc"))


def test_letters_are_taken_and_what_is_left_stays(tmp_path: Path) -> None:
    folder = LetterFolder(tmp_path / "words")
    name = folder.add([letter("00aa"), letter("00ab")], 1.0)
    with folder.locked():
        assert [
            each.letter.id for each in folder.take_letters(name, lambda each: each.letter.id == "00aa")
        ] == ["00aa"]
    assert [each.letter.id for each in folder.read(name)[0]] == ["00ab"]
    with folder.locked():
        folder.take_letters(name, lambda each: True)
    assert folder.files() == []
    folder.sweep()
    assert not folder.path.exists()


def test_acked_letters_are_marked_and_go_first(tmp_path: Path) -> None:
    folder = LetterFolder(tmp_path / "words")
    name = folder.add([letter("00aa"), letter("00ab")], 1.0)
    folder.mark_acked(name, {"00aa"})
    acked = {
        each.letter.id: each.letter.acked for file in folder.files() for each in folder.read(file.name)[0]
    }
    assert acked == {"00aa": True, "00ab": False}
    folder.remove_acked(1)
    assert [each.letter.id for file in folder.files() for each in folder.read(file.name)[0]] == ["00ab"]
    folder.mark_acked(name, {"00ab"})
    assert [file.acked for file in folder.files()] == [True]


def test_a_held_lock_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PATIENCE", 0.05)
    folder, go, there = LetterFolder(tmp_path / "words"), threading.Event(), threading.Event()

    def hold() -> None:
        with folder.locked():
            there.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    there.wait()
    with pytest.raises(LettersBusy, match="try again"), folder.locked():
        pass
    go.set()
    thread.join()
    with folder.locked():
        pass


def test_names_of_topologies_become_names_of_folders() -> None:
    names = {folder_name(name) for name in ("a", "a b", "ä" * 200, "ä" * 199 + "b", "x" * 180, "x" * 181)}
    assert len(names) == 6 and all(len(name) <= 255 and "/" not in name for name in names)
