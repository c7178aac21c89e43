"""Links promise: whatever is lost, doubled, changed or reordered between workers, no tuple is acked that was not executed,
every emission gets one final call, and when it is quiet all credit has returned. Over a network in memory, and over ZeroMQ.

Tests that need simulated time, or are not about messages, run in memory alone; `test_links_over_zeromq.py` tests sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from squall.transport.carrier import CONTROL, DATA
from squall.transport.channels import SILENCE
from squall.transport.exchange import PeerPlace
from squall.transport.in_flight import GONE, MISSING, SentBatch
from squall.values import Incarnation
from tests.worker.chain_of_numbers import (
    CONF,
    FINAL_CALLS,
    HOSTS,
    PATIENT,
    SEEN,
    Numbers,
    chain,
    check_ledger,
)
from tests.worker.lossy_carrier import Faults
from tests.worker.network_of_workers import InMemory, Net, OverZeroMQ, World
from topology_api import Bolt, Topology, TopologyBuilder
from worker.loop.peers import Peers


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield InMemory()
        return
    with OverZeroMQ() as world:
        yield world


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons for losses, as workers get them."""
    reasons: list[str] = []
    lost = Peers.lost

    def listen(peers: Peers, frames: Sequence[SentBatch], why: str) -> None:
        reasons.append(why)
        lost(peers, frames, why)

    monkeypatch.setattr(Peers, "lost", listen)
    return reasons


def over(*worlds: Any) -> pytest.MarkDecorator:
    """Run the test in each of these worlds."""
    return pytest.mark.parametrize("world", worlds, indirect=True)


IN_BOTH = over("memory", "zeromq")
#: For tests that take longer in real time.
IN_BOTH_SLOWLY = over("memory", pytest.param("zeromq", marks=pytest.mark.slow))


def in_both_slowly(argument: str, first: str, *more: str) -> pytest.MarkDecorator:
    """Run the test with each value; over ZeroMQ only with the first one, with the others by `--soak`."""
    slow, soak = pytest.mark.slow, pytest.mark.soak
    cases = [pytest.param(value, "memory") for value in (first, *more)]
    cases += [pytest.param(first, "zeromq", marks=slow)]
    cases += [pytest.param(value, "zeromq", marks=[slow, soak]) for value in more]
    return pytest.mark.parametrize((argument, "world"), cases, indirect=["world"])


@IN_BOTH
def test_over_a_good_network_everything_is_seen_once_and_acked(world: World) -> None:
    net = Net(chain("good", 2000), HOSTS, world, conf=CONF)
    net.start()
    net.run_until_quiet(60)
    check_ledger("good", 2000)
    assert sorted(SEEN["good"]) == list(range(2000))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@example(
    seed=3309371709, lose=0.0, double=0.0, swap=0.0, flip=0.1
)  # an end mark and the report that it is missing
@given(
    seed=st.integers(0, 2**32),
    lose=st.sampled_from([0.0, 0.02, 0.2, 0.6]),
    double=st.sampled_from([0.0, 0.2]),
    swap=st.sampled_from([0.0, 0.2]),
    flip=st.sampled_from([0.0, 0.1]),
)
def test_after_any_pattern_of_loss_and_then_quiet_all_credit_has_returned_and_the_ledger_holds(
    seed: int, lose: float, double: float, swap: float, flip: float
) -> None:
    faults = Faults(Random(seed), lose, double, swap, flip)
    net = Net(chain("lossy", 300), HOSTS, InMemory(), faults, PATIENT)
    net.start()
    net.run(4, net.settled)
    faults.bad = False
    net.run_until_quiet(200)
    check_ledger("lossy", 300)


@in_both_slowly("cut", "one way", "both ways", "data only")
def test_a_link_that_is_cut_for_a_while_loses_no_acked_tuple(cut: str, world: World) -> None:
    net = Net(chain(cut, 3000), HOSTS, world, conf=CONF)
    net.start()
    assert net.run(5, lambda: len(FINAL_CALLS[cut]) > 200)
    there, back = net.nodes["w2"].carrier.address, net.nodes["w1"].carrier.address
    net.faults.cut = lambda address, channel: (
        (address == there and (cut != "data only" or channel == DATA))
        or (address == back and cut == "both ways")
    )
    if cut == "data only":
        net.run(1)
        assert net.faults.losses
    else:
        assert net.run(10, lambda: net.nodes["w1"].exchange.counters["reconnects"] > 0), (
            "the silence is noticed"
        )
    net.faults.cut = lambda address, channel: False
    net.run_until_quiet(100)
    check_ledger(cut, 3000)


