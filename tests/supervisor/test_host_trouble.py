"""A host is marked after starts that its own faults made fail, is checked with growing pauses, and the mark ends by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from supervisor.directories import Directories
from supervisor.host_trouble import APART, FAILURES, FORGET, LONGEST_PAUSE, HostTrouble
from topology_api.errors import SquallError


class Host:
    """A host, as the check of its starts finds it."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.checks: list[float] = []
        self.now = 0.0
        self.trouble = HostTrouble(self.check)

    def check(self) -> None:
        self.checks.append(self.now)
        if self.error is not None:
            raise self.error

    def fail(self, now: float, number: int = errno.EROFS) -> None:
        self.now = now
        self.trouble.failed(OSError(number, os.strerror(number), "/state/w1"), now)

    def wait(self, until: float) -> None:
        while self.now < until:
            self.now += 0.5
            self.trouble.retry(self.now)


@pytest.fixture
def host() -> Host:
    return Host()


def mark(host: Host, begin: float = 0.0) -> None:
    for number in range(FAILURES):
        assert not host.trouble.why
        host.fail(begin + number)


@pytest.mark.parametrize(
    "number", [errno.EROFS, errno.EIO, errno.ENOSPC, errno.EAGAIN, errno.EMFILE, errno.ENOMEM]
)
def test_a_host_is_marked_after_three_failed_starts_in_a_row(host: Host, number: int) -> None:
    for second in range(FAILURES):
        assert host.trouble.why == ""
        host.fail(second, number)
    assert host.trouble.why == f"[Errno {number}] {os.strerror(number)}: '/state/w1'"
    assert host.checks == []


def test_many_workers_that_fail_in_one_moment_count_once(host: Host) -> None:
    for _ in range(50):
        host.fail(0.0)
    host.fail(APART / 2)
    assert host.trouble.why == ""


def test_a_start_that_succeeds_begins_the_count_again(host: Host) -> None:
    for second in range(20):
        host.fail(second)
        if second % 2:
            host.trouble.started(second + 0.1)
    assert host.trouble.why == ""


def test_an_error_that_user_code_may_have_caused_counts_only_if_the_check_fails_too(host: Host) -> None:
    for second in range(20):
        host.fail(second, errno.EPERM)
        host.fail(second, errno.EISDIR)
        host.trouble.failed(SquallError("no keys"), second)
        host.trouble.failed(None, second)
    assert host.trouble.why == "" and host.checks
    host.error = OSError(errno.EPERM, "Operation not permitted")
    for second in range(20, 20 + FAILURES):
        host.fail(second, errno.EPERM)
    assert "not permitted" in host.trouble.why


def test_a_marked_host_is_checked_with_growing_pauses_until_it_can_start_workers(host: Host) -> None:
    mark(host)
    host.error = OSError(errno.EROFS, "Read-only file system")
    host.wait(500.0)
    pauses = [after - before for before, after in zip(host.checks, host.checks[1:])]
    assert pauses[:5] == [4.0, 8.0, 16.0, 32.0, LONGEST_PAUSE]
    assert set(pauses[5:]) == {LONGEST_PAUSE}
    host.error = None
    host.wait(600.0)
    assert host.trouble.why == ""
    checks = len(host.checks)
    host.wait(800.0)
    assert len(host.checks) == checks


def test_a_worker_that_starts_ends_the_mark(host: Host) -> None:
    mark(host)
    host.trouble.started(10.0)
    assert host.trouble.why == ""


def test_a_host_that_fails_now_and_then_is_checked_ever_later(host: Host) -> None:
    """Otherwise its tasks would come back and leave again every few seconds."""
    lasted = []
    for _ in range(5):
        begin = host.now + 10.0
        mark(host, begin)
        while host.trouble.why:
            host.wait(host.now + 0.5)
        lasted.append(host.now - begin - FAILURES + 1)
    assert lasted == [2.0, 4.0, 8.0, 16.0, 32.0]
    begin = host.now + FORGET + 10.0
    mark(host, begin)
    host.wait(begin + FAILURES - 1 + 2.0)
    assert host.trouble.why == "", "after ten minutes the pauses begin again"


def test_a_check_that_was_cut_off_spoils_no_later_one(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    directories.check_writable()
    (tmp_path / "probe" / ".123.456.new").write_text("half")
    directories.check_writable()
