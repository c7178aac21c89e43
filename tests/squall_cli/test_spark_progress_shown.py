"""The progress of a command that uses Spark: lines in a pipe, a temporary bar on a terminal."""

from __future__ import annotations

import io
import re
import threading
from typing import Any

import pytest

from squall_cli.spark import started_spark
from squall_cli.spark.started_spark import SparkProgress
from squall_io.spark.results.progress import JobProgress

#: Far more than any step here takes.
CAP = 60.0


class Watched:
    """A session that has done one more task at each query, until all are done; then nothing changes."""

    def __init__(self, tasks: int, fails_at: int | None = None) -> None:
        self.tasks = tasks
        self.fails_at = fails_at
        self.looks = 0
        self.seen_all = threading.Event()
        self.ended: list[str] = []

    def poll(self) -> JobProgress:
        self.looks += 1
        if self.looks >= self.tasks + 2:
            self.seen_all.set()
        if self.looks == self.fails_at:
            self.seen_all.set()
            raise ConnectionError("the driver is gone")
        done = min(self.looks, self.tasks)
        return JobProgress(1, int(done == self.tasks), self.tasks, done)

    def cancel(self) -> None:
        self.ended.append("cancelled")
        raise ConnectionError("the driver is gone")

    def close(self) -> None:
        self.ended.append("closed")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started_spark, "_POLL_SECS", 0.001)
    monkeypatch.setattr(started_spark, "watch", lambda session: session)


def shown(out: io.StringIO, watched: Any, seconds_a_look: float) -> str:
    """The output until the watched session ends; each reading of the clock advances it by this much."""
    times = iter(range(100_000))
    with SparkProgress(out, clock=lambda: next(times) * seconds_a_look) as progress:
        progress.announce("starting Spark")
        progress.follow(watched)
        assert watched.seen_all.wait(CAP)
    assert watched.ended == ["closed"]
    return out.getvalue()


def test_a_pipe_gets_a_line_every_few_seconds_and_none_twice() -> None:
    lines = shown(io.StringIO(), Watched(tasks=3), seconds_a_look=10.0).splitlines()

    assert lines[0] == "starting Spark"
    assert [line.partition("  ")[2] for line in lines[1:]] == [
        f"stage 1 of 1, {done} of 3 tasks" for done in (1, 2, 3)
    ]
    assert all(re.match(r"\d+.* s  ", line) for line in lines[1:])


def test_a_pipe_gets_no_line_for_short_work() -> None:
    assert shown(io.StringIO(), Watched(tasks=3), seconds_a_look=0.001).splitlines() == ["starting Spark"]


def test_a_terminal_gets_a_bar_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown(Terminal(), Watched(tasks=3), seconds_a_look=1.0)

    assert "starting Spark\n" in text and "planning" in text
    assert "stage 1 of 1, 3 of 3 tasks" in text
    assert text.endswith("\x1b[2K") or text.rstrip().endswith("\x1b[2K"), repr(text[-40:])


def test_a_driver_that_dies_ends_the_watching_and_cancelling_it_is_no_error() -> None:
    out, watched = io.StringIO(), Watched(tasks=3, fails_at=2)
    with SparkProgress(out) as progress:
        progress.cancel()  # nothing is watched yet
        progress.follow(watched)
        assert watched.seen_all.wait(CAP)
        progress.cancel()
    assert watched.ended == ["cancelled", "closed"]
    assert watched.looks == 2
