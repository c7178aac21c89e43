"""A tree of values in a tree of nodes such as ZooKeeper's, where a node can exist only below another node.

A value is a node's data; a node without data only leads to values below it. Nodes without data are made in the same transaction
as the value to which they lead. When the last value below them is deleted, they are removed as far as possible. A crash may
leave an empty node: it holds nothing, may be listed, and is removed with the next delete of its path or of a path below it. A
node without a value is at version 0, a node that was made for a value is at version 1 or more. So if a node was empty when it
was read, and another process has since removed it and made a new node for a value, the new node is never mistaken for the empty
one, and never removed. Every operation tries one transaction, and tries again if another process was faster; it does not try
for ever, because `Nodes` gives up after a time.
Must not know: how nodes are reached, what the values mean.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from squall.cluster.store import Conflict, Exists, Guard, StoreError, above

#: Used in place of a version where the version does not matter.
ANY: Final = -1


class Node(msgspec.Struct, frozen=True):
    """The metadata of a node."""

    version: int
    size: int
    children: int
    #: The session to which an ephemeral node belongs; 0 if the node is not ephemeral.
    owner: int


class Check(msgspec.Struct, frozen=True):
    """Go on only if the node is at this version."""

    path: str
    version: int


class Make(msgspec.Struct, frozen=True):
    """Make a node without data where there is none."""

    path: str
    ephemeral: bool = False


class Write(msgspec.Struct, frozen=True):
    """Change the data of a node that is at this version."""

    path: str
    data: bytes
    version: int


class Remove(msgspec.Struct, frozen=True):
    """Remove a node that is at this version and has nothing below it."""

    path: str
    version: int


Step = Check | Make | Write | Remove


class Why(enum.Enum):
    """The reasons why a step was not done."""

    MISSING = "there is no such node, or no node above it"
    THERE = "there is a node already"
    VERSION = "the node is at another version"
    CHILDREN = "there are nodes below"
    EPHEMERAL = "nothing can be below an ephemeral node"


class StepFailed(Exception):
    """A transaction was not done because one of its steps is impossible."""

    def __init__(self, number: int, why: Why) -> None:
        super().__init__(number, why)
        self.number = number
        self.why = why


class Nodes(Protocol):
    """Access to the nodes for one call with a time limit; each method raises `Unavailable` when the time is over."""

    def read_node(self, path: str) -> Node | None:
        """Return the present metadata of a node, None if there is none; never from a cache."""

    def commit(self, steps: Sequence[Step]) -> list[int]:
        """Do all steps and return the version after each, or do none and raise `StepFailed`."""

    def make_root(self) -> None:
        """Create the node of `/`, and the nodes above it."""


def put(
    nodes: Nodes, path: str, data: bytes, expected: int | None, guard: Guard | None, known: int | None = None
) -> int:
    """`Store.put`. known: the version of the value, if it was read a moment ago."""
    if expected is not None and known != expected:
        _expect(nodes, path, expected, guard)
    while True:
        try:
            if expected is not None:
                return _commit(nodes, guard, Write(path, data, expected))
            if nodes.read_node(path) is not None:
                return _commit(nodes, guard, Write(path, data, ANY))
            return _make(nodes, guard, path, data)
        except StepFailed as failed:
            if expected is not None:
                raise Conflict(path, expected, _version(nodes.read_node(path))) from failed
            _only(failed, path, Why.MISSING, Why.THERE)


def create(nodes: Nodes, path: str, data: bytes, ephemeral: bool, guard: Guard | None) -> int:
    """`Store.create`."""
    while True:
        try:
            return _make(nodes, guard, path, data, ephemeral)
        except StepFailed as failed:
            _only(failed, path, Why.MISSING, Why.THERE)
            node = nodes.read_node(path) if failed.why is Why.THERE else None
        if node is None:
            continue
        if node.size:
            raise Exists(path)
        try:  # a node that leads to other values becomes a value
            if ephemeral:
                return _commit(nodes, guard, Remove(path, node.version), *_value(path, data, ephemeral))
            return _commit(nodes, guard, Write(path, data, node.version))
        except StepFailed as failed:
            if failed.why is Why.CHILDREN:
                raise StoreError(f"{path} cannot be ephemeral: there are values below it") from failed


def delete(
    nodes: Nodes, path: str, expected: int | None, guard: Guard | None, known: int | None = None
) -> None:
    """`Store.delete`. known: the version of the value, if it was read a moment ago."""
    if expected is not None and known != expected:
        _expect(nodes, path, expected, guard)
    version = ANY if expected is None else expected
    while True:
        try:
            _commit(nodes, guard, Remove(path, version))
            break
        except StepFailed as failed:
            if failed.why is Why.MISSING and expected is None:
                break
            if failed.why is not Why.CHILDREN:
                raise Conflict(path, version, _version(nodes.read_node(path))) from failed
        if _emptied(nodes, guard, path, expected):
            break
    _clear_way(nodes, path)


def _emptied(nodes: Nodes, guard: Guard | None, path: str, expected: int | None) -> bool:
    """Remove the value of a node that has nodes below it; return False if another process was faster."""
    node = nodes.read_node(path)
    if expected is not None and _version(node) != expected:
        raise Conflict(path, expected, _version(node))
    if node is None:
        return False
    if not node.size:
        return True
    try:
        _commit(nodes, guard, Write(path, b"", node.version))
        return True
    except StepFailed:
        return False


def _clear_way(nodes: Nodes, path: str) -> None:
    """Remove the nodes that no longer lead to a value, from `path` upwards. After a failure the remaining nodes are left."""
    with suppress(StepFailed, StoreError):
        while path != "/":
            if (node := nodes.read_node(path)) is not None:
                if node.size or node.children:
                    return
                nodes.commit([Remove(path, node.version)])
            path = above(path)


def _make(nodes: Nodes, guard: Guard | None, path: str, data: bytes, ephemeral: bool = False) -> int:
    """Make a node with a value, and missing nodes above it. Checking first is cheaper than a failed transaction."""
    way: list[Step] = []
    upwards = above(path)
    while nodes.read_node(upwards) is None:
        if upwards == "/":
            nodes.make_root()
            break
        way.insert(0, Make(upwards))
        upwards = above(upwards)
    return _commit(nodes, guard, *way, *_value(path, data, ephemeral))


def _value(path: str, data: bytes, ephemeral: bool) -> tuple[Step, Step]:
    return Make(path, ephemeral), Write(path, data, 0)


def _commit(nodes: Nodes, guard: Guard | None, *steps: Step) -> int:
    """Do the steps under the guard; return the version after the last step."""
    if guard is None:
        return nodes.commit(steps)[-1]
    try:
        return nodes.commit([Check(guard.path, guard.version), *steps])[-1]
    except StepFailed as failed:
        if failed.number == 0:
            raise guard.broken(steps[-1].path if steps else guard.path) from failed
        raise StepFailed(failed.number - 1, failed.why) from failed


def _expect(nodes: Nodes, path: str, expected: int, guard: Guard | None) -> None:
    """Raise `Conflict` unless there is a value at the expected version; an empty node is not a value."""
    if (found := _version(nodes.read_node(path))) != expected:
        if guard is not None:
            _commit(nodes, guard)  # a deposed leader gets `Deposed`, not `Conflict`
        raise Conflict(path, expected, found)


def _only(failed: StepFailed, path: str, *which: Why) -> None:
    if failed.why is Why.EPHEMERAL:
        raise StoreError(f"{path} is not written: a value above it is ephemeral") from failed
    if failed.why not in which:
        raise StoreError(f"{path} is not written: {failed.why.value}") from failed


def _version(node: Node | None) -> int | None:
    return node.version if node is not None and node.size else None
