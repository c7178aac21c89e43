"""Worker processes of one topology work together over ZeroMQ, whatever happens to one of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from squall.cluster.blobs import read_bundle
from squall.transport.carrier import Parts
from squall.transport.carriers.sockets import make_keys
from squall.transport.wire import HEARTBEAT, Header, open_header
from squall.values import Address, Incarnation, Keys
from squall.worker_files import EXIT_DRAINED, EXIT_LEASE, EXIT_STOPPED, KEYS, write
from tests.worker.daemon_components import Notes, Numbers, WhileSeen, lines, one_bolt
from tests.worker.fake_supervisor import CAP, FakeSupervisor, orders_for, ship
from tests.worker.lossy_carrier import Faults, LossyCarrier
from tests.worker.network_of_workers import Node, OverZeroMQ
from topology_api import Topology
from worker.process.startup import peers_of, plan_of


class Cluster:
    """Worker processes, and the orders that name their peers."""

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        placed: Mapping[str, Sequence[int]],
        conf: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.stack = ExitStack()
        self.workers: dict[str, FakeSupervisor] = {}
        self.orders = orders_for(topology, ship(topology, folder / "bundle"), conf, placed)
        self.keys: Keys = make_keys()

    def start(self, worker: str, restart: int = 0, **changes: object) -> FakeSupervisor:
        """Start a worker (again) with the known addresses of the others."""
        if worker in self.workers:
            self.workers.pop(worker).__exit__()
        directory = self.folder / worker
        directory.mkdir(exist_ok=True)
        write(directory, KEYS, self.keys, 0o600)
        self.note_incarnation(worker, restart)
        orders = replace(self.orders, worker=worker, incarnation=(1, restart), **changes)
        started = FakeSupervisor(directory, replace(orders, addresses=self.addresses(but=worker)))
        self.workers[worker] = self.stack.enter_context(started)
        return started

    def note_incarnation(self, worker: str, restart: int) -> None:
        self.orders = replace(
            self.orders,
            placements=tuple(
                replace(place, incarnation=Incarnation(1, restart)) if place.worker == worker else place
                for place in self.orders.placements
            ),
        )

    def addresses(self, but: str) -> dict[str, Address]:
        """The addresses that the others have reported so far."""
        found = {name: worker.heartbeat() for name, worker in self.workers.items() if name != but}
        return {
            name: heartbeat.address
            for name, heartbeat in found.items()
            if heartbeat is not None and heartbeat.address
        }

    def introduce(self) -> None:
        """Send every worker the addresses of the others."""
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.wait_heartbeat(lambda heartbeat: heartbeat.address)
        for name, worker in self.workers.items():
            if worker.process.poll() is None:
                worker.order(addresses=self.addresses(but=name), placements=self.orders.placements)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def two_workers(
    folder: Path,
    stack: ExitStack,
    bolt: Notes,
    count: int | None,
    conf: Mapping[str, object] | None = None,
) -> Cluster:
    """The spout in w1, two tasks of the bolt in w2."""
    topology = one_bolt(bolt, folder, count, parallelism=2)
    cluster = Cluster(folder, topology, {"w1": [1], "w2": [2, 3]}, conf)
    stack.enter_context(cluster.stack)
    return cluster


def test_a_worker_that_must_drain_before_it_began_executes_what_waits_for_it(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), None)
    one, two = cluster.start("w1"), cluster.start("w2", asked="pause")
    cluster.introduce()
    one.wait(lambda: lines(tmp_path / "emitted"), "a tuple")
    one.order("drain")
    two.order("drain")
    one.wait_heartbeat(lambda heartbeat: heartbeat.drained)
    assert len(lines(tmp_path / "acked")) == len(lines(tmp_path / "emitted")) > 0
    # It may have said before that nothing waits for it, and another heartbeat of it may be on its way.
    two.wait_heartbeat(lambda heartbeat: heartbeat.drained and heartbeat.opened)


def test_tuples_and_acks_cross_between_two_processes(tmp_path: Path, stack: ExitStack) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), 1000)
    one, two = cluster.start("w1"), cluster.start("w2")
    cluster.introduce()
    assert one.wait_heartbeat(lambda heartbeat: heartbeat.ended).finished == (1,)
    two.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    numbers = [str(number) for number in range(1, 1001)]
    assert sorted(lines(tmp_path / "seen"), key=int) == sorted(lines(tmp_path / "acked"), key=int) == numbers
    for worker in (one, two):
        worker.order("stop")
        assert worker.wait_end() == EXIT_STOPPED


def test_a_worker_with_a_late_peer_opens_its_tasks_once_the_peer_has_come(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), 100)
    one = cluster.start("w1")
    heartbeat = one.wait_heartbeat(lambda heartbeat: heartbeat.address)
    one.wait_heartbeat(lambda later: later.number > heartbeat.number)
    assert not lines(tmp_path / "opened")
    two = cluster.start("w2")
    cluster.introduce()
    one.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    two.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    assert len(lines(tmp_path / "acked")) == 100
    assert "the tasks are opened without them" not in one.log()


@pytest.mark.slow
def test_a_worker_whose_peer_never_comes_opens_its_tasks_without_it(tmp_path: Path, stack: ExitStack) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), None)
    one = cluster.start("w1")
    one.wait(lambda: lines(tmp_path / "opened"), "the spout's open")
    assert "not all workers answer after 5 s; the tasks are opened without them" in one.log()


def test_a_worker_that_is_killed_and_restarted_is_found_and_the_rest_is_acked(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path, 0.0005), None)
    one, two = cluster.start("w1"), cluster.start("w2")
    cluster.introduce()
    one.wait(lambda: len(lines(tmp_path / "acked")) > 100, "acks")
    two.process.kill()
    two.wait_end()
    cluster.start("w2", restart=1)
    cluster.introduce()
    acked = len(lines(tmp_path / "acked"))
    one.wait(lambda: len(lines(tmp_path / "acked")) > acked + 100, "acks by the new process")
    one.order("drain")
    one.wait_heartbeat(lambda heartbeat: heartbeat.drained)
    failures = [line.split() for line in lines(tmp_path / "failed")]
    assert {reason for _, reason in failures} <= {"lost"}
    said = [*lines(tmp_path / "acked"), *(number for number, _ in failures)]
    assert sorted(map(int, said)) == sorted(map(int, lines(tmp_path / "emitted")))
    assert set(lines(tmp_path / "acked")) <= set(lines(tmp_path / "seen"))


def test_sigterm_of_a_bolts_worker_under_load_causes_no_failure(tmp_path: Path, stack: ExitStack) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), None)
    one, two = cluster.start("w1"), cluster.start("w2")
    cluster.introduce()
    one.wait(lambda: len(lines(tmp_path / "acked")) > 100, "acks")
    two.process.send_signal(signal.SIGTERM)
    assert two.wait_end() == EXIT_DRAINED
    cluster.start("w2", restart=1)
    cluster.introduce()
    acked = len(lines(tmp_path / "acked"))
    one.wait(lambda: len(lines(tmp_path / "acked")) > acked + 100, "acks by the new process")
    one.order("drain")
    one.wait_heartbeat(lambda heartbeat: heartbeat.drained)
    assert not lines(tmp_path / "failed")
    assert len(lines(tmp_path / "acked")) == len(lines(tmp_path / "emitted"))


def test_sigterm_of_a_spouts_worker_under_load_waits_for_its_trees(tmp_path: Path, stack: ExitStack) -> None:
    cluster = two_workers(tmp_path, stack, Notes(tmp_path, 0.0002), None)
    one, two = cluster.start("w1"), cluster.start("w2")
    cluster.introduce()
    one.wait(lambda: len(lines(tmp_path / "acked")) > 100, "acks")
    one.process.send_signal(signal.SIGTERM)
    assert one.wait_end() == EXIT_DRAINED
    end = one.end()
    assert end is not None and end.reason == "drained, and ended by SIGTERM"
    assert not lines(tmp_path / "failed")
    assert len(lines(tmp_path / "acked")) == len(lines(tmp_path / "emitted"))
    two.order("drain")
    two.wait_heartbeat(lambda heartbeat: heartbeat.drained)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(Numbers, marks=pytest.mark.soak), WhileSeen])
def test_tuples_that_wait_behind_a_long_call_do_not_time_out(
    tmp_path: Path, stack: ExitStack, kind: type[Numbers]
) -> None:
    """They wait in the inboxes of the worker, or (WhileSeen) in its sockets, since its loop reads nothing meanwhile."""
    topology = one_bolt(Notes(tmp_path, 4.5), tmp_path, 2, parallelism=2, kind=kind)
    conf = {"topology.message.timeout.secs": 3.0}
    cluster = Cluster(tmp_path, topology, {"w1": [1], "w2": [2, 3]}, conf)
    stack.enter_context(cluster.stack)
    one = cluster.start("w1")
    cluster.start("w2")
    cluster.introduce()
    one.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    assert not lines(tmp_path / "failed")
    assert sorted(lines(tmp_path / "acked")) == ["1", "2"]


def open_trees(folder: Path) -> int:
    """Emitted tuples that are neither acked nor failed yet."""
    return len(lines(folder / "emitted")) - len(lines(folder / "acked")) - len(lines(folder / "failed"))


class Peer:
    """A worker in this process that records messages from the others, and works only when the test steps it."""

    def __init__(self, cluster: Cluster, worker: str, world: OverZeroMQ) -> None:
        world.keys = cluster.keys
        orders = replace(cluster.orders, worker=worker, addresses=cluster.addresses(but=worker))
        topology = read_bundle(Path(orders.bundle))
        plan = plan_of(orders, topology, str(cluster.folder / worker))
        self.node = Node(plan, world.clock, LossyCarrier(world.carrier(worker), Faults(Random(1))))
        self.node.exchange.assign(orders.version, peers_of(orders))
        self.came: list[Header] = []
        accept = self.node.exchange.accept

        def keeping_account(parts: Parts) -> None:
            self.came.append(open_header(parts)[0])
            accept(parts)

        self.node.exchange.accept = keeping_account  # type: ignore[method-assign]

    def listen(self) -> None:
        """Read all messages and answer with a heartbeat; no tuple is executed."""
        self.node.exchange.receive()
        self.node.exchange.advance()

    def wait(self, step: Callable[[], object], seen: Callable[[], bool], what: str) -> None:
        """Continue until an event is seen."""
        deadline = time.monotonic() + CAP
        while not seen():
            assert time.monotonic() < deadline, f"waited {CAP} s for {what}"
            if not step():
                time.sleep(0.001)

    def signs(self) -> int:
        """The number of heartbeats so far."""
        return sum(header.kind == HEARTBEAT for header in self.came)


@pytest.mark.slow
def test_a_worker_that_thaws_after_its_lease_sends_nothing_to_its_peer(
    tmp_path: Path, stack: ExitStack
) -> None:
    pending = 50
    cluster = two_workers(tmp_path, stack, Notes(tmp_path), None, {"topology.max.spout.pending": pending})
    one = cluster.start("w1", lease_secs=1.0)
    one.wait_heartbeat(lambda heartbeat: heartbeat.address)
    peer = Peer(cluster, "w2", stack.enter_context(OverZeroMQ()))
    one.order(addresses={"w2": peer.node.carrier.address})
    peer.wait(peer.node.step, lambda: len(lines(tmp_path / "acked")) > 100, "acks")
    # The spout has reached its limit: all pending tuples are in flight, and its worker sends only heartbeats.
    peer.wait(peer.listen, lambda: open_trees(tmp_path) == pending, "the spout to wait for acks")
    signs = peer.signs()
    peer.wait(peer.listen, lambda: peer.signs() > signs, "a heartbeat")
    one.process.send_signal(signal.SIGSTOP)  # the next one is not due for half a second
    emitted, frozen_at = len(lines(tmp_path / "emitted")), time.monotonic()
    acked = len(lines(tmp_path / "acked"))
    # Now the acks come, and with them everything it needs to go on.
    peer.wait(peer.node.step, lambda: time.monotonic() > frozen_at + 1.2, "the end of the lease")
    assert len(lines(tmp_path / "seen")) == emitted
    came = len(peer.came)
    one.process.send_signal(signal.SIGCONT)
    assert one.wait_end() == EXIT_LEASE
    ended_at = time.monotonic()
    peer.wait(peer.node.step, lambda: time.monotonic() > ended_at + 0.1, "what it may have sent")
    # A heartbeat that ZeroMQ had accepted before the freeze leaves after it; a worker that went on would send tuples and acks.
    assert [header.kind for header in peer.came[came:]] in ([], [HEARTBEAT])
    assert len(lines(tmp_path / "emitted")) == emitted
    assert len(lines(tmp_path / "acked")) == acked
