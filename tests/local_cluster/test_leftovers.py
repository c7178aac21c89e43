"""A cluster removes the folders of clusters whose process died, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.leftovers import MOST_OWNER, OWNER, PREFIX, note_owner, sweep
from squall.daemon.process_stat import stat_of
from squall.values import Incarnation
from supervisor.directories import Started, write_started

ROOT = Path(__file__).resolve().parents[2]


def left_directory(folder: Path, name: str = f"{PREFIX}abc", **changes: Any) -> Path:
    """A non-empty folder whose owner is this process, or as `changes` say."""
    directory = folder / name
    (directory / "local-1" / "topologies").mkdir(parents=True)
    (directory / "local-1" / "worker.log").write_text("text")
    note_owner(directory)
    note = json.loads((directory / OWNER).read_text())
    (directory / OWNER).write_text(json.dumps({**note, **changes}))
    return directory


def test_a_new_cluster_removes_the_folder_of_a_killed_one(
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


def test_a_folder_whose_pid_belongs_to_another_process_by_now_is_removed(tmp_path: Path) -> None:
    left_directory(tmp_path, started=1)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes", [{}, {"started": 1, "place": "another machine"}, {"started": "1"}, {"pid": None}], ids=str
)
def test_a_folder_stays_if_its_owner_lives_or_cannot_be_checked(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    directory = left_directory(tmp_path, **changes)
    sweep(tmp_path)
    assert directory.exists()


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", "\udcff", "[" * 100_000], ids=range(7))
def test_a_folder_without_a_readable_note_stays(tmp_path: Path, text: str | None) -> None:
    directory = left_directory(tmp_path, started=1)
    (directory / OWNER).unlink()
    if text is not None:
        (directory / OWNER).write_bytes(text.encode(errors="surrogateescape"))
    sweep(tmp_path)
    assert (directory / "local-1" / "worker.log").exists()


def test_folders_of_another_name_files_and_links_stay(tmp_path: Path) -> None:
    other = left_directory(tmp_path, "squall-other", started=1)
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    (tmp_path / f"{PREFIX}file").write_text("text")
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert (other / OWNER).exists()


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = left_directory(tmp_path, started=1)
    monkeypatch.setattr("os.geteuid", lambda: directory.stat().st_uid + 1)
    sweep(tmp_path)
    assert directory.exists()


def test_a_folder_in_which_a_worker_runs_stays_until_the_worker_has_ended(tmp_path: Path) -> None:
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


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    sweep(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("owner", ["huge", "link", "pipe"])
def test_a_folder_stays_if_a_worker_has_replaced_the_owners_record(tmp_path: Path, owner: str) -> None:
    directory = left_directory(tmp_path, started=1)
    record = directory / OWNER
    text = record.read_text()
    record.unlink()
    if owner == "huge":
        record.write_text(text + " " * MOST_OWNER)
    elif owner == "link":
        (tmp_path / "elsewhere").write_text(text)
        record.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(record)
    sweep(tmp_path)
    assert directory.exists()


@pytest.mark.slow
def test_a_folder_with_folders_deeper_than_python_can_call_is_removed(tmp_path: Path) -> None:
    directory = left_directory(tmp_path, started=1)
    folder = os.open(directory / "local-1", os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("folder", dir_fd=folder)
        deeper = os.open("folder", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    sweep(tmp_path)
    assert not directory.exists()
