"""Rows that cannot be kept, or that the system of a sink refuses for good: each costs its own tuple, and nothing else.

All other rows are there once, and each refused one is one dead letter, whatever is killed between the steps.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import run_bolt
from squall.dead_letters.letter import DeadLetter
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Rows,
    Words,
    eventually,
    expected_rows,
    rows_at,
    words_to_rows,
)
from topology_api import Bolt, Fields, RowsRefused, TopologyBuilder, Tuple


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}/state", "topology.epoch.secs": 0.5, **more}


def is_bad(times: int) -> bool:
    return times % 5 in (1, 2)


class Picky(Rows):
    """Refuses two of five rows for good, those for one reason first."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        for reason in (1, 2):
            if found := [at for at, row in enumerate(rows) if row[1] % 5 == reason]:
                raise RowsRefused({at: f"no row with {rows[at][1]}" for at in found})
        return super().write(epoch, rows, expected, token)


class DiesThrice(Picky):
    """Ends its process instead of saying for the first time which rows it refuses."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        try:
            return super().write(epoch, rows, expected, token)
        except RowsRefused:
            for time in range(3):
                with contextlib.suppress(FileExistsError):
                    Path(self.path).with_name(f"died-{time}").touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
            raise


def check(path: Path, letters: Iterable[DeadLetter], numbers: int) -> None:
    """Each row is there, or is one letter."""
    every = expected_rows(list(range(numbers)))
    assert rows_at(path) == [row for row in every if not is_bad(row[1])]
    found = Counter((letter.values[0], letter.values[1]) for letter in letters)
    assert found == Counter(row for row in every if is_bad(row[1]))


def test_rows_that_are_refused_for_good_are_letters_and_all_others_are_written(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(300, 100), Count(), Picky(str(tmp_path / "rows.db"))), conf_at(tmp_path)
        )
        cluster.advance(30)
        status = cluster.last_status("words")
        assert status.state == "COMPLETED"
        letters = cluster.dead_letters("words")
    check(tmp_path / "rows.db", letters, 300)
    first = letters[0]
    assert (first.component, first.source, first.stream, first.fields[:2]) == (
        "rows",
        "count",
        "default",
        ("word", "times"),
    )
    assert first.failure.error == f"no row with {first.values[1]}"
    assert not first.why_no_values, "it can be sent again"
    assert any("rows are refused: no row with" in error.text for error in status.errors)
    assert status.components["rows"].failed == len(letters)


@pytest.mark.parametrize("seed", range(3))
def test_refused_rows_are_one_letter_each_however_often_clusters_start_again(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    sink = Picky(str(tmp_path / "rows.db"), failing=0.2)
    letters: dict[str, DeadLetter] = {}
    for last in (False, False, False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Words(400, 100), Count(0.1), sink), conf_at(tmp_path))
            cluster.advance(60 if last else draw.uniform(0.1, 3.0))
            letters |= {letter.id: letter for letter in cluster.dead_letters("words")}
    check(tmp_path / "rows.db", letters.values(), 400)


@pytest.mark.slow
@pytest.mark.soak
def test_refused_rows_are_one_letter_each_when_workers_are_killed_again_and_again(tmp_path: Path) -> None:
    """By themselves, as soon as they have refused rows; and from outside, when rows have been written."""
    path, sink = tmp_path / "rows.db", DiesThrice(str(tmp_path / "rows.db"))
    with LocalCluster(processes=True) as cluster:
        conf = conf_at(tmp_path, **{"topology.epoch.secs": 0.2, "topology.workers": 2})
        cluster.submit(words_to_rows(Finite(600, 500), Count(0.01), sink), conf)
        for _ in range(2):
            eventually(lambda: path.exists() and any(worker.opened for worker in cluster.workers("words")))
            before = len(rows_at(path))
            eventually(lambda before=before: len(rows_at(path)) > before)  # type: ignore[misc]
            worker = next(each for each in cluster.workers("words") if each.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        cluster.wait("words", 120)
        letters = cluster.dead_letters("words")
    assert len(list(tmp_path.glob("died-*"))) == 3
    check(path, letters, 600)


@pytest.mark.parametrize("threaded", [True, False])
def test_rows_are_refused_in_real_time(tmp_path: Path, threaded: bool) -> None:
    sink = Picky(str(tmp_path / "rows.db"))
    sink.threaded = threaded
    with LocalCluster() as cluster:
        cluster.submit(
            words_to_rows(Finite(100), Count(), sink), conf_at(tmp_path, **{"topology.epoch.secs": 0.05})
        )
        cluster.wait("words", 60)
        check(tmp_path / "rows.db", cluster.dead_letters("words"), 100)


def test_a_topology_that_is_killed_waits_for_the_commit_of_refused_rows(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Words(300, 100), Count(), Picky(str(tmp_path / "rows.db"))), conf_at(tmp_path)
        )
        cluster.advance(1.7)
        cluster.kill("words", wait_secs=30)
        cluster.advance(10)
        letters = cluster.dead_letters("words")
    written = rows_at(tmp_path / "rows.db")
    numbers = len(written) + len(letters)
    assert 100 < numbers < 300
    check(tmp_path / "rows.db", letters, numbers)


class Refused(Bolt):
    """Reads dead letters, and writes each to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        word, times = tup["values"][:2]
        with open(self.path, "a") as file:
            file.write(f"{word} {times} {tup['failure'].component} {tup['failure'].error}\n")


