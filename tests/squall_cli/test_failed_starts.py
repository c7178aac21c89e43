"""When a run gives up on a component that cannot be opened: the same error repeatedly, without an opening in between."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from squall.reports.error_reports import ErrorReport
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall_cli.terminal.error_feed import ENOUGH, FailedStarts
from squall_cli.terminal.user_output import NoUnopenedAgain


def failed(
    time: float, text: str = "NotInstalled: no Java", task: int = 2, call: str = "prepare"
) -> ErrorReport:
    return ErrorReport("words", "store", task, call, text, "store.py:8, in prepare", (), None, time)


def test_the_same_error_repeatedly_ends_the_run_however_often_the_reports_are_read() -> None:
    starts = FailedStarts()
    reports: list[ErrorReport] = []
    for start in range(ENOUGH):
        assert starts.update(reports) is None
        reports.append(failed(float(start)))
        words = {starts.update(reports) for _ in range(5)}
    assert words == {reports[-1]}


def test_errors_that_differ_only_in_numbers_are_the_same() -> None:
    reports = [failed(float(n), f"NotCommitted: tried {n} times in {30 + n} s") for n in range(ENOUGH)]
    assert FailedStarts().update(reports) == reports[-1]


def test_errors_with_different_addresses_are_counted_apart() -> None:
    texts = ("OSError: hdfs://nn1:9000 is away", "OSError: hdfs://nn2:9000 is away")
    starts = FailedStarts()
    first, second = (failed(float(n), text) for n, text in enumerate(texts))
    for seen in (1, 2):
        turns = [replace(each, time=each.time + 2 * seen, times=seen) for each in (first, second)]
        assert starts.update(turns) is None
    assert starts.update([replace(first, time=9.0, times=3)]) == replace(first, time=9.0)


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
def test_other_failures_than_the_same_start_end_nothing(others: list[ErrorReport]) -> None:
    assert FailedStarts().update(others) is None


def test_an_opening_in_between_restarts_the_count() -> None:
    starts = FailedStarts()
    reports = [failed(1.0), failed(2.0)]
    assert starts.update(reports) is None
    starts.opened([2])
    for time in (3.0, 4.0):
        reports.append(failed(time))
        assert starts.update(reports) is None
    reports.append(failed(5.0))
    starts.opened([1, 3])
    assert starts.update(reports) == reports[-1]


def test_starts_merged_into_one_report_are_counted_individually() -> None:
    starts = FailedStarts()
    assert starts.update([failed(1.0)]) is None
    assert starts.update([replace(failed(2.0), times=2)]) is None
    starts.opened([2])
    assert starts.update([replace(failed(3.0), times=3)]) is None
    assert starts.update([replace(failed(6.0), times=6)]) == replace(failed(6.0), times=1)


def test_a_worker_that_cannot_open_its_tasks_is_logged_once_and_other_deaths_each_time() -> None:
    def shows(pid: int, cause: Cause) -> bool:
        event = Event(
            "died", topology="words", worker="w1", pid=pid, cause=cause, attempt=pid, retry_in_secs=0.0
        )
        record = logging.LogRecord("supervisor", logging.WARNING, "", 0, sentence(event), None, None)
        record.event = event
        return shown.filter(record)

    shown = NoUnopenedAgain()
    away, refused = (
        Cause("reported", f"prepare() raised OSError: {word}", 77) for word in ("away", "refused")
    )
    assert shows(1, away)
    assert not shows(2, away)
    assert shows(3, refused)
    assert all(shows(pid, Cause("signal", signal=9)) for pid in (4, 5))
