"""A host that cannot start workers gives their tasks to other hosts and gets no new ones, until it can start workers again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from squall.cluster.records import Placement
from supervisor import host_trouble
from tests.read_only import read_only
from tests.supervisor.hosts import Hosts


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures count although they are close together."""
    monkeypatch.setattr(host_trouble, "APART", 0.05)
    monkeypatch.setattr(host_trouble, "FIRST_PAUSE", 0.5)


def placements(hosts: Hosts, name: str = "words") -> tuple[Placement, ...]:
    found = hosts.registry.assignments.get(hosts.nimbus.topology(name).id)
    return () if found is None else found.placements


def supervisors_of(hosts: Hosts, name: str = "words") -> set[str]:
    return {placement.supervisor for placement in placements(hosts, name)}


def marks(hosts: Hosts) -> dict[str, str]:
    """Why each host cannot start workers, as the store says."""
    return {record.id: record.cannot_start for record in hosts.registry.all_supervisors()}


def runs_on(hosts: Hosts, name: str = "words") -> bool:
    return all(hosts.opened(placement.worker, name) for placement in placements(hosts, name))


@pytest.mark.slow
def test_a_host_whose_state_turns_read_only_gives_its_tasks_up_until_it_is_writable(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(supervisors=2, slots=2)
    hosts.submit(workers=2)
    hosts.until(lambda: len(placements(hosts)) == 2 and runs_on(hosts))
    assert supervisors_of(hosts) == {"s1", "s2"}
    (victim,) = hosts.supervisors[0].workers()
    (other,) = hosts.supervisors[1].workers()
    pid = other.pid
    with ExitStack() as until_writable:
        until_writable.enter_context(read_only(hosts.state / "s1"))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        hosts.until(lambda: marks(hosts)["s1"])
        assert "Read-only file system" in marks(hosts)["s1"] and not marks(hosts)["s2"]
        hosts.until(lambda: supervisors_of(hosts) == {"s2"} and runs_on(hosts))
        assert other.pid == pid, "a worker that runs is not disturbed"
        topology_id = hosts.nimbus.topology("words").id
        hosts.until(lambda: hosts.registry.leaving.get(topology_id) is None, "nothing is waited for")
        hosts.submit("more", workers=1)
        hosts.turn()
        assert supervisors_of(hosts, "more") == set(), "no slot is free on a host that can start workers"
    hosts.until(lambda: not marks(hosts)["s1"])
    hosts.until(lambda: supervisors_of(hosts, "more") == {"s1"} and runs_on(hosts, "more"))


@pytest.mark.slow
def test_tasks_stay_on_a_host_that_cannot_start_them_while_no_other_host_can(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(supervisors=1)
    hosts.submit(workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    with read_only(hosts.state / "s1"):
        os.kill(hosts.pids()["w1"], signal.SIGKILL)
        hosts.until(lambda: marks(hosts)["s1"])
        before = placements(hosts)
        hosts.turn()
        assert placements(hosts) == before and supervisors_of(hosts) == {"s1"}
        hosts.supervisors.append(hosts.make("s2"))
        hosts.until(lambda: supervisors_of(hosts) == {"s2"} and runs_on(hosts))


@pytest.mark.slow
def test_a_topology_whose_files_cannot_be_written_is_given_to_another_host(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(supervisors=2, slots=1)
    with read_only(hosts.state / "s1"):
        hosts.submit(workers=1)
        hosts.until(lambda: placements(hosts))
        if supervisors_of(hosts) == {"s1"}:
            hosts.until(lambda: marks(hosts)["s1"])
        hosts.until(lambda: supervisors_of(hosts) == {"s2"} and runs_on(hosts))


def test_user_code_that_locks_its_directory_marks_no_host(make_hosts: Callable[..., Hosts]) -> None:
    hosts = make_hosts(supervisors=1)
    record = hosts.submit(workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    directory = hosts.directories().worker(record.id, "w1")
    os.kill(hosts.pids()["w1"], signal.SIGSTOP)
    directory.rename(directory.with_name("aside"))
    directory.write_text("a file where its directory should be")
    os.kill(hosts.pids()["w1"], signal.SIGKILL)
    hosts.until(lambda: sum("cannot be started" in note for note in hosts.link.notes()) >= 3)
    assert marks(hosts) == {"s1": ""}
