"""On a full disk running workers go on; failed writes are reported and tried again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import atomic_files, worker_files
from squall.values import Incarnation
from squall.worker_files import (
    HEARTBEAT,
    LEASE,
    ORDERS,
    WorkerHeartbeat,
    read,
    read_heartbeat,
    read_orders,
    write,
    write_bytes,
)
from tests.supervisor.programs import runs
from tests.supervisor.supervisor_daemons import Cluster


class Disk:
    """`os` as a module sees it, on a disk that can be full: then no file can be made."""

    def __init__(self) -> None:
        self.full = False
        self.refused = 0

    def open(self, path: Any, flags: int, *mode: int) -> int:
        if self.full and flags & os.O_CREAT:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return os.open(path, flags, *mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk()
    for module in (worker_files, atomic_files):
        monkeypatch.setattr(module, "os", found)
    yield found
    found.full = False


HEARTBEATS = [
    WorkerHeartbeat(
        pid=1,
        started=2,
        incarnation=Incarnation(1, 0),
        number=number,
        orders=1,
        asked="run",
        version=1,
        crash=crash,
    )
    for number, crash in ((9, None), (10, "a long text " * 20), (11, None))
]


def test_heartbeats_overwrite_the_last_ones(tmp_path: Path, disk: Disk) -> None:
    write(tmp_path, HEARTBEAT, HEARTBEATS[0])
    write(tmp_path, LEASE, {"number": 99})
    inode = (tmp_path / LEASE).stat().st_ino
    disk.full = True
    for heartbeat in HEARTBEATS[1:]:
        write(tmp_path, HEARTBEAT, heartbeat)
        assert read_heartbeat(tmp_path) == heartbeat, "a shorter one after a longer one too"
    write(tmp_path, LEASE, {"number": 100})
    assert read(tmp_path, LEASE) == {"number": 100}
    assert (tmp_path / LEASE).stat().st_ino == inode
    assert sorted(path.name for path in tmp_path.iterdir()) == [LEASE, HEARTBEAT]


def test_every_other_file_is_complete_or_unchanged(tmp_path: Path, disk: Disk) -> None:
    write_bytes(tmp_path, ORDERS, b"before")
    disk.full = True
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path, ORDERS, b"after")
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path, LEASE, b"where none was")
    assert (tmp_path / ORDERS).read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == [ORDERS]


@pytest.mark.slow
def test_running_workers_go_on_new_ones_wait_and_all_recovers_when_there_is_space(
    cluster: Cluster, disk: Disk
) -> None:
    cluster.start(slots=3)
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    disk.full = True
    leases = list((cluster.tmp / "s1").rglob(LEASE))
    before = [path.read_bytes() for path in leases]
    cluster.until(lambda: all(path.read_bytes() != was for path, was in zip(leases, before)))
    cluster.submit("more", workers=1)
    cluster.until(lambda: any("No space left on device" in note for note in cluster.nimbus.notes()))
    assert "worker w1 of topology 'more' cannot be started" in cluster.nimbus.notes()[-1]
    cluster.nimbus.do(lambda nimbus: nimbus.deactivate("words"))
    cluster.until(lambda: disk.refused > 20, "orders cannot be given")
    assert all(map(runs, pids.values()))
    disk.full = False
    cluster.until(lambda: cluster.opened("w1", name="more"))
    directories = [path.parent for path in leases]

    def paused(directory: Path) -> bool:
        orders = read_orders(directory)
        return orders is not None and orders.asked == "pause"

    cluster.until(lambda: all(map(paused, directories)))
    assert cluster.pids().items() >= {"w2": pids["w2"]}.items()


def test_a_worker_that_cannot_get_the_order_to_stop_is_asked_by_a_signal(
    cluster: Cluster, disk: Disk
) -> None:
    cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    disk.full = True
    cluster.kill()
    cluster.until(lambda: not any(map(runs, pids.values())))
    cluster.until(lambda: cluster.registry.topologies.get("words") is None)
