"""When a run gives up on a component that cannot be opened: the same error in a row, with no opening in between."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from squall.error_reports import ErrorReport
from squall_cli.failed_starts import ENOUGH, FailedStarts
from squall_cli.user_output import NoUnopenedAgain


def failed(
    time: float, text: str = "NotInstalled: no Java", task: int = 2, call: str = "prepare"
) -> ErrorReport:
    return ErrorReport("words", "store", task, call, text, "store.py:8, in prepare", (), None, time)


def test_the_same_error_of_a_task_in_a_row_is_its_last_word_however_often_it_is_looked_at() -> None:
    starts = FailedStarts()
    reports: list[ErrorReport] = []
    for start in range(ENOUGH):
        assert starts.last_word(reports) is None
        reports.append(failed(float(start)))
        words = {starts.last_word(reports) for _ in range(5)}
    assert words == {reports[-1]}


def test_what_differs_only_in_numbers_is_the_same_error() -> None:
    reports = [failed(float(n), f"NotCommitted: tried {n} times in {30 + n} s") for n in range(ENOUGH)]
    assert FailedStarts().last_word(reports) == reports[-1]


def test_what_differs_in_an_address_is_another_error_and_two_in_turn_each_come_to_their_last_word() -> None:
    texts = ("OSError: hdfs://nn1:9000 is away", "OSError: hdfs://nn2:9000 is away")
    starts = FailedStarts()
    first, second = (failed(float(n), text) for n, text in enumerate(texts))
    for seen in (1, 2):
        turns = [replace(each, time=each.time + 2 * seen, times=seen) for each in (first, second)]
        assert starts.last_word(turns) is None
    assert starts.last_word([replace(first, time=9.0, times=3)]) == replace(first, time=9.0)


@pytest.mark.parametrize(
    "others",
    [
        [
            failed(float(n), f"OSError: {word}")
            for n, word in enumerate(("away", "refused", "away", "refused"))
        ],
        [failed(float(n), task=n) for n in range(9)],
        [failed(float(n), call="execute") for n in range(9)],
    ],
    ids=["other errors", "other tasks", "other calls"],
)
def test_what_is_not_the_same_start_again_ends_nothing(others: list[ErrorReport]) -> None:
    assert FailedStarts().last_word(others) is None


def test_a_task_that_was_opened_in_between_begins_anew() -> None:
    starts = FailedStarts()
    reports = [failed(1.0), failed(2.0)]
    assert starts.last_word(reports) is None
    starts.opened([2])
    for time in (3.0, 4.0):
        reports.append(failed(time))
        assert starts.last_word(reports) is None
    reports.append(failed(5.0))
    starts.opened([1, 3])
    assert starts.last_word(reports) == reports[-1]


def test_starts_that_are_told_as_one_report_are_counted_as_often_as_they_were_seen() -> None:
    starts = FailedStarts()
    assert starts.last_word([failed(1.0)]) is None
    assert starts.last_word([replace(failed(2.0), times=2)]) is None
    starts.opened([2])
    assert starts.last_word([replace(failed(3.0), times=3)]) is None
    assert starts.last_word([replace(failed(6.0), times=6)]) == replace(failed(6.0), times=1)


def test_that_a_worker_could_not_open_its_tasks_is_told_once_and_other_deaths_each_time() -> None:
    def note(pid: int, what: str, rest: str) -> bool:
        text = f"worker w1 (pid {pid}) of topology 'words' {what}; {rest}"
        return shown.filter(logging.LogRecord("supervisor", logging.WARNING, "", 0, text, None, None))

    shown = NoUnopenedAgain()
    unopened = "ended by itself with status 77: store[2] cannot start: prepare() raised OSError: "
    again = "its 2nd death in 1 s; it is started again in 1 s"
    assert note(1, f"{unopened}away", "it is started again at once")
    assert not note(2, f"{unopened}away", again)
    assert note(3, f"{unopened}refused", again)
    assert all(note(pid, "was killed by SIGKILL (OOM killer: no)", again) for pid in (4, 5))
