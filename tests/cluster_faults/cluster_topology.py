"""The topology that cluster tests submit: the ledger's, from arguments as `squall submit FILE -- ARGS` passes them.

    squall submit cluster_topology.py -- books=/tmp/books rate=300 workers=2

Must not know: clusters, faults.
"""

from __future__ import annotations

import os
from typing import Any

from tests.faults.ledger_topology import Relay, ledger_topology
from tests.faults.mixed_topology import mixed_topology
from topology_api import Replay, Topology, Tuple

#: As `tests.faults.running.QUICK`: liveness in seconds.
QUICK: dict[str, object] = {
    "topology.worker.timeout.secs": 3,
    "topology.message.timeout.secs": 10,
    "topology.max.spout.pending": 500,
}
#: Tuples a second of each spout task, and seconds between two bursts: the daemons need the processor more than the workers.
RATE = 100.0
BURST_SECS = 0.2


class HeavyRelay(Relay):
    """A component with this many extra bytes, which are shipped with its pickle."""

    def __init__(self, size: int) -> None:
        self.ballast = os.urandom(size)


class StoringRelay(Relay):
    """Fails each tuple while a file exists, as a bolt does whose store is away."""

    def __init__(self, away: str) -> None:
        self.away = away

    def execute(self, tup: Tuple) -> None:
        if os.path.exists(self.away):
            raise ConnectionError("the store is away")
        self.emit(tup.values)


def topology(*arguments: str) -> Topology:
    """The ledger's topology with these NAME=VALUE arguments. `liveness=default`: no option is set, and the runtime replays."""
    given = dict(argument.split("=", 1) for argument in arguments)
    options: dict[str, Any] = {
        name: int(given[name]) for name in ("workers", "spouts", "bolts", "size", "keys") if name in given
    }
    rate = float(given.get("rate", RATE))
    if "ballast" in given:
        options["relay"] = HeavyRelay(int(given["ballast"]))
    if "away" in given:
        options["relay"] = StoringRelay(given["away"])
    conf = dict(QUICK)
    if given.get("liveness") == "default":
        conf, options["replay"] = {}, Replay()
    name = given.get("name", "ledger")
    if given.get("kinds") == "mixed":
        return mixed_topology(given["books"], name=name, rate=rate, burst=BURST_SECS, conf=conf)
    return ledger_topology(given["books"], name=name, rate=rate, burst=BURST_SECS, conf=conf, **options)
