"""Numbers through a chain of bolts in one process, and the ledger of numbers seen and of the spout's acks and failures.

Must not know: how workers are linked.
"""

from __future__ import annotations

from typing import Any

from topology_api import Bolt, Failure, Spout, Topology, TopologyBuilder

#: The numbers seen by each run, and its acks and failures.
SEEN: dict[str, list[int]] = {}
FINAL_CALLS: dict[str, list[tuple[int, str]]] = {}

HOSTS = {
    "w1": ["numbers/0", "middle/0"],
    "w2": ["middle/1", "sink/0"],
    "w3": ["sink/1"],
}
CONF = {"topology.message.timeout.secs": 5, "topology.queue.size": 64, "topology.max.spout.pending": 100}
#: No timeout helps: every loss has to be found.
PATIENT = CONF | {"topology.message.timeout.secs": 100_000}


class Numbers(Spout):
    """Emits numbers, and records their acks and failures."""

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
        FINAL_CALLS.setdefault(self.run, []).append((message_id, "ack"))

    def fail(self, message_id: Any, failure: Failure) -> None:
        FINAL_CALLS.setdefault(self.run, []).append((message_id, failure.reason))


class Pass(Bolt):
    """Passes its tuples on."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit((tup["number"],))


class See(Bolt):
    """Records its tuples."""

    def __init__(self, run: str) -> None:
        self.run = run

    def execute(self, tup: Any) -> None:
        SEEN.setdefault(self.run, []).append(tup["number"])


def chain(run: str, count: int, tracked: bool = True) -> Topology:
    """Numbers, a bolt that passes them on, a sink."""
    SEEN[run], FINAL_CALLS[run] = [], []
    builder = TopologyBuilder("chain")
    numbers = builder.set_spout("numbers", Numbers(run, count, tracked))
    middle = builder.set_bolt("middle", Pass(), parallelism=2).shuffle_grouping(numbers)
    builder.set_bolt("sink", See(run), parallelism=2).fields_grouping(middle, "number")
    return builder.build()


def check_ledger(run: str, count: int) -> None:
    """The ledger of an ended run must add up."""
    final_calls = FINAL_CALLS[run]
    assert sorted(number for number, _ in final_calls) == list(range(count)), (
        "one final call for each emission"
    )
    acked = {number for number, final_call in final_calls if final_call == "ack"}
    assert acked <= set(SEEN[run]), f"acked and never seen: {sorted(acked - set(SEEN[run]))}"
    assert set(SEEN[run]) <= set(range(count)), "seen and never emitted"
