"""A worker that dies by itself is started again with the next number, and the reason is reported."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.worker_files import read_orders
from tests.supervisor.hosts import Hosts, fake_command
from tests.supervisor.programs import runs


def incarnation(hosts: Hosts, worker: str) -> tuple[int, int] | None:
    report = hosts.report(worker)
    return None if report is None else report.incarnation


def restarted(hosts: Hosts, worker: str, times: int = 1) -> bool:
    return hosts.opened(worker) and incarnation(hosts, worker) == (1, times)


def test_a_killed_worker_is_restarted_and_the_others_learn_of_it(hosts: Hosts) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    before = hosts.pids()
    os.kill(before["w2"], signal.SIGKILL)
    hosts.until(lambda: restarted(hosts, "w2"))
    after = hosts.pids()
    assert after["w1"] == before["w1"]
    assert after["w2"] != before["w2"]
    directory = hosts.directories().worker(record.id, "w1")

    def heard() -> object:
        orders = read_orders(directory)
        assert orders is not None
        places = {place.worker: place.incarnation for place in orders.placements}
        return places == {"w1": (1, 0), "w2": (1, 1)} and "w2" in orders.addresses

    hosts.until(heard)
    (note,) = hosts.link.notes()
    assert note.startswith(
        f"worker w2 (pid {before['w2']}) of topology 'words' was killed by SIGKILL (OOM killer: "
    )
    assert note.endswith("; it is started again at once")
    (kept,) = hosts.nimbus.topology("words").notes
    assert kept.text == note.replace("; it is started again at once", "; it was started again")


def test_the_others_learn_of_a_death_before_the_next_process_has_started(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    os.kill(hosts.pids()["w2"], signal.SIGKILL)
    hosts.until(lambda: restarted(hosts, "w2"))
    first = next(report for report in hosts.link.reports if report.incarnation == (1, 1))
    assert not first.opened
    assert first.address is None
    assert first.note is not None


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("once die 3", ["ended with status 3 without giving a reason", "\n  | the last line of a worker"]),
        ("once signal 15", ["was killed by SIGTERM"]),
        ("once fault", ["died of SIGSEGV", "\n  | Fatal Python error: Segmentation fault"]),
        ("once end 75 out of memory in split", ["ended by itself with status 75: out of memory in split"]),
        ("once end 0 SIGTERM", ["ended by itself with status 0: SIGTERM"]),
    ],
)
def test_the_cause_of_a_death_is_reported(hosts: Hosts, behaviour: str, words: list[str]) -> None:
    hosts.submit(fake={"w2": behaviour})
    hosts.until(lambda: restarted(hosts, "w2"))
    (note,) = hosts.link.notes()
    for text in words:
        assert text in note
    assert len(note.splitlines()) <= 9
    assert "w1" not in note


def test_a_kill_by_the_kernel_is_distinguished_from_others(make_hosts: Callable[..., Hosts]) -> None:
    hosts = make_hosts(supervisors=0)
    kills = [7]
    hosts.supervisors.append(hosts.make("s1", kernel_kills=lambda: kills[0]))
    hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    kills[0] += 1
    os.kill(hosts.pids()["w2"], signal.SIGKILL)
    hosts.until(lambda: restarted(hosts, "w2"))
    os.kill(hosts.pids()["w1"], signal.SIGKILL)
    hosts.until(lambda: restarted(hosts, "w1"))
    first, second = hosts.link.notes()
    assert "w2" in first and "(OOM killer: yes)" in first
    assert "w1" in second and "(OOM killer: no)" in second


@pytest.mark.slow
def test_a_worker_that_dies_repeatedly_rests_ever_longer_and_disturbs_no_other(hosts: Hosts) -> None:
    hosts.submit(fake={"w2": "die 1"})
    hosts.until(lambda: len(hosts.link.notes()) >= 4)
    assert hosts.opened("w1")
    assert incarnation(hosts, "w1") == (1, 0)
    ends = [note.splitlines()[0].rpartition("; it is started again ")[2] for note in hosts.link.notes()]
    assert ends[:4] == ["at once", "in 1 s", "in 2 s", "in 4 s"]
    assert "; its 3rd death in " in hosts.link.notes()[2]


def test_a_resting_worker_can_be_withdrawn(hosts: Hosts) -> None:
    hosts.submit(fake={"w2": "die 1"})
    hosts.until(lambda: len(hosts.link.notes()) >= 2)
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    assert hosts.pids() == {}


# With a timeout that a busy machine does not reach by itself.
@pytest.mark.slow
def test_a_frozen_worker_is_killed_and_started_again(hosts: Hosts) -> None:
    hosts.submit(timeout=2.0)
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    frozen = hosts.pids()["w2"]
    os.kill(frozen, signal.SIGSTOP)
    hosts.until(lambda: restarted(hosts, "w2"))
    assert not runs(frozen)
    (note,) = hosts.link.notes()
    assert "was killed by its supervisor: it sent no heartbeat for " in note


@pytest.mark.slow
def test_a_worker_whose_heartbeat_stops_is_killed_though_its_process_runs(hosts: Hosts) -> None:
    hosts.submit(fake={"w2": "once freeze"}, timeout=2.0)
    hosts.until(lambda: restarted(hosts, "w2"))
    assert incarnation(hosts, "w1") == (1, 0)


def test_ports_of_the_previous_process_are_requested_again(hosts: Hosts) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    os.kill(hosts.pids()["w2"], signal.SIGKILL)
    hosts.until(lambda: restarted(hosts, "w2"))
    orders = read_orders(hosts.directories().worker(record.id, "w2"))
    assert orders is not None
    assert orders.ports == (6002, 6102)


def test_a_worker_that_dies_while_its_topology_drains_is_restarted_so_that_others_can_drain(
    hosts: Hosts,
) -> None:
    hosts.submit(fake={"w2": "deaf"})
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    os.kill(hosts.pids()["w2"], signal.SIGKILL)
    hosts.nimbus.rebalance("words")
    hosts.until(lambda: hosts.state_of() == "ACTIVE")
    assert any(report.drained and report.incarnation == (1, 1) for report in hosts.link.reports)


def test_a_program_that_cannot_be_started_is_reported_and_tried_again(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(supervisors=0)
    hosts.supervisors.append(hosts.make("s1", command=lambda directory: ["/no-such-program"]))
    hosts.submit(workers=1)
    hosts.until(lambda: len(hosts.link.notes()) >= 2)
    assert "/no-such-program" in hosts.link.notes()[0]
    assert hosts.link.notes()[1].endswith("; its 2nd failed preparation in 0 s; it is tried again in 1 s")
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)


def test_an_unexpected_error_is_reported_and_followed_by_a_rest(make_hosts: Callable[..., Hosts]) -> None:
    def command(directory: Path) -> list[str]:
        if directory.name == "w1":
            raise RuntimeError("nobody thought of this")
        return fake_command(directory)

    hosts = make_hosts(supervisors=0)
    hosts.supervisors.append(hosts.make("s1", command=command))
    hosts.submit()
    hosts.until(lambda: hosts.opened("w2") and len(hosts.link.notes()) >= 2)
    first = (
        "worker w1 of topology 'words' cannot be started: nobody thought of this; it is tried again at once"
    )
    assert hosts.link.notes()[0] == first
    assert hosts.link.notes()[1].endswith("; its 2nd failed preparation in 0 s; it is tried again in 1 s")


def test_an_unwritable_state_directory_ends_nothing(make_hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    hosts = make_hosts(supervisors=0)
    (tmp_path / "cluster-0").mkdir()
    (tmp_path / "cluster-0" / "s1").write_text("a file where a directory should be")
    hosts.supervisors.append(hosts.make("s1"))
    hosts.submit(workers=1)
    hosts.until(lambda: hosts.link.notes())
    assert "cannot be started: " in hosts.link.notes()[0]
    (tmp_path / "cluster-0" / "s1").unlink()
    hosts.until(lambda: hosts.opened("w1"))
