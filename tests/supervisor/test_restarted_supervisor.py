"""A restarted supervisor finds the workers of the previous process, and continues with them."""

from __future__ import annotations

import os
import signal

from msgspec import structs

from squall.running_calls import SIZE, CallMark, begin_calls
from squall.suspects import read_suspects
from squall.worker_files import CALLS, read_heartbeat, read_orders
from supervisor.agent import Supervisor
from supervisor.directories import read_started, write_started
from tests.supervisor.hosts import Hosts
from tests.supervisor.programs import pid_in, runs, until


def running(hosts: Hosts, **options: str) -> dict[str, int]:
    """Two running workers; their supervisor counts as dead."""
    hosts.submit(fake=options)
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    abandon(hosts.supervisors.pop())
    return pids


def abandon(supervisor: Supervisor) -> None:
    """The effects of the end of its process. Its children are still ours, so their zombies are reaped here."""
    supervisor.leave()


def reap(pid: int) -> None:
    os.waitpid(pid, 0)


def test_living_workers_are_taken_over_and_go_on(hosts: Hosts) -> None:
    pids = running(hosts)
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: hosts.pids() == pids)
    w1 = hosts.supervisors[0].workers()[0].container.directory
    before = read_orders(w1)
    hosts.nimbus.deactivate("words")

    def paused() -> bool:
        heartbeat = read_heartbeat(w1)
        return heartbeat is not None and heartbeat.asked == "pause"

    hosts.until(paused, "the worker that was taken over does what it is asked")
    after = read_orders(w1)
    assert before is not None and after is not None
    assert (after.incarnation, after.seed) == (before.incarnation, before.seed)
    assert after.number > before.number
    assert hosts.link.notes() == []


def test_a_lease_continues_from_where_it_was(hosts: Hosts) -> None:
    running(hosts)
    hosts.supervisors.append(hosts.make("s1"))
    assert hosts.supervisors[0]._lease >= 1


def test_a_worker_that_died_meanwhile_gets_the_next_number(hosts: Hosts) -> None:
    pids = running(hosts)
    os.kill(pids["w2"], signal.SIGKILL)
    reap(pids["w2"])
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: (report := hosts.report("w2")) is not None and report.incarnation == (1, 1))
    hosts.until(lambda: hosts.opened("w2"))
    assert hosts.pids()["w1"] == pids["w1"]
    (note,) = hosts.link.notes()
    assert f"worker w2 (pid {pids['w2']})" in note
    assert "its exit status is unknown" in note


def test_tuples_that_ended_a_worker_are_known_after_a_restart_and_go_with_their_topology(
    hosts: Hosts,
) -> None:
    record = hosts.submit()
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    folder = hosts.directories().topology(record.id)
    directories = [hosts.directories().worker(record.id, worker) for worker in ("w1", "w2")]
    buffer = bytearray(SIZE)
    begin_calls(buffer, pids["w1"])
    CallMark(buffer, 0, 1).enter(1, [5], b"k" * 16)
    (directories[0] / CALLS).write_bytes(buffer)
    os.kill(pids["w1"], signal.SIGSEGV)
    hosts.until(lambda: hosts.opened("w1") and hosts.pids()["w1"] != pids["w1"])
    known = read_suspects(folder)
    assert known is not None and [each.deaths for each in known.known] == [1]
    assert read_suspects(directories[0]) == known and read_suspects(directories[1]) is None
    abandon(hosts.supervisors.pop())
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: set(hosts.pids()) == {"w1", "w2"})
    os.kill(pids["w2"], signal.SIGKILL)
    hosts.until(lambda: hosts.opened("w2") and hosts.pids()["w2"] != pids["w2"])
    assert read_suspects(directories[1]) == known == read_suspects(folder)
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: not folder.exists())


def test_workers_of_a_topology_removed_meanwhile_are_ended_and_removed(hosts: Hosts) -> None:
    record = hosts.submit(fake={"w1": "children"})
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    abandon(hosts.supervisors.pop())
    hosts.nimbus.kill("words", wait_secs=0)  # without a supervisor, workers are not waited for
    hosts.nimbus.tick(hosts.clock.now())
    assert hosts.state_of() is None
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: not hosts.directories().topology(record.id).exists())
    assert not any(runs(pid) for pid in pids.values())


