"""A worker whose user code leaves it no file descriptor ends by itself, with the reason."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from squall.worker_files import EXIT_FILES
from tests.worker.conftest import Launch
from tests.worker.daemon_components import StartsPrograms, lines, one_bolt
from tests.worker.test_daemon_ends import wait_gone
from topology_api import Bolt, Tuple
from worker.process.exit import OpenFiles


class LowersItsLimit(Bolt):
    def execute(self, tup: Tuple) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))


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
