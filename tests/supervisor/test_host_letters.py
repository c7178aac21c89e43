"""A supervisor shows, moves, removes and counts the dead letters of its host; it decodes no values, and survives what user code
may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.cluster.records import HeldLetters
from squall.dead_letters.contents import KeptLetter
from squall.dead_letters.folder import folder_name
from supervisor import host_letters
from supervisor.host_letters import HostLetters, LetterCount
from tests.letter_samples import kept_letter
from topology_api.errors import SquallError


class Trap:
    """A value that must not be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.abort, ()


@pytest.fixture
def letters(tmp_path: Path) -> HostLetters:
    return HostLetters(tmp_path / "letters")


def filled(letters: HostLetters, *batches: list[KeptLetter], name: str = "orders") -> None:
    for number, batch in enumerate(batches):
        letters.folder(name).add(batch, 100.0 + number)


def ids_of(letters: HostLetters, name: str = "orders") -> list[int]:
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        page = letters.page(name, after)
        assert page.damaged == []
        found += [int(each.id, 16) for each in page.letters]
        after = page.next
    return found


def test_pages_have_every_letter_once_in_order(letters: HostLetters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_letters, "PAGE_LETTERS", 3)
    batches = [[kept_letter(number + 10 * batch) for number in range(4)] for batch in range(1, 4)]
    filled(letters, *batches)
    letters.hand_over("orders", ["00000000000b"], 7)
    in_order = [int(each.letter.id, 16) for batch in batches for each in batch if each.letter.id[-1] != "b"]
    assert ids_of(letters) == [*in_order, 11]
    assert letters.page("orders", ids=["00000000000b"]).letters[0].sent_to == 7
    assert letters.page("other").letters == []


def test_a_page_ends_when_it_is_large(letters: HostLetters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_letters, "PAGE_BYTES", 2000)
    filled(letters, [kept_letter(number, ("x" * 1500,)) for number in range(1, 6)])
    first = letters.page("orders")
    assert len(first.letters) == 2 and first.next is not None
    assert ids_of(letters) == [1, 2, 3, 4, 5]
    assert all(each.values is None for each in letters.page("orders", values=False).letters)


def test_pickled_values_are_shown_as_texts_and_never_loaded(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1, (Trap(), 2))])
    found = letters.page("orders").letters[0]
    assert (
        found.codec == "pickle" and found.as_text == [0] and found.values is not None and found.values[1] == 2
    )
    assert letters.hand_over("orders", [found.id], 3) == [found.id]
    with pytest.raises(SquallError, match="are pickled: they leave no host"):
        letters.kept("orders", found.id)


def test_letters_are_dropped_wherever_they_are(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1), kept_letter(2), kept_letter(3)])
    letters.hand_over("orders", ["000000000002"], 5)
    assert letters.drop("orders", ["000000000001", "000000000002", "00000000ffff"]) == [
        "000000000001",
        "000000000002",
    ]
    assert ids_of(letters) == [3]
    assert letters.drop("nothing", ["000000000001"]) == [] and not letters.folder("nothing").path.exists()


def test_a_letter_of_a_task_that_is_gone_is_handed_to_another(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1)])
    assert letters.hand_over("orders", ["000000000001"], 5) == ["000000000001"]
    assert letters.hand_over("orders", ["000000000001"], 9) == ["000000000001"]
    assert [(task, id) for task, id, _ in letters.folder("orders").resends()] == [(9, "000000000001")]
    assert ids_of(letters) == [1]


def test_a_letter_moves_to_another_host_with_its_values(letters: HostLetters, tmp_path: Path) -> None:
    filled(letters, [kept_letter(1)])
    other = HostLetters(tmp_path / "other")
    data = letters.kept("orders", "000000000001")
    assert other.accept("orders", data, 4) == "000000000001"
    there = other.folder("orders").read_resend(4, "000000000001")
    assert there is not None and there.body == kept_letter(1).body
    with pytest.raises(SquallError, match="may not be moved"):
        other.accept("words", data, 4)
    with pytest.raises(SquallError, match="not one dead letter"):
        other.accept("orders", data[:-3], 4)


def test_old_letters_expire_and_the_others_are_counted(letters: HostLetters) -> None:
    long_name = "ü" * 200
    filled(letters, [kept_letter(1, expires_at=500.0), kept_letter(2, expires_at=900.0)])
    filled(letters, [kept_letter(3, expires_at=700.0, topology=long_name)], name=long_name)
    count = LetterCount(letters, "s1", "host")
    held = count.count(400.0)
    assert held.topologies == {"orders": 2, long_name: 1} and held.until == 900.0
    assert count.count(400.0) == held
    held = count.count(600.0)
    assert held.topologies == {"orders": 1, long_name: 1} and ids_of(letters) == [2]
    assert count.count(900.0).topologies == {}
    assert not any(letters.root.iterdir())


def test_a_letter_that_is_in_two_files_counts_once(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1), kept_letter(2)])
    filled(letters, [kept_letter(2), kept_letter(3)])
    letters.folder("orders").add_resend(5, kept_letter(1))
    assert LetterCount(letters, "s1", "host").count(400.0).topologies == {"orders": 3}


def test_a_letter_that_waits_for_a_task_that_is_gone_expires_too(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1, expires_at=500.0), kept_letter(2, expires_at=900.0)])
    letters.hand_over("orders", ["000000000001"], 5)
    count = LetterCount(letters, "s1", "host")
    assert count.count(400.0) == HeldLetters("s1", "host", {"orders": 2}, 900.0)
    assert count.count(500.0) == HeldLetters("s1", "host", {"orders": 1}, 900.0)
    assert letters.folder("orders").resends() == []


def test_a_letter_without_an_end_is_kept_and_so_is_the_record_of_it(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1), kept_letter(2, expires_at=500.0)])
    held = LetterCount(letters, "s1", "host").count(1e10)
    assert held.topologies == {"orders": 1} and held.until is None


def test_what_user_code_wrote_is_named_and_hides_no_letter(letters: HostLetters) -> None:
    filled(letters, [kept_letter(1)])
    folder = letters.folder("orders").path
    (folder / "1-00000000.letters").write_bytes(b"nonsense")
    os.mkfifo(folder / "2-00000000.letters")
    os.symlink("/dev/zero", folder / "3-00000000.letters")
    (letters.root / "a file").write_bytes(b"")
    (letters.root / "\udcff").mkdir()
    filled(letters, [kept_letter(2, given_up_at=1e300, expires_at=0.0)])
    page = letters.page("orders")
    assert [each.id for each in page.letters] == ["000000000001"] and len(page.damaged) == 4
    assert LetterCount(letters, "s1", "host").count(1000.0).topologies == {"orders": 1}
    assert letters.drop("orders", ["000000000001"]) == ["000000000001"]


@pytest.mark.parametrize("after", ["x", "../..:1", "99999999999999999999-1:a", "²-1:a"])
def test_a_place_that_is_none_is_refused(letters: HostLetters, after: str) -> None:
    filled(letters, [kept_letter(1)])
    with pytest.raises(SquallError, match="no place"):
        letters.page("orders", after)


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "/etc", "\0"])
def test_no_name_leads_out_of_the_folder(letters: HostLetters, name: str) -> None:
    assert letters.folder(name).path.parent == letters.root
    assert "/" not in folder_name(name) and folder_name(name) not in (".", "..")
    assert letters.page(name).letters == [] and letters.drop(name, ["000000000001"]) == []
