"""The check for leaks finds leaks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.leaks import (
    MARK,
    Traces,
    all_listening_ports,
    left,
    listening_ports,
    memory_of,
    processes,
    state_of,
)

CAP = 20.0
ORPHAN = """
import os, subprocess, sys
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
print(inner.pid, flush=True)
"""


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Traces]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    yield Traces(uuid.uuid4().hex, folder)


def marked(before: Traces) -> dict[str, str]:
    return {**os.environ, MARK: before.mark}


def test_no_leak_is_reported_when_nothing_is_left(before: Traces) -> None:
    subprocess.run([sys.executable, "-c", "pass"], env=marked(before), check=True)
    assert left(before) == []


def test_a_process_without_its_parent_is_found_by_its_mark(before: Traces) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], env=marked(before), stdout=subprocess.PIPE, text=True
    ) as outer:
        assert outer.stdout is not None
        pid = int(outer.stdout.readline())
        outer.wait(CAP)
        try:
            assert [process.pid for process in processes(before.mark, str(before.folder))] == [pid]
            assert any(f"process {pid}" in line for line in left(before))
        finally:
            os.kill(pid, 9)


def test_a_process_that_works_in_the_folder_is_found_by_its_command(before: Traces) -> None:
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, str(before.folder)], stdin=subprocess.PIPE) as child:
        assert [one.pid for one in processes("other", str(before.folder))] == [child.pid]
        child.communicate(timeout=CAP)


def test_a_zombie_child_is_found(before: Traces) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], env=marked(before))
    deadline = time.monotonic() + CAP
    while state_of(child.pid) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert any(line.startswith(f"zombie: process {child.pid}") for line in left(before))
    child.wait(CAP)
    assert left(before) == []


def test_an_open_socket_a_thread_and_a_file_are_found(before: Traces) -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="left over")
    thread.start()
    Path(before.folder, "a", "b").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in listening_ports(os.getpid())
        assert port in all_listening_ports()
        found = "\n".join(left(before))
    for what in ("open here: ", "socket:", "thread here: left over", "file: ", "a/b"):
        assert what in found
    assert port not in listening_ports(os.getpid())
    go.set()
    thread.join(CAP)


def test_memory_and_state_of_a_process_are_read_and_those_of_an_ended_one_are_empty() -> None:
    assert memory_of(os.getpid()) > 1.0
    assert state_of(os.getpid()) == "R"
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait(CAP)
    assert (memory_of(gone.pid), state_of(gone.pid)) == (0.0, None)
