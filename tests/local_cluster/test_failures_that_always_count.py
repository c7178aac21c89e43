"""Some failures say nothing about a store: they always count, also where the topology waits for stores (`wait`).

The sources here do not end, so a failure without a verdict would be tried again for `topology.outage.give.up.secs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import BatchBolt, Bolt, FailTuple, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple

WAIT: dict[str, object] = {"topology.on.outage": "wait", "topology.workers": 3}
#: Of the numbers 0 to 49.
ODD = (10, 20, 21, 22, 40)


class Numbers(Spout):
    """Ten numbers a second, fifty in all; then it goes on without any."""

    outputs = Fields("number", "value")
    replay = Replay(max_attempts=3, first_delay=1.0)

    def __init__(self, make: Any) -> None:
        self.make = make
        self.sent = 0

    def next_tuple(self) -> float:
        if self.sent < 50:
            self.emit((self.sent, self.make(self.sent)), message_id=self.sent)
            self.sent += 1
        return 0.1


class Unpacked:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this cannot travel")


class Unread:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return spoil, ()


def spoil() -> None:
    raise RuntimeError("this cannot be read")


def the_same(number: int) -> object:
    return number


class Passes(Bolt):
    """Emits what `make` returns."""

    outputs = Fields("number", "value")

    def __init__(self, make: Any) -> None:
        self.make = make

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0], self.make(tup[0])))


class Takes(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


def odd(kind: type, all_of_them: bool) -> Any:
    return lambda number: kind() if all_of_them or number in ODD else number


def from_the_spout(make: Any) -> Topology:
    builder = TopologyBuilder("values")
    builder.set_spout("numbers", Numbers(make))
    builder.set_bolt("takes", Takes()).shuffle_grouping("numbers")
    return builder.build()


def from_a_bolt(make: Any) -> Topology:
    builder = TopologyBuilder("values")
    builder.set_spout("numbers", Numbers(the_same))
    builder.set_bolt("passes", Passes(make)).shuffle_grouping("numbers")
    builder.set_bolt("takes", Takes()).shuffle_grouping("passes")
    return builder.build()


def given_up(topology: Topology, seconds: float = 15.0) -> dict[int, tuple[int, str]]:
    """Run it; return the attempts and the error of each tuple that was given up, by its number. All others are acked."""
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(topology, WAIT)
        cluster.advance(seconds)
        letters = cluster.dead_letters("values")
        status = cluster.status("values")
        spout = status.components["numbers"]
        assert (spout.acked, spout.failed) == (50 - len(letters), len(letters))
        assert not any(each.down or each.undecided for each in status.components.values())
        return {int(str(each.message_id)): (each.attempts, str(each.failure.error)) for each in letters}


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            Unpacked,
            "the value of field 'value' cannot be sent to another worker: TypeError: this cannot travel",
        ),
        (Unread, "cannot be unpickled: RuntimeError: this cannot be read"),
    ],
)
@pytest.mark.parametrize("made", [from_the_spout, from_a_bolt])
def test_a_value_that_cannot_travel_uses_up_its_attempts(
    made: Callable[[Any], Topology], kind: type, why: str, all_of_them: bool
) -> None:
    found = given_up(made(odd(kind, all_of_them)))
    assert sorted(found) == (list(range(50)) if all_of_them else list(ODD))
    assert {attempts for attempts, _ in found.values()} == {3}
    assert all(error.endswith(why) for _, error in found.values())


class Refuses(Bolt):
    """Raises for every tuple."""

    def execute(self, tup: Tuple) -> None:
        raise FailTuple(f"{tup[0]} is refused")


class RefusesInAThread(Refuses):
    threaded = True


class RefusesLater(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.01)
        raise FailTuple(f"{tup[0]} is refused")


class RefusesAndFails(Bolt):
    """A rich bolt."""

    auto_ack = auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        self.fail(tup, FailTuple(f"{tup[0]} is refused"))


class RefusesBatches(BatchBolt):
    """Raises for every batch."""

    batch_size = 4
    batch_interval = 0.3

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        raise FailTuple(f"{len(tups)} are refused")


class RefusesInBatches(RefusesBatches):
    """Fails every tuple, and returns."""

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.fail(tup, FailTuple(f"{tup[0]} is refused"))


@pytest.mark.parametrize(
    "bolt", [Refuses, RefusesInAThread, RefusesLater, RefusesAndFails, RefusesBatches, RefusesInBatches]
)
def test_a_bolt_that_refuses_every_tuple_is_not_taken_for_down(bolt: type[Bolt]) -> None:
    builder = TopologyBuilder("values")
    builder.set_spout("numbers", Numbers(the_same))
    builder.set_bolt("refuses", bolt()).shuffle_grouping("numbers")
    found = given_up(builder.build())
    assert sorted(found) == list(range(50))
    assert {attempts for attempts, _ in found.values()} == {3}
    assert all(error.endswith("refused") for _, error in found.values())
