"""Counters survive a restart of Nimbus, and nothing is left of topologies that are gone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from nimbus.counters.counting import Counters
from squall.atomic_files import TEMPORARY
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.records import TopologyRecord
from squall.reports.error_reports import ErrorReport
from squall.status import TopologyStatus
from squall.values import Incarnation, TaskRow, TopologyState

TASKS = (TaskRow(1, "lines", 0), TaskRow(2, "count", 0))
COMPONENTS = (("lines", "spout"), ("count", "bolt"))
ERROR = ErrorReport("words", "count", 2, "execute", "ValueError: no", "a.py:3", ("one",), "(1,)", 5.0, 2)


def record(topology_id: str = "words-1-0", state: str = "ACTIVE") -> TopologyRecord:
    return TopologyRecord(topology_id, "words", TopologyState[state], None, {}, {}, TASKS, 1, None, None, 0.0)


def counted(emitted: int, number: int = 0, **gauges: Any) -> WorkerCounters:
    lines = ComponentCounters(emitted=emitted, acked=emitted - 1, gauges=gauges)
    lines.latency.add(0.25)
    return WorkerCounters({"lines": lines, "count": ComponentCounters(executed=emitted)}, (ERROR,), number)


@pytest.fixture
def counters() -> Counters:
    """The counters of two topologies, one of which has lost a worker."""
    counters = Counters()
    counters.count("words-1-0", "w1", Incarnation(1, 0), counted(10))
    counters.count("words-1-0", "w1", Incarnation(1, 1), counted(20, lag=7))
    counters.count("words-1-0", "w2", Incarnation(1, 0), counted(40))
    counters.replaced("words-1-0", "w2", 1)
    counters.count("a b/c-2-0", "w1", Incarnation(2, 0), counted(5))
    return counters


def loaded(directory: Path) -> Counters:
    again = Counters()
    again.load(directory)
    return again


def status(counters: Counters, of: TopologyRecord | None = None, **living: Incarnation) -> TopologyStatus:
    return counters.status(of or record(), COMPONENTS, living, 1.0)


def test_saved_counters_are_loaded(counters: Counters, tmp_path: Path) -> None:
    directory = tmp_path / "state" / "counters"
    counters.save(directory)
    again = loaded(directory)
    for of in (record(), record("a b/c-2-0")):
        for living in ({}, {"w1": Incarnation(1, 1)}, {"w1": Incarnation(2, 0)}):
            assert status(again, of, **living) == status(counters, of, **living)
    assert status(again).components["lines"].emitted == 70
    assert status(again, w1=Incarnation(1, 1)).components["lines"].metrics == {"lag": 7}
    assert [error.times for error in status(again).errors] == [6]  # three times two, of the same error


def test_counting_continues_from_the_saved_counters(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path)
    again = loaded(tmp_path)
    again.count(
        "words-1-0", "w1", Incarnation(1, 0), counted(1000)
    )  # that incarnation has ended, and its counters are included
    again.count("words-1-0", "w2", Incarnation(1, 0), counted(1000))
    again.count("words-1-0", "w1", Incarnation(1, 1), counted(25, number=1))
    assert status(again).components["lines"].emitted == 75


def test_later_reports_override_the_saved_counters(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path)
    again = Counters()
    again.count("words-1-0", "w1", Incarnation(1, 1), counted(33, number=9))
    again.load(tmp_path)
    assert status(again).components["lines"].emitted == 33
    assert status(again, record("a b/c-2-0")).components["lines"].emitted == 5


def test_a_completed_topology_keeps_its_final_counters(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path)
    assert status(loaded(tmp_path), record(state="COMPLETED")).components["lines"].acked == 67


def test_only_changes_are_written(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    counters.save(tmp_path)
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before
    counters.count("words-1-0", "w1", Incarnation(1, 1), counted(21, number=1))
    counters.save(tmp_path)
    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert [name for name in before if after[name] != before[name]] == ["words-1-0.json"]
    assert status(loaded(tmp_path)).components["lines"].emitted == 71


def test_topologies_that_are_gone_leave_no_file(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path)
    counters.close(record(), COMPONENTS)
    counters.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a%20b%2Fc-2-0.json"]
    counters.keep({"words-1-0"}, {"a b/c"})
    counters.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    counters.keep({"words-1-0"})
    counters.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_users_cannot_read_the_files(counters: Counters, tmp_path: Path) -> None:
    counters.save(tmp_path / "new")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert modes == {0o600} and stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"[]", b'{"format": 9}', b'{"format": 1, "base": 7}'])
def test_a_damaged_file_is_ignored_with_a_warning(
    damage: bytes, counters: Counters, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counters.save(tmp_path)
    (tmp_path / "words-1-0.json").write_bytes(damage)
    again = loaded(tmp_path)
    assert status(again).components["lines"].emitted == 0
    assert status(again, record("a b/c-2-0")).components["lines"].emitted == 5
    assert [str(tmp_path / "words-1-0.json") in each.getMessage() for each in caplog.records] == [True]


def test_a_failed_write_is_repeated_the_next_time(
    counters: Counters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        with pytest.raises(OSError, match="No space left"):
            counters.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    counters.save(tmp_path)
    assert status(loaded(tmp_path)) == status(counters)


def test_without_saved_files_nothing_is_loaded(tmp_path: Path) -> None:
    assert status(loaded(tmp_path / "none")).components["lines"].emitted == 0


def test_a_name_that_fills_a_file_name_is_saved(tmp_path: Path) -> None:
    # Percent-quoted, a character takes nine; a name in the file system may have 255.
    topology_id = "語" * 26 + "-1-0"
    counters = Counters()
    counters.count(topology_id, "w1", Incarnation(1, 0), counted(3))
    counters.save(tmp_path)
    assert status(loaded(tmp_path), record(topology_id)) == status(counters, record(topology_id))


def test_a_file_that_cannot_be_written_does_not_keep_others_from_it(tmp_path: Path) -> None:
    counters = Counters()
    for topology_id in ("a-1-0", "語" * 60 + "-2-0", "z-3-0"):
        counters.count(topology_id, "w1", Incarnation(1, 0), counted(3))
    for _ in range(2):  # the next call tries it again
        with pytest.raises(OSError, match="name too long"):
            counters.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1-0.json", "z-3-0.json"]


def test_files_that_a_killed_nimbus_had_begun_are_removed(counters: Counters, tmp_path: Path) -> None:
    (tmp_path / f".1.2{TEMPORARY}").write_text("half of")
    counters.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}
