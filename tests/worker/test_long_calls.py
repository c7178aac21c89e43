"""A call that does not return is reported with its task, its method, its tuple and the line of the user's code."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from msgspec import structs

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.reports.error_reports import ErrorReport
from squall.status import TaskLoad
from squall.transport.frames import Batch
from tests.worker.daemon_stand_ins import Stack, a_task
from topology_api.tuples import Source, Tuple
from worker.process import long_calls
from worker.process.call_watch import UserCall
from worker.process.long_calls import LongCalls, long_call_of
from worker.tasks.async_bolt import AsyncCall
from worker.tasks.bolt import make_tuple


def counters() -> WorkerCounters:
    return WorkerCounters({"count": ComponentCounters(loads={4: TaskLoad(4, call_since=1000.0)})})


def test_a_long_call_is_reported_once_with_its_place_and_tuple(monkeypatch: Any) -> None:
    monkeypatch.setattr(long_calls, "tuple_of_call", lambda call, frames: "values ('a',)")
    here = threading.get_ident()
    call = UserCall(a_task(4), 100.0, sys._getframe(), 3.9, 104.9)
    calls = LongCalls("words")
    calls.check([call], lambda: {here: sys._getframe()})
    early = calls.add_to(counters())
    assert early.reports == ()
    assert early.components["count"].loads[4].call_tuple, (
        "place and tuple are there before the call is reported"
    )
    for _ in range(2):
        calls.check([structs.replace(call, seconds=4.0)], lambda: {here: sys._getframe()})
        found = calls.add_to(counters())
        (report,) = found.reports
        load = found.components["count"].loads[4]
        assert (report.component, report.task, report.time) == ("count", 4, 1005.0)
        assert report.tuple_text == load.call_tuple == "values ('a',)"
        assert "test_long_calls.py:" in report.place and report.place == load.call_place
        assert found.components["count"].errors == 1
    calls.check([], dict)
    found = calls.add_to(counters())
    assert found.components["count"].loads[4].call_place == ""
    assert len(found.reports) == 1, "the report stays when the call has returned"


def beaten(task: Any, call: Callable[..., FrameType]) -> tuple[TaskLoad, tuple[ErrorReport, ...]]:
    """The load and the reports of a call that has not returned for five seconds."""
    frame = Stack().serve(partial(call, object()))
    calls, counted = LongCalls("words"), counters()
    calls.check([UserCall(task, 100.0, frame, 4.0, 105.0)], lambda: {threading.get_ident(): frame})
    told = calls.add_to(counted)
    return told.components["count"].loads[4], told.reports


def named(name: str) -> Callable[..., FrameType]:
    """A user's method with this name, whose call is in another function now."""
    source = f"def {name}(self):\n    return look_up()\n"
    namespace: dict[str, Any] = {"look_up": look_up}
    exec(compile(source, __file__, "exec"), namespace)
    found: Callable[..., FrameType] = namespace[name]
    return found


def look_up() -> FrameType:
    return sys._getframe()


def decorated(call: Callable[..., FrameType]) -> Callable[..., FrameType]:
    def wrapper(*args: object) -> FrameType:
        return call(*args)

    return wrapper


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("prepare", {"opened": False}),
        ("tick", {}),
        ("on_timer", {}),
        ("end_of_input", {"threaded": True}),
        ("open", {"kind": "spout", "opened": False, "threaded": True}),
        ("next_tuple", {"kind": "spout"}),
        ("ack", {"kind": "spout", "threaded": True}),
        ("deactivate", {"kind": "spout", "threaded": True}),
    ],
)
@pytest.mark.parametrize("wrap", [lambda call: call, decorated])
def test_a_call_without_a_tuple_is_reported_with_its_method_and_place(
    name: str, task: dict[str, Any], wrap: Callable[..., Any]
) -> None:
    load, (report,) = beaten(a_task(4, **task), wrap(named(name)))
    assert load.call_name == name and load.call_place.endswith(", in look_up")
    assert report.text == f"{name}() has not returned for 5 s"
    assert (report.component, report.task, report.place) == ("count", 4, load.call_place)
    assert __file__ in report.place and report.tuple_text is None
    assert report.call == "", "so it does not count as an error of a start, which ends a trial"


def test_a_threaded_spout_may_wait_for_its_source_in_next_tuple() -> None:
    task = a_task(4, kind="spout", threaded=True)
    for call in named("next_tuple"), named("poll_for_ever"):
        load, reports = beaten(task, call)
        assert load.call_place.endswith(", in look_up"), "the status shows where it waits"
        assert reports == ()


def test_a_call_in_code_of_packages_is_shown_where_the_method_calls_it() -> None:
    source = "def prepare(self):\n    return wait()\n\n\ndef wait():\n    return sys._getframe()\n"
    namespace: dict[str, Any] = {"sys": sys}
    exec(compile(source, "/opt/site-packages/sink.py", "exec"), namespace)
    load, _ = beaten(a_task(4, opened=False), namespace["prepare"])
    assert load.call_place == "/opt/site-packages/sink.py:2, in prepare"


class NeverShown:
    """A value whose repr would wait for the call that hangs."""

    def __repr__(self) -> str:
        raise AssertionError("the heartbeat's thread must not call this")


def a_tuple() -> Tuple:
    row = ("key-5", 25, NeverShown(), [1])
    return make_tuple(
        Batch(Source("keys", 1, "default", ("key", "number", "lock", "list")), 4, [row], [0], [0]), 0
    )


SHOWN = "<Tuple keys[1] default: key='key-5', number=25, lock=<NeverShown>, list=<list>>"


def execute(bolt: object, tup: object) -> FrameType:
    return sys._getframe()


def test_the_tuple_of_a_call_is_found_in_its_frame_without_its_own_code() -> None:
    here = threading.get_ident()
    for given, shown in (
        (a_tuple(), SHOWN),
        ([a_tuple()] * 3, f"a batch of 3 tuples, the first {SHOWN}"),
        (7, ""),
    ):
        frame = Stack().serve(partial(execute, NeverShown(), given))
        found = long_call_of(UserCall(a_task(4), 100.0, frame, 5.0, 105.0), {here: frame})
        assert found.shown == shown
        assert found.place.endswith(", in execute") and __file__ in found.place


def test_an_asynchronous_call_is_found_where_its_coroutine_waits() -> None:
    async def inner() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await inner()

    call = AsyncCall(a_tuple(), 100.0, Batch(Source("keys", 1, "default", ("key",)), 4, [], [], []))
    call.coroutine = outer()
    loop = asyncio.new_event_loop()
    task = loop.create_task(call.coroutine)
    loop.call_soon(loop.stop)
    loop.run_forever()
    found = long_call_of(UserCall(a_task(4), 100.0, call, 5.0, 105.0), {})
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert found.shown == SHOWN
    assert found.place.endswith(", in inner") and __file__ in found.place
