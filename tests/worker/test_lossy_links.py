"""Links promise: whatever is lost, doubled, changed or reordered between workers, no tuple is acked that was not executed,
every emission gets one verdict, and when it is quiet all credit is back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from squall.transport.carrier import CONTROL, DATA
from squall.transport.exchange import PeerPlace
from squall.transport.frames import Control
from squall.worker_files import Address
from tests.worker.network_of_workers import LossyNetwork, Net, Node, credit_is_back
from topology_api import Bolt, Failure, Spout, Topology, TopologyBuilder

SEEN: dict[str, list[int]] = {}
VERDICTS: dict[str, list[tuple[int, str]]] = {}


class Numbers(Spout):
    """Emits numbers, keeps verdicts."""

    outputs = ("number",)

    def __init__(self, run: str, count: int, tracked: bool = True) -> None:
        self.run, self.count, self.tracked = run, count, tracked

    def open(self, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next >= self.count:
            self.finish()
            return
        self.emit((self.next,), message_id=self.next if self.tracked else None)
        self.next += 1

    def ack(self, message_id: Any) -> None:
        VERDICTS.setdefault(self.run, []).append((message_id, "ack"))

    def fail(self, message_id: Any, failure: Failure) -> None:
        VERDICTS.setdefault(self.run, []).append((message_id, failure.reason))


class Pass(Bolt):
    """Emits what it gets."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit((tup["number"],))


class See(Bolt):
    """Notes what it gets."""

    def __init__(self, run: str) -> None:
        self.run = run

    def execute(self, tup: Any) -> None:
        SEEN.setdefault(self.run, []).append(tup["number"])


def chain(run: str, count: int, tracked: bool = True) -> Topology:
    SEEN[run], VERDICTS[run] = [], []
    builder = TopologyBuilder("chain")
    numbers = builder.set_spout("numbers", Numbers(run, count, tracked))
    middle = builder.set_bolt("middle", Pass(), parallelism=2).shuffle_grouping(numbers)
    builder.set_bolt("sink", See(run), parallelism=2).fields_grouping(middle, "number")
    return builder.build()


HOSTS = {
    "w1": ["numbers/0", "middle/0"],
    "w2": ["middle/1", "sink/0"],
    "w3": ["sink/1"],
}
CONF = {"topology.message.timeout.secs": 5, "topology.queue.size": 64, "topology.max.spout.pending": 100}


def check_ledger(run: str, count: int) -> None:
    verdicts = VERDICTS[run]
    assert sorted(number for number, _ in verdicts) == list(range(count)), "one verdict for each emission"
    acked = {number for number, verdict in verdicts if verdict == "ack"}
    assert acked <= set(SEEN[run]), f"acked and never seen: {sorted(acked - set(SEEN[run]))}"
    assert set(SEEN[run]) <= set(range(count)), "seen and never emitted"


def test_over_a_good_network_everything_is_seen_once_and_acked() -> None:
    net = Net(chain("good", 2000), HOSTS, LossyNetwork(Random(1), 0.0), CONF)
    net.start()
    assert net.run(60, net.settled)
    net.run(2)
    check_ledger("good", 2000)
    assert sorted(SEEN["good"]) == list(range(2000))
    assert credit_is_back(net) == []


@settings(max_examples=15, deadline=None)
@example(
    seed=2256261832, lose=0.0, double=0.0, swap=0.0, flip=0.1
)  # an end mark and the word that it is missing
@given(
    seed=st.integers(0, 2**32),
    lose=st.sampled_from([0.0, 0.02, 0.2, 0.6]),
    double=st.sampled_from([0.0, 0.2]),
    swap=st.sampled_from([0.0, 0.2]),
    flip=st.sampled_from([0.0, 0.1]),
)
def test_after_any_pattern_of_loss_and_then_quiet_all_credit_is_back_and_the_ledger_holds(
    seed: int, lose: float, double: float, swap: float, flip: float
) -> None:
    network = LossyNetwork(Random(seed), lose, double, swap, flip)
    # No timeout comes to help: what is lost has to be found.
    net = Net(chain("lossy", 300), HOSTS, network, CONF | {"topology.message.timeout.secs": 100_000})
    net.start()
    net.run(4, net.settled)
    network.bad = False
    assert net.run(200, net.settled), [(spout.pending, spout.idle_reason()) for spout in net.spouts]
    net.run(3)
    check_ledger("lossy", 300)
    assert credit_is_back(net) == []


