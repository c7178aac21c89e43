"""The thread that drives a control loop: rounds when one is due, commands in between, and a definite end."""

from __future__ import annotations

import threading

import pytest

from squall.daemon import command_loop
from squall.daemon.command_loop import Driver, NotInTime, Stopped
from topology_api.errors import SquallError

CAP = 30.0


class Loop:
    """Counts its rounds; a round may be held up."""

    def __init__(self) -> None:
        self.rounds = 0
        self.due: float | None = None
        self.held = threading.Event()
        self.held.set()
        self.in_round = threading.Event()
        self.breaks = False
        self.threads: set[str] = set()

    def round(self) -> bool:
        self.rounds += 1
        self.threads.add(threading.current_thread().name)
        self.in_round.set()
        assert self.held.wait(CAP)
        if self.breaks:
            raise ValueError("broken")
        return False

    def next_time(self) -> float | None:
        return self.due


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def driver(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(command_loop, "LONGEST_SLEEP", 0.2)
    driver = Driver("the loop", "test-loop")
    driver.start(loop)
    assert loop.in_round.wait(CAP)
    return driver


def test_commands_and_rounds_are_run_by_one_thread(driver: Driver, loop: Loop) -> None:
    assert driver.call(lambda: threading.current_thread().name) == "test-loop"
    assert loop.threads == {"test-loop"}
    assert driver.call(lambda: driver.call(lambda: 7)) == 7, "a command may call another one"
    driver.stop(lambda: None)


def test_an_exception_of_a_command_is_raised_at_its_call(driver: Driver) -> None:
    with pytest.raises(TimeoutError, match="the command's own"):
        driver.call(lambda: (_ for _ in ()).throw(TimeoutError("the command's own")))
    driver.stop(lambda: None)


def test_a_command_that_was_not_begun_in_time_is_not_executed(driver: Driver, loop: Loop) -> None:
    loop.held.clear()
    loop.in_round.clear()
    driver.wake()
    assert loop.in_round.wait(CAP)
    done: list[int] = []
    with pytest.raises(NotInTime, match="the loop is busy") as error:
        driver.call(lambda: done.append(1), timeout=0.05)
    assert error.value.begun is False
    loop.held.set()
    assert driver.call(lambda: "after it") == "after it"
    assert done == []
    driver.stop(lambda: None)


def test_a_command_that_was_begun_and_timed_out_may_have_been_done(driver: Driver) -> None:
    go_on = threading.Event()
    with pytest.raises(NotInTime) as error:
        driver.call(lambda: go_on.wait(CAP), timeout=0.05)
    assert error.value.begun is True
    go_on.set()
    driver.stop(lambda: None)


def test_after_its_end_a_loop_runs_no_round_and_accepts_no_command(driver: Driver, loop: Loop) -> None:
    last: list[int] = []
    driver.stop(lambda: last.append(loop.rounds))
    assert last == [loop.rounds] and not driver.thread.is_alive()
    with pytest.raises(Stopped, match="the loop has been shut down"):
        driver.call(lambda: None)


def test_a_missing_end_is_reported(driver: Driver) -> None:
    go_on = threading.Event()
    with pytest.raises(NotInTime):
        driver.call(lambda: go_on.wait(CAP), timeout=0.05)
    with pytest.raises(SquallError, match=r"a command has not returned for 0\.05 s; the loop is left"):
        driver.stop(lambda: None, timeout=0.05)
    go_on.set()
    driver.thread.join(CAP)
    assert not driver.thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callers_get_the_error_that_ended_a_loop(driver: Driver, loop: Loop) -> None:
    loop.breaks = True
    driver.wake()
    driver.thread.join(CAP)
    with pytest.raises(Stopped, match="broken"):
        driver.call(lambda: None)
