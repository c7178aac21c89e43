"""`squall dev` with real daemons and workers: every command works with it, and nothing is left when it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from squall.daemon.process_stat import all_processes
from squall.security.tokens import user_place
from squall_cli.commands.dev import opening, state_directory
from tests.squall_cli.run_process import CAP, ROOT, Running, environment, running_squall

TOPOLOGY = '''
"""Numbers without end, a hundred at a time."""
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = Fields("number")
    def open(self, context):
        self.number = 0
        self.pending = set()
    def next_tuple(self):
        if len(self.pending) < 100:
            self.number += 1
            self.pending.add(self.number)
            self.emit((self.number,), message_id=self.number)
        return 0.01
    def ack(self, message_id):
        self.pending.discard(message_id)
    def fail(self, message_id, failure):
        self.pending.discard(message_id)

class Halve(Bolt):
    outputs = Fields("number")
    def prepare(self, context):
        print("ready to halve")
    def execute(self, tup):
        if tup["number"] == 50:
            raise ValueError("fifty is not halved")
        self.emit((tup["number"] / 2,))

builder = TopologyBuilder("halves")
builder.set_spout("numbers", Numbers())
builder.set_bolt("halve", Halve(), parallelism=2).shuffle_grouping("numbers")
topology = builder.build()
'''


class Dev:
    """A cluster of `squall dev`, and commands that ask it."""

    def __init__(self, process: Running, home: Path) -> None:
        self.process = process
        self.home = home
        process.wait_for("Ctrl-C ends it")
        first = next(line for line in process.lines if "Nimbus at" in line)
        self.url = first.partition("Nimbus at ")[2].partition(",")[0]
        log = next(line for line in process.lines if line.startswith("Log:"))
        self.state = Path(log.split()[-1]).parent

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command in a process of its own, as the same user."""
        return subprocess.run(
            [sys.executable, "-m", "squall_cli", *arguments],
            env=environment(HOME=str(self.home), SQUALL_NIMBUS=self.url),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
        )

    def ask(self, *arguments: str) -> dict[str, object]:
        """The JSON output of a command."""
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        answer: dict[str, object] = json.loads(result.stdout)
        return answer


