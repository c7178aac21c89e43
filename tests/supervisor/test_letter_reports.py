"""A supervisor tells the cluster how many dead letters its host has, by a record that outlives it."""

from __future__ import annotations

from pathlib import Path

from squall.cluster.memory import InMemoryStore
from squall.cluster.records import HeldLetters
from squall.cluster.registry import Registry
from squall.cluster.store import Guard
from supervisor.host_letters import HostLetters, LetterCount
from supervisor.letter_reports import LetterReports
from tests.letter_samples import kept_letter


class CountedWrites(InMemoryStore):
    """A store that counts the writes of records of letters."""

    writes = 0

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        self.writes += path.startswith("/letters/")
        return super().put(path, data, expected, guard)


def test_the_record_is_written_when_the_number_changes_and_goes_with_the_last_letter(tmp_path: Path) -> None:
    store = CountedWrites()
    records = Registry(store).letters
    letters = HostLetters(tmp_path / "letters")
    reports = LetterReports(LetterCount(letters, "s1", "host"), Registry(store), "s1")
    reports.round(100.0)
    assert records.get("s1") is None
    letters.folder("orders").add([kept_letter(1, expires_at=500.0), kept_letter(2)], 100.0)
    for _ in range(3):
        reports.round(200.0)
    assert records.get("s1") == HeldLetters("s1", "host", {"orders": 2}, None) and store.writes == 1
    reports.round(600.0)
    assert records.get("s1") == HeldLetters("s1", "host", {"orders": 1}, None) and store.writes == 2
    letters.drop("orders", ["000000000002"])
    reports.round(700.0)
    assert records.names() == []


def test_the_record_of_a_host_that_is_away_stays_until_its_letters_must_have_expired(tmp_path: Path) -> None:
    registry = Registry(InMemoryStore())
    registry.letters.put(HeldLetters("gone", "host-2", {"orders": 3}, 500.0))
    registry.letters.put(HeldLetters("endless", "host-3", {"orders": 3}, None))
    reports = LetterReports(LetterCount(HostLetters(tmp_path / "letters"), "s1", "host"), registry, "s1")
    reports.round(499.0)
    assert registry.letters.names() == ["endless", "gone"]
    reports.round(500.0)
    assert registry.letters.names() == ["endless"]


def test_letters_that_wait_for_a_version_are_counted_until_it_has_got_them_or_cannot(tmp_path: Path) -> None:
    registry = Registry(InMemoryStore())
    letters = HostLetters(tmp_path / "letters")
    reports = LetterReports(LetterCount(letters, "s1", "host"), registry, "s1")
    waiting = [kept_letter(number, heir="orders-1-0") for number in range(1, 4)]
    letters.folder("orders").add([*waiting, kept_letter(4)], 100.0)
    reports.round(200.0)
    assert registry.letters.get("s1") == HeldLetters("s1", "host", {"orders": 4}, None, {"orders-1-0": 3})
    letters.hand_over("orders", ["000000000001"], 7)
    assert letters.disinherit("orders", ["000000000002", "00000000000f"], "no stream") == ["000000000002"]
    reports.round(201.0)
    assert registry.letters.get("s1") == HeldLetters("s1", "host", {"orders": 4}, None, {"orders-1-0": 1})
    (kept,) = letters.page("orders", ids=["000000000002"]).letters
    assert (kept.heir, kept.note) == ("", "no stream")
    assert letters.disinherit("gone", ["000000000002"], "no stream") == []
