"""Strangers who hold connections to a Nimbus with few files keep no operator out; Nimbus is a process with its own limit."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from squall.http.client import Client
from squall.http.pool import Address
from squall.security.tokens import bearer
from tests.nimbus_http.nimbuses import text_at

FILES = 256
NIMBUS = f"""
import resource, sys
from pathlib import Path
from squall.cluster.memory import InMemoryStore
from tests.nimbus_http.nimbuses import Cluster

resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
cluster = Cluster(InMemoryStore(), Path(sys.argv[1]))
leader = cluster.start_leader()
print(leader.url, leader.token, flush=True)
sys.stdin.read()
cluster.stop()
"""
HEALTH = b"GET /health HTTP/1.1\r\nHost: nimbus\r\n\r\n"


@pytest.fixture
def nimbus(tmp_path: Path) -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-c", NIMBUS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, token = process.stdout.readline().split()
        yield url, token
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_idle_connections_of_strangers_shut_no_operator_out(nimbus: tuple[str, str]) -> None:
    url, token = nimbus
    address = Address.of(url)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Client([url], lambda asked: bearer(token)))) for _ in range(2)]
        assert clients[0].get("cluster")["leader"]
        for number in range(2 * FILES):
            flood = stack.enter_context(socket.create_connection((address.host, address.port), timeout=30))
            if number % 2:
                flood.sendall(HEALTH)  # the connection is kept alive
        for client in clients:  # the first has its connection, the second makes one
            assert client.get("cluster")["leader"]
        lines = dict(
            line.rsplit(" ", 1) for line in text_at(clients[1], "/metrics").splitlines() if line[:1] != "#"
        )
        assert float(lines['squall_http_connections_closed_total{reason="address"}']) > 0 or float(
            lines['squall_http_connections_closed_total{reason="unknown"}']
        )
        assert float(lines['squall_http_connections{known="yes"}']) >= 2
