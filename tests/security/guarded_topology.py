"""A topology whose configuration has secrets, and which raises errors, for the tests of redaction.

squall submit guarded_topology.py -- FILE-WITH-THE-SECRET

"""

from __future__ import annotations

import time
from pathlib import Path

from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple


class Numbers(Spout):
    """A number now and then, without end."""

    outputs = Fields("number")

    def open(self, context: Context) -> None:
        self.number = 0
        self.next = 0.0
        print("opened", sorted(context.conf)[:1])

    def next_tuple(self) -> None:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.05
            self.number += 1
            self.emit((self.number,), message_id=self.number)


class Fails(Bolt):
    """Accepts only odd numbers."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] % 2 == 0:
            raise ValueError(f"an even number: {tup['number']}")


def topology(secret_file: str) -> Topology:
    """With the secret where people put secrets."""
    secret = Path(secret_file).read_text().strip()
    conf = {
        "topology.workers": 2,
        "topology.message.timeout.secs": 5,
        "db.password": secret,
        "db.url": f"postgres://app:{secret}@db.example/app",
        "sinks": [{"apiKey": secret, "dsn": f"host=h password={secret}"}],
    }
    builder = TopologyBuilder("guarded", conf=conf)
    builder.set_spout("numbers", Numbers(), conf={"numbers.token": secret})
    builder.set_bolt("fails", Fails(), parallelism=2).shuffle_grouping("numbers")
    return builder.build()
