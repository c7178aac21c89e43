"""Transcripts of workers joined by bad links (`tests/worker/network_of_workers`), with a story from a seed: messages are lost,
doubled, changed and overtaken, links are cut, workers are killed. Each message that a worker sends is recorded.

Must not know: which seeds run, hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final
from unittest import mock

from tests.frozen.transcript_facts import line_of, of_message
from tests.worker import network_of_workers
from tests.worker.chain_of_numbers import CONF, FINAL_CALLS, HOSTS, SEEN, chain, check_ledger
from tests.worker.lossy_carrier import Faults, LossyCarrier
from tests.worker.network_of_workers import InMemory, Net, credit_is_back

#: Limit of the numbers that go through the chain.
MOST: Final = 250
#: Seconds of faults, and until all is quiet.
BAD_SECS: Final = 6.0
QUIET_SECS: Final = 400.0


def transcript(seed: int) -> list[str]:
    """Everything that happens to the workers of a seed."""
    lines: list[str] = []
    random = Random(f"{seed}/links")
    world = InMemory()
    run, count = f"links {seed}", random.choice([20, 60, 120, MOST])
    codec = random.choice(["pickle", "msgpack"])
    conf = CONF | {
        "topology.on.outage": "give-up",  # every failure counted then
        "topology.transport.codec": codec,
        "topology.message.timeout.secs": random.choice([2, 5, 30]),
        "topology.queue.size": random.choice([64, 128]),
    }
    faults = faults_of(random, seed)

    def note(what: str, *facts: object) -> None:
        lines.append(line_of(world.clock.now(), what, *facts))

    with mock.patch.object(network_of_workers, "LossyCarrier", carrier_of(note, codec)):
        net = Net(chain(run, count, random.random() < 0.9), HOSTS, world, faults, conf)
        net.start()
        note("begins", count, codec, faults.chances)
        play(net, random, note)
        faults.bad, faults.cut = False, lambda address, channel: False
        quiet = net.run(QUIET_SECS, net.settled)
        net.run(3, lambda: not credit_is_back(net))
    note("ends", quiet, len(credit_is_back(net)), adds_up(run, count))
    note("verdicts", FINAL_CALLS.pop(run))
    note("seen", SEEN.pop(run))
    for name, node in sorted(net.nodes.items()):
        counted = sorted(value for value in node.exchange.counters.values() if value)
        note("worker", name, node.incarnation, counted, [spout.replayed for spout in node.worker.spouts])
    note("faults", faults.losses, faults.doubles, faults.swaps, faults.flips)
    return lines


def faults_of(random: Random, seed: int) -> Faults:
    """The faults of the network."""
    return Faults(
        Random(f"{seed}/faults"),
        random.choice([0.0, 0.0, 0.02, 0.2, 0.5]),
        random.choice([0.0, 0.2]),
        random.choice([0.0, 0.2]),
        random.choice([0.0, 0.0, 0.1]),
    )


def adds_up(run: str, count: int) -> bool:
    """Whether the ledger must hold. It need not if a spout was killed, or nothing is tracked."""
    try:
        check_ledger(run, count)
    except AssertionError:
        return False
    return True


def play(net: Net, random: Random, note: Callable[..., None]) -> None:
    """The faults, one after another."""
    left = BAD_SECS
    for _ in range(random.choice([0, 1, 2, 4])):
        pause = random.uniform(0.05, left / 2)
        left -= pause
        net.run(pause, net.settled)
        what, victim = random.choice(["kill", "kill", "cut", "pause"]), random.choice(sorted(HOSTS))
        seconds = random.choice([0.1, 0.3, 1.0, 3.0])
        note(what, victim, seconds)
        if what == "cut":
            address = net.nodes[victim].carrier.address
            net.faults.cut = lambda to, channel, there=address: to == there  # type: ignore[misc]
            net.run(seconds, net.settled)
            net.faults.cut = lambda to, channel: False
        elif what == "pause":
            paused = net.nodes.pop(victim)
            net.run(seconds, net.settled)
            net.nodes[victim] = paused
        else:
            net.kill(victim)
            net.run(seconds, net.settled)
            net.restart(victim)
    net.run(left, net.settled)


def carrier_of(note: Callable[..., None], codec: str) -> type[LossyCarrier]:
    """A carrier that writes down its calls."""

    class Recording(LossyCarrier):
        def connect(self, peer: str, address: tuple[str, str]) -> None:
            note("connect", self.address[0], peer, address)
            super().connect(peer, address)

        def disconnect(self, peer: str) -> None:
            note("disconnect", self.address[0], peer)
            super().disconnect(peer)

        def send(self, peer: str, channel: int, parts: Sequence[Any]) -> bool:
            message = of_message(parts, codec, ("number",))
            taken = super().send(peer, channel, parts)
            note("message", self.address[0], peer, channel, taken, message)
            return taken

    return Recording
