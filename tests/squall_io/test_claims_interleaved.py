"""Rewriters whose claims and fences are deleted, with readers and makers of checkpoints, in any order, with deaths and lost
answers: what one of them has committed counts for ever, and what it writes after another one has begun never does.

`squall_io.spark.manifest.claims` has the promises, and `commit_world` the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from squall_io.spark.manifest.claims import list_claims
from squall_io.spark.manifest.layout import CLAIMS, REWRITER
from squall_io.spark.manifest.rewriting import Rewriter
from tests.squall_io.commit_script import ALL, Play, small_and_in_order
from tests.squall_io.commit_world import World, again
from tests.squall_io.memory_files import Manners, MemoryStore, Step, straight
from tests.squall_io.random_order import RandomOrder, check

T = TypeVar("T")


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


class ClaimsRun(RandomOrder):
    """One run of many compactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = World(Manners(self.random.random() < 0.3, self.random.random() < 0.3))

    def play(self) -> World:
        """Run all actors in some order, and check."""
        luck, world = self.random, self.world
        world.owner(straight, 0, batches=2)
        for _ in range(
            luck.choice([0, 1, 8, 9])
        ):  # compactions that have come and gone, of which nothing is closed
            world.compactor(straight)
        for number in range(luck.randrange(1, 3)):
            work = partial(world.owner, self.gate, 0, (number + 2, 0), luck.randrange(1, 3))
            self.add(f"owner {number}", work)
        for number in range(luck.randrange(2, 6)):
            target = luck.choice([300, 1_000])
            self.add(f"compaction {number}", partial(world.compactor, self.gate, target, luck.random() < 0.5))
        for number in range(luck.randrange(1, 5)):
            self.add(f"checkpoint {number}", lambda: world.checkpoint(self.gate))
        for number in range(luck.randrange(1, 4)):
            self.add(f"reader {number}", lambda: world.reader(self.gate, 2))
        if luck.random() < 0.2:
            self.add("read-only reader", lambda: world.reader(self.gate, 2, may_write=False))
        self.baton.run()
        self.deliver()
        world.settle(1)
        self._check_claims()
        return world

    def _check_claims(self) -> None:
        """After a compaction and a checkpoint, two claims and two fences of rewriters are left at most."""
        world = self.world
        world.owner(straight, 0, (100, 0), batches=2)
        world.compactor(straight)
        world.checkpoint(straight)
        found = list_claims(world.files())
        for what, known in (("claims", found.claims), ("fences", found.fences)):
            left = sorted(epoch for writer_id, epoch in known if writer_id == REWRITER)
            assert len(left) <= 2, f"{what} of {left} are left"


def deleted_claims(world: World) -> int:
    assert isinstance(world.store, MemoryStore)
    return sum(path.startswith(f"{CLAIMS}/rewrite") for path, _ in world.store.deleted)


def played(*turns: tuple[str, int], runs: int) -> Play:
    """One run of a table that `runs` compactions have seen, with rows to merge."""
    play = Play()
    world = play.world
    world.owner(straight, 0, batches=2)
    for _ in range(runs):
        again(lambda: Rewriter(world.files(), "host:1", world.wall).begin())
    insisting = partial(world.compactor, target=1_000)
    for name in ("old", "new", "third"):
        play.add(name, insisting)
    for name in ("checkpoint", "later checkpoint"):
        play.add(name, world.checkpoint)
    play.add("owner", lambda gate: world.owner(gate, 0, (2, 0), batches=1))
    play.add("another owner", lambda gate: world.owner(gate, 0, (3, 0), batches=1))
    for name in ("reader", "later reader"):
        play.add(name, world.reader)
    return play.run(*turns)


def step_of(play: Play, actor: str, what: str) -> int:
    """How many steps an actor takes before this one."""
    [found] = [line for line in play.story if line.startswith(f"{actor} ") and what in line][:1]
    return int(found.split()[1].rstrip(":")) - 1


def test_a_rewriter_that_listed_the_claims_while_they_were_deleted_gets_an_open_epoch() -> None:
    world = World()
    files = world.files()
    world.owner(straight, 0, batches=2)

    def begin() -> int:
        rewriter = Rewriter(files, "host:1", world.wall)
        again(rewriter.begin)
        return rewriter.epoch

    while begin() < 9:
        pass
    put: list[str] = []

    def others(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("list: second page", CLAIMS) and not put:
            # The names of these claims are before those of the second page.
            put.append(f"{begin()} {begin()}")
            world.checkpoint(straight)
        if step.call == "put_if_absent: rename":
            put.append(step.path)
        return effect()

    late = Rewriter(world.files(others), "host:2", world.wall)
    late.begin()
    assert put[0] == "10 11" and late.epoch == 12
    assert put[1].endswith("table.0.6.claim.json"), "its first one was in the place of a deleted one"
    late.require_owner()


OTHERS_GO_ON = (
    ("new", ALL), ("owner", ALL), ("checkpoint", ALL), ("third", ALL), ("another owner", ALL), ("later checkpoint", ALL),
)  # fmt: skip


@pytest.mark.parametrize("runs", [1, 9])
def test_a_rewriter_that_is_frozen_at_any_step_while_its_epoch_is_closed(runs: int) -> None:
    steps = played(("old", ALL), runs=runs).steps["old"]
    closed = 0
    for step in range(steps):
        play = played(("old", step), *OTHERS_GO_ON, ("old", ALL), ("reader", ALL), runs=runs)
        closed += deleted_claims(play.world)
    assert closed > steps


def test_a_rewriter_publishes_while_a_checkpoint_is_made_at_any_step() -> None:
    before = played(("old", ALL), runs=1)
    publishing = step_of(before, "old", "put_if_absent: rename _squall/commits/rewrite")
    steps = played(("owner", ALL), ("checkpoint", ALL), runs=1).steps["checkpoint"]
    for step in range(steps):
        first = ("owner", ALL), ("old", publishing), ("checkpoint", step)
        rest = ("checkpoint", ALL), ("later reader", ALL)
        played(*first, ("old", ALL), ("new", ALL), ("reader", ALL), *rest, runs=1)
        for claimed in range(
            3, 12
        ):  # the new one is about to make its claim or its fences, and is frozen or dead then
            played(*first, ("new", claimed), ("old", ALL), ("reader", ALL), *rest, runs=1)
            played(*first[:2], ("new", claimed), first[2], ("old", ALL), ("reader", ALL), *rest, runs=1)


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3))])
def test_what_rewriters_have_committed_counts_once_though_claims_are_deleted(group: int) -> None:
    worlds = [check(ClaimsRun, 1000 * group + seed) for seed in range(80)]
    assert sum(world.merged for world in worlds) > 50  # otherwise nothing was checked
    assert sum(map(deleted_claims, worlds)) > 100
