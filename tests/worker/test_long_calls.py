"""A call of a bolt that does not return is reported with its task, its tuple and the line of the user's code."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.status import TaskLoad
from tests.worker.daemon_stand_ins import a_task
from worker.process import long_calls
from worker.process.call_watch import UserCall
from worker.process.long_calls import LongCalls


def counters() -> WorkerCounters:
    return WorkerCounters({"count": ComponentCounters(loads={4: TaskLoad(4, call_since=1000.0)})})


def test_a_long_call_is_reported_once_with_its_place_and_tuple(monkeypatch: Any) -> None:
    monkeypatch.setattr(long_calls, "tuple_of_call", lambda call, frames: "values ('a',)")
    here = threading.get_ident()
    call = UserCall(a_task(4), 100.0, sys._getframe(), 3.9, 104.9)
    calls = LongCalls(SimpleNamespace(plan=SimpleNamespace(topology=SimpleNamespace(name="words"))))  # type: ignore[arg-type]
    calls.check([call], {here: sys._getframe()})
    assert calls.add_to(counters()).reports == ()
    for _ in range(2):
        calls.check([replace(call, seconds=4.0)], {here: sys._getframe()})
        found = calls.add_to(counters())
        (report,) = found.reports
        load = found.components["count"].loads[4]
        assert (report.component, report.task, report.time) == ("count", 4, 1005.0)
        assert report.tuple_text == load.call_tuple == "values ('a',)"
        assert "test_long_calls.py:" in report.place and report.place == load.call_place
        assert found.components["count"].errors == 1
    calls.check([], {})
    found = calls.add_to(counters())
    assert found.components["count"].loads[4].call_place == ""
    assert len(found.reports) == 1, "the report stays when the call has returned"
