"""Logs stay on a host for some days after their topology has ended; nothing else does, and nothing without bounds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from supervisor.directories import Directories
from supervisor.kept_logs import DAY, MOST_BYTES, MOST_TOPOLOGIES, KeptLogs
from supervisor.removals import delete


class Host:
    """The directories of a supervisor with a wall clock that the test sets."""

    def __init__(self, state: Path, days: float = 7.0) -> None:
        self.state, self.now = state, 1_000_000.0
        self.logs = KeptLogs(state, days, delete, lambda: self.now)
        self.directories = Directories(state, own_work=True, logs=self.logs)

    def ran(self, topology_id: str, **files: str) -> Path:
        directory = self.directories.make_worker(topology_id, "w1")
        for name, text in files.items():
            (directory / name.replace("_", ".", 1)).write_text(text)
        return directory

    def log(self, topology_id: str) -> str | None:
        path = self.directories.log(topology_id, "w1", "worker.log")
        return path.read_text() if path.exists() else None


def test_logs_stay_when_their_topology_is_removed_and_nothing_else_does(tmp_path: Path) -> None:
    host = Host(tmp_path)
    directory = host.ran("words-1-0", worker_log="last words", output_log="past Python", orders_json="{}")
    (directory / "worker.log.1").write_text("older words")
    assert host.log("words-1-0") == "last words"
    host.directories.remove_topologies([])
    assert not directory.exists() and host.log("words-1-0") == "last words"
    kept = {path.name for path in host.directories.log("words-1-0", "w1", "worker.log").parent.iterdir()}
    assert kept == {"worker.log", "worker.log.1", "output.log"}
    host.directories.remove_topologies([])
    assert host.log("words-1-0") == "last words"


def test_a_host_that_cannot_keep_logs_says_so_once_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path)
    topology = host.ran("words-1-0", worker_log="last words").parents[1]

    def read_only(*paths: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", read_only)
    for _ in range(50):
        host.now += 1.0
        host.logs.keep(topology)
    assert [record.getMessage() for record in caplog.records] == [
        "logs of words-1-0 are not kept: [Errno 30] Read-only file system"
    ]
    host.now += 3600.0
    host.logs.keep(topology)
    assert len(caplog.records) == 2


def test_kept_logs_are_removed_after_their_days(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.ran("words-1-0", worker_log="last words")
    host.directories.remove_topologies([])
    host.now += 7 * DAY - 1
    host.directories.tick(1.0)
    assert host.log("words-1-0") == "last words"
    host.now += 2
    host.directories.tick(2.0)  # checked a moment ago
    assert host.log("words-1-0") == "last words"
    host.directories.tick(1000.0)
    assert host.log("words-1-0") is None and not list((tmp_path / "logs").iterdir())


def test_the_logs_of_the_topologies_that_ended_last_are_kept(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for number in range(MOST_TOPOLOGIES + 2):
        host.now += 1
        host.ran(f"words-{number}-0", worker_log=str(number))
        host.directories.remove_topologies([])
    there = [number for number in range(MOST_TOPOLOGIES + 2) if host.log(f"words-{number}-0") is not None]
    assert there == list(range(2, MOST_TOPOLOGIES + 2))


def test_with_no_days_nothing_is_kept(tmp_path: Path) -> None:
    host = Host(tmp_path, days=0)
    host.ran("words-1-0", worker_log="last words")
    host.directories.remove_topologies([])
    assert host.log("words-1-0") is None and not (tmp_path / "logs").exists()


def test_what_user_code_put_in_place_of_a_log_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path / "state")
    directory = host.ran("words-1-0", output_log="kept")
    (tmp_path / "secret").write_text("of another user")
    (directory / "worker.log").symlink_to(tmp_path / "secret")
    os.mkfifo(directory / "worker.log.1")
    (directory / "worker.log.2").mkdir()
    with open(directory / "output.log.1", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    (directory.parent / "w2").symlink_to(tmp_path)
    host.directories.remove_topologies([])
    kept = host.directories.log("words-1-0", "w1", "output.log").parent
    assert [path.name for path in kept.iterdir()] == ["output.log"]
    assert [path.name for path in kept.parent.iterdir()] == ["w1"]
    assert "output.log.1 is too large, and is not kept" in caplog.text
    assert (tmp_path / "secret").read_text() == "of another user"


def test_logs_that_cannot_be_kept_do_not_keep_a_topology_on_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path)
    directory = host.ran("words-1-0", worker_log="last words")
    (tmp_path / "logs").write_text("a file in place of the folder")
    host.directories.remove_topologies([])
    assert not directory.exists() and "logs of words-1-0 are not kept" in caplog.text
