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


def _search(ids: Sequence[str], edges: Iterable[Edge]) -> tuple[list[Edge], list[str]]:
    """Search depth-first in order of declaration. Return the back edges, and the components in the order in which the search
    finished them.
    """
    outgoing = _outgoing(ids, edges)
    found: list[Edge] = []
    done: dict[str, None] = {}
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
                done[component] = None
            elif edge.target in on_path:
                found.append(edge)
            elif edge.target not in done:
                on_path.add(edge.target)
                path.append((edge.target, iter(outgoing[edge.target])))
    return found, list(done)


def closing_edges(ids: Sequence[str], edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the back edges of a depth-first search in order of declaration: without them the graph is acyclic."""
    return tuple(_search(ids, edges)[0])


def cycles(ids: Sequence[str], edges: Sequence[Edge]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of components that can reach each other, and components that read themselves, in order of
    declaration. This is Kosaraju's algorithm, in linear time: of the components without a group, take the component that the
    search finished last; its group consists of all components without a group that can reach it. A group with a closing edge is
    a cycle.
    """
    closing, finished = _search(ids, edges)
    backwards = _outgoing(ids, [edge._replace(target=edge.source, source=edge.target) for edge in edges])
    group_of: dict[str, str] = {}  # component -> the member of its group that the search finished last
    for last in reversed(finished):
        ends = [last]
        while ends:
            component = ends.pop()
            if component not in group_of:
                group_of[component] = last
                ends += (edge.target for edge in backwards[component])
    groups: dict[str, list[str]] = {}
    with_cycle = {group_of[edge.target] for edge in closing}
    for component in ids:
        if group_of[component] in with_cycle:
            groups.setdefault(group_of[component], []).append(component)
    return tuple(map(tuple, groups.values()))
