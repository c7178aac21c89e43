"""What a cluster whose process died has left is removed by the next one, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.leftovers import OWNER, PREFIX, note_owner, sweep
from squall.daemon.process_stat import stat_of
from squall.values import Incarnation
from supervisor.directories import Started, write_started

ROOT = Path(__file__).resolve().parents[2]


def left_directory(folder: Path, name: str = f"{PREFIX}abc", **changes: Any) -> Path:
    """A directory with something in it whose owner is this process, or as the changes say."""
    directory = folder / name
    (directory / "local-1" / "topologies").mkdir(parents=True)
    (directory / "local-1" / "worker.log").write_text("text")
    note_owner(directory)
    note = json.loads((directory / OWNER).read_text())
    (directory / OWNER).write_text(json.dumps({**note, **changes}))
    return directory


def test_a_cluster_that_begins_removes_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    program = "import os; from local_cluster import LocalCluster; LocalCluster(processes=True); os._exit(0)"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    [left] = tmp_path.iterdir()
    with LocalCluster(processes=True):
        [own] = tmp_path.iterdir()
        assert own != left
        sweep(tmp_path)
        assert own.exists()
    assert list(tmp_path.iterdir()) == []


def test_one_whose_pid_another_process_has_by_now_is_removed(tmp_path: Path) -> None:
    left_directory(tmp_path, started=1)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes", [{}, {"started": 1, "place": "another machine"}, {"started": "1"}, {"pid": None}], ids=str
)
def test_one_stays_whose_owner_lives_or_cannot_be_looked_up(tmp_path: Path, changes: dict[str, Any]) -> None:
    directory = left_directory(tmp_path, **changes)
    sweep(tmp_path)
    assert directory.exists()


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", "\udcff", "[" * 100_000], ids=range(7))
def test_one_without_a_note_that_can_be_read_stays(tmp_path: Path, text: str | None) -> None:
    directory = left_directory(tmp_path, started=1)
    (directory / OWNER).unlink()
    if text is not None:
        (directory / OWNER).write_bytes(text.encode(errors="surrogateescape"))
    sweep(tmp_path)
    assert (directory / "local-1" / "worker.log").exists()


def test_directories_of_another_name_files_and_links_stay(tmp_path: Path) -> None:
    other = left_directory(tmp_path, "squall-other", started=1)
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    (tmp_path / f"{PREFIX}file").write_text("text")
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert (other / OWNER).exists()


def test_one_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = left_directory(tmp_path, started=1)
    monkeypatch.setattr("os.geteuid", lambda: directory.stat().st_uid + 1)
    sweep(tmp_path)
    assert directory.exists()


def test_one_in_which_a_worker_runs_stays_until_it_has_ended(tmp_path: Path) -> None:
    directory = left_directory(tmp_path, started=1)
    worker = directory / "local-1" / "topologies" / "t-1-0" / "workers" / "w1"
    worker.mkdir(parents=True)
    this = stat_of(os.getpid())
    assert this is not None
    write_started(worker, Started(this.pid, this.started, Incarnation(1, 0), 0))
    sweep(tmp_path)
    assert directory.exists()
    write_started(worker, Started(this.pid, 1, Incarnation(1, 0), 0))
    sweep(tmp_path)
    assert not directory.exists()


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    sweep(tmp_path / "none")
    assert not (tmp_path / "none").exists()