@IN_BOTH
def test_tuples_lost_in_a_gap_fail_at_once_and_not_by_timeout(world: World, reasons: list[str]) -> None:
    net = Net(chain("gap", 400), HOSTS, world, conf=PATIENT)
    net.start()
    there = net.nodes["w3"].carrier.address
    net.faults.cut = lambda address, channel: address == there and channel == DATA
    assert net.run(10, lambda: net.faults.losses >= 3)
    net.faults.cut = lambda address, channel: False
    net.run_until_quiet(60)
    check_ledger("gap", 400)
    assert {final_call for _, final_call in FINAL_CALLS["gap"]} == {"ack"}, "the replay came through"
    assert net.spouts[0].replayed > 0
    assert set(reasons) == {MISSING}


@in_both_slowly("victim", "w2", "w3")
def test_a_worker_that_is_killed_and_restarted_costs_replays_and_no_acked_tuple(
    victim: str, world: World
) -> None:
    run = f"killed {victim}"
    net = Net(chain(run, 3000), HOSTS, world, conf=CONF | {"topology.message.timeout.secs": 2})
    net.start()
    for _ in range(3):
        more = len(FINAL_CALLS[run]) + 150
        assert net.run(30, lambda more=more: len(FINAL_CALLS[run]) > more)  # type: ignore[misc]
        net.kill(victim)
        net.run(0.2)
        net.restart(victim)
    net.run_until_quiet(200)
    check_ledger(run, 3000)


@IN_BOTH
def test_roots_of_frames_to_a_superseded_process_fail_as_lost_though_no_timeout_has_passed(
    world: World, reasons: list[str]
) -> None:
    run = "superseded"
    net = Net(chain(run, 500), HOSTS, world, conf=PATIENT)
    net.start()
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 50)
    net.kill("w2")
    net.run(0.2)
    net.restart("w2")
    assert net.run(5, lambda: net.spouts[0].replayed > 0)
    assert net.nodes["w1"].exchange.counters["lost frames"] > 0
    assert GONE in reasons
    assert not [final_call for _, final_call in FINAL_CALLS[run] if final_call == "timeout"]


@IN_BOTH
def test_tuples_for_a_late_peer_wait_and_are_not_lost(world: World) -> None:
    run = "late"
    net = Net(chain(run, 1000), HOSTS, world, conf=CONF)
    for name in ("w1", "w2"):
        net.begin(name).waits_for_peers = False
        net.tell()
        net.run(0.3)
        assert net.spouts[0].pending > 0, "tuples for workers that are not there"
    net.start("w3")
    net.run_until_quiet(60)
    check_ledger(run, 1000)
    assert sorted(SEEN[run]) == list(range(1000)), "each once: nothing was lost, so nothing was replayed"


@IN_BOTH
def test_a_peer_that_pauses_for_a_moment_delays_the_others_and_loses_nothing(world: World) -> None:
    run = "frozen"
    net = Net(chain(run, 1000), HOSTS, world, conf=PATIENT)
    net.start()
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 100)
    frozen = net.nodes.pop("w3")
    net.run(0.5)
    net.nodes["w3"] = frozen
    net.run_until_quiet(60)
    check_ledger(run, 1000)
    assert sorted(SEEN[run]) == list(range(1000))


@IN_BOTH
def test_an_end_mark_never_overtakes_tuples(world: World) -> None:
    run = "untracked"
    net = Net(chain(run, 5000, tracked=False), HOSTS, world, conf=CONF)
    net.start()
    assert net.run(60, net.settled)
    assert sorted(SEEN[run]) == list(range(5000))


@IN_BOTH_SLOWLY
def test_lost_control_frames_come_again_in_order_and_once(world: World) -> None:
    run = "control"
    net = Net(chain(run, 1500), HOSTS, world, conf=PATIENT)
    net.start()
    draw = Random(12).random
    net.faults.cut = lambda address, channel: channel == CONTROL and draw() < 0.3
    net.run(2, net.settled)
    assert net.faults.losses
    net.faults.cut = lambda address, channel: False
    net.run_until_quiet(60)
    check_ledger(run, 1500)
    assert net.spouts[0].replayed == 0, "no XOR was lost, so no tree failed"
    assert sorted(SEEN[run]) == list(range(1500))


@IN_BOTH_SLOWLY
def test_a_process_that_was_superseded_while_it_was_frozen_is_refused(world: World) -> None:
    run = "thawed"
    net = Net(chain(run, 1000), HOSTS, world, conf=CONF | {"topology.message.timeout.secs": 2})
    net.start()
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 100)
    frozen = net.nodes.pop("w2")
    net.world.move("w2")
    net.restart("w2")
    counters = net.nodes["w1"].exchange.counters

    def refused() -> bool:
        frozen.step()
        return counters["refused: superseded"] > 0

    assert net.run(30, refused)
    net.run_until_quiet(60)
    check_ledger(run, 1000)


