"""Bolts that are sick: slow for one key, hung in `execute`, in `prepare` and in `tick`, holding Python's lock, leaking memory,
raising. By hand:

    squall submit tests/sick_bolts/sick_bolts.py -- slow

Then one command names the bolt and its task; docs/command-line.md says which, and within what time
(`squall_cli/test_sick_bolts.py` holds it to that).
"""

from __future__ import annotations

import re
import threading
import time

from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple


class Keys(Spout):
    """Emits ten keys in turn, a hundred a second."""

    outputs = Fields("key", "number")

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> float:
        self.number += 1
        self.emit([f"key-{self.number % 10}", self.number])
        return 0.01


class Healthy(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


class Slow(Bolt):
    """Slow for one key only."""

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "key-7":
            time.sleep(0.3)


class Hung(Bolt):
    """A call that never returns."""

    def execute(self, tup: Tuple) -> None:
        if tup[1] == 25:
            threading.Event().wait()


class HungAtStart(Bolt):
    """A start that never ends."""

    threaded = True

    def prepare(self, context: Context) -> None:
        threading.Event().wait()

    def execute(self, tup: Tuple) -> None:
        pass


class HungInTick(Bolt):
    """A tick that never ends."""

    threaded = True
    tick_interval = 0.1

    def tick(self) -> None:
        self.look_up()

    def look_up(self) -> None:
        threading.Event().wait()

    def execute(self, tup: Tuple) -> None:
        pass


class Holding(Bolt):
    """A call in C that holds Python's own lock, so that no other thread of the process runs: a regular expression that takes
    years."""

    def execute(self, tup: Tuple) -> None:
        if tup[1] == 25:
            re.match(r"(a+)+$", "a" * 60 + "b")


class Leaking(Bolt):
    """Keeps a megabyte for each tuple of one key."""

    def prepare(self, context: Context) -> None:
        self.kept: list[bytearray] = []

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "key-3" and len(self.kept) < 500:
            self.kept.append(bytearray(2**20))


class Raising(Bolt):
    """Fails for one key."""

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "key-5":
            raise ValueError(f"no rate for {tup[0]}")


SICK: dict[str, type[Bolt]] = {
    "slow": Slow,
    "hung": Hung,
    "starting": HungAtStart,
    "holding": Holding,
    "leaking": Leaking,
    "raising": Raising,
}


def topology(kind: str = "slow") -> Topology:
    builder = TopologyBuilder(f"sick-{kind}")
    builder.set_spout("keys", Keys())
    builder.set_bolt("healthy", Healthy()).shuffle_grouping("keys")
    builder.set_bolt("sick", SICK[kind](), 2).fields_grouping("keys", "key")
    if kind == "starting":
        builder.set_bolt("ticking", HungInTick()).shuffle_grouping("keys")
    return builder.build()
