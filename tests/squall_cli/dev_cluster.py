"""A cluster of `squall dev` for tests, with real daemons and workers, and commands that use it as its user would.

Must not know: which topologies run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from squall.daemon.process_stat import all_processes
from squall_cli import main
from tests.squall_cli.run_process import ROOT, environment
from tests.zookeeper_servers import eventually

#: Seconds for one command: the longest ones start a Spark, on a machine under load.
CAP = 200.0


class Commands:
    """`squall ...` in processes of their own. `folder` is their home, by which all their descendants are found."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.variables = environment(HOME=str(folder), TMPDIR=str(folder), **variables)

    def start(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that keeps running."""
        with log.open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "squall_cli", *arguments],
                env=self.variables,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def run(self, *arguments: str) -> str:
        """Run a command that must succeed; return its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "squall_cli", *arguments],
            env=self.variables,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
        )
        assert done.returncode == 0, f"squall {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def here(self, *arguments: str) -> str:
        """The same in this process, with its session of Spark. (A process costs a second of a processor, with Spark ten.)"""
        variables = {name: self.variables[name] for name in ("HOME", "SQUALL_NIMBUS")}
        done = CliRunner().invoke(main.squall, arguments, prog_name="squall", env=variables)
        assert done.exit_code == 0, f"squall {' '.join(arguments)}:\n{done.output}"
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        """The state, the counters and the workers of a topology."""
        found: dict[str, Any] = json.loads(self.here("status", name, "--json"))
        return found

    def pids(self, name: str) -> list[int]:
        """The processes of the workers of a topology that have opened all of their tasks."""
        return [each["pid"] for each in self.status(name)["workers"] if each["state"] == "RUNNING"]

    def left(self) -> list[int]:
        """Processes whose home is the folder, or that have a path in it as an argument."""
        found, folder = [], os.fsencode(self.folder)
        for stat in all_processes():
            try:
                arguments = Path(f"/proc/{stat.pid}/cmdline").read_bytes()
                variables = Path(f"/proc/{stat.pid}/environ").read_bytes()
            except OSError:
                continue
            if stat.living and (folder + b"/" in arguments or b"HOME=" + folder + b"\0" in variables):
                found.append(stat.pid)
        return found


@contextmanager
def dev_cluster(
    folder: Path, slots: int = 1, variables: Mapping[str, str] | None = None
) -> Iterator[Commands]:
    """A `squall dev` and commands that use it. No process of it is left afterwards: that is checked and ensured.

    variables: of the environment of the cluster, and so of its workers.
    """
    commands, log = Commands(folder, variables or {}), folder / "dev.log"
    process = commands.start(log, "dev", "--listen", "127.0.0.1:0", "--slots", str(slots))
    try:
        eventually(lambda: "Ctrl-C ends it" in log.read_text() or process.poll() is not None, CAP)
        assert process.poll() is None, log.read_text()
        commands.variables["SQUALL_NIMBUS"] = (
            log.read_text().partition("Nimbus at ")[2].partition(",")[0].strip()
        )
        yield commands
        process.terminate()
        assert process.wait(CAP) == 0, log.read_text()
        eventually(lambda: not commands.left(), CAP, every=0.2)
    finally:
        process.kill()
        process.wait(CAP)
        for pid in commands.left():
            os.kill(pid, signal.SIGKILL)
