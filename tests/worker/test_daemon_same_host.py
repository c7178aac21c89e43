"""Worker processes on one host are linked by Unix sockets, and those of a killed one are removed when the next one starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from squall.transport.carriers.same_host import path_of
from tests.squall.transport.test_same_host import connections
from tests.worker.daemon_components import Notes, lines
from tests.worker.fake_supervisor import FakeSupervisor
from tests.worker.test_daemon_peers import Cluster, two_workers

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/net/unix"), reason="the kernel's list of Unix sockets is Linux's"
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sockets_of(cluster: Cluster, worker: FakeSupervisor) -> list[str]:
    """The paths of a worker's Unix sockets, from its own report."""
    heartbeat = worker.wait_heartbeat(lambda heartbeat: heartbeat.address)
    assert heartbeat.address is not None
    return [path_of(cluster.keys, endpoint) for endpoint in heartbeat.address]


@pytest.mark.slow
def test_two_processes_link_by_unix_sockets_again_after_one_was_killed_and_leave_no_files(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 50)))
    cluster = two_workers(tmp_path, stack, Notes(tmp_path, 0.0005), None)
    one, two = cluster.start("w1"), cluster.start("w2")
    cluster.introduce()
    one.wait(lambda: len(lines(tmp_path / "acked")) > 100, "acks")
    for worker in (one, two):
        assert [connections(path) for path in sockets_of(cluster, worker)] == [1, 1]
    left = sockets_of(cluster, two)
    two.process.kill()
    two.wait_end()
    two = cluster.start("w2", restart=1)
    again = sockets_of(cluster, two)
    assert not any(os.path.exists(path) for path in left if path not in again)
    cluster.introduce()
    acked = len(lines(tmp_path / "acked"))
    one.wait(lambda: len(lines(tmp_path / "acked")) > acked + 100, "acks by the new process")
    for worker in (one, two):
        assert [connections(path) for path in sockets_of(cluster, worker)] == [1, 1]
