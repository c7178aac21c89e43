"""User code can put anything into its worker's directory: this stops its own worker at most, never the host."""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall import worker_files
from squall.worker_files import COUNTERS, END, HEARTBEAT, LOG, ORDERS, OUTPUT, read_heartbeat
from supervisor.agent import Supervisor
from supervisor.directories import PROCESS
from tests.supervisor.hosts import Hosts
from tests.supervisor.programs import runs, until
from tests.supervisor.supervisor_daemons import Cluster

DEEP = b'{"format":1,"pid":' + b"[" * 100_000


def put_pipe(path: Path) -> None:
    put_nothing(path)
    os.mkfifo(path)


def put_device(path: Path) -> None:
    put_nothing(path)
    path.symlink_to("/dev/zero")


def put_folder(path: Path) -> None:
    put_nothing(path)
    (path / "more").mkdir(parents=True)


def put_deep(path: Path) -> None:
    put_nothing(path)
    path.write_bytes(DEEP)


def put_nothing(path: Path) -> None:
    path.unlink(missing_ok=True)


BAD = [put_pipe, put_device, put_folder, put_deep]


@pytest.mark.parametrize("put", BAD)
def test_whatever_a_dying_worker_leaves_it_is_reported_and_started_again(
    hosts: Hosts, put: Callable[[Path], None]
) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    directory = hosts.directories().worker(record.id, "w2")
    pid = hosts.pids()["w2"]
    os.kill(pid, signal.SIGSTOP)
    for name in (END, HEARTBEAT, COUNTERS, LOG, OUTPUT, PROCESS):
        put(directory / name)
    os.kill(pid, signal.SIGKILL)
    hosts.until(lambda: hosts.opened("w2") and hosts.pids()["w2"] != pid)
    assert hosts.link.notes()[0].startswith(
        f"worker w2 (pid {pid}) of topology 'words' was killed by SIGKILL"
    )


@pytest.mark.parametrize("put", BAD)
def test_a_worker_with_such_files_leaves_with_its_topology(hosts: Hosts, put: Callable[[Path], None]) -> None:
    record = hosts.submit(fake={"w2": "deaf"})
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    directory = hosts.directories().worker(record.id, "w2")
    os.kill(hosts.pids()["w2"], signal.SIGSTOP)
    for name in (ORDERS, END, HEARTBEAT, COUNTERS, LOG, OUTPUT, PROCESS):
        put(directory / name)
    os.kill(hosts.pids()["w2"], signal.SIGKILL)
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    assert hosts.pids() == {}


@pytest.mark.slow
@pytest.mark.parametrize("put", [put_pipe, put_deep])
def test_a_worker_without_readable_heartbeats_is_killed_and_its_neighbour_runs_on(
    make_hosts: Callable[..., Hosts], caplog: pytest.LogCaptureFixture, put: Callable[[Path], None]
) -> None:
    hosts = make_hosts()
    record = hosts.submit(fake={"w2": "once freeze"}, timeout=2.0)
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    with caplog.at_level(logging.WARNING, "supervisor"):
        put(hosts.directories().worker(record.id, "w2") / HEARTBEAT)
        hosts.until(lambda: hosts.opened("w2") and hosts.pids()["w2"] != pids["w2"])
    assert hosts.pids()["w1"] == pids["w1"]
    seen = [
        each.getMessage() for each in caplog.records if "its heartbeats are not seen" in each.getMessage()
    ]
    assert len(seen) == 1


def test_a_damaged_file_that_changes_with_each_look_is_logged_once(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    record = hosts.submit(workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    os.kill(hosts.pids()["w1"], signal.SIGSTOP)
    path = hosts.directories().worker(record.id, "w1") / HEARTBEAT
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            path.unlink()
            path.write_bytes(DEEP[: 1000 + number])
            hosts.supervisors[0].sync(hosts.clock.now())
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("put", BAD)
def test_a_supervisor_begins_over_such_directories(hosts: Hosts, put: Callable[[Path], None]) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    directory = hosts.directories().worker(record.id, "w2")
    old = hosts.supervisors.pop()
    old.leave(for_good=False)
    os.kill(pids["w2"], signal.SIGSTOP)
    for name in (ORDERS, worker_files.LEASE, HEARTBEAT, COUNTERS, END):
        put(directory / name)
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: not runs(pids["w2"]))
    hosts.until(lambda: hosts.opened("w2") and hosts.pids().get("w2") not in (None, pids["w2"]))
    assert hosts.pids()["w1"] == pids["w1"]


def test_a_worker_cannot_pose_as_the_worker_of_another_topology(hosts: Hosts) -> None:
    first, second = hosts.submit("first", workers=1), hosts.submit("second", workers=1)
    hosts.until(lambda: hosts.opened("w1", "first") and hosts.opened("w1", "second"))
    directories = hosts.directories()
    victim, forger = directories.worker(first.id, "w1"), directories.worker(second.id, "w1")
    pids = {worker.topology: worker.pid for worker in hosts.supervisors[0].workers()}
    hosts.supervisors.pop().leave(for_good=False)
    (forger / ORDERS).write_bytes((victim / ORDERS).read_bytes())
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: hosts.opened("w1", "second"))
    found = {worker.topology: worker.pid for worker in hosts.supervisors[0].workers()}
    assert found["first"] == pids["first"]


def test_counters_of_one_worker_never_keep_the_reports_of_others_from_nimbus(cluster: Cluster) -> None:
    """Nimbus rejects a body that is nested too deeply or holds NaN, with all that is in it: reports, and the heartbeat."""
    cluster.start()
    cluster.submit(fake={"w2": "once freeze"})
    cluster.until(lambda: cluster.opened("w1", "w2"))
    (directory,) = (cluster.tmp / "s1" / "topologies").glob("*/workers/w2")
    heartbeat = read_heartbeat(directory)
    assert heartbeat is not None
    number = heartbeat.number

    def of_w2() -> list[object]:
        return [each["counters"] for each in cluster.nimbus.said("counters") if each["worker"] == "w2"]

    for counters, sent in (
        (b'{"x":' + b"[" * 200 + b"]" * 200 + b"}", {}),
        (DEEP, {}),
        (b'{"x":NaN,"y":1e999}', {"x": "NaN", "y": "1e999"}),
        (b"[1]", {}),
    ):
        before, number = len(of_w2()), number + 1
        worker_files.write_bytes(directory, COUNTERS, counters)
        worker_files.write(directory, HEARTBEAT, replace(heartbeat, number=number, counters=number))
        cluster.until(lambda before=before: len(of_w2()) > before)  # type: ignore[misc]
        assert of_w2()[-1] == sent
    os.kill(cluster.pids()["w2"], signal.SIGKILL)


def test_a_supervisor_without_free_descriptors_takes_no_worker_for_silent(
    make_hosts: Callable[..., Hosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = make_hosts()
    hosts.submit(timeout=2.0)
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids, supervisor = hosts.pids(), hosts.supervisors[0]

    def refuse(path: object, most: int) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(worker_files, "read_guarded", refuse)
    now = hosts.clock.now()
    for second in range(10):
        marks = marks_of(supervisor)
        until(lambda marks=marks: marks_of(supervisor) != marks)  # type: ignore[misc]
        supervisor.sync(now + second)
    monkeypatch.undo()
    assert hosts.pids() == pids


def marks_of(supervisor: Supervisor) -> list[int]:
    """When each worker wrote its last heartbeat."""
    return [(each.container.directory / HEARTBEAT).stat().st_mtime_ns for each in supervisor.workers()]