@pytest.mark.parametrize("cut", ["both ways", "one way", "data only"])
def test_a_link_that_is_cut_for_a_while_loses_no_acked_tuple(cut: str) -> None:
    network = LossyNetwork(Random(3), 0.0)
    net = Net(chain(cut, 3000), HOSTS, network, CONF)
    net.start()
    assert net.run(5, lambda: len(VERDICTS[cut]) > 200)
    there, back = net.nodes["w2"].carrier.address, net.nodes["w1"].carrier.address
    network.cut = lambda address, channel: (
        (address == there and (cut != "data only" or channel == DATA))
        or (address == back and cut == "both ways")
    )
    net.run(6)
    assert network.losses
    network.cut = lambda address, channel: False
    assert net.run(100, net.settled)
    net.run(3)
    check_ledger(cut, 3000)
    assert credit_is_back(net) == []


def test_what_a_gap_swallowed_fails_as_lost_at_once_and_not_by_time() -> None:
    network = LossyNetwork(Random(3), 0.0)
    net = Net(chain("gap", 400), HOSTS, network, CONF | {"topology.message.timeout.secs": 1000})
    net.start()
    there = net.nodes["w3"].carrier.address
    network.cut = lambda address, channel: address == there and channel == DATA
    net.run(1)
    network.cut = lambda address, channel: False
    assert net.run(60, net.settled), "far below the timeout of 1,000 s"
    check_ledger("gap", 400)
    assert {verdict for _, verdict in VERDICTS["gap"]} == {"ack"}, "the replay came through"
    assert net.spouts[0].replayed > 0