@IN_BOTH
def test_a_spout_whose_worker_is_killed_restarts_and_its_old_trees_do_not_affect_new_ones(
    world: World,
) -> None:
    run = "spout killed"
    net = Net(chain(run, 1500), HOSTS, world, conf=CONF)
    net.start()
    for _ in range(3):
        more = len(FINAL_CALLS[run]) + 100
        assert net.run(30, lambda more=more: len(FINAL_CALLS[run]) > more)  # type: ignore[misc]
        net.kill("w1")
        net.run(0.1)
        FINAL_CALLS[run].clear()
        net.restart("w1")
    net.run_until_quiet(200)
    check_ledger(run, 1500)
    assert {final_call for _, final_call in FINAL_CALLS[run]} == {"ack"}


def moved(net: Net, hosts: dict[str, list[str]], new: set[str], topology: Topology | None = None) -> None:
    """Act as Nimbus and the supervisors: another assignment, in which the `new` workers are new processes."""
    net.version += 1
    before = {spec.id: spec.parallelism for spec in net.topology.components}
    if topology is not None:
        net.topology = topology
        net.number_tasks(topology)
    changed = {spec.id for spec in net.topology.components if before[spec.id] != spec.parallelism}
    for name in [name for name in net.nodes if name not in hosts or name in new]:
        net.kill(name)
    net.hosts = hosts
    net.incarnations = {
        name: Incarnation(net.version, 0) if name in new else net.incarnations[name] for name in hosts
    }
    net.tell([task for task, component, _ in net.tasks if component in changed])
    for name, node in net.nodes.items():
        node.worker.replan(net.plan(name, net.incarnations[name]))
    if new:
        net.start(*new)


def test_tasks_that_move_under_load_cost_replays_and_others_keep_their_state() -> None:
    run = "moved"
    net = Net(chain(run, 4000), HOSTS, InMemory(), conf=CONF)
    net.start()
    for turn in range(4):
        more = len(FINAL_CALLS[run]) + 200
        assert net.run(30, lambda more=more: len(FINAL_CALLS[run]) > more)  # type: ignore[misc]
        stayed = net.nodes["w1"].worker.tasks[1].instance
        name = f"n{turn}"
        hosts = {"w1": HOSTS["w1"], name: [*HOSTS["w2"], *HOSTS["w3"]]}
        moved(net, hosts, {name})
        assert net.nodes["w1"].worker.tasks[1].instance is stayed
    net.run_until_quiet(200)
    check_ledger(run, 4000)


def test_another_number_of_tasks_gives_each_key_one_owner_and_loses_nothing() -> None:
    run = "renumbered"
    topology = chain(run, 4000)
    net = Net(topology, HOSTS, InMemory(), conf=CONF)
    net.start()
    for sinks in (4, 1, 3):
        more = len(FINAL_CALLS[run]) + 200
        assert net.run(30, lambda more=more: len(FINAL_CALLS[run]) > more)  # type: ignore[misc]
        for node in net.nodes.values():
            node.worker.drain()
        assert net.run(60, lambda: all(node.worker.drained for node in net.nodes.values()))
        hosts = {
            "w1": ["numbers/0", "middle/0"],
            "w2": ["middle/1", *(f"sink/{index}" for index in range(0, sinks, 2))],
            "w3": [f"sink/{index}" for index in range(1, sinks, 2)] or [],
        }
        if not hosts["w3"]:
            del hosts["w3"]
        new = {name for name in hosts if name not in net.nodes}
        moved(net, hosts, new, topology.with_parallelism({"sink": sinks}))
        for node in net.nodes.values():
            node.worker.set_active(True)
    net.run_until_quiet(200)
    check_ledger(run, 4000)
    assert sorted(SEEN[run]) == list(range(4000)), "nothing was lost, so nothing came twice"


@IN_BOTH
def test_a_peer_that_was_restarted_elsewhere_is_found_by_its_own_heartbeats(world: World) -> None:
    run = "elsewhere"
    net = Net(chain(run, 2000), HOSTS, world, conf=CONF)
    net.start()
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 200)
    before = net.nodes["w3"].carrier.address
    net.kill("w3")
    net.run(0.3)
    net.world.move("w3")
    net.number_again("w3")
    node = net.begin("w3")
    assert node.carrier.address != before
    others = {
        name: PeerPlace(net.incarnations[name], net.nodes[name].carrier.address) for name in ("w1", "w2")
    }
    node.exchange.assign(net.version, others)  # only the new process knows the others
    net.run_until_quiet(200)
    check_ledger(run, 2000)


