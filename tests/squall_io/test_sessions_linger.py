"""A shared Spark session waits for a while for the tasks that take the places of its users."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from squall_io.spark.session import sessions
from squall_io.spark.session.sessions import shared_session
from squall_io.spark.sink.epoch_writer import LINGER


class Timers:
    """`threading.Timer`, of which the test says when it is due."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[..., None], args: tuple[Any, ...]) -> Timers:
        assert seconds == LINGER == 30
        self.due.append(lambda: call(*args))
        return self

    def start(self) -> None:
        pass

    def all_due(self) -> None:
        """Their time has come."""
        due, self.due = self.due, []
        for each in due:
            each()


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(threading, "Timer", made)
    return made


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sessions that were stopped; sessions are plain objects."""
    found: list[object] = []
    monkeypatch.setattr(sessions, "_process", sessions._Process())
    monkeypatch.setattr(sessions, "_adopted", lambda request: None)
    monkeypatch.setattr(sessions, "start_session", lambda *_: object())
    monkeypatch.setattr(sessions, "stop_session", found.append)
    monkeypatch.setattr(sessions, "is_broken", lambda session: False)
    return found


def test_the_next_user_gets_the_same_session_and_the_last_one_stops_it_in_the_end(
    timers: Timers, stopped: list[object]
) -> None:
    first = shared_session()
    session = first.session
    first.release(LINGER)
    second = shared_session()
    assert second.session is session
    timers.all_due()
    assert stopped == []
    second.release(LINGER)
    timers.all_due()
    assert stopped == [session]
    assert shared_session().session is not session


@pytest.mark.parametrize("broken", [False, True])
def test_who_wants_another_session_does_not_wait(
    timers: Timers, stopped: list[object], broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shared_session("local[2]")
    session = first.session
    first.release(LINGER)
    monkeypatch.setattr(sessions, "is_broken", lambda session: broken)
    second = shared_session("local[2]" if broken else "local[1]")
    assert stopped == [session] and second.session is not session
    timers.all_due()
    assert stopped == [session]


def test_without_a_pause_the_last_release_stops_the_session(timers: Timers, stopped: list[object]) -> None:
    lease = shared_session()
    session = lease.session
    lease.release()
    assert stopped == [session] and timers.due == []
