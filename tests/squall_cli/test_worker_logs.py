"""Logs of worker processes as a person sees them: all output of user code, once, whatever happens to the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from squall_cli.local.worker_logs import AT_ONCE, MOST_BEHIND, Followed, WorkerLogs, readable

WHEN = "2026-03-01 12:00:05,123"


def put(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"{WHEN} INFO count[4] hello world", "12:00:05 count[4]: hello world"),
        (f"{WHEN} INFO count[4] ", "12:00:05 count[4]: "),
        (f"{WHEN} WARNING count[4] beware", "12:00:05 WARNING count[4]: beware"),
        (f"{WHEN} REPORT count[4] execute() raised ValueError", ""),
        (f"{WHEN} INFO w1 asked to run", ""),
        (f"{WHEN} DEBUG w1 details", ""),
        (f"{WHEN} ERROR w1 a fault of its own", "12:00:05 ERROR w1: a fault of its own"),
        ("  File 'x.py', line 3", None),
        ("", None),
    ],
)
def test_of_a_workers_own_lines_only_warnings_are_shown(line: str, shown: str | None) -> None:
    assert readable(line) == shown


def test_lines_are_shown_once_and_when_they_are_complete(tmp_path: Path) -> None:
    logs = WorkerLogs()
    logs.follow([("w1", tmp_path)])
    assert logs.read() == ""
    put(tmp_path / "worker.log", f"{WHEN} INFO count[4] one\n{WHEN} INFO count[4] tw")
    assert logs.read() == "12:00:05 count[4]: one\n"
    assert logs.read() == ""
    put(tmp_path / "worker.log", f"o\n{WHEN} INFO w1 asked to stop\n")
    put(tmp_path / "output.log", "from a child\nunfinished")
    assert logs.read() == "12:00:05 count[4]: two\nw1: from a child\n"
    assert logs.read(last=True) == "w1: unfinished\n"
    logs.close()


def test_further_lines_of_an_entry_follow_the_first(tmp_path: Path) -> None:
    logs = WorkerLogs()
    logs.follow([("w1", tmp_path)])
    put(tmp_path / "worker.log", f"{WHEN} INFO count[4] one\ntwo\n{WHEN} INFO w1 quiet\nquiet too\n")
    assert logs.read() == "12:00:05 count[4]: one\n  two\n"
    logs.close()


def test_two_workers_are_distinguished_and_the_same_one_is_not_read_twice(tmp_path: Path) -> None:
    logs = WorkerLogs()
    for name in ("w1", "w2"):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "output.log", f"by {name}\n")
    for _ in range(2):
        logs.follow([("w1", tmp_path / "w1"), ("w2", tmp_path / "w2")])
    assert logs.read() == "w1: by w1\nw2: by w2\n"
    logs.close()


def test_a_rotated_log_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    log = Followed(path)
    put(path, "one\n")
    assert log.lines(last=False) == ["one"]
    put(path, "two\n")
    path.rename(tmp_path / "worker.log.1")
    put(path, "three\n")
    assert log.lines(last=False) == ["two", "three"]
    log.close()


def test_a_log_whose_directory_is_removed_is_read_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "w1"
    folder.mkdir()
    log = Followed(folder / "worker.log")
    put(folder / "worker.log", "one\n")
    assert log.lines(last=False) == ["one"]
    put(folder / "worker.log", "last words\n")
    shutil.rmtree(folder)
    assert log.lines(last=True) == ["last words"]
    log.close()


def test_a_truncated_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    log = Followed(path)
    put(path, "a long line that goes\n")
    log.lines(last=False)
    path.write_text("new\n")
    assert log.lines(last=False) == ["new"]
    log.close()


def test_of_a_flood_the_latest_lines_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    log = Followed(path)
    line = "x" * 99 + "\n"
    put(path, line * (3 * MOST_BEHIND // 100))
    put(path, "the last\n")
    lines = log.lines(last=False)
    assert f"bytes of {tmp_path.name}/worker.log are not shown" in lines[1]
    assert lines[-1] == "the last"
    assert sum(map(len, lines)) <= AT_ONCE + 200
    assert log.lines(last=False) == []
    log.close()


def test_bytes_that_are_no_text_are_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"caf\xe9\n")
    log = Followed(tmp_path / "output.log")
    assert log.lines(last=False) == ["caf\\xe9"]
    log.close()
