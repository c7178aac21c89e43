"""The account of refusals: each is counted by its kind, with one log line a minute per peer, and bounded memory."""

from __future__ import annotations

import logging

import pytest

from squall.clock import ManualClock
from squall.transport.refusals import KINDS, MOST_PEERS, QUIET_SECS, Handshakes, Refusals

LOG = logging.getLogger("test.refusals")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def refusals(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Refusals:
    caplog.set_level(logging.INFO, LOG.name)
    return Refusals(LOG, clock.now)


@pytest.fixture
def handshakes(refusals: Refusals) -> Handshakes:
    return Handshakes(refusals)


def counted(refusals: Refusals) -> dict[str, int]:
    return {kind: count for kind, count in refusals.counts.items() if count}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_counted_and_the_log_has_the_peer_and_the_reason(
    refusals: Refusals, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    refusals.record(kind, "192.0.2.7:4711")
    assert refusals.counts == {**dict.fromkeys(KINDS, 0), kind: 1}
    (line,) = caplog.messages
    assert "192.0.2.7:4711" in line
    assert KINDS[kind] in line


def test_one_peer_is_logged_once_a_minute_whatever_its_ports_and_the_next_line_has_the_number(
    refusals: Refusals, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for port in range(100):
        refusals.record("garbage", f"192.0.2.7:{port}")
        clock.move_to(clock.now() + QUIET_SECS / 200)
    assert len(caplog.messages) == 1
    refusals.record("stranger", "192.0.2.8:1")
    assert len(caplog.messages) == 2
    clock.move_to(clock.now() + QUIET_SECS)
    refusals.record("garbage", "192.0.2.7:1")
    assert "99 more" in caplog.messages[2]
    assert counted(refusals) == {"garbage": 101, "stranger": 1}


def test_endless_peers_use_bounded_memory_and_log_lines(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * MOST_PEERS):
        refusals.record("garbage", f"host{number}:1")
    assert len(caplog.messages) == MOST_PEERS + 1
    assert counted(refusals) == {"garbage": 3 * MOST_PEERS}


def test_a_peer_whose_address_could_not_be_read_is_logged_too(
    refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    refusals.record("stranger", None)
    refusals.record("stranger", None)
    assert len(caplog.messages) == 1


def test_a_failed_connection_is_refused_for_the_reported_reason(
    handshakes: Handshakes, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes.accepted(5, "a:1")
    handshakes.accepted(6, "b:1")
    handshakes.failed("stranger")
    handshakes.ended(6)
    handshakes.failed("unfinished")
    handshakes.ended(5)
    assert counted(refusals) == {"stranger": 1, "unfinished": 1}
    assert ["b:1" in caplog.messages[0], "a:1" in caplog.messages[1]] == [True, True]


def test_a_connection_that_ends_without_a_reason_or_a_handshake_was_garbage(
    handshakes: Handshakes, refusals: Refusals
) -> None:
    handshakes.accepted(5, "a:1")
    handshakes.ended(5)
    assert counted(refusals) == {"garbage": 1}


def test_an_accepted_connection_may_end(handshakes: Handshakes, refusals: Refusals) -> None:
    handshakes.accepted(5, "a:1")
    handshakes.let_in()
    handshakes.ended(5)
    handshakes.accepted(5, "b:1")
    handshakes.accepted(6, "c:1")
    handshakes.let_in()
    handshakes.let_in()
    handshakes.ended(6)
    handshakes.ended(5)
    assert counted(refusals) == {}


def test_when_a_handshake_cannot_be_attributed_the_number_is_right_and_no_peer_is_accused(
    handshakes: Handshakes, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes.accepted(5, "a:1")
    handshakes.accepted(6, "b:1")
    handshakes.let_in()  # one of them
    handshakes.ended(5)
    assert counted(refusals) == {}
    handshakes.ended(6)
    assert counted(refusals) == {"garbage": 1}
    assert "could not be read" in caplog.messages[0]
    handshakes.accepted(5, "a:1")
    handshakes.ended(5)
    assert counted(refusals) == {"garbage": 2}
    assert "a:1" in caplog.messages[1]  # it can be attributed again


def test_a_reason_belongs_to_the_next_connection_that_ends_and_to_no_other(
    handshakes: Handshakes, refusals: Refusals
) -> None:
    handshakes.accepted(5, "a:1")
    handshakes.let_in()
    handshakes.accepted(6, None)
    handshakes.failed("unfinished")
    handshakes.ended(6)
    handshakes.ended(5)
    assert counted(refusals) == {"unfinished": 1}
