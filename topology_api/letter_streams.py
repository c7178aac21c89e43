"""The streams on which dead letters travel in topologies with `topology.state.path`.

Without a path a spout gives up its tuples, and sends the letters to the bolts that read them. With one, the bolt in which a
tuple fails gives it up. So each bolt that a spout reaches has a stream for the letters of this spout, which the readers of its
letters read like any other: with barriers, snapshots and marks of the end. The user declares none of this, and emits on none
of these streams.
Must not know: tasks, how a tuple is given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from topology_api.topology import DEAD_LETTER_FIELDS, DEAD_LETTERS, StreamSpec, Subscription, Topology


def letter_stream(spout: str) -> str:
    """Return the name of the stream of a bolt for the letters of a spout."""
    return f"{DEAD_LETTERS}-{spout}"


def is_letter_stream(stream: str) -> bool:
    """Return whether a stream is one of a bolt for letters."""
    return stream.startswith(letter_stream(""))


def with_letter_streams(topology: Topology) -> Topology:
    """Return the topology with the streams of its bolts for dead letters; it may have them already."""
    outputs: dict[str, dict[str, StreamSpec]] = defaultdict(dict)
    inputs: dict[str, list[Subscription]] = defaultdict(list)
    for reader, subscription, bolts in letter_ways(topology):
        stream = letter_stream(subscription.source)
        for bolt in bolts:
            outputs[bolt][stream] = StreamSpec(DEAD_LETTER_FIELDS)
            inputs[reader].append(Subscription(bolt, stream, subscription.grouping))
    if not outputs:
        return topology
    components = [
        replace(
            spec,
            outputs={**spec.outputs, **outputs[spec.id]},
            inputs=(*spec.inputs, *(each for each in inputs[spec.id] if each not in spec.inputs)),
        )
        for spec in topology.components
    ]
    return replace(topology, components=tuple(components))


def returning_letters(topology: Topology) -> Iterator[str]:
    """Yield each reader of dead letters whose own tuples reach a bolt that would send it letters: these could go round."""
    edges: dict[str, list[str]] = defaultdict(list)
    for spec in with_letter_streams(topology).components:
        for entry in spec.inputs:
            edges[entry.source].append(spec.id)
    for reader, subscription, bolts in letter_ways(topology):
        after = reached(reader, edges)
        bolt = next((each for each in bolts if each in after), None)
        if bolt is not None:
            yield (
                f"bolt {reader!r} reads the dead letters of {subscription.source!r}, and what it emits reaches {bolt!r}, whose "
                "dead letters would return to it, since with topology.state.path the bolt gives up a tuple that fails: let no "
                f"bolt that {subscription.source!r} reaches read it, and use `squall dead-letters NAME resend` for a second try"
            )


def letter_ways(topology: Topology) -> Iterator[tuple[str, Subscription, list[str]]]:
    """Yield each bolt that reads the dead letters of a spout, with this input, and the other bolts that the spout's tuples
    reach. A bolt does not get its own letters."""
    edges: dict[str, list[str]] = defaultdict(list)
    for spec in topology.components:
        for entry in spec.inputs:
            if entry.stream != DEAD_LETTERS and not is_letter_stream(entry.stream):
                edges[entry.source].append(spec.id)
    for spec in topology.bolts:
        for entry in spec.inputs:
            if entry.stream == DEAD_LETTERS:
                after = reached(entry.source, edges)
                yield spec.id, entry, [each.id for each in topology.bolts if each.id in after - {spec.id}]


def reached(start: str, edges: Mapping[str, list[str]]) -> set[str]:
    """Return everything that can be reached from a component by at least one edge. Iterative, since chains may be long."""
    found: set[str] = set()
    ends = [start]
    while ends:
        for each in edges.get(ends.pop(), ()):
            if each not in found:
                found.add(each)
                ends.append(each)
    return found
