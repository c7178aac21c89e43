"""The graph of a topology: its cycles, and the edges that close them. Pure functions over ids and edges.

The functions are iterative on purpose: a chain of thousands of bolts must not exceed Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """A bolt reads a stream of a source."""

    target: str
    source: str
    stream: str


def _outgoing(ids: Sequence[str], edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    outgoing: dict[str, list[Edge]] = {component: [] for component in ids}
    for edge in edges:
        if edge.source in outgoing and edge.target in outgoing:
            outgoing[edge.source].append(edge)
    return outgoing


def closing_edges(ids: Sequence[str], edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the back edges of a depth-first search in order of declaration: without them the graph is acyclic."""
    outgoing = _outgoing(ids, edges)
    found: list[Edge] = []
    done: set[str] = set()
    on_path: set[str] = set()
    for root in ids:
        if root in done:
            continue
        path: list[tuple[str, Iterator[Edge]]] = [(root, iter(outgoing[root]))]
        on_path.add(root)
        while path:
            component, rest = path[-1]
            if (edge := next(rest, None)) is None:
                path.pop()
                on_path.discard(component)
                done.add(component)
            elif edge.target in on_path:
                found.append(edge)
            elif edge.target not in done:
                on_path.add(edge.target)
                path.append((edge.target, iter(outgoing[edge.target])))
    return tuple(found)


def _reachable(start: str, outgoing: dict[str, list[Edge]]) -> set[str]:
    reached, ends = {start}, [start]
    while ends:
        further = {edge.target for edge in outgoing[ends.pop()]} - reached
        reached |= further
        ends += further
    return reached


def cycles(ids: Sequence[str], edges: Sequence[Edge]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of components that can reach each other, and components that read themselves, in order of
    declaration. Each group contains an edge that closes a cycle: the group is the set of components that can be reached from
    this edge's target, and from which the target can be reached.
    """
    forwards = _outgoing(ids, edges)
    backwards = _outgoing(ids, [Edge(edge.source, edge.target, edge.stream) for edge in edges])
    found: set[str] = set()
    groups = []
    for end in dict.fromkeys(edge.target for edge in closing_edges(ids, edges)):
        if end not in found:
            group = _reachable(end, forwards) & _reachable(end, backwards)
            found |= group
            groups.append(tuple(component for component in forwards if component in group))
    return tuple(sorted(groups, key=lambda group: ids.index(group[0])))
