"""Nimbus gets each news once, and again if it did not accept it; its absence stops no worker."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from squall.cluster.records import Placement, WorkerReport
from squall.cluster.store import Conflict
from squall.values import Incarnation
from supervisor.reporter import Reporter
from tests.supervisor.test_supervisor_orders import SAYS, VIEW


@dataclass
class Nimbus:
    """Records the reports, or is unavailable."""

    said: list[object] = field(default_factory=list)
    fault: Exception | None = None

    def take(self, what: object) -> None:
        if self.fault is not None:
            raise self.fault
        self.said.append(what)

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        self.take((name, worker, report))
        return True

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        self.take((topology_id, worker, incarnation, counters))

    def heard(self, supervisor_id: str) -> None:
        self.take(supervisor_id)


@pytest.fixture
def nimbus() -> Nimbus:
    return Nimbus()


@pytest.fixture
def reporter(nimbus: Nimbus) -> Reporter:
    return Reporter(nimbus, "s1")


def test_facts_already_in_the_store_are_not_reported(nimbus: Nimbus, reporter: Reporter) -> None:
    reporter.report(VIEW, SAYS, 0.0)
    assert nimbus.said == []


def test_news_is_reported_once_and_again_if_the_store_does_not_show_it(
    nimbus: Nimbus, reporter: Reporter
) -> None:
    news = replace(SAYS, ended=True)
    for now in (0.0, 0.1, 0.99):
        reporter.report(VIEW, news, now)
    assert nimbus.said == [("words", "w2", news)]
    reporter.report(VIEW, news, 1.0)
    assert len(nimbus.said) == 2
    reporter.report(VIEW, replace(news, opened=False), 1.0)
    assert len(nimbus.said) == 3, "other news is not delayed"


def test_news_of_a_forgotten_worker_or_topology_is_reported_again(nimbus: Nimbus, reporter: Reporter) -> None:
    news = replace(SAYS, ended=True)
    reporter.report(VIEW, news, 0.0)
    reporter.keep(["words-1-0"])
    reporter.report(VIEW, news, 0.0)
    assert len(nimbus.said) == 1
    reporter.forget(("words-1-0", "w2"))
    reporter.report(VIEW, news, 0.0)
    assert len(nimbus.said) == 2
    reporter.keep([])
    reporter.report(VIEW, news, 0.0)
    assert len(nimbus.said) == 3


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Placement("w2", "s1", 0, Incarnation(4, 0), (2,)), replace(SAYS, stopped=True)),
        (
            Placement("w2", "s1", 0, Incarnation(5, 0), (2,)),
            WorkerReport("w2", Incarnation(5, 0), False, False, False, True, None),
        ),
        (
            Placement("w9", "s1", 0, Incarnation(4, 0), (2,)),
            WorkerReport("w9", Incarnation(4, 0), False, False, False, True, None),
        ),
    ],
)
def test_the_last_report_of_a_worker_that_is_gone_is_kept_if_there_was_one(
    nimbus: Nimbus, reporter: Reporter, place: Placement, expected: WorkerReport
) -> None:
    reporter.gone(VIEW, place, 0.0)
    assert nimbus.said == [("words", place.worker, expected)]


@pytest.mark.parametrize("fault", [ConnectionRefusedError("away"), Conflict("/x", 1, 2)])
def test_an_unavailable_nimbus_gets_the_reports_later(
    nimbus: Nimbus, reporter: Reporter, fault: Exception
) -> None:
    nimbus.fault = fault
    news = replace(SAYS, ended=True)
    reporter.heard()
    reporter.counters(("words-1-0", "w2"), Incarnation(4, 0), b"{}")
    reporter.report(VIEW, news, 0.0)
    nimbus.fault = None
    reporter.report(VIEW, news, 1.0)
    assert nimbus.said == [("words", "w2", news)]


def test_counters_and_heartbeats_are_passed_on(nimbus: Nimbus, reporter: Reporter) -> None:
    reporter.heard()
    reporter.counters(("words-1-0", "w2"), Incarnation(4, 1), b"{}")
    assert nimbus.said == ["s1", ("words-1-0", "w2", (4, 1), b"{}")]
