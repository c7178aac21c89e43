"""A write to a tree of nodes ends as if undisturbed, wherever another client acts between its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import pytest

from squall.cluster import znodes
from squall.cluster.store import Conflict, Deposed, Exists, Guard, StoreError, above
from squall.cluster.znodes import ANY, Check, Make, Node, Remove, Step, StepFailed, Why, Write


def undisturbed(number: int) -> None:
    """Acts between two steps."""


@dataclass
class Entry:
    data: bytes
    version: int = 0
    ephemeral: bool = False


@dataclass
class FakeNodes:
    """Nodes in a dictionary. `between` is called before each step with the step's number."""

    entries: dict[str, Entry] = field(default_factory=dict)
    between: Callable[[int], None] = undisturbed
    asked: int = 0

    def read_node(self, path: str) -> Node | None:
        self._next()
        entry = self.entries.get(path)
        return (
            None
            if entry is None
            else Node(entry.version, len(entry.data), len(self.below(path)), entry.ephemeral)
        )

    def commit(self, steps: Sequence[Step]) -> list[int]:
        self._next()
        before = {path: Entry(**vars(entry)) for path, entry in self.entries.items()}
        try:
            return [self._do(number, step) for number, step in enumerate(steps)]
        except StepFailed:
            self.entries = before
            raise

    def make_root(self) -> None:
        self._next()
        self.entries.setdefault("/", Entry(b""))

    def below(self, path: str) -> list[str]:
        return [each for each in self.entries if each != "/" and above(each) == path]

    def values(self) -> dict[str, bytes]:
        return {path: entry.data for path, entry in self.entries.items() if entry.data}

    def _next(self) -> None:
        number, self.asked = self.asked, self.asked + 1
        self.between(number)

    def _do(self, number: int, step: Step) -> int:
        entry = self.entries.get(step.path)
        if isinstance(step, Make):
            parent = self.entries.get(above(step.path))
            if parent is None:
                raise StepFailed(number, Why.MISSING)
            if entry is not None:
                raise StepFailed(number, Why.THERE)
            if parent.ephemeral:
                raise StepFailed(number, Why.EPHEMERAL)
            self.entries[step.path] = Entry(b"", ephemeral=step.ephemeral)
            return 0
        if entry is None:
            raise StepFailed(number, Why.MISSING)
        if step.version not in (ANY, entry.version):
            raise StepFailed(number, Why.VERSION)
        if isinstance(step, Write):
            entry.data, entry.version = step.data, entry.version + 1
            return entry.version
        if isinstance(step, Remove):
            if self.below(step.path):
                raise StepFailed(number, Why.CHILDREN)
            del self.entries[step.path]
        else:
            assert isinstance(step, Check)
        return 0


Act = Callable[[FakeNodes], object]

#: The operation, and the other client's operation in between.
ACTS: dict[str, Act] = {
    "put /a": lambda nodes: znodes.put(nodes, "/a", b"put", None, None),
    "put /a/b": lambda nodes: znodes.put(nodes, "/a/b", b"put", None, None),
    "put /a/b/c": lambda nodes: znodes.put(nodes, "/a/b/c", b"put", None, None),
    "put /a/b over 1": lambda nodes: znodes.put(nodes, "/a/b", b"put", 1, None),
    "create /a": lambda nodes: znodes.create(nodes, "/a", b"made", False, None),
    "create /a/b": lambda nodes: znodes.create(nodes, "/a/b", b"made", False, None),
    "create /a/b ephemeral": lambda nodes: znodes.create(nodes, "/a/b", b"made", True, None),
    "delete /a": lambda nodes: znodes.delete(nodes, "/a", None, None),
    "delete /a/b": lambda nodes: znodes.delete(nodes, "/a/b", None, None),
    "delete /a/b at 1": lambda nodes: znodes.delete(nodes, "/a/b", 1, None),
    "delete /a/b/c": lambda nodes: znodes.delete(nodes, "/a/b/c", None, None),
}
STARTS = [(), ("/a",), ("/a/b",), ("/a/b/c",), ("/a", "/a/b"), ("/a/b", "/a/b/c"), ("/a/x",)]


