"""A supervisor starts the workers that Nimbus placed, makes them follow their topology's state, and ends them."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from squall import worker_files
from squall.cluster.blobs import read_bundle
from squall.values import Incarnation, Keys
from squall.worker_files import Orders, read_orders
from supervisor.plan import Timeouts
from tests.supervisor.hosts import LINK_KEYS, Hosts
from tests.supervisor.programs import pid_in, runs, until


def orders(hosts: Hosts, worker: str, supervisor: int = 0) -> Orders:
    for view in hosts.supervisors[supervisor].workers():
        if view.worker == worker:
            found = read_orders(view.container.directory)
            assert found is not None
            return found
    raise AssertionError(f"no worker {worker}")


def both_opened(hosts: Hosts) -> bool:
    return hosts.opened("w1") and hosts.opened("w2")


def files_below(path: Path) -> dict[str, int]:
    """Every file and directory below it, with its mode."""
    return {
        str(each.relative_to(path)): stat.S_IMODE(each.stat().st_mode) for each in [path, *path.rglob("*")]
    }


def test_a_topology_runs_in_worker_processes_until_it_is_killed(hosts: Hosts) -> None:
    record = hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    pids = hosts.pids()
    assert len({*pids.values()}) == 2
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    hosts.turn()
    assert hosts.pids() == {}
    assert not any(runs(pid) for pid in pids.values())
    assert not hosts.directories().topology(record.id).exists()
    assert hosts.link.notes() == []


def test_orders_contain_the_workers_identity_and_the_addresses_of_the_others(hosts: Hosts) -> None:
    record = hosts.submit(tasks=3)
    hosts.until(lambda: both_opened(hosts))
    hosts.until(lambda: orders(hosts, "w1").addresses)
    w1, w2 = orders(hosts, "w1"), orders(hosts, "w2")
    assert (w1.topology_id, w1.topology, w1.worker, w1.supervisor) == (record.id, "words", "w1", "s1")
    assert w1.asked == "run"
    assert w1.incarnation == (1, 0)
    assert w1.version == 1
    assert sorted(task for place in w1.placements for task in place.tasks) == [1, 2, 3]
    assert w1.addresses == {"w2": ("tcp://127.0.0.1:6002", "tcp://127.0.0.1:6102")}
    assert w1.tasks == record.tasks
    assert w1.conf["topology.workers"] == 2
    assert w1.component_confs["lines"]["topology.workers"] == 2
    assert (w1.bind, w1.host, w1.ports, w1.lease_secs) == ("127.0.0.1", "127.0.0.1", (0, 0), 20.0)
    assert w1.seed != w2.seed, "no two processes draw the same ids"
    bundle = read_bundle(w1.bundle)
    assert bundle.name == "words"
    assert bundle.pickles == {"lines": b"this is no pickle"}


def test_workers_follow_the_state_of_their_topology(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    hosts.nimbus.deactivate("words")
    hosts.until(lambda: [orders(hosts, name).asked for name in ("w1", "w2")] == ["pause", "pause"])
    hosts.nimbus.activate("words")
    hosts.until(lambda: orders(hosts, "w2").asked == "run")
    hosts.nimbus.rebalance("words")
    hosts.until(lambda: hosts.state_of() == "ACTIVE")
    assert any(report.drained for report in hosts.link.reports)


def test_an_inactive_topology_has_workers_that_open_nothing(hosts: Hosts) -> None:
    hosts.submit()
    hosts.nimbus.deactivate("words")
    hosts.until(lambda: (report := hosts.report("w2")) is not None and report.address is not None)
    assert not hosts.opened("w2")


def test_a_rebalance_replaces_the_workers_that_lose_tasks_and_the_slot_is_never_shared(hosts: Hosts) -> None:
    hosts.submit(tasks=4, workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    first = hosts.pids()["w1"]
    hosts.nimbus.rebalance("words", workers=2)
    overlaps: list[dict[str, int]] = []

    def settled() -> bool:
        views = hosts.supervisors[0].workers()
        slots = [view.slot for view in views if view.pid is not None]
        if len({*slots}) < len(slots):
            overlaps.append(hosts.pids())
        return hosts.opened("w2") and hosts.opened("w3")

    hosts.until(settled)
    assert overlaps == []
    assert set(hosts.pids()) == {"w2", "w3"}
    assert not runs(first)
    assert hosts.registry.leaving.get(hosts.nimbus.topology("words").id) is None


def test_a_worker_that_keeps_its_place_goes_on_in_the_same_process_with_new_orders(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(supervisors=2, slots=1)
    hosts.submit(tasks=4, workers=2)
    hosts.until(lambda: both_opened(hosts))
    stays = hosts.registry.assignments.get(hosts.nimbus.topology("words").id)
    assert stays is not None
    kept = next(place.worker for place in stays.placements if place.supervisor == "s1")
    pid = hosts.pids()[kept]
    gone = hosts.supervisors.pop()
    assert gone.kill_all()
    hosts.until(lambda: set(hosts.pids()) == {kept})
    hosts.until(lambda: orders(hosts, kept).version > 1)
    hosts.until(lambda: (report := hosts.report(kept)) is not None and report.version > 1)
    assert hosts.pids() == {kept: pid}
    assert orders(hosts, kept).incarnation == (1, 0)


def test_a_worker_that_does_not_stop_is_killed_after_the_grace_and_its_topology_is_removed(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(limits=Timeouts(stop=0.3))
    hosts.submit(fake={"w2": "deaf"})
    hosts.until(lambda: both_opened(hosts))
    pid = hosts.pids()["w2"]
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    assert not runs(pid)


def test_a_worker_that_dies_while_it_stops_is_reported_and_delays_no_other(hosts: Hosts) -> None:
    hosts.submit(fake={"w2": "faulty stop"})
    hosts.until(lambda: both_opened(hosts))
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    (note,) = hosts.link.notes()
    assert "died of SIGSEGV" in note
    assert "started again" not in note


def test_a_worker_without_any_heartbeat_is_killed_with_its_topology(
    make_hosts: Callable[..., Hosts],
) -> None:
    hosts = make_hosts(limits=Timeouts(stop=0.2))
    hosts.submit(fake={"w1": "mute"})
    hosts.until(lambda: "w1" in hosts.pids() and hosts.opened("w2"))
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    hosts.turn()
    assert hosts.pids() == {}


def test_workers_withdrawn_before_they_ran_are_not_waited_for(hosts: Hosts) -> None:
    hosts.submit()
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    assert hosts.pids() == {}


def test_a_leaving_worker_that_still_has_its_place_is_not_reported_gone_as_it_may_start(
    hosts: Hosts,
) -> None:
    record = hosts.submit()
    assignment = hosts.registry.assignments.get(record.id)
    assert assignment is not None
    hosts.registry.leaving.write(assignment)  # Nimbus records it first, and may be interrupted there
    hosts.supervisors[0].sync(hosts.clock.now())
    assert len(hosts.pids()) == 2
    assert not any(report.stopped for report in hosts.link.reports)


def test_a_new_topology_with_the_name_of_an_earlier_one_inherits_nothing(hosts: Hosts) -> None:
    before = hosts.submit(tasks=2)
    hosts.until(lambda: both_opened(hosts))
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    after = hosts.submit(tasks=2)
    hosts.until(lambda: both_opened(hosts))
    assert before.id != after.id
    assert orders(hosts, "w1").topology_id == after.id
    directories = hosts.directories()
    assert list(directories.root.iterdir()) == [directories.topology(after.id)]


@pytest.mark.parametrize("name", ["..", "a%2Fb *?", "ü" * 127])
def test_a_topology_may_have_any_allowed_name(hosts: Hosts, name: str) -> None:
    hosts.submit(name)
    hosts.until(lambda: hosts.opened("w1", name) and hosts.opened("w2", name))
    hosts.nimbus.kill(name)
    hosts.until(lambda: hosts.state_of(name) is None)
    hosts.turn()
    assert list(hosts.directories().root.iterdir()) == []


def test_a_crash_that_a_worker_reports_ends_its_topology(hosts: Hosts) -> None:
    hosts.submit(fake={"w2": "crash ValueError: in split[2]"})
    hosts.until(lambda: hosts.state_of() == "FAILED")
    assert hosts.nimbus.topology("words").error == "ValueError: in split[2]"
    hosts.until(lambda: hosts.pids() == {})
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)


def test_logs_of_a_failed_topology_stay_until_it_is_killed(hosts: Hosts) -> None:
    record = hosts.submit(fake={"w2": "crash bad"})
    hosts.until(lambda: hosts.state_of() == "FAILED")
    hosts.until(lambda: hosts.pids() == {})
    hosts.turn()
    directory = hosts.directories().worker(record.id, "w2")
    assert (directory / worker_files.OUTPUT).exists()
    assert not (directory / worker_files.ORDERS).exists()
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    hosts.turn()
    assert not directory.exists()


def test_counters_are_passed_on_including_the_last_ones(hosts: Hosts) -> None:
    record = hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    last = hosts.link.counted[record.id, "w1", Incarnation(1, 0)]
    assert last.startswith(b'{"format":1,"number":')
    # The fake counts its heartbeats, and reports in the last one that it has stopped.
    assert int(last.split(b":")[-1].rstrip(b"}")) >= 2


def test_directories_are_closed_to_others_and_keys_to_all_but_the_owner(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    modes = files_below(hosts.state)
    for path, mode in modes.items():
        if (hosts.state / path).is_dir() and path.startswith("s1"):
            assert mode == 0o700, path
    keys = [path for path in modes if path.endswith("keys.json")]
    assert len(keys) == 2
    assert [modes[path] for path in keys] == [0o600, 0o600]
    found = worker_files.read_keys((hosts.state / keys[0]).parent)
    assert found == Keys(**LINK_KEYS)


def test_leases_and_heartbeats_go_on(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    directory = hosts.supervisors[0].workers()[0].container.directory

    def lease() -> int:
        body = worker_files.read(directory, worker_files.LEASE)
        assert body is not None
        return int(body["number"])

    first, beats = lease(), len(hosts.link.beats)
    hosts.until(lambda: lease() >= first + 2)
    assert len(hosts.link.beats) >= beats + 2


def test_children_of_a_worker_end_with_its_topology(hosts: Hosts) -> None:
    record = hosts.submit(workers=1, fake={"w1": "children"})
    hosts.until(lambda: hosts.opened("w1"))
    directory = hosts.directories().worker(record.id, "w1")
    (directory / "child").write_text((directory / "child").read_text() + "\n")
    child = pid_in(directory / "child")
    assert runs(child)
    hosts.nimbus.kill("words")
    hosts.until(lambda: hosts.state_of() is None)
    until(lambda: not runs(child))


def test_close_ends_everything_and_reports_it_to_nimbus(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    pids = hosts.pids()
    supervisor = hosts.supervisors[0]
    until(lambda: supervisor.close(hosts.clock.now()))
    assert not any(runs(pid) for pid in pids.values())
    assert [report.stopped for report in hosts.link.reports[-2:]] == [True, True]
    assert hosts.registry.all_supervisors() == []
    assert supervisor.close(hosts.clock.now()), "repeated, it is still true"


def test_kill_all_ends_everything_at_once_even_frozen_processes(hosts: Hosts) -> None:
    hosts.submit(fake={"*": "deaf"})
    hosts.until(lambda: both_opened(hosts))
    pids = hosts.pids()
    os.kill(pids["w1"], signal.SIGSTOP)
    assert hosts.supervisors[0].kill_all()
    assert not any(runs(pid) for pid in pids.values())
    assert hosts.registry.all_supervisors() == []


def test_two_supervisors_share_the_workers_of_a_topology(make_hosts: Callable[..., Hosts]) -> None:
    hosts = make_hosts(supervisors=2, slots=1)
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    assert [len(supervisor.workers()) for supervisor in hosts.supervisors] == [1, 1]
    worker = hosts.supervisors[0].workers()[0].worker
    hosts.until(lambda: orders(hosts, worker).addresses, "the address of a worker at another supervisor")


def test_nothing_is_written_while_nothing_changes(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    hosts.until(lambda: orders(hosts, "w1").addresses and orders(hosts, "w2").addresses)
    for _ in range(5):
        hosts.turn()
    before, reports = orders(hosts, "w1").number, len(hosts.link.reports)
    for _ in range(20):
        hosts.turn()
    assert orders(hosts, "w1").number == before
    assert len(hosts.link.reports) == reports


def test_a_supervisor_that_was_frozen_itself_takes_no_worker_for_dead(hosts: Hosts) -> None:
    hosts.submit()
    hosts.until(lambda: both_opened(hosts))
    pids = hosts.pids()
    now = hosts.clock.now()
    hosts.supervisors[0].sync(now + 1000.0)  # it has not checked for this long
    hosts.supervisors[0].sync(now + 1001.0)
    assert hosts.pids() == pids
    assert all(runs(pid) for pid in pids.values())


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_others_reach_workers_by_the_bound_address_or_by_the_name_of_the_host(
    make_hosts: Callable[..., Hosts], bind: str
) -> None:
    hosts = make_hosts(supervisors=0)
    hosts.supervisors.append(hosts.make("s1", bind=bind))
    hosts.submit(workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    assert orders(hosts, "w1").bind == bind
    assert orders(hosts, "w1").host == ("s1" if bind == "0.0.0.0" else bind)
