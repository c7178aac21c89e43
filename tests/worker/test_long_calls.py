"""A call of a bolt that does not return is reported with its task, its tuple and the line of the user's code."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

from msgspec import structs

from squall.cluster.counters import ComponentCounters, WorkerCounters
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