def test_heartbeats_for_an_unreachable_peer_do_not_pile_up() -> None:
    net = Net(chain("nowhere", 10), HOSTS, InMemory(), conf=CONF)
    net.start("w1", "w2")
    net.run(3600)
    for peer in net.nodes["w1"].exchange.peers.values():
        assert sum(map(len, peer.queues)) < 10


@IN_BOTH_SLOWLY
def test_one_lost_frame_among_others_fails_at_once(world: World) -> None:
    run = "one in ten"
    net = Net(chain(run, 2000), HOSTS, world, conf=PATIENT | {"topology.queue.size": 4096})
    net.start()
    there, count = net.nodes["w3"].carrier.address, iter(range(1, 100_000))
    net.faults.cut = lambda address, channel: address == there and channel == DATA and next(count) % 10 == 0
    net.run_until_quiet(200)
    assert net.faults.losses > 0
    check_ledger(run, 2000)
    assert net.spouts[0].replayed > 0


@pytest.mark.parametrize("cut", ["one way", "both ways"])
def test_a_silent_link_is_noticed_by_both_workers_in_time(cut: str) -> None:
    net = Net(chain("in time", 10), HOSTS, InMemory(), conf=CONF)
    net.start()
    assert net.run(10, net.settled)
    ways = [net.nodes[worker].carrier.address for worker in ("w2", "w3")]
    net.faults.cut = lambda address, channel: (
        address == ways[1] or (cut == "both ways" and address == ways[0])
    )
    end = net.clock.now() + SILENCE
    exchanges = [net.nodes[worker].exchange for worker in ("w2", "w3")]
    looks = 0.05
    while not all(exchange.counters["reconnects"] for exchange in exchanges):
        net.world.go_on(net.clock.now() + looks, False)
        for node in net.nodes.values():
            node.step()
        assert net.clock.now() <= end + 3 * looks, (
            "a look, and with a cut of one way the word of the other worker"
        )


def test_a_sleeping_worker_notices_a_silent_peer() -> None:
    net = Net(chain("idle", 10), HOSTS, InMemory(), conf=CONF)
    net.start()
    assert net.run(10, net.settled)
    there = net.nodes["w3"].carrier.address
    net.faults.cut = lambda address, channel: address == there
    end = net.clock.now() + 4
    while net.clock.now() < end:  # a loop wakes a little later than planned
        net.world.go_on(net.clock.now() + 0.6, False)
        for node in net.nodes.values():
            node.step()
    link = net.nodes["w3"].exchange.peers["w2"].link
    assert link.state == "SILENT"
    assert net.nodes["w3"].exchange.counters["reconnects"] > 0
    assert net.nodes["w2"].exchange.counters["reconnects"] > 0, "its peer reported that it receives nothing"


@IN_BOTH_SLOWLY
def test_a_stalled_data_channel_is_reconnected_though_heartbeats_go_on(world: World) -> None:
    run = "stalled"
    net = Net(chain(run, 1000), HOSTS, world, conf=PATIENT)
    net.start()
    assert net.run(10, lambda: len(FINAL_CALLS[run]) > 100)
    there, carrier = net.nodes["w3"].carrier.address, net.nodes["w1"].carrier
    before = carrier.connections["w3"]
    net.faults.cut = lambda address, channel: (
        address == there and channel == DATA and carrier.connections["w3"] == before
    )
    assert net.run(60, net.settled)
    assert carrier.connections["w3"] > before
    check_ledger(run, 1000)


class Around(Bolt):
    """Sends each tuple to the other task for ever."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit((tup["number"],))
        self.emit((tup["number"],))


def test_untracked_tuples_of_a_cycle_do_not_pile_up_for_a_frozen_peer() -> None:
    SEEN["loop"], FINAL_CALLS["loop"] = [], []
    builder = TopologyBuilder("loop")
    numbers = builder.set_spout("numbers", Numbers("loop", 50, tracked=False))
    around = builder.set_bolt("around", Around(), parallelism=2)
    around.shuffle_grouping(numbers).shuffle_grouping("around")
    hosts = {"w1": ["numbers/0", "around/0"], "w2": ["around/1"]}
    net = Net(builder.build(), hosts, InMemory(rounds=100), conf=CONF | {"topology.cycle.buffer": 100})
    net.start()
    net.run(0.2)
    frozen = net.nodes.pop("w2")
    most = 0
    for _ in range(50):
        net.run(0.02)
        link = net.nodes["w1"].exchange.peers["w2"].link
        most = max(most, sum(sent.size for sent in link.in_flight.after(0)) + sum(map(len, link.waiting)))
    assert frozen.worker.started
    assert most < 2000, "the buffer, and the emissions of one run"
    assert net.nodes["w1"].worker.links.dropped["around"] > 0
