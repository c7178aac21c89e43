"""The supervisor daemon runs the workers that Nimbus places with it, reports on them by HTTP, and ends without them."""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from squall.cluster import identity, paths
from squall.cluster.identity import OtherCluster
from squall.cluster.memory import InMemoryStore
from squall.daemon.state_directory import LOCK, BadStateDirectory, KnownCluster, StateDirectory
from squall.http.server import CannotListen
from squall.security.tls import InsecureBind
from squall.transport.carriers import sockets
from squall.worker_files import KEYS, LEASE, PORTS, read_orders
from supervisor.daemon import SupervisorDaemon
from tests.supervisor.programs import runs
from tests.supervisor.supervisor_daemons import Cluster


def test_placed_workers_run_and_are_reported_over_http(cluster: Cluster) -> None:
    daemon = cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    record = cluster.registry.all_supervisors()[0]
    assert (record.id, record.host, record.slots, record.beats) == (daemon.id, "s1", 2, True)
    assert record.url == daemon.url
    assert set(record.versions) == {"squall", "python", "cloudpickle"}
    assert record.resources["cpus"] >= 1
    assert cluster.store.get(paths.presence(daemon.id)) is not None
    assert cluster.nimbus.refused == []
    cluster.until(lambda: {each["worker"] for each in cluster.nimbus.said("counters")} == {"w1", "w2"})
    pids = cluster.pids()
    cluster.kill()
    cluster.until(lambda: cluster.registry.topologies.get("words") is None)
    cluster.until(lambda: not any(map(runs, pids.values())))
    cluster.until(lambda: not list((cluster.tmp / "s1" / "topologies").iterdir()))


@pytest.mark.parametrize("ports", [None, "6700-6799"])
def test_workers_get_their_allowed_ports_at_the_start(
    cluster: Cluster, ports: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORTS, "1-2")  # variables of a worker by which this supervisor may have been started
    cluster.start(ports=ports)
    cluster.submit(workers=1)
    cluster.until(lambda: cluster.opened("w1"))
    environment = Path(f"/proc/{cluster.pids()['w1']}/environ").read_bytes().split(b"\0")
    told = [each for each in environment if each.startswith(PORTS.encode())]
    assert told == ([] if ports is None else [f"{PORTS}={ports}".encode()])


def test_keys_come_sealed_and_are_stored_in_the_workers_directory_only(cluster: Cluster) -> None:
    cluster.start()
    record = cluster.submit(workers=1)
    cluster.until(lambda: cluster.opened("w1"))
    (keys,) = (cluster.tmp / "s1").rglob(KEYS)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    secret = keys.read_text().split('"secret":"')[1][:40]
    children = cluster.store.children(paths.keys(record.id))
    assert children, "there are sealed copies"
    for child in children:
        found = cluster.store.get(f"{paths.keys(record.id)}/{child}")
        assert found is not None and secret.encode() not in found[0]


def test_workers_go_on_when_the_daemon_stops_and_the_next_one_takes_them_over(cluster: Cluster) -> None:
    first = cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    cluster.stop(first)
    assert cluster.pids() == pids
    assert cluster.store.get(paths.presence(first.id)) is None, "it is not connected"
    assert [record.id for record in cluster.registry.all_supervisors()] == [first.id], "it comes back"
    second = cluster.start()
    assert second.id == first.id
    cluster.nimbus.do(lambda nimbus: nimbus.deactivate("words"))
    directory = next((cluster.tmp / "s1").rglob("orders.json")).parent

    def paused() -> bool:
        orders = read_orders(directory)
        return orders is not None and orders.asked == "pause"

    cluster.until(paused, "workers that were taken over do what they are asked")
    assert cluster.pids() == pids
    assert cluster.nimbus.notes() == []


def test_a_daemon_that_is_to_end_its_workers_does_so_and_unregisters(cluster: Cluster) -> None:
    daemon = cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    cluster.stop(daemon, end_workers=True)
    assert not any(map(runs, pids.values()))
    assert cluster.registry.all_supervisors() == []
    assert cluster.store.get(paths.presence(daemon.id)) is None