def test_children_of_a_worker_that_died_meanwhile_are_killed(hosts: Hosts) -> None:
    pids = running(hosts, w1="children")
    directory = next((hosts.state / "s1").rglob("child")).parent
    (directory / "child").write_text((directory / "child").read_text() + "\n")
    child = pid_in(directory / "child")
    os.kill(pids["w1"], signal.SIGKILL)
    reap(pids["w1"])
    assert runs(child)
    hosts.supervisors.append(hosts.make("s1"))
    until(lambda: not runs(child))


def test_a_worker_whose_directory_was_lost_gets_a_number_that_no_process_had(hosts: Hosts) -> None:
    pids = running(hosts)
    (hosts.state / "s1").rename(hosts.state / "lost")  # at once: workers continue to write there
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: hosts.opened("w1") and hosts.pids().get("w1") not in (None, pids["w1"]))
    report = hosts.report("w1")
    assert report is not None
    assert report.incarnation == (1, 1)
    for pid in pids.values():  # they are not known any more: their lease would end them
        os.kill(pid, signal.SIGKILL)
        reap(pid)


def test_unreadable_orders_do_not_stop_a_supervisor(hosts: Hosts) -> None:
    pids = running(hosts)
    for orders in (hosts.state / "s1").rglob("w1/orders.json"):
        orders.write_text("{")
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: hosts.pids().get("w2") == pids["w2"])
    hosts.until(lambda: hosts.pids().get("w1") not in (None, pids["w1"]))
    reap(pids["w1"])


def test_nothing_found_is_ended_before_the_store_was_read(hosts: Hosts) -> None:
    pids = running(hosts)
    supervisor = hosts.make("s1")
    hosts.supervisors.append(supervisor)
    record = hosts.nimbus.topology("words")
    path = f"/assignments/{record.id}"
    found = hosts.store.get(path)
    assert found is not None
    hosts.store.put(path, b"half of it")
    for step in range(100):
        supervisor.sync(hosts.clock.now() + step * 0.1)
    assert all(runs(pid) for pid in pids.values())
    hosts.store.put(path, found[0])
    hosts.until(lambda: hosts.pids() == pids)


def test_a_worker_being_started_when_the_supervisor_died_is_found_by_its_mark(
    hosts: Hosts,
) -> None:
    pids = running(hosts)
    directory = next(path.parent for path in (hosts.state / "s1").rglob("process.json") if "w1" in str(path))
    started = read_started(directory)
    assert started is not None
    write_started(directory, structs.replace(started, pid=0, started=0))
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: hosts.pids() == pids, "no second one is started beside it")
    assert hosts.link.notes() == []
    assert read_started(directory) == started, (
        "it is recorded as if its first supervisor had lived a moment longer"
    )


def test_a_worker_about_to_be_started_when_the_supervisor_died_gets_the_next_number(
    hosts: Hosts,
) -> None:
    pids = running(hosts)
    directory = next(path.parent for path in (hosts.state / "s1").rglob("process.json") if "w1" in str(path))
    started = read_started(directory)
    assert started is not None
    os.kill(pids["w1"], signal.SIGKILL)
    reap(pids["w1"])
    write_started(directory, structs.replace(started, pid=0, started=0))
    hosts.supervisors.append(hosts.make("s1"))
    hosts.until(lambda: (report := hosts.report("w1")) is not None and report.incarnation == (1, 1))
    hosts.until(lambda: hosts.pids().keys() == {"w1", "w2"})


def test_a_worker_with_unreadable_orders_is_ended_before_another_is_started(hosts: Hosts) -> None:
    pids = running(hosts)
    for orders in (hosts.state / "s1").rglob("w1/orders.json"):
        orders.write_text("{")
    supervisor = hosts.make("s1")
    hosts.supervisors.append(supervisor)
    supervisor.sync(hosts.clock.now())
    assert not runs(pids["w1"]), "its slot is not given to a second one while it runs"
    reap(pids["w1"])