def test_readers_of_letters_get_those_of_refused_rows(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", Finite(100, 100))
    builder.set_bolt("count", Count(), 2).fields_grouping("words", "word")
    builder.set_bolt("rows", Picky(str(tmp_path / "rows.db")), 2).shuffle_grouping("count")
    builder.set_bolt("refused", Refused(tmp_path / "refused")).dead_letters(words)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path))
        cluster.advance(30)
        assert cluster.last_status("words").state == "COMPLETED"
    every = [(word, times) for word, times in expected_rows(list(range(100))) if is_bad(times)]
    lines = sorted((tmp_path / "refused").read_text().splitlines())
    assert lines == sorted(f"{word} {times} rows no row with {times}" for word, times in every)


class Locks(Bolt):
    """Adds a lock, which pickle cannot carry, to each tuple."""

    outputs = Fields("word", "times", "lock")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["times"] + 1_000, threading.Lock()))


class WritesNumbers(Picky):
    def row(self, tup: Tuple) -> Any:
        return tup["word"], tup["times"], 0


def test_the_letter_of_a_refused_row_has_texts_of_what_cannot_be_kept(tmp_path: Path) -> None:
    """The sink gets tuples from two bolts, and rows of both in each epoch."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Finite(100, 100))
    builder.set_bolt("count", Count()).fields_grouping("words", "word")
    builder.set_bolt("locks", Locks()).shuffle_grouping("count")
    rows = builder.set_bolt("rows", WritesNumbers(str(tmp_path / "rows.db")))
    rows.shuffle_grouping("count")
    rows.shuffle_grouping("locks")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path))
        cluster.advance(30)
        assert cluster.last_status("words").state == "COMPLETED"
        letters = cluster.dead_letters("words")
    every = [(word, times + more) for word, times in expected_rows(list(range(100))) for more in (0, 1_000)]
    assert rows_at(tmp_path / "rows.db") == sorted(row for row in every if not is_bad(row[1]))
    found = Counter((letter.values[0], letter.values[1]) for letter in letters)
    assert found == Counter(row for row in every if is_bad(row[1]))
    for letter in letters:
        assert letter.source == ("locks" if letter.values[1] >= 1_000 else "count")
        assert bool(letter.why_no_values) == (letter.source == "locks")
        assert letter.failure.error == f"no row with {letter.values[1]}"
        if letter.source == "locks":
            assert letter.as_text == (2,) and letter.values[2].startswith("<unlocked _thread.lock object")


class NamesNoRow(Rows):
    """Refuses rows that it did not get."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        raise RowsRefused({len(rows): "no"})