@pytest.mark.parametrize("victim", ["w2", "w3"])
def test_a_worker_that_is_killed_and_restarted_costs_replays_and_no_acked_tuple(victim: str) -> None:
    run = f"killed {victim}"
    net = Net(chain(run, 3000), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    for _ in range(4):
        more = len(VERDICTS[run]) + 150
        assert net.run(30, lambda more=more: len(VERDICTS[run]) > more)  # type: ignore[misc]
        net.kill(victim)
        net.run(0.5)
        net.restart(victim)
    assert net.run(200, net.settled)
    net.run(3)
    check_ledger(run, 3000)
    assert credit_is_back(net) == []


def test_roots_of_frames_to_a_superseded_process_fail_as_lost_though_no_timeout_has_passed() -> None:
    run = "superseded"
    net = Net(
        chain(run, 500), HOSTS, LossyNetwork(Random(5), 0.0), CONF | {"topology.message.timeout.secs": 1000}
    )
    net.start()
    assert net.run(30, lambda: len(VERDICTS[run]) > 50)
    net.kill("w2")
    net.run(0.2)
    net.restart("w2")
    net.run(5)
    assert net.nodes["w1"].worker.peers.lost_batches > 0
    assert net.spouts[0].replayed > 0
    assert not [verdict for _, verdict in VERDICTS[run] if verdict == "timeout"]


def test_tuples_for_a_peer_that_comes_late_wait_and_are_not_lost() -> None:
    run = "late"
    net = Net(chain(run, 1000), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start("w1")
    net.run(2)
    net.start("w2")
    net.run(2)
    net.start("w3")
    assert net.run(60, net.settled)
    check_ledger(run, 1000)
    assert sorted(SEEN[run]) == list(range(1000)), "each once: nothing was lost, so nothing was replayed"


def test_an_end_mark_never_overtakes_tuples() -> None:
    run = "untracked"
    net = Net(chain(run, 5000, tracked=False), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    assert net.run(60, net.settled)
    assert sorted(SEEN[run]) == list(range(5000))


def test_control_frames_that_are_lost_come_again_in_order_and_once() -> None:
    run = "control"
    network = LossyNetwork(Random(11), 0.0)
    net = Net(chain(run, 1500), HOSTS, network, CONF | {"topology.message.timeout.secs": 1000})
    net.start()
    draw = Random(12).random
    network.cut = lambda address, channel: channel == CONTROL and draw() < 0.3
    net.run(20, net.settled)
    network.cut = lambda address, channel: False
    assert net.run(60, net.settled)
    check_ledger(run, 1500)
    assert net.spouts[0].replayed == 0, "no XOR was lost, so no tree failed"


def test_a_stranger_to_the_assignment_is_refused_and_counted() -> None:
    net = Net(chain("stranger", 10), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    net.run(1)
    node = net.nodes["w1"]
    old = Net(chain("other", 10), HOSTS, net.network, CONF)
    old.incarnations["w2"] = (0, 7)
    old.nodes["w1"] = node
    old.start("w2")
    old.nodes["w2"].exchange.send("w1", Control("w2", hurry=True))
    for _ in range(3):
        old.nodes["w2"].exchange.advance()
        node.exchange.receive()
        net.clock.move_to(net.clock.now() + 1)
    assert node.exchange.counters["refused: superseded"] > 0


def test_a_spout_whose_worker_is_killed_begins_anew_and_old_trees_harm_no_new_ones() -> None:
    run = "spout killed"
    net = Net(chain(run, 1500), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    for _ in range(3):
        more = len(VERDICTS[run]) + 100
        assert net.run(30, lambda more=more: len(VERDICTS[run]) > more)  # type: ignore[misc]
        net.kill("w1")
        net.run(0.1)
        VERDICTS[run].clear()
        net.restart("w1")
    assert net.run(200, net.settled)
    net.run(3)
    check_ledger(run, 1500)
    assert {verdict for _, verdict in VERDICTS[run]} == {"ack"}
    assert credit_is_back(net) == []


def moved(net: Net, hosts: dict[str, list[str]], new: set[str], topology: Topology | None = None) -> None:
    """What Nimbus and supervisors do: another assignment, in which the `new` workers are new processes."""
    net.version += 1
    before = {spec.id: spec.parallelism for spec in net.topology.components}
    if topology is not None:
        net.topology = topology
        net.number_tasks(topology)
    changed = {spec.id for spec in net.topology.components if before[spec.id] != spec.parallelism}
    for name in [name for name in net.nodes if name not in hosts or name in new]:
        net.kill(name)
    net.hosts = hosts
    net.incarnations = {name: (net.version, 0) if name in new else net.incarnations[name] for name in hosts}
    net.tell([task for task, component, _ in net.tasks if component in changed])
    for name, node in net.nodes.items():
        node.worker.replan(net.plan(name, net.incarnations[name]))
    if new:
        net.start(*new)


def test_tasks_that_move_under_load_cost_replays_and_those_that_stay_keep_their_state() -> None:
    run = "moved"
    net = Net(chain(run, 4000), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    for turn in range(4):
        more = len(VERDICTS[run]) + 200
        assert net.run(30, lambda more=more: len(VERDICTS[run]) > more)  # type: ignore[misc]
        stayed = net.nodes["w1"].worker.tasks[1].instance
        name = f"n{turn}"
        hosts = {"w1": HOSTS["w1"], name: [*HOSTS["w2"], *HOSTS["w3"]]}
        moved(net, hosts, {name})
        assert net.nodes["w1"].worker.tasks[1].instance is stayed
    assert net.run(200, net.settled)
    net.run(3)
    check_ledger(run, 4000)
    assert credit_is_back(net) == []


def test_another_number_of_tasks_gives_each_key_one_owner_and_loses_nothing() -> None:
    run = "renumbered"
    topology = chain(run, 4000)
    net = Net(topology, HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    for sinks in (4, 1, 3):
        more = len(VERDICTS[run]) + 200
        assert net.run(30, lambda more=more: len(VERDICTS[run]) > more)  # type: ignore[misc]
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
            node.worker.activate()
    assert net.run(200, net.settled)
    net.run(3)
    check_ledger(run, 4000)
    assert sorted(SEEN[run]) == list(range(4000)), "nothing was lost, so nothing came twice"
    assert credit_is_back(net) == []


def test_a_peer_that_was_started_again_elsewhere_is_found_by_its_own_word() -> None:
    run = "elsewhere"
    net = Net(chain(run, 2000), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start()
    assert net.run(30, lambda: len(VERDICTS[run]) > 200)
    net.kill("w3")
    net.run(0.3)
    version, number = net.incarnations["w3"]
    net.incarnations["w3"] = (version, number + 1)
    node = net.nodes["w3"] = Node(net, "w3", net.incarnations["w3"])
    others = {
        name: PeerPlace(net.incarnations[name], net.nodes[name].carrier.address) for name in ("w1", "w2")
    }
    node.exchange.assign(net.version, others)  # only the new process is told of the others
    assert net.run(200, net.settled)
    check_ledger(run, 2000)


def test_signs_for_a_peer_that_is_nowhere_do_not_pile_up() -> None:
    net = Net(chain("nowhere", 10), HOSTS, LossyNetwork(Random(5), 0.0), CONF)
    net.start("w1", "w2")
    net.run(3600)
    for link in net.nodes["w1"].exchange.links.values():
        assert sum(map(len, link.out)) < 10


def test_one_frame_that_is_lost_among_others_fails_at_once() -> None:
    run = "one in ten"
    network = LossyNetwork(Random(3), 0.0)
    conf = CONF | {"topology.message.timeout.secs": 100_000, "topology.queue.size": 4096}
    net = Net(chain(run, 2000), HOSTS, network, conf)
    net.start()
    there, count = net.nodes["w3"].carrier.address, iter(range(1, 100_000))
    network.cut = lambda address, channel: address == there and channel == DATA and next(count) % 10 == 0
    assert net.run(200, net.settled)
    assert network.losses > 0
    check_ledger(run, 2000)
    assert net.spouts[0].replayed > 0


def test_a_silent_peer_is_noticed_by_a_worker_that_has_nothing_to_do_but_sleep() -> None:
    network = LossyNetwork(Random(3), 0.0)
    net = Net(chain("idle", 10), HOSTS, network, CONF)
    net.start()
    assert net.run(10, net.settled)
    there = net.nodes["w3"].carrier.address
    network.cut = lambda address, channel: address == there
    end = net.clock.now() + 4
    while net.clock.now() < end:  # a loop wakes a little later than it meant to
        net.clock.move_to(net.clock.now() + 0.6)
        for node in net.nodes.values():
            node.step()
    link = net.nodes["w3"].exchange.links["w2"]
    assert link.state == "SILENT"
    assert net.nodes["w3"].exchange.counters["reconnects"] > 0
    assert net.nodes["w2"].exchange.counters["reconnects"] > 0, "it was told that it is not heard"


class Around(Bolt):
    """Sends each tuple to the other task for ever."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit((tup["number"],))
        self.emit((tup["number"],))


def test_untracked_tuples_of_a_cycle_do_not_pile_up_for_a_peer_that_is_frozen() -> None:
    SEEN["loop"], VERDICTS["loop"] = [], []
    builder = TopologyBuilder("loop")
    numbers = builder.set_spout("numbers", Numbers("loop", 50, tracked=False))
    around = builder.set_bolt("around", Around(), parallelism=2)
    around.shuffle_grouping(numbers).shuffle_grouping("around")
    hosts = {"w1": ["numbers/0", "around/0"], "w2": ["around/1"]}
    net = Net(builder.build(), hosts, LossyNetwork(Random(3), 0.0), CONF | {"topology.cycle.buffer": 100})
    net.start()
    net.run(0.2)
    frozen = net.nodes.pop("w2")
    most = 0
    for _ in range(50):
        net.run(0.02)
        link = net.nodes["w1"].exchange.links["w2"]
        most = max(most, sum(sent.size for sent in link.unconfirmed.values()) + sum(map(len, link.waiting)))
    assert frozen.worker.started
    assert most < 2000, "the buffer, and what one run emits"
    assert net.nodes["w1"].worker.links.dropped["around"] > 0


def test_a_data_channel_that_stands_still_while_signs_go_on_is_made_anew() -> None:
    run = "stalled"
    network = LossyNetwork(Random(3), 0.0)
    net = Net(chain(run, 1000), HOSTS, network, CONF | {"topology.message.timeout.secs": 100_000})
    net.start()
    assert net.run(10, lambda: len(VERDICTS[run]) > 100)
    there, carrier = net.nodes["w3"].carrier.address, net.nodes["w1"].carrier
    connections: list[str] = []
    connect = carrier.connect

    def connecting(peer: str, address: Address) -> None:
        connections.append(peer)
        connect(peer, address)

    carrier.connect = connecting  # type: ignore[method-assign]
    network.cut = lambda address, channel: address == there and channel == DATA and "w3" not in connections
    assert net.run(60, net.settled)
    assert "w3" in connections
    check_ledger(run, 1000)
