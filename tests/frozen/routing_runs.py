"""Which task of a bolt gets which tuple, by each grouping: a topology is run on simulated time, and its bolts say who they are.

Only names that users import. Must not know: how tuples are routed.
"""

from __future__ import annotations

from typing import Final

from local_cluster.testing import ScriptedSpout, complete_topology
from topology_api import Bolt, Context, Fields, Topology, TopologyBuilder, Tuple

ROWS: Final = tuple((f"word{number % 23}", number % 7, number) for number in range(120))
TASKS: Final = 5


class Where(Bolt):
    """Says which task it is."""

    outputs = Fields("task", "number")

    def prepare(self, context: Context) -> None:
        self.index = context.index

    def execute(self, tup: Tuple) -> None:
        self.emit((self.index, tup["number"]))


def topology() -> Topology:
    """A bolt for each grouping, all of which read one spout."""
    builder = TopologyBuilder("routes")
    builder.set_spout("rows", ScriptedSpout(("word", "few", "number"), []))
    builder.set_bolt("shuffle", Where(), parallelism=TASKS).shuffle_grouping("rows")
    builder.set_bolt("fields", Where(), parallelism=TASKS).fields_grouping("rows", "word")
    builder.set_bolt("two_fields", Where(), parallelism=TASKS).fields_grouping("rows", "word", "few")
    builder.set_bolt("number", Where(), parallelism=TASKS).fields_grouping("rows", "few")
    builder.set_bolt("partial_key", Where(), parallelism=TASKS).partial_key_grouping("rows", "word")
    builder.set_bolt("one", Where(), parallelism=TASKS).global_grouping("rows")
    builder.set_bolt("every", Where(), parallelism=TASKS).all_grouping("rows")
    return builder.build()


def routed() -> dict[str, list[list[int]]]:
    """By grouping: the numbers of the tuples that each task got."""
    done = complete_topology(topology(), sources={"rows": ROWS})
    found: dict[str, list[list[int]]] = {}
    for bolt in topology().bolts:
        found[bolt.id] = [[] for _ in range(TASKS)]
        for task, number in done.emitted(bolt.id):
            found[bolt.id][task].append(number)
    return found
