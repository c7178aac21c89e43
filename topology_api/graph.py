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
            edge = next(rest, None)
            if edge is None:
                path.pop()
                on_path.discard(component)
                done.add(component)
            elif edge.target in on_path:
                found.append(edge)
            elif edge.target not in done:
                on_path.add(edge.target)
                path.append((edge.target, iter(outgoing[edge.target])))
    return tuple(found)


def _strongly_connected(ids: Sequence[str], outgoing: dict[str, list[Edge]]) -> Iterator[list[str]]:
    """Yield the groups of components that can reach each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()

    def enter(component: str) -> tuple[str, Iterator[Edge]]:
        number[component] = lowest[component] = len(number)
        stack.append(component)
        on_stack.add(component)
        return component, iter(outgoing[component])

    for root in ids:
        if root in number:
            continue
        path = [enter(root)]
        while path:
            component, rest = path[-1]
            edge = next(rest, None)
            if edge is not None:
                if edge.target not in number:
                    path.append(enter(edge.target))
                elif edge.target in on_stack:
                    lowest[component] = min(lowest[component], number[edge.target])
                continue
            path.pop()
            if path:
                parent = path[-1][0]
                lowest[parent] = min(lowest[parent], lowest[component])
            if lowest[component] == number[component]:
                first = stack.index(component)
                group = stack[first:]
                del stack[first:]
                on_stack.difference_update(group)
                yield group


def cycles(ids: Sequence[str], edges: Iterable[Edge]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of components that can reach each other, and components that read themselves, in order of
    declaration."""
    outgoing = _outgoing(ids, edges)
    place = {component: position for position, component in enumerate(ids)}
    groups = [
        tuple(sorted(group, key=place.__getitem__))
        for group in _strongly_connected(list(outgoing), outgoing)
        if len(group) > 1 or any(edge.target == group[0] for edge in outgoing[group[0]])
    ]
    return tuple(sorted(groups, key=lambda group: place[group[0]]))
