"""A topology whose bolt prints its process id and its errors; for runs with worker processes."""

from __future__ import annotations

import os
import time

from topology_api import Bolt, Context, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple


class Slowly(Spout):
    """Emits 0, 1, ... for ever, and prints its process."""

    outputs = Fields("number")
    replay = Replay(max_attempts=1)

    def open(self, context: Context) -> None:
        print(f"the spout is in process {os.getpid()}.", flush=True)
        self.number = 0

    def next_tuple(self) -> float:
        self.emit((self.number,), message_id=self.number)
        self.number += 1
        return 0.02


class RaisesOnce(Bolt):
    """Raises for number 50, and prints when and where."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 50:
            raise ValueError(f"refused at {time.time():.3f} in {os.getpid()}.")


def far() -> Topology:
    """With two workers, the bolt and the spout are in different ones."""
    builder = TopologyBuilder("far")
    builder.set_spout("source", Slowly())
    builder.set_bolt("work", RaisesOnce()).shuffle_grouping("source")
    return builder.build()