def started(values: Sequence[str]) -> FakeNodes:
    nodes = FakeNodes({"/": Entry(b"")})
    for path in values:
        znodes.create(nodes, path, b"old", False, None)
    nodes.asked = 0
    return nodes


def done(act: Act, nodes: FakeNodes) -> str:
    """How a write ended."""
    try:
        act(nodes)
        return "done"
    except StoreError as error:
        return type(error).__name__


def one_after_the_other(values: Sequence[str], first: Act, second: Act) -> tuple[str, str, dict[str, bytes]]:
    nodes = started(values)
    return done(first, nodes), done(second, nodes), nodes.values()


def coming_at(moment: int, nodes: FakeNodes, act: Act, ends: list[str]) -> Callable[[int], None]:
    """Have the other client act once, before the step of that number."""

    def between(number: int) -> None:
        if number == moment:
            nodes.between = undisturbed
            ends.append(done(act, nodes))

    return between


@pytest.mark.parametrize("act", ACTS)
def test_an_operation_between_two_steps_ends_like_one_before_or_after(act: str) -> None:
    interrupted = 0
    for values, other, moment in product(STARTS, ACTS, range(12)):
        nodes = started(values)
        theirs: list[str] = []

        nodes.between = coming_at(moment, nodes, ACTS[other], theirs)
        mine = done(ACTS[act], nodes)
        if not theirs:
            continue  # it needed fewer steps
        interrupted += 1
        after = one_after_the_other(values, ACTS[act], ACTS[other])
        before = one_after_the_other(values, ACTS[other], ACTS[act])
        found = nodes.values()
        assert (mine, theirs[0], found) in [after, (before[1], before[0], before[2])], (
            values,
            other,
            moment,
        )
        empty = [
            path for path, e in nodes.entries.items() if path != "/" and not e.data and not nodes.below(path)
        ]
        assert not empty, (values, other, moment)
    assert interrupted > 50


def test_a_root_that_another_client_removed_is_made_again() -> None:
    nodes = FakeNodes()
    assert znodes.put(nodes, "/a/b", b"x", None, None) == 1
    assert nodes.values() == {"/a/b": b"x"}


def test_the_path_to_a_value_is_made_with_it_or_not_at_all() -> None:
    nodes = started(())
    znodes.create(nodes, "/epoch", b"1", False, None)
    with pytest.raises(Deposed):
        znodes.create(nodes, "/a/b/c", b"x", False, Guard("/epoch", 7))
    assert sorted(nodes.entries) == ["/", "/epoch"]


def test_a_deposed_leader_learns_that_before_any_conflict() -> None:
    nodes = started(("/epoch", "/a"))
    with pytest.raises(Deposed):
        znodes.put(nodes, "/a", b"x", 7, Guard("/epoch", 7))
    with pytest.raises(Conflict):
        znodes.put(nodes, "/a", b"x", 7, Guard("/epoch", 1))
    with pytest.raises(Deposed):
        znodes.delete(nodes, "/gone", None, Guard("/epoch", 7))


def test_nothing_is_made_below_an_ephemeral_value_and_none_above_others() -> None:
    nodes = started(("/a/b",))
    znodes.create(nodes, "/e", b"x", True, None)
    writes: list[Callable[[], int]] = [
        lambda: znodes.put(nodes, "/e/x", b"x", None, None),
        lambda: znodes.create(nodes, "/e/x", b"x", False, None),
        lambda: znodes.create(nodes, "/a", b"x", True, None),
    ]
    for write in writes:
        with pytest.raises(StoreError, match="ephemeral"):
            write()
    assert nodes.values() == {"/a/b": b"old", "/e": b"x"}


def test_a_version_just_read_is_not_requested_again() -> None:
    nodes = started(("/a",))
    znodes.put(nodes, "/a", b"x", 1, None, known=1)
    assert nodes.asked == 1
    with pytest.raises(Exists):
        znodes.create(nodes, "/a", b"x", False, None)