def test_workers_go_on_while_the_store_is_away(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit(fake={"w2": "once die 3"})
    cluster.until(lambda: cluster.opened("w1") and cluster.pids().keys() == {"w1", "w2"})
    pids = cluster.pids()
    cluster.seen["s1"].away = True
    lease = next((cluster.tmp / "s1").rglob(LEASE))
    before = lease.read_bytes()
    cluster.until(lambda: lease.read_bytes() != before, "leases are given on")
    os.kill(pids["w1"], signal.SIGKILL)
    cluster.until(lambda: cluster.pids().get("w1") not in (None, pids["w1"]), "a dead worker is replaced")
    cluster.seen["s1"].away = False
    cluster.submit("more", workers=1)
    cluster.kill()
    cluster.until(lambda: cluster.opened("w1", name="more"), "it goes on with what has changed")


def test_a_daemon_that_starts_while_the_store_is_away_keeps_the_workers_alive(cluster: Cluster) -> None:
    first = cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    cluster.stop(first)
    store = cluster.seen["s1"]
    store.away = True
    daemon = SupervisorDaemon(store, cluster.settings())
    cluster.daemons.append(daemon)
    lease = next((cluster.tmp / "s1").rglob(LEASE))
    before = lease.read_bytes()
    daemon.start()
    cluster.until(lambda: lease.read_bytes() != before, "leases are given on")
    store.away = False
    cluster.kill()
    cluster.until(lambda: not any(map(runs, pids.values())), "they are its own again")


@pytest.mark.slow
def test_no_worker_ends_because_the_store_comes_back_empty(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit()
    cluster.until(lambda: cluster.opened("w1", "w2"))
    pids = cluster.pids()
    wrapper = cluster.seen["s1"]
    full, wrapper.store = wrapper.store, InMemoryStore()
    wrapper.store.put("/topologies/other", b"x")
    lease = next((cluster.tmp / "s1").rglob(LEASE))
    for _ in range(3):  # seconds, each with a read of the store
        before = lease.read_bytes()
        cluster.until(lambda before=before: lease.read_bytes() != before)  # type: ignore[misc]
    assert cluster.pids() == pids
    assert wrapper.store.children("/") == ["topologies"], "nothing was written to it"
    wrapper.store = full
    cluster.kill()
    cluster.until(lambda: not any(map(runs, pids.values())), "the data came back, and it goes on")


def test_workers_go_on_while_nimbus_is_away_and_it_gets_the_reports_later(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit(workers=1, fake={"w1": "once die 3"})
    cluster.until(lambda: cluster.pids())
    cluster.nimbus.down()
    first = cluster.pids()
    cluster.until(lambda: (pids := cluster.pids()) and pids != first, "it is started again")
    cluster.nimbus.up()
    cluster.until(
        lambda: any("ended with status 3" in note for note in cluster.nimbus.notes()), "its death is reported"
    )
    cluster.until(lambda: cluster.opened("w1"))


def test_a_change_reaches_workers_within_half_a_second(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit(workers=1)
    cluster.until(lambda: cluster.opened("w1"))
    orders = next((cluster.tmp / "s1").rglob("orders.json")).parent
    woken = 0
    for _ in range(5):  # by a watch, not by a timer that happens to fire: all five of them
        before = read_orders(orders)
        assert before is not None
        with cluster.nimbus.lock:
            change = "deactivate" if before.asked == "run" else "activate"
            getattr(cluster.nimbus.nimbus, change)("words")
        began = time.monotonic()
        cluster.until(lambda before=before: read_orders(orders) != before)  # type: ignore[misc]
        woken += time.monotonic() - began < 0.5
    assert woken >= 1


@pytest.mark.slow
def test_two_daemons_never_share_a_state_directory(cluster: Cluster) -> None:
    cluster.start()
    with pytest.raises(
        BadStateDirectory, match=rf"in use by process {os.getpid()}: give this supervisor its own"
    ):
        SupervisorDaemon(cluster.store.session(), cluster.settings())


@pytest.mark.slow
@pytest.mark.parametrize("there", ["nothing", "another file"])
def test_nor_after_the_lock_file_was_deleted(cluster: Cluster, there: str) -> None:
    daemon = cluster.start()
    (cluster.tmp / "s1" / LOCK).unlink()
    if there == "another file":
        (cluster.tmp / "s1" / LOCK).write_text("")
    with pytest.raises(BadStateDirectory, match="in use by another process"):
        SupervisorDaemon(cluster.store.session(), cluster.settings())
    cluster.stop(daemon)
    with closing(StateDirectory(cluster.tmp / "s1", "supervisor", "s1")):
        assert (cluster.tmp / "s1" / LOCK).read_text() == f"{os.getpid()}\n"


@pytest.mark.slow
def test_a_full_disk_does_not_block_a_supervisors_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*what: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    StateDirectory(tmp_path, "supervisor", "s1").close()
    monkeypatch.setattr(os, "pwrite", full)
    with (
        closing(StateDirectory(tmp_path, "supervisor", "s1")),
        pytest.raises(BadStateDirectory, match="in use"),
    ):
        StateDirectory(tmp_path, "supervisor", "s1")


def test_a_daemon_listens_to_other_machines_only_with_a_certificate(cluster: Cluster) -> None:
    with pytest.raises(InsecureBind, match="reads the workers' logs"):
        SupervisorDaemon(cluster.store.session(), cluster.settings(listen=("0.0.0.0", 0)))
    with closing(StateDirectory(cluster.tmp / "s1", "supervisor", "s1")):
        pass  # and holds nothing after that


@pytest.mark.parametrize("bind", ["foo", "203.0.113.7", ""])
def test_an_address_that_no_worker_could_listen_on_is_refused_at_the_start(
    cluster: Cluster, bind: str
) -> None:
    with pytest.raises(
        sockets.WorkerCannotListen, match=rf"^workers cannot listen on '{bind}' \(--bind\): [^\n]*$"
    ):
        SupervisorDaemon(cluster.store.session(), cluster.settings(bind=bind))
    with closing(StateDirectory(cluster.tmp / "s1", "supervisor", "s1")):
        pass  # and holds nothing after that


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0", "lo"])
def test_an_address_of_this_machine_is_accepted(bind: str) -> None:
    sockets.check_address(bind)


def test_an_address_in_use_is_named(cluster: Cluster) -> None:
    first = cluster.start()
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(CannotListen, match=rf"cannot listen at 127\.0\.0\.1:{port}: .* --listen"):
        SupervisorDaemon(cluster.store.session(), cluster.settings("s2", listen=("127.0.0.1", port)))


def identity_in(directory: Path, name: str) -> tuple[str, str]:
    """The id and the public key of the daemon with that state directory."""
    with closing(StateDirectory(directory, "supervisor", name)) as state:
        return state.id, state.pair.public


def test_id_and_keys_stay_with_the_state_directory(tmp_path: Path) -> None:
    first = identity_in(tmp_path, "a host!")
    assert first == identity_in(tmp_path, "another") == identity_in(tmp_path, "")
    assert first[0].startswith("a-host-")
    assert identity_in(tmp_path / "other", "?")[0].startswith("supervisor-")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "id").write_text("../etc\n")
    with pytest.raises(BadStateDirectory, match="instead of an id"):
        identity_in(tmp_path, "x")


def test_a_daemon_belongs_to_the_first_cluster_that_it_sees(tmp_path: Path) -> None:
    known, store = KnownCluster(tmp_path), InMemoryStore()
    known.admit(store)
    assert not (tmp_path / "cluster").exists(), "there is no cluster yet"
    cluster_id = identity.establish(store)
    known.admit(store)
    assert KnownCluster(tmp_path).id == known.id == cluster_id
    for other in (InMemoryStore(), another_cluster()):
        with pytest.raises(OtherCluster):
            KnownCluster(tmp_path).admit(other)
    known.forget()
    KnownCluster(tmp_path).admit(another_cluster())
    assert KnownCluster(tmp_path).id not in (None, cluster_id)


def another_cluster() -> InMemoryStore:
    """A store that belongs to some cluster."""
    store = InMemoryStore()
    identity.establish(store)
    return store
