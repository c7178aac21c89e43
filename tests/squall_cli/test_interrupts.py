"""The effects of the signals that end a run, in turn."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from squall_cli.terminal.interrupts import EndNow, Interrupts

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_second_signal_interrupts_the_main_thread_and_further_ones_change_nothing(
    number: signal.Signals,
) -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(number)
        assert interrupts.count == 1
        with pytest.raises(EndNow):
            signal.raise_signal(number)
        for _ in range(5):
            signal.raise_signal(number)
    signal.raise_signal(number)
    assert interrupts.count == 8, "after it too: the process is about to end"


def test_the_name_of_the_first_signal_is_known() -> None:
    for number, name in zip(NUMBERS, ("Ctrl-C", "SIGTERM", "SIGHUP"), strict=True):
        with Interrupts() as interrupts:
            signal.raise_signal(number)
        assert interrupts.name == name


def test_the_earlier_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with Interrupts():
        assert [signal.getsignal(number) for number in NUMBERS] != before
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_an_ignored_hang_up_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.count == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_second_signal_waits_until_a_held_step_is_complete() -> None:
    with Interrupts() as interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(EndNow):
            interrupts.release()


def test_a_second_signal_does_not_interrupt_an_end_in_progress() -> None:
    with Interrupts() as interrupts:
        interrupts.ignore()
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.count == 3
