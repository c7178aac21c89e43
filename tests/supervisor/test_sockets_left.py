"""A worker's Unix sockets, outside of its directory, are removed when its supervisor cleans up after it; no others are."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile

import pytest

from squall.transport.carriers import same_host
from tests.supervisor.hosts import Hosts
from tests.supervisor.test_dying_workers import restarted


def test_the_sockets_of_a_killed_worker_are_removed_and_those_of_live_ones_stay(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tempfile.mkdtemp(prefix="s", dir="/tmp")  # tmp_path is too long for a Unix socket
    monkeypatch.setattr(same_host, "_ROOT", root)
    os.mkdir(same_host.folder(), 0o700)
    hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    dead, living = (same_host.path_of(None, f"tcp://127.0.0.1:{port}") for port in (6002, 6001))
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(dead)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(living)
        os.kill(hosts.pids()["w2"], signal.SIGKILL)
        hosts.until(lambda: restarted(hosts, "w2"))
        assert os.listdir(same_host.folder()) == [os.path.basename(living)]
    shutil.rmtree(root)
