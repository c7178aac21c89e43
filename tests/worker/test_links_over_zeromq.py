"""Links over sockets keep the same promises as over a network in memory (`test_lossy_links.py`). This module tests the
behaviour of sockets alone, and some of the fault patterns that the search in simulated time goes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import zmq

from squall.transport.carriers.sockets import make_keys
from squall.transport.exchange import PeerPlace
from tests.squall.transport.messages import only_tcp
from tests.worker.chain_of_numbers import CONF, FINAL_CALLS, HOSTS, PATIENT, SEEN, chain, check_ledger
from tests.worker.lossy_carrier import Faults
from tests.worker.network_of_workers import Net, OverZeroMQ


@pytest.fixture(params=["Unix sockets", pytest.param("TCP", marks=pytest.mark.soak)])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OverZeroMQ]:
    if request.param == "TCP":
        only_tcp(monkeypatch)
    with OverZeroMQ() as world:
        yield world


IN_BOTH = pytest.mark.parametrize("world", ["Unix sockets", "TCP"], indirect=True)


def counted(net: Net, name: str) -> int:
    """A counter, summed over all workers."""
    return sum(node.exchange.counters[name] for node in net.nodes.values())


def pushes_of(world: OverZeroMQ, worker: str, peer: str) -> list[zmq.SyncSocket]:
    """The sockets over which a worker sends to a peer."""
    [sockets] = [each for each in world.made if each.ports == world.ports[worker]]
    return sockets._pushes[peer]


def after_faults(world: OverZeroMQ, run: str, faults: Faults) -> Net:
    """Faults for two seconds, or until all have ended; then quiet. The ledger must hold, and all credit must return."""
    net = Net(chain(run, 400), HOSTS, world, faults, PATIENT)
    net.start()
    net.run(2, net.settled)
    faults.bad = False
    net.run_until_quiet(60)
    check_ledger(run, 400)
    assert {final_call for _, final_call in FINAL_CALLS[run]} == {"ack"}, (
        "lost tuples came through as replays"
    )
    return net


@pytest.mark.slow
@pytest.mark.parametrize("lose", [0.3, pytest.param(0.1, marks=pytest.mark.soak)])
def test_after_losses_of_all_kinds_the_ledger_holds_and_all_credit_has_returned(
    world: OverZeroMQ, lose: float
) -> None:
    net = after_faults(world, f"lose {lose}", Faults(Random(7), lose=lose))
    assert net.faults.losses
    assert counted(net, "gaps") > 0


def test_messages_that_come_twice_are_processed_once(world: OverZeroMQ) -> None:
    net = after_faults(world, "double", Faults(Random(7), double=0.3))
    assert net.faults.doubles
    assert counted(net, "duplicates") > 0
    assert counted(net, "control frames twice or early") > 0
    assert sorted(SEEN["double"]) == list(range(400))
    assert net.spouts[0].replayed == 0


@pytest.mark.slow
def test_an_overtaken_message_is_lost_or_sent_again_and_never_processed_twice(
    world: OverZeroMQ,
) -> None:
    net = after_faults(world, "swap", Faults(Random(7), swap=0.2))
    assert net.faults.swaps
    assert counted(net, "gaps") > 0
    assert counted(net, "duplicates") > 0, "the late one counts as already received"
    assert counted(net, "control frames twice or early") > 0
    assert len(SEEN["swap"]) <= 400 + net.spouts[0].replayed


@pytest.mark.slow
def test_messages_changed_on_the_way_are_refused_and_yield_no_other_values(
    world: OverZeroMQ,
) -> None:
    net = after_faults(world, "flip", Faults(Random(7), flip=0.1))
    assert net.faults.flips
    assert 0 < counted(net, "refused: garbage") <= net.faults.flips


@pytest.mark.slow
@IN_BOTH
def test_links_recover_from_all_faults_at_once(world: OverZeroMQ) -> None:
    net = after_faults(world, "all", Faults(Random(7), lose=0.1, double=0.1, swap=0.1, flip=0.05))
    assert all((net.faults.losses, net.faults.doubles, net.faults.swaps, net.faults.flips))


@IN_BOTH
def test_messages_queued_for_a_dead_process_are_refused_by_the_next_one_on_its_ports(
    world: OverZeroMQ,
) -> None:
    run = "same ports"
    net = Net(chain(run, 500), HOSTS, world, conf=CONF | {"topology.message.timeout.secs": 2})
    net.start()
    links = net.nodes["w1"].worker.links
    (dying,) = (task for task, name in links.worker_of.items() if name == "w3")
    # A task without credit when the process dies gets none from it any more.
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 50 and links.window(dying).room)
    address, first = net.nodes["w3"].carrier.address, net.nodes["w1"].exchange.peers["w3"].link
    pushes = pushes_of(world, "w1", "w3")
    monitors = [push.get_monitor_socket(zmq.EVENT_DISCONNECTED) for push in pushes]
    net.kill("w3")
    # Before ZeroMQ's thread sees that a connection is closed, a message may go into it and be lost.
    seen = [monitor.poll(10_000) for monitor in monitors]
    for push, monitor in zip(pushes, monitors):
        push.disable_monitor()
        monitor.close(0)
    assert all(seen)
    sent = first.in_flight.sent
    assert net.run(10, lambda: first.in_flight.sent > sent), (
        "ZeroMQ accepts messages that its peer does not read"
    )
    net.number_again("w3")
    node = net.begin("w3")
    assert node.carrier.address == address
    others = {
        name: PeerPlace(net.incarnations[name], net.nodes[name].carrier.address) for name in ("w1", "w2")
    }
    node.exchange.assign(net.version, others)
    all_nodes, net.nodes = (
        net.nodes,
        {"w3": node},
    )  # the others are in a user call, while their messages arrive
    assert net.run(10, lambda: node.exchange.counters["refused: for another incarnation"] > 0)
    net.nodes = all_nodes
    net.tell()
    net.run_until_quiet(60)
    check_ledger(run, 500)


@IN_BOTH
def test_a_worker_with_the_keys_of_another_topology_is_not_linked(world: OverZeroMQ) -> None:
    run = "keys"
    net = Net(chain(run, 200), HOSTS, world, conf=PATIENT)
    net.start("w1", "w2")
    keys, world.keys = world.keys, make_keys()
    net.start("w3")
    assert net.run(10, lambda: all(sum(sockets.refusals.values()) > 0 for sockets in world.made))
    assert not net.nodes["w1"].worker.started
    assert not net.nodes["w3"].exchange.peers["w1"].link.up
    net.kill("w3")
    world.keys = keys
    net.restart("w3")
    net.run_until_quiet(60)
    check_ledger(run, 200)
