"""`squall zookeeper` runs a server until a signal comes, keeps its data, and reports what is missing in one line."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.cluster.zookeeper import ZooKeeperStore
from squall.cluster.zookeeper.server import JARS_VARIABLE, ServerPlan, ask
from squall.cluster.zookeeper.tls import speaks_tls
from squall.security.zookeeper_credentials import find_credentials, read_credentials
from squall.security.zookeeper_tls import ClientFiles, find_files
from squall_cli.commands.daemon_options import make_store
from squall_cli.main import squall
from tests.squall_cli.run_process import environment
from tests.zookeeper_servers import PATIENCE_SECS, eventually, free_ports, java_and_jars
from topology_api.options import defaults


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials are put into the user's state directory: here, one of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(squall, ["zookeeper", *arguments], prog_name="squall", env=environ)


class Foreground:
    """`squall zookeeper` in a process of its own, and its output lines."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "squall_cli", "zookeeper", *arguments],
            env=environment(PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.put(line.rstrip())

    def line(self) -> str:
        return self.lines.get(timeout=PATIENCE_SECS)

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        try:
            return self.process.wait(PATIENCE_SECS)
        finally:
            self._reader.join(PATIENCE_SECS)


@contextmanager
def foreground(*arguments: str) -> Iterator[Foreground]:
    java_and_jars()
    started = Foreground(*arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGTERM)


@pytest.mark.slow
def test_it_serves_until_a_signal_and_has_all_data_when_it_is_started_again(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    for turn, how in enumerate((signal.SIGINT, signal.SIGTERM)):
        with foreground("--listen", where, "--state", str(tmp_path / "state")) as server:
            assert server.line() == (
                "Daemons of this user on this machine find its credentials. Other daemons need"
                f" squall.zookeeper.credentials.file: {tmp_path}/state/credentials (a copy of it on other hosts)."
            )
            assert (
                server.line() == f"ZooKeeper ({where}) serves. Its files: {tmp_path}/state. Ctrl-C ends it."
            )
            store = ZooKeeperStore(where)
            store.start(PATIENCE_SECS)
            if turn == 0:
                store.put("/a", b"kept")
            found = store.get("/a")
            assert found is not None and found[0] == b"kept"
            store.close()
            if turn == 1:
                second = run("--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
                assert second.exit_code == 1
                assert f"{tmp_path / 'state'} belongs to a running server" in second.stderr
            assert server.end(how) == 0
            assert server.lines.empty()
    kept = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert any("version-2" in str(each) and each.is_file() for each in kept)
    assert [str(each) for each in kept if each.stat().st_mode & 0o077] == [], "for their owner only"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_the_server_also_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    with foreground("--listen", "127.0.0.1:0", "--state", str(tmp_path)) as server:
        server.line()
        port = int(server.line().partition("127.0.0.1:")[2].partition(")")[0])
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    eventually(lambda: not ask("127.0.0.1", port, "srvr"))


@pytest.mark.slow
def test_with_tls_daemons_of_its_user_find_certificates_and_others_cannot_connect(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", defaults("daemon")
    with foreground("--listen", "127.0.0.1:0", "--state", str(state), "--tls") as server:
        said = server.line()
        assert said.startswith("Daemons of this user on this machine find its credentials and certificates.")
        for name, file in (("ca", "ca.pem"), ("certificate", "client.pem"), ("key", "client.key")):
            assert f"squall.zookeeper.tls.{name}: {state}/tls/{file}" in said
        where = server.line().partition("(")[2].partition(")")[0]
        store = make_store(where, settings, insecure=False)
        store.start(PATIENCE_SECS)
        store.put("/a", b"x")
        store.close()
        port = int(where.partition(":")[2])
        assert ask("127.0.0.1", port, "srvr") == "", "there is no plain port"
        assert ask("127.0.0.1", port, "srvr", files=ClientFiles.within(state / "tls"))
    assert [str(each) for each in state.rglob("*") if each.stat().st_mode & 0o077] == []


@pytest.mark.slow
def test_three_of_them_are_an_ensemble_which_is_closed_with_tls(tmp_path: Path) -> None:
    ports = free_ports(9)
    members = ",".join(f"127.0.0.1:{ports[n]}:{ports[n + 3]}" for n in range(3))
    started = []
    try:
        for n in range(3):
            arguments = ("--listen", f"127.0.0.1:{ports[n + 6]}", "--state", str(tmp_path / str(n)))
            started.append(Foreground(*arguments, "--tls", "--server", str(n + 1), "--ensemble", members))
        assert "credentials" in started[0].line() and "server 1 of 3" in started[0].line()
        servers = ",".join(f"127.0.0.1:{port}" for port in ports[6:])
        credentials = eventually(lambda: find_credentials(servers, os.environ))
        assert all(read_credentials(tmp_path / str(n) / "credentials") == credentials for n in range(3))
        eventually(lambda: find_files(servers, os.environ))
        store = ZooKeeperStore(servers, credentials=credentials, tls=find_files(servers, os.environ))
        store.start(PATIENCE_SECS)
        store.put("/a", b"x")
        store.close()
        assert all(speaks_tls(("127.0.0.1", port)) for port in ports[3:]), "elections and clients"
        assert any(speaks_tls(("127.0.0.1", port)) for port in ports[:3]), "the leader listens to the others"
        assert "serves as " in started[0].line()
    finally:
        statuses = [server.end(signal.SIGTERM) for server in started]
    assert statuses == [0, 0, 0]


@pytest.mark.slow
def test_a_server_that_ends_by_itself_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    java_and_jars()
    data = tmp_path / "state" / "data" / "version-2"
    data.mkdir(parents=True)
    (tmp_path / "state").chmod(0o700)
    (data / "log.1").write_bytes(b"this is no log of transactions" * 100)
    with foreground("--listen", "127.0.0.1:0", "--state", str(tmp_path / "state")) as server:
        status = eventually(lambda: server.process.poll())
        server.line()
        said = server.line()
    assert status == 1
    assert said.startswith("squall zookeeper: the server ended with status ")


@pytest.mark.slow
def test_a_port_in_use_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    java_and_jars()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("--listen", where, "--state", str(tmp_path))
    assert result.exit_code == 1
    assert f"cannot listen on {where}" in result.stderr


def test_without_java_or_jars_it_says_what_to_install(tmp_path: Path) -> None:
    result = run("--state", str(tmp_path), JAVA_HOME=str(tmp_path))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "there is no `java` in JAVA_HOME" in result.stderr
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o755)
    for arguments, environ in ((("--jars", str(tmp_path)), {}), ((), {JARS_VARIABLE: str(tmp_path)})):
        result = run("--state", str(tmp_path), *arguments, JAVA_HOME=str(tmp_path), **environ)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert f"{tmp_path} holds no ZooKeeper" in result.stderr
        assert "`pip install pyspark`" in result.stderr


@pytest.mark.slow  # the other Pythons have no jars
@pytest.mark.parametrize("in_the_way", ["", "lock", "zookeeper.cfg", "server.log"])
def test_an_unusable_state_directory_is_reported_in_one_sentence(tmp_path: Path, in_the_way: str) -> None:
    java_and_jars()
    folder = tmp_path / "state"
    if in_the_way:
        (folder / in_the_way).mkdir(parents=True)
        folder.chmod(0o700)
        why = f"Is a directory ({folder / in_the_way})"
    else:
        (tmp_path / "file").touch()
        folder, why = tmp_path / "file" / "state", "Not a directory"
    result = run("--listen", "127.0.0.1:0", "--state", str(folder))
    assert (result.exit_code, result.stderr) == (
        1,
        f"squall zookeeper: the state directory {folder} cannot be used: {why}; choose another --state\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "0.0.0.0:0"),
        ("--server", "1", "--ensemble", "0.0.0.0:1:2,127.0.0.1:3:4"),
        ("--server", "1", "--ensemble", "192.0.2.7:1:2"),
    ],
)
def test_other_machines_cannot_reach_it_by_default(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run(*arguments, "--state", str(tmp_path))
    assert result.exit_code == 1
    assert "can be reached from other machines" in result.stderr and "--insecure" in result.stderr
    allowed = run(*arguments, "--insecure", "--state", str(tmp_path), JAVA_HOME=str(tmp_path))
    assert "--insecure: " in allowed.stderr and "there is no `java`" in allowed.stderr
    encrypted = run(*arguments, "--tls", "--state", str(tmp_path), JAVA_HOME=str(tmp_path))
    assert "--insecure" not in encrypted.stderr and "there is no `java`" in encrypted.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--server", "1"),
        ("--ensemble", "127.0.0.1:1:2"),
        ("--server", "2", "--ensemble", "127.0.0.1:1:2"),
        ("--server", "0", "--ensemble", "127.0.0.1:1:2"),
        ("--server", "1", "--ensemble", "127.0.0.1:1"),
        ("--server", "1", "--ensemble", "127.0.0.1:one:2"),
        ("--listen", "2181"),
    ],
)
def test_wrong_usage_is_recognised(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_configuration_names_every_server_of_an_ensemble(tmp_path: Path) -> None:
    plan = ServerPlan(tmp_path, "127.0.0.1", 2182, 2, ("a:1:2", "b:3:4", "[::1]:5:6"))
    lines = plan.write().read_text().splitlines()
    assert {"clientPort=2182", "server.1=a:1:2", "server.2=b:3:4", "server.3=[::1]:5:6"} < set(lines)
    assert (tmp_path / "data" / "myid").read_text() == "2\n"
