"""Commands with several URLs reach a live Nimbus when another one is frozen, and wait for the frozen one once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from socket import create_connection

import pytest

from squall.http.client import Client
from squall_cli.cluster import cluster_client
from tests.squall.http_servers import Frozen, frozen
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall
from tests.squall_cli.run_process import CAP, environment
from tests.squall_cli.taking_nimbus import taking_nimbus
from tests.zookeeper_servers import free_ports

__all__ = ["frozen"]

#: A server that prints its requests on stderr.
SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"
TOPOLOGY = """
from topology_api import Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    def next_tuple(self):
        self.finish()

builder = TopologyBuilder("words")
builder.set_spout("words", Words())
topology = builder.build()
"""


class Stopped:
    """An HTTP server whose process is suspended."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "stopped.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER.format(port=port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
            )
        try:
            self.wait_for(lambda: answers(port))
        except BaseException:
            self.end()
            raise
        self.process.send_signal(signal.SIGSTOP)

    def asked(self) -> str:
        """Its requests, once it is resumed."""
        self.process.send_signal(signal.SIGCONT)
        self.wait_for(lambda: " HTTP/1.1" in self.log.read_text())
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + CAP
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(CAP)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Stopped]:
    server = Stopped(tmp_path)
    try:
        yield server
    finally:
        server.end()


def answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "line",
    [
        "list", "status word_count", "kill word_count", "activate word_count", "deactivate word_count", "rebalance word_count",
        "errors word_count", "supervisors", "drain host-1", "drain host-1 --undo", "version",
    ],
)  # fmt: skip
def test_every_command_is_executed_by_the_other_nimbus_and_waits_for_the_frozen_one_once(
    line: str, nimbus: FakeNimbus, run: Squall, frozen: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_client, "ANSWER_SECS", 0.2)
    result = run(line, "--nimbus", f"{frozen.url},{nimbus.url}")
    assert result.exit_code == 0, result.output
    heard = frozen.heard()
    assert len(heard) == 1, heard
    assert b"POST" not in heard[0] or b"rebalance" not in heard[0], (
        "it must not get a request that must not be repeated"
    )


@pytest.mark.slow
def test_a_topology_is_submitted_though_the_first_nimbus_is_frozen(tmp_path: Path, stopped: Stopped) -> None:
    for folder in ("files", "project"):
        (tmp_path / folder).mkdir()
    (tmp_path / "project" / "words.py").write_text(TOPOLOGY)
    with taking_nimbus(tmp_path / "files") as nimbus:
        urls = f"{stopped.url},{nimbus.url}"
        done = subprocess.run(
            [sys.executable, "-m", "squall_cli", "submit", "words.py"],
            cwd=tmp_path / "project",
            env=environment(SQUALL_NIMBUS=urls, HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        assert list(nimbus.topologies) == ["words"]
    assert "again" not in done.stderr
    assert stopped.asked().count("HTTP/1.1") == 1, "it was waited for once"


def test_a_frozen_server_never_gets_a_request_that_must_not_be_repeated(
    stopped: Stopped, nimbus: FakeNimbus
) -> None:
    with closing(Client([stopped.url, nimbus.url], timeout=0.2)) as client:
        answer = client.post("topologies/word_count/rebalance", {"workers": 2})
    assert answer["state"] == "REBALANCING"
    assert [each[0] for each in nimbus.commands()] == ["POST"]
    asked = stopped.asked()
    assert "HEAD /health" in asked and "POST" not in asked
