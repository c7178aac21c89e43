"""A supervisor starts the workers that Nimbus placed, and ends them when their topology does."""

from __future__ import annotations

from tests.supervisor.hosts import Hosts


def test_a_topology_runs_in_worker_processes_until_it_is_killed(hosts: Hosts) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    assert len(hosts.pids()) == 2
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    hosts.turn()
    assert hosts.pids() == {}
    assert not hosts.supervisors[0].directories.topology(record.id).exists()
