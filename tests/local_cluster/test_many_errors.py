"""Thousands of errors: counted exactly, kept in bounded memory, and a broken source is called ever less often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_cluster import LocalCluster, TopologyStatus
from squall.reports.error_reports import ErrorReport
from tests.local_cluster.recording import JOURNAL, Journal, Numbers, Pass, chain, run_to_the_end
from topology_api import Bolt, Tuple


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class OwnError(Exception):
    """An error of the user's."""


class AlwaysEqual(Bolt):
    """Raises the same error for each tuple."""

    def execute(self, tup: Tuple) -> None:
        raise OwnError("execute went wrong")


def reports_of(status: TopologyStatus, component: str) -> list[ErrorReport]:
    return [report for report in status.errors if report.component == component]


def test_ten_thousand_equal_errors_are_counted_exactly_and_kept_as_one(cluster: LocalCluster) -> None:
    cluster.submit(chain("errors", Numbers(10_000, per_call=100), AlwaysEqual()))
    status = run_to_the_end(cluster, "errors")
    assert status.components["bolt1"].errors == 10_000
    reports = reports_of(status, "bolt1")
    assert sum(report.times for report in reports) == 10_000
    assert len(reports) == 1
    assert "10000 times" in reports[0].render().replace(",", "")


def test_many_different_errors_are_counted_exactly_and_the_latest_few_are_kept(cluster: LocalCluster) -> None:
    cluster.submit(chain("errors", Numbers(500), AlwaysDifferent()))
    status = run_to_the_end(cluster, "errors")
    assert status.components["bolt1"].errors == 500
    reports = reports_of(status, "bolt1")
    assert 1 <= len(reports) <= 50
    assert "number 499" in reports[-1].text


class AlwaysDifferent(Bolt):
    """Raises a different error for each tuple."""

    def execute(self, tup: Tuple) -> None:
        raise OwnError(f"number {tup['number']}")


def test_a_next_tuple_that_always_raises_is_called_ever_less_often(cluster: LocalCluster) -> None:
    cluster.submit(chain("errors", AlwaysRaises(1), Pass()))
    cluster.advance(1000.0)
    calls = JOURNAL.of("next")
    assert 100 <= len(calls) <= 120  # from 0.1 s, doubling to 10 s
    assert cluster.status("errors").components["numbers"].errors == len(calls)
    assert cluster.status("errors").state == "ACTIVE"


class AlwaysRaises(Numbers):
    """Its source is broken."""

    def next_tuple(self) -> None:
        JOURNAL.note("next")
        raise OwnError("next_tuple went wrong")