def test_a_sink_that_refuses_what_it_did_not_get_loses_nothing_and_its_error_says_so(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words_to_rows(Finite(20), Count(), NamesNoRow(str(tmp_path / "rows.db"))), conf_at(tmp_path)
        )
        cluster.advance(5)
        status = cluster.status("words")
        assert status.state == "ACTIVE" and cluster.dead_letters("words") == []
        assert any("name at least one by its position, from 0 to" in error.text for error in status.errors)


class PickyFiles(StagedRows):
    """Never stages two of five rows."""

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        for reason in (1, 2):
            if found := [at for at, row in enumerate(rows) if row[1] % 5 == reason]:
                raise RowsRefused({at: f"no row with {rows[at][1]}" for at in found})
        return super().stage(epoch, rows)


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_can_never_be_staged_are_letters_of_their_epoch(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    letters: dict[str, DeadLetter] = {}
    for last in (False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            sink = PickyFiles(str(tmp_path / "out"))
            cluster.submit(words_to_rows(Words(200, 100), Count(0.1), sink), conf_at(tmp_path))
            cluster.advance(60 if last else draw.uniform(0.1, 8))
            letters |= {letter.id: letter for letter in cluster.dead_letters("words")}
    every = expected_rows(list(range(200)))
    assert shown_rows(tmp_path / "out") == [row for row in every if not is_bad(row[1])]
    found = Counter((letter.values[0], letter.values[1]) for letter in letters.values())
    assert found == Counter(row for row in every if is_bad(row[1]))


@pytest.mark.parametrize("kind", [Picky, PickyFiles])
def test_without_epochs_only_the_tuples_of_refused_rows_fail(tmp_path: Path, kind: type) -> None:
    tuples = [("w", number, 0) for number in range(12)]
    run = run_bolt(kind(str(tmp_path / "out")), tuples, source_fields=["word", "times", "total"])
    written = rows_at(tmp_path / "out") if kind is Picky else shown_rows(tmp_path / "out")
    assert written == sorted(("w", number) for number in range(12) if not is_bad(number))
    failed = {given[1]: failure.error for given, failure in run.failed()}
    assert failed == {number: f"no row with {number}" for number in range(12) if is_bad(number)}


# Rows that cannot be kept.


class ForgetsItself:
    """Can be pickled, and not be read again."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("it has forgotten itself")

    def __init__(self) -> None:
        self.number = 1


class MakesLocks(Rows):
    """Two of five rows cannot be pickled, or cannot be read again."""

    def row(self, tup: Tuple) -> Any:
        times = tup["times"]
        return (tup["word"], times, {1: threading.Lock(), 2: ForgetsItself()}.get(times % 5, 0))


@pytest.mark.parametrize("seed", range(2))
def test_a_row_that_cannot_be_kept_is_a_letter_and_its_neighbours_are_written(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    sink = MakesLocks(str(tmp_path / "rows.db"))
    letters: dict[str, DeadLetter] = {}
    for last in (False, False, True):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words_to_rows(Words(200, 100), Count(0.1), sink), conf_at(tmp_path))
            cluster.advance(40 if last else draw.uniform(0.1, 1.5))
            assert cluster.status("words").state == "ACTIVE"
            letters |= {letter.id: letter for letter in cluster.dead_letters("words")}
    check(tmp_path / "rows.db", letters.values(), 200)
    errors = {letter.failure.error or "" for letter in letters.values()}
    assert any("row() returned" in error and "which pickle cannot carry" in error for error in errors)
    assert any("ValueError: it has forgotten itself" in error for error in errors)
    assert not any(letter.why_no_values for letter in letters.values()), "the tuples themselves can be kept"
