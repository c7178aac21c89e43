"""Random topologies for the simulation of epochs: trees of bolts below merged spouts, so that each row reaches each sink once.

Must not know: epochs, processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Part:
    """A component."""

    name: str
    #: "spout", "map", "count" (keyed state, timers), "batch" (gathers), "cycle" (sends rows around), "staged", "token".
    kind: str
    parallelism: int
    sources: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    #: Spouts: whether they can rewind, and how many rows they have; None: no end.
    rewindable: bool = True
    limit: int | None = None
    #: One of this number of rows raises always; the chance that a call raises.
    poison: int = 0
    flaky: float = 0.0
    #: Token sinks: of this number of rows the outside refuses two for good.
    refused: int = 0

    @property
    def is_sink(self) -> bool:
        """Whether this is a sink."""
        return self.kind in ("staged", "token")


@dataclass
class Plan:
    """A topology."""

    parts: dict[str, Part]

    @property
    def endless(self) -> bool:
        """Whether it never completes."""
        return any(part.kind == "spout" and part.limit is None for part in self.parts.values())

    def path(self, sink: str) -> list[str]:
        """The components from which rows reach a sink, with itself."""
        found = [sink]
        for name in found:
            found += [source for source in self.parts[name].sources if source not in found]
        return found

    def counter_above(self, sink: str) -> str | None:
        """The nearest component with keyed state above a sink."""
        name = sink
        while self.parts[name].sources and self.parts[name].kind != "count":
            name = self.parts[name].sources[0]
        return name if self.parts[name].kind == "count" else None


def random_plan(random: Random) -> Plan:
    """A topology of a seed."""
    parts: dict[str, Part] = {}
    endless = random.random() < 0.3
    for number in range(random.choice((1, 1, 2))):
        spout = Part(f"s{number}", "spout", random.choice((1, 2)))
        spout.rewindable = random.random() < 0.75
        spout.limit = None if endless else random.choice((0, 15, 40, 80))
        parts[spout.name] = spout
    spouts = list(parts)
    bolts: list[str] = []
    for number in range(random.choice((1, 2, 2, 3))):
        kind = random.choice(("map", "count", "count", "batch", "cycle"))
        bolt = Part(f"b{number}", kind, random.choice((1, 2, 2)))
        bolt.sources = list(spouts) if not bolts else [random.choice(bolts)]
        if random.random() < 0.4:
            bolt.poison = random.choice((5, 11))
        if random.random() < 0.4:
            bolt.flaky = 0.1
        parts[bolt.name] = bolt
        bolts.append(bolt.name)
    read = {source for name in bolts for source in parts[name].sources}
    leaves = [name for name in bolts if name not in read]
    if random.random() < 0.3:
        leaves.append(random.choice(bolts))
    for number, leaf in enumerate(leaves):
        sink = Part(f"k{number}", random.choice(("staged", "token")), random.choice((1, 2)), [leaf])
        parts[sink.name] = sink
    for part in parts.values():
        for source in part.sources:
            parts[source].readers.append(part.name)
    own = Random(repr(parts))  # apart, so that a seed's story stays as it is
    for part in parts.values():
        if part.kind == "token":
            part.refused = own.choice((0, 0, 4, 9))
    return Plan(parts)
