"""A worker that uses too much memory says so, drains and ends with that reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall.worker_files import EXIT_LIMIT, EXIT_MEMORY
from tests.worker.conftest import Launch
from tests.worker.daemon_components import one_bolt
from topology_api import Bolt, Tuple
from worker.process.daemon import END_SECONDS, Daemon
from worker.process.memory_limit import DRAIN_SECS, MemoryLimit

MB = 1_000_000


def test_it_warns_once_until_the_memory_has_fallen() -> None:
    limit = MemoryLimit(100)
    used = [79, 80, 95, 75, 90, 69, 80]
    assert [limit.step(each * MB, 1.0) for each in used] == [None, "warn", None, None, None, None, "warn"]


def test_it_drains_at_the_limit_and_ends_if_that_does_not_help() -> None:
    limit = MemoryLimit(100)
    assert limit.step(100 * MB, 10.0) == "drain"
    assert limit.step(110 * MB, 10.0 + DRAIN_SECS - 1) is None
    assert limit.step(50 * MB, 10.0 + DRAIN_SECS) == "end"


@pytest.mark.parametrize("before", [[], [100]])
def test_a_process_that_grows_fast_is_not_drained(before: list[int]) -> None:
    limit = MemoryLimit(100)
    for used in before:
        limit.step(used * MB, 1.0)
    assert limit.step(125 * MB, 1.0) == "end"


def test_without_a_limit_nothing_is_due() -> None:
    assert MemoryLimit(None).step(10**15, 1.0) is None


def test_the_text_names_the_memory_the_option_and_the_tasks() -> None:
    text = MemoryLimit(500).text(612 * MB, "words[1], count[2]")
    assert text == (
        "612 MB of memory are used, of 500 MB of topology.worker.memory.mb, by the process that runs words[1], count[2]"
    )
    named = MemoryLimit(500).text(612 * MB, "words[1], count[2]", ("count[2]", 400 * MB))
    assert named == f"{text}; 400 MB of the growth are from calls of count[2]"


class Leaks(Bolt):
    """Keeps ten megabytes for each of the first tuples."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[bytearray] = []

    def execute(self, tup: Tuple) -> None:
        if len(self.kept) < self.most:
            self.kept.append(bytearray(b"x" * (10 * MB)))


@pytest.mark.parametrize(("tuples", "status"), [(28, EXIT_LIMIT), (60, EXIT_MEMORY)])
def test_a_leaking_worker_ends_with_the_reason_and_drains_if_it_can(
    launch: Launch, tmp_path: Path, tuples: int, status: int
) -> None:
    worker = launch(one_bolt(Leaks(tuples), tmp_path, count=None), {"topology.worker.memory.mb": 300})
    assert worker.wait_end() == status
    end = worker.end()
    assert end is not None and "300 MB of topology.worker.memory.mb" in end.reason and "bolt[2]" in end.reason
    if status == EXIT_LIMIT:  # a worker that grows faster may begin to drain, too
        assert "drains, then ends" in worker.log()


def test_a_sigterm_does_not_cut_the_drain_short_and_a_second_one_does() -> None:
    loop: Any = Daemon.__new__(Daemon)
    loop.waiter, loop.lease = SimpleNamespace(wake=lambda: None), SimpleNamespace(clock=lambda: 50.0)
    loop.terminations, loop.too_large, loop.leaving_since, loop.must_end_by = 0, None, None, None
    assert not loop.leaves
    loop.leave_because("too much")
    assert loop.leaves and loop.leave_due
    loop.leaving_since = 50.0
    loop.on_terminate()
    assert (loop.must_end_by, loop.leave_due, loop.too_large) == (None, False, "too much")
    loop.on_terminate()
    assert loop.must_end_by == 50.0 + END_SECONDS and loop.leave_due
