"""squall run with closed descriptors, full disks and missing folders: a reason in one line, never our traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.squall_cli.run_process import CAP, ROOT, command, environment

COMPLETES = """
from topology_api import Bolt, Spout, TopologyBuilder

class One(Spout):
    outputs = "number"
    def next_tuple(self):
        self.emit((1,), message_id=1)
        self.finish()

class Sink(Bolt):
    def execute(self, tup):
        pass

def topology():
    builder = TopologyBuilder("small")
    builder.set_spout("one", One())
    builder.set_bolt("sink", Sink()).shuffle_grouping("one")
    return builder.build()
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with a topology that completes soon."""
    file = tmp_path / "small_topology.py"
    file.write_text(COMPLETES)
    return file


def by_shell(redirection: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run it with a redirection of the shell."""
    return subprocess.run(
        ["/bin/sh", "-c", f"{shlex.join(command(*arguments))} {redirection}"],
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_no_harm(closed: str, small: Path) -> None:
    done = by_shell(closed, str(small), cwd=small.parent)
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_reported_in_one_line(small: Path) -> None:
    done = by_shell("> /dev/full", str(small), cwd=small.parent)
    assert done.returncode != 0
    assert "squall run: [Errno 28]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_working_folder_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"rmdir {shlex.quote(str(gone))}; {shlex.join(command('some_module'))}"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=environment(),
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert done.returncode == 1
    assert "some_module cannot be looked for in the working folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_the_command_is_being_loaded_makes_no_traceback(tmp_path: Path) -> None:
    """A slow module in place of click, which is loaded first."""
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    done = subprocess.run(
        command("--help"),
        env=environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)])),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "\nAborted!\n")


def test_an_invalid_number_of_seconds_is_wrong_usage(small: Path) -> None:
    done = by_shell("", "--seconds", "nan", str(small), cwd=small.parent)
    assert done.returncode == 2
    assert "'nan': give a number of seconds above 0" in done.stderr


def test_a_null_byte_in_a_file_is_not_blamed_on_the_import_machinery(tmp_path: Path) -> None:
    (tmp_path / "nulls.py").write_bytes(b"x = 1\x00")
    done = by_shell("", "nulls.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "nulls.py cannot be imported" in done.stderr
    assert "frozen" not in done.stderr
