"""A worker whose user code leaves it no file descriptor ends by itself, with the reason; strangers cannot bring that about."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall.worker_files import EXIT_FILES
from tests.worker.conftest import Launch
from tests.worker.daemon_components import StartsPrograms, lines, one_bolt
from tests.worker.flood import flooded
from tests.worker.test_daemon_ends import wait_gone
from topology_api import Bolt, Context, Tuple
from worker.process.exit import OpenFiles


class LowersItsLimit(Bolt):
    def execute(self, tup: Tuple) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))


class HasFewFiles(Bolt):
    def prepare(self, context: Context) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    def execute(self, tup: Tuple) -> None:
        pass


class StartsAndLowers(StartsPrograms):
    """Starts programs, and leaves the worker no descriptor to look for them."""

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))


@pytest.mark.slow
def test_a_worker_whose_user_code_lowers_the_file_limit_reports_it(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(LowersItsLimit(), tmp_path, 5))
    assert worker.wait_end() == EXIT_FILES
    end = worker.end()
    assert end is not None and end.status == EXIT_FILES
    assert "it cannot open any more files: user code has lowered RLIMIT_NOFILE from " in end.reason
    assert end.reason.endswith(" to 10")
    assert "lowered RLIMIT_NOFILE" in worker.log()


@pytest.mark.slow
def test_programs_that_it_started_still_end_with_it(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(StartsAndLowers(tmp_path), tmp_path, 5))
    assert worker.wait_end() == EXIT_FILES
    pids = [int(line) for line in lines(tmp_path / "programs")]
    assert len(pids) == 2 and all(map(wait_gone, pids))


def test_descriptors_all_in_use_are_distinguished_from_a_lowered_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: None)
    files = OpenFiles()
    assert "all 1024 that RLIMIT_NOFILE allows are in use" in files.why_none()
    limits[0] = (100, 1024)
    assert files.why_none().endswith("user code has lowered RLIMIT_NOFILE from 1024 to 100")
    files.release_reserved()


@pytest.mark.parametrize(
    ("strangers", "named"),
    [(200, "200 of the 256 that RLIMIT_NOFILE allows are conn"), (100, "by user code")],
)
def test_strangers_that_hold_most_descriptors_are_named_and_not_user_code(
    monkeypatch: pytest.MonkeyPatch, strangers: int, named: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: None)
    files = OpenFiles()
    files.admission = cast(Any, SimpleNamespace(count=lambda: strangers))
    assert named in files.why_none()
    assert ("user code" in files.why_none()) == (strangers == 100)
    files.release_reserved()


@pytest.mark.slow
def test_a_worker_outlives_strangers_who_hold_more_connections_than_it_may_open_files(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(HasFewFiles(), tmp_path, None))
    worker.wait_opened()
    address = worker.wait_heartbeat(lambda heartbeat: heartbeat.address).address
    assert address is not None
    with flooded(int(address[0].rpartition(":")[2]), connections=2_500, seconds=5):
        end = time.monotonic() + 5  # longer than a worker without files waits before it ends
        worker.wait_heartbeat(lambda heartbeat: time.monotonic() > end)
    before = worker.heartbeat()
    assert before is not None
    worker.wait_heartbeat(lambda heartbeat: heartbeat.number > before.number)
    assert worker.end() is None
    assert "that had not shown the topology's key" in worker.log()


def test_the_reserved_descriptor_is_released_once_whatever_user_code_has_closed() -> None:
    files = OpenFiles()
    first = os.open(os.devnull, os.O_RDONLY)
    files.release_reserved()
    free = os.open(os.devnull, os.O_RDONLY)
    assert free < first, "there is room for one more"
    files.release_reserved()
    os.fstat(free)  # it is not ours to close any more
    os.close(free)
    os.close(first)
