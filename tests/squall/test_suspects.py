"""Which tuples are suspects after a death, for how long, and what a damaged file of them means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.running_calls import NO_TUPLE, CallAtDeath
from squall.suspects import (
    KEPT_SECS,
    MARK_SECS,
    MOST_SUSPECTS,
    Suspects,
    after_death,
    for_next_process,
    read_suspects,
    write_suspects,
)
from squall.worker_files import MOST_BYTES, SUSPECTS, BadFile

A, B = "aa" * 16, "bb" * 16


def call(key: str, size: int = 1, task: int = 2) -> CallAtDeath:
    return CallAtDeath(task, size, (5,), key)


def deaths_of(found: Suspects) -> dict[str, int]:
    return {each.key: each.deaths for each in found.known}


def test_a_death_counts_against_the_tuple_of_the_only_call() -> None:
    first = after_death(None, [call(A)], "died of SIGSEGV", 100.0)
    second = after_death(first, [call(A)], "ended with status 3", 200.0)
    assert (deaths_of(first), deaths_of(second)) == ({A: 1}, {A: 2})
    assert (second.known[0].reason, second.known[0].at, second.at) == ("ended with status 3", 200.0, 200.0)


def test_of_several_calls_none_is_charged_and_all_are_suspects() -> None:
    first = after_death(None, [call(A), call(B, task=3)], "died", 100.0)
    assert deaths_of(first) == {A: 0, B: 0}
    second = after_death(first, [call(B, task=3)], "died", 200.0)
    assert deaths_of(after_death(second, [call(A), call(B, task=3)], "died", 300.0)) == {A: 0, B: 1}


def test_a_call_without_a_tuple_beside_that_of_a_tuple_leaves_open_which_it_was() -> None:
    found = after_death(None, [call(A), CallAtDeath(1, NO_TUPLE, ())], "died", 100.0)
    assert deaths_of(found) == {A: 0} and found.batches == ()


def test_a_death_in_no_call_in_a_batch_or_for_a_tuple_without_a_key_names_none() -> None:
    for calls in ([], [call(A, size=7)], [call("")]):
        found = after_death(None, calls, "died", 100.0)
        assert deaths_of(found) == {} and found.mark_secs == MARK_SECS
    found = after_death(found, [call(A, size=7, task=4)], "died", 101.0)
    assert found.batches == (4,) and after_death(found, [call(A)], "died", 102.0).batches == (4,)


def test_suspects_are_forgotten_a_day_after_the_death_that_named_them() -> None:
    first = after_death(None, [call(A)], "died", 100.0)
    second = after_death(first, [call(B)], "died", 100.0 + KEPT_SECS - 1)
    later = for_next_process(second, 102.0 + KEPT_SECS)
    assert later is not None and deaths_of(later) == {B: 1}
    assert for_next_process(second, 100.0 + 2 * KEPT_SECS) is None
    assert deaths_of(after_death(second, [call(A)], "died", 100.0 + 3 * KEPT_SECS)) == {A: 1}


def test_a_source_that_comes_back_to_the_tuple_late_is_waited_for_longer() -> None:
    """40 minutes of reading: the first death marks for ten minutes, the second for twice as long as it took."""
    found = after_death(None, [], "died", 2_400.0)
    found = after_death(found, [], "died", 4_800.0)
    assert found.mark_secs == 4_800.0
    found = after_death(found, [call(A)], "died", 7_200.0)
    found = after_death(found, [call(B)], "died", 7_201.0)
    assert found.mark_secs == 4_800.0, "a death soon afterwards makes it no shorter"


def test_a_process_that_starts_after_another_end_marks_as_long_as_the_death_is_recent() -> None:
    found = after_death(None, [], "died", 100.0)
    assert for_next_process(found, 100.0 + MARK_SECS) == found
    assert for_next_process(found, 101.0 + MARK_SECS) is None


def test_the_most_that_are_kept_are_those_with_most_deaths_and_the_latest(tmp_path: Path) -> None:
    found = after_death(None, [call(A)], "\1" * 10_000, 1.0)
    for number in range(2 * MOST_SUSPECTS):
        calls = [call(f"{number:032x}", task=2), call(f"{number + 10_000:032x}", task=3)]
        found = after_death(found, calls, "\1" * 10_000, 2.0 + number)
    assert len(found.known) == MOST_SUSPECTS and found.known[0].key == A
    write_suspects(tmp_path, found)
    file = tmp_path / SUSPECTS
    assert file.stat().st_size <= MOST_BYTES[SUSPECTS] and file.stat().st_mode & 0o777 == 0o600
    assert read_suspects(tmp_path) == found


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "at": 1, "mark_secs": "1"}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    assert read_suspects(tmp_path) is None
    (tmp_path / SUSPECTS).write_bytes(data)
    with pytest.raises(BadFile, match=SUSPECTS):
        read_suspects(tmp_path)


def test_a_pipe_in_its_place_blocks_no_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / SUSPECTS)
    with pytest.raises(BadFile):
        read_suspects(tmp_path)


def test_a_key_that_is_no_key_is_refused(tmp_path: Path) -> None:
    found = after_death(None, [call("zz")], "died", 1.0)
    write_suspects(tmp_path, found)
    with pytest.raises(BadFile):
        read_suspects(tmp_path)
