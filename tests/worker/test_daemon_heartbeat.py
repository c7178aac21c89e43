"""What the heartbeat of a worker process reports and detects, and how errors of user code get into its log."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from squall import worker_files
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.reports.error_reports import ErrorReport
from squall.values import Incarnation
from squall.worker_files import (
    COUNTERS,
    EXIT_FILES,
    EXIT_HUNG,
    EXIT_STOPPED,
    HEARTBEAT,
    ORDERS,
    read_heartbeat,
    write,
)
from tests.worker.daemon_stand_ins import Clock, Over, Stack, a_task, a_worker, lease_of, watch
from worker.errors.error_lines import ErrorLines
from worker.errors.reports import ErrorLog
from worker.process.heartbeat import Flags, Heartbeat
from worker.process.lease import Lease

# The heartbeat.


class Words:
    """Replaces `ProcessExit`."""

    open_files = SimpleNamespace(why_none=lambda: "it cannot open any more files", make_room=lambda: False)

    def end(self, status: int, reason: str, details: str = "") -> None:
        raise Over(status, reason, details)


class Loop:
    """Replaces the loop."""

    keep_alive_every = float("inf")
    round_began: float | None = None
    must_end_by: float | None = None

    def __init__(self, directory: str, lease: Lease) -> None:
        self.directory, self.lease, self.process_exit = directory, lease, Words()
        self.orders = SimpleNamespace(
            incarnation=Incarnation(3, 1), conf={"topology.worker.timeout.secs": 30}
        )
        self.counted = WorkerCounters({"count": ComponentCounters()}, ())
        self.looked = 0
        self.signs: list[bool] = []

    def on_new_orders(self) -> None:
        self.looked += 1

    def counters(self) -> WorkerCounters:
        return self.counted

    def send_keep_alives(self, trees: bool) -> None:
        self.signs.append(trees)


@pytest.mark.parametrize(("timeout", "ends_at"), [(30, 103.0), (3, 101.0), (1, 100.5)])
def test_a_worker_without_a_free_descriptor_ends_before_its_silence_is_punished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float, ends_at: float
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    beating = Beating(tmp_path)
    beating.loop.orders.conf["topology.worker.timeout.secs"] = timeout
    monkeypatch.setattr(worker_files, "write", refuse)
    monkeypatch.setattr(worker_files, "write_bytes", refuse)
    with pytest.raises(Over) as over:
        while beating.clock.time < 200:
            if beating.clock.time >= beating.heart.next_heartbeat:
                beating.heart.publish()
            beating.clock.time += 0.5  # the thread looks twice a second
    assert over.value.args[0] == EXIT_FILES
    assert beating.clock.time == ends_at < 100 + timeout


class Beating:
    """A heartbeat without a thread."""

    def __init__(self, folder: Path, *tasks: Any) -> None:
        self.clock = Clock()
        self.folder = folder
        self.loop = Loop(str(folder), lease_of(folder, self.clock, 1000.0))
        self.worker = a_worker(*tasks)
        frame = Stack().call()
        self.calls = watch(self.worker, lambda: frame)
        self.heart = Heartbeat(self.loop, None, self.calls, Flags(1, "run", 3))  # type: ignore[arg-type]

    def beat(self, *times: float) -> None:
        for time in times:
            self.clock.time = time
            self.heart.publish()


def test_a_heartbeat_has_the_flags_of_the_loop_and_the_number_of_the_counters(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.beat(100.0)
    beating.loop.counted = WorkerCounters({}, (), 7)
    beating.beat(101.0)  # another reading of the same counters
    first = read_heartbeat(tmp_path)
    assert first is not None
    assert (first.number, first.incarnation, first.orders, first.version, first.counters) == (
        2,
        (3, 1),
        1,
        3,
        1,
    )
    (tmp_path / COUNTERS).unlink()
    beating.heart.update(Flags(2, "drain", 3, drained=True))
    beating.beat(101.1)
    second = read_heartbeat(tmp_path)
    assert second is not None
    assert (second.number, second.orders, second.asked, second.drained) == (3, 2, "drain", True)
    assert not (tmp_path / COUNTERS).exists()


def test_a_heartbeat_that_cannot_be_written_is_logged_once_and_when_it_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    beating = Beating(folder)
    beating.beat(100.0, 101.0, 102.0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    folder.mkdir()
    with caplog.at_level(logging.WARNING):
        beating.beat(103.0)
    assert "heartbeats can be written again; 3 could not" in caplog.text
    assert (folder / HEARTBEAT).exists() and (folder / COUNTERS).exists()


def test_a_bolt_that_hangs_ends_the_process_with_all_stacks(tmp_path: Path) -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    beating = Beating(tmp_path, task)
    beating.worker.running = task
    beating.beat(101.0, 102.0, 103.0, 104.0, 105.0, 106.0)
    with pytest.raises(Over) as over:
        beating.beat(107.0)
    status, reason, details = over.value.args
    assert status == EXIT_HUNG
    assert reason == "a call of count[4] has not returned for 6 s (topology.bolt.hang.secs: 5)"
    assert details.startswith("All threads of process")


@pytest.mark.parametrize("change", [{"kind": "spout"}, {"opened": False}, {"closed": True}])
def test_other_long_calls_are_logged_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0, **change)
    beating = Beating(tmp_path, task)
    beating.worker.running = task
    beating.beat(*map(float, range(101, 120)))
    task.busy_since = 200.0
    beating.beat(*map(float, range(201, 220)))
    assert caplog.text.count("a call of count[4] has been running for 6 s") == 2


def test_while_the_loop_is_in_a_call_peers_get_keep_alives_with_trees_when_due(
    tmp_path: Path,
) -> None:
    beating = Beating(tmp_path)
    beating.loop.keep_alive_every = 1.0
    for time, began in (
        (100.0, None),
        (100.0, 99.9),
        (100.5, 99.9),
        (101.0, 99.9),
        (101.5, 99.9),
        (102.0, 99.9),
    ):
        beating.clock.time, beating.loop.round_began = time, began
        beating.heart.check()
    assert beating.loop.signs == [False, True, False, True]


def test_orders_without_a_signal_are_found(tmp_path: Path) -> None:
    write(tmp_path, ORDERS, {"number": 1})
    beating = Beating(tmp_path)
    beating.heart.check()
    assert beating.loop.looked == 0
    write(tmp_path, ORDERS, {"number": 2})
    beating.heart.check()
    beating.heart.check()
    assert beating.loop.looked == 1


def test_a_second_sigterm_ends_a_worker_whose_call_does_not_return(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.loop.must_end_by = 102.0
    beating.heart.check()
    beating.clock.time = 102.0
    with pytest.raises(Over) as over:
        beating.heart.check()
    assert over.value.args[0] == EXIT_STOPPED


def test_repeated_errors_are_published_soon_but_not_at_once(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.beat(100.0)
    flags = beating.heart.flags
    beating.heart.update(structs.replace(flags, errors=5))
    assert 100.0 < beating.heart.next_heartbeat < 101.0
    beating.heart.update(structs.replace(flags, errors=6, ended=True))
    assert beating.heart.next_heartbeat <= 100.0


def test_no_error_ends_the_heartbeat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    beating = Beating(tmp_path)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        beating.heart.woken.set()
        beating.heart.ending = looks == 3
        if looks == 1:
            raise SystemExit("a gauge of the user's")

    beating.heart.check = look  # type: ignore[method-assign]
    beating.heart.woken.set()
    beating.heart.serve()
    assert looks == 3
    assert caplog.messages == ["the heartbeat failed; it goes on"]
    assert read_heartbeat(tmp_path) is not None


# Errors of user code in the log.


def report(number: int, text: str, time: float) -> ErrorReport:
    return ErrorReport("words", "count", number, "execute", text, "a.py:1", (), None, time)


def test_each_error_is_logged_once_even_if_it_is_seen_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, written = ErrorLog(), ErrorLines()
    assert written.write_new({"count": log}, 0.0) == 0
    for _ in range(3):
        log.add(report(1, "one", 1.0))
    assert written.write_new({"count": log}, 1.0) == 3
    log.add(report(1, "one", 2.0))
    log.add(report(1, "two", 3.0))
    log.add(report(2, "two", 3.0))
    assert written.write_new({"count": log}, 3.0) == 6
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "count[1] of topology 'words': execute() raised one",
        "count[1] of topology 'words': execute() raised two",
        "count[2] of topology 'words': execute() raised two",
    ]


def test_a_flood_of_errors_is_cut_and_counted_in_the_next_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, written = ErrorLog(), ErrorLines()
    for number in range(100):
        log.add(report(1, f"error {number}", float(number)))
        written.write_new({"count": log}, 10.0)
    assert len(caplog.records) == 21
    assert caplog.messages[-1] == "errors are only counted from here on, for up to 60 s"
    caplog.clear()
    log.add(report(1, "another", 200.0))
    assert written.write_new({"count": log}, 71.0) == 101
    assert caplog.messages[0] == "80 errors of user code before this one are only counted"
    assert "raised another" in caplog.messages[1]