@contextmanager
def dev(home: Path, *arguments: str) -> Iterator[Dev]:
    (home / "halves.py").write_text(TOPOLOGY)
    with running_squall(
        "dev", "--listen", "127.0.0.1:0", *arguments, HOME=str(home), TMPDIR=str(home)
    ) as process:
        yield Dev(process, home)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + CAP
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def processes_of(directory: Path) -> set[int]:
    """Processes that have a path below that directory among their arguments: workers and their children."""
    found = set()
    for stat in all_processes():
        try:
            arguments = Path(f"/proc/{stat.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(directory) in arguments and stat.living:
            found.add(stat.pid)
    return found


@pytest.mark.slow
def test_a_topology_is_submitted_watched_changed_and_killed(tmp_path: Path) -> None:
    with dev(tmp_path, "--slots", "3") as cluster:
        # With `wait`, a bad number that is the last one before `deactivate` is tried again until the others go on.
        options = ("-o", "topology.workers=2", "-o", "topology.on.outage=give-up")
        submitted = cluster.run("submit", "halves.py", "--wait", *options)
        assert submitted.returncode == 0, submitted.stderr
        assert "halves" in cluster.run("list").stdout
        status = cluster.run("status", "halves").stdout
        assert status.startswith("halves  ACTIVE for ")
        assert "2 workers on 1 host" in status
        assert "ready to halve" in cluster.run("logs", "halves", "--component", "halve").stdout
        assert "process" in cluster.run("logs", "halves", "--worker", "w1").stdout
        wait_until(lambda: "fifty is not halved" in cluster.run("errors", "halves").stdout)
        wait_until(lambda: cast(float, cluster.ask("top", "--delay", "1")["rate"]) > 0)
        used = cluster.run("supervisors")
        assert "halves 2" in used.stdout
        assert "2 of 3 slots used, 1 free" in used.stderr

        placed = cluster.run("rebalance", "halves", "-n", "3", "-e", "halve=4", "--wait")
        assert (placed.returncode, placed.stdout) == (0, "halves is ACTIVE again.\n")
        workers = cluster.ask("status", "halves")["workers"]
        assert isinstance(workers, list)
        assert len([each for each in workers if each["state"] == "RUNNING"]) == 3
        assert sum(task[1] == "halve" for each in workers for task in each["tasks"]) == 4

        assert cluster.run("deactivate", "halves", "--wait").stdout == "halves is INACTIVE.\n"
        assert cluster.ask("list")["topologies"][0]["pending"] == 0  # type: ignore[index]
        assert cluster.run("activate", "halves").stdout == "halves is ACTIVE.\n"
        refused = cluster.run("rebalance", "halves", "-e", "halv=4")
        assert refused.returncode == 1
        assert "did you mean 'halve'?" in refused.stderr

        assert cluster.run("kill", "halves", "--wait").stdout == "halves is gone.\n"
        assert cluster.ask("list") == {"topologies": []}
        assert "2 of 3" not in cluster.run("supervisors").stderr


@pytest.mark.slow
def test_the_commands_in_the_opening_text_work_unchanged(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with dev(tmp_path) as cluster:
        said = [line.split()[1:] for line in cluster.process.lines if line.startswith("  squall ")]
        assert [arguments[0] for arguments in said] == ["submit", "list", "status", "kill"]
        for arguments in said:
            done = cluster.run(*arguments)
            assert done.returncode == 0, done.stderr
            assert "word-count" in done.stdout


def files(folder: Path) -> list[str]:
    """All files below a folder, except for the bytecode that Python keeps beside modules."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if path.parent.name != "__pycache__")


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_a_call_that_does_not_return(tmp_path: Path) -> None:
    with dev(tmp_path) as cluster:
        (tmp_path / "stuck.py").write_text(
            TOPOLOGY.replace('"halves"', '"stuck"').replace(
                "if tup", "__import__('time').sleep(3600)\n        if tup"
            )
        )
        assert cluster.run("submit", "stuck.py").returncode == 0
        wait_until(lambda: "ready to halve" in cluster.run("logs", "stuck").stdout)
        cluster.process.signal(signal.SIGINT)
        cluster.process.wait_for("Ctrl-C: ending")
        cluster.process.signal(signal.SIGINT)
        began = time.monotonic()
        assert cluster.process.end() == 0
        assert time.monotonic() - began < 8.0, "the command waited the 10 s that a worker has to stop"
        assert processes_of(cluster.state) == set()
        assert files(tmp_path) == ["halves.py", "stuck.py"]


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_no_file_and_no_token(tmp_path: Path) -> None:
    with dev(tmp_path) as cluster:
        assert cluster.run("submit", "halves.py", "--wait").returncode == 0
        assert processes_of(cluster.state)
        assert cluster.state.is_dir()
        cluster.process.signal(signal.SIGINT)
        assert cluster.process.end() == 0
        assert cluster.process.lines[-1].startswith("Ctrl-C: ending, with all workers")  # and no error
        assert processes_of(cluster.state) == set()
        assert files(tmp_path) == ["halves.py"]


@pytest.mark.slow
def test_with_a_state_directory_topologies_go_on_the_next_time(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    with dev(tmp_path, "--state", kept) as cluster:
        assert cluster.run("submit", "halves.py", "--wait").returncode == 0
        cluster.process.signal(signal.SIGTERM)
        assert cluster.process.end() == 0
    with dev(tmp_path, "--state", kept) as cluster:
        acked = []

        def goes_on() -> bool:
            acked.append(cluster.ask("list")["topologies"][0]["acked"])  # type: ignore[index]
            return bool(acked[-1] > acked[0])

        wait_until(goes_on)
        assert cluster.run("kill", "halves", "-w", "0", "--wait").returncode == 0


@pytest.mark.slow
def test_two_of_them_do_not_share_a_state_directory_or_a_port(tmp_path: Path) -> None:
    with dev(tmp_path, "--state", str(tmp_path / "kept")) as cluster:
        port = cluster.url.rpartition(":")[2]
        second = cluster.run("dev", "--listen", f"127.0.0.1:{port}")
        assert second.returncode == 1
        assert f"cannot listen at 127.0.0.1:{port}" in second.stderr
        second = cluster.run("dev", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "kept"))
        assert second.returncode == 1
        assert f"uses the state directory {tmp_path / 'kept'}: end it, or choose another" in second.stderr
        assert cluster.run("list").returncode == 0


def test_listening_to_other_machines_without_tls_is_refused(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "squall_cli", "dev", "--listen", "0.0.0.0:0"],
        env=environment(HOME=str(tmp_path), TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("squall dev: 0.0.0.0 can be reached from other machines")
    assert list(tmp_path.iterdir()) == []


#: `squall dev`, to which SIGTERM comes while it imports Nimbus.
EARLY_SIGNAL = """
import signal
import sys

class Early:
    def find_spec(self, name, path=None, target=None):
        if name == "nimbus.daemon":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Early())
from squall_cli.main import main
main(["dev", "--listen", "127.0.0.1:0"])
"""


def test_a_signal_while_modules_are_imported_ends_the_cluster_in_order(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", EARLY_SIGNAL],
        env=environment(HOME=str(home), TMPDIR=str(home)),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("SIGTERM: ending, with all workers")
    assert files(home) == []


def test_the_temporary_directory_is_removed_with_its_protected_folders(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(mode=0o640)
    with state_directory(None) as directory:
        protected = directory / "protected"
        protected.mkdir()
        (protected / "link").symlink_to(elsewhere)
        protected.chmod(0o500)
    assert not directory.exists()
    assert elsewhere.stat().st_mode & 0o777 == 0o640


def test_the_place_of_the_token_is_shown_when_commands_would_not_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    url, state = "http://127.0.0.1:7", tmp_path / "my state"
    line = f"  export SQUALL_TOKEN_FILE='{state}/nimbus/token'\n"
    assert line in opening(url, 4, state, str(state), {})
    assert line not in opening(url, 4, state, str(state), {"squall.token.file": "/etc/squall/token"})
    place = user_place(url, os.environ)
    assert place is not None
    place.parent.mkdir(parents=True)
    place.touch()
    assert line not in opening(url, 4, state, str(state), {})


def test_commands_to_an_address_that_others_could_read_are_shown_with_the_option_that_they_need() -> None:
    shown = [opening(f"http://{host}:7", 4, Path("state"), None, {}) for host in ("127.0.0.1", "host-1")]
    assert ["squall list --insecure\n" in text for text in shown] == [False, True]
