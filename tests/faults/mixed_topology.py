"""A topology with every kind of bolt in one path, an all grouping beside it, and untracked tuples whose order counts.

    numbers (ledger) -> rich -> batch -> threaded -> async -> sink (ledger, fields)
    numbers -> each (all): both tasks write down each number
    lines (untracked) -> once (fields): written down in the order of arrival

The ledger's account covers the path. `mixed_problems` checks the rest: each acked number was seen by both tasks of `each`, and
no untracked tuple came twice or out of order. Must not know: processes, faults.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults import ledger
from tests.faults.ledger_topology import (
    BURST_SECS,
    LOOK_EVERY,
    STOP,
    AsyncRelay,
    BatchRelay,
    HoldingRelay,
    LedgerSink,
    LedgerSpout,
    ThreadedRelay,
)
from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple

EACH, ONCE = "each", "once"
EACH_TASKS = 2
LINE_KEYS = 8
KEYS, SIZE = 64, 100


class Lines(Spout):
    """Emits 0, 1, 2, ... without message ids, each with the name of this life of the task."""

    outputs = Fields("life", "number", "key")

    def __init__(self, directory: str, rate: float) -> None:
        self.directory = directory
        self.rate = rate

    def open(self, context: Context) -> None:
        self.life = f"{time.monotonic_ns()}-{os.getpid()}"
        self.began = time.monotonic()
        self.next = 0

    def next_tuple(self) -> float | None:
        if os.path.exists(os.path.join(self.directory, STOP)):
            self.finish()
            return None
        wait = self.began + self.next / self.rate - time.monotonic()
        if wait > 0:
            return max(wait, LOOK_EVERY)
        self.emit((self.life, self.next, self.next % LINE_KEYS))
        self.next += 1
        return None


class Seen(Bolt):
    """Writes down each number in a file of its task."""

    outputs = Fields()

    def __init__(self, directory: str, role: str) -> None:
        self.directory = directory
        self.role = role

    def prepare(self, context: Context) -> None:
        self.file = ledger.Writer(self.directory, self.role, context.index)

    def execute(self, tup: Tuple) -> None:
        self.file.write("S", tup["number"], *([tup["life"]] if self.role == ONCE else []))

    def cleanup(self) -> None:
        self.file.close()


def mixed_topology(
    directory: Path | str,
    *,
    name: str = "ledger",
    rate: float | None = 100.0,
    keys: int = KEYS,
    size: int = SIZE,
    workers: int = 2,
    burst: float = BURST_SECS,
    conf: dict[str, object] | None = None,
) -> Topology:
    """The topology. `rate`: tuples a second of each spout task."""
    here = str(directory)
    builder = TopologyBuilder(name, {"topology.workers": workers, **(conf or {})})
    builder.set_spout("numbers", LedgerSpout(here, rate, keys, size, None, burst), parallelism=2)
    builder.set_spout("lines", Lines(here, rate or 100.0))
    kinds: dict[str, Bolt] = {
        "rich": HoldingRelay(),
        "batch": BatchRelay(),
        "threaded": ThreadedRelay(0.001),
        "async": AsyncRelay(),
    }
    source = "numbers"
    for kind, bolt in kinds.items():
        builder.set_bolt(kind, bolt, parallelism=2).shuffle_grouping(source)
        source = kind
    builder.set_bolt("sink", LedgerSink(here, keys, size), parallelism=2).fields_grouping(source, "key")
    builder.set_bolt(EACH, Seen(here, EACH), parallelism=EACH_TASKS).all_grouping("numbers")
    builder.set_bolt(ONCE, Seen(here, ONCE), parallelism=2).fields_grouping("lines", "key")
    return builder.build()


def lives_of(directory: Path | str, role: str) -> Iterator[tuple[int, list[ledger.Entry]]]:
    """The lives of a role's tasks: the task's index, and the lines."""
    for path in sorted(Path(directory).glob(f"{role}-*-*-*.log")):
        yield int(path.stem.split("-")[1]), list(ledger.entries_of(path))


def mixed_problems(directory: Path | str) -> list[str]:
    """What is wrong in the files of `each` and `once`; empty if nothing is."""
    found = ledger.Account()
    lives = ledger.lives_of(ledger.read(directory), ledger.SPOUT)
    acked = {entry.number for life in lives for entry in life.of("A")}
    seen: dict[int, set[int]] = {index: set() for index in range(EACH_TASKS)}
    for index, entries in lives_of(directory, EACH):
        seen[index] |= {entry.number for entry in entries}
    for index, numbers in seen.items():
        found.note(f"acked but never seen by {EACH}[{index}]", acked - numbers)
    times: Counter[tuple[str, int]] = Counter()
    for index, entries in lives_of(directory, ONCE):
        last: dict[tuple[str, int], int] = {}
        for entry in entries:
            (life,) = entry.values[1:]
            times[life, entry.number] += 1
            key = life, entry.number % LINE_KEYS
            if entry.number <= last.get(key, -1):
                found.note(
                    f"out of order in {ONCE}[{index}], of {life}", [f"{entry.number} after {last[key]}"]
                )
            last[key] = entry.number
    if not times:
        found.note(f"{ONCE} has seen", ["nothing"])
    found.note("untracked tuples that came twice", [which for which, count in times.items() if count > 1])
    return found.problems
