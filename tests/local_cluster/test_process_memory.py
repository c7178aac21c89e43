"""A worker that the kernel kills because memory is used up is reported, and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.local_cluster.process_topologies import wait_until
from topology_api import Bolt, Context, Fields, Replay, Spout, Tuple

CAP = 60.0
MEGABYTE = 1 << 20
#: Memory for a cluster with two workers, and some more.
MOST = 512 * MEGABYTE
ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")


class Twenty(Spout):
    """Emits 0 to 19, and tries each twice."""

    outputs = Fields("number")
    replay = Replay(max_attempts=2, first_delay=0.01)

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number == 20:
            return self.finish()
        self.emit((self.number,), message_id=self.number)
        self.number += 1
        return None


class Grows(Bolt):
    """Uses all memory the first time that it sees number 7."""

    def __init__(self, done: Path) -> None:
        self.done = done

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 7 and not self.done.exists():
            self.done.touch()
            self.much = [bytearray(b"x" * MEGABYTE) for _ in range(2 * MOST // MEGABYTE)]


#: Runs a cluster inside a control group, as in a container, and prints the outcome.
PROGRAM = """
import json, pathlib, sys

group, done = map(pathlib.Path, sys.argv[1:])
(group / "cgroup.procs").write_text("0")

from local_cluster import LocalCluster
from tests.local_cluster.process_topologies import line
from tests.local_cluster.test_process_memory import Grows, Twenty

with LocalCluster(processes=True, supervisors=2, slots=2) as cluster:
    cluster.submit(line("grows", Twenty(), Grows(done)))
    cluster.wait("grows", 60)
    status = cluster.status("grows")
    print(json.dumps([status.state, status.notes]))
"""


@contextmanager
def control_group() -> Iterator[Path]:
    """A control group with little memory beside our own. Existing groups are not changed: if that is not enough, the test is
    skipped.
    """
    if not (CGROUPS / "cgroup.controllers").exists():
        pytest.skip("control groups of version 2 are not mounted at /sys/fs/cgroup")
    groups = [text[3:] for text in Path("/proc/self/cgroup").read_text().splitlines() if text[:3] == "0::"]
    above = (CGROUPS / groups[0].lstrip("/")).parent if groups != ["/"] else CGROUPS
    if "memory" not in (above / "cgroup.subtree_control").read_text().split():
        pytest.skip(f"groups in {above} have no limits of memory (cgroup.subtree_control)")
    group = above / f"squall-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        (group / "memory.max").write_text(str(MOST))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_worker_that_the_kernel_kills_for_lack_of_memory_is_reported_and_started_again(
    tmp_path: Path,
) -> None:
    with control_group() as group:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, group, tmp_path / "done"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    state, notes = json.loads(done.stdout)
    assert state == "COMPLETED", "its successor has processed the rest"
    assert "was killed by SIGKILL (OOM killer: yes)" in notes[0]
