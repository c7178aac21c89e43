"""What a source promises, each as a run of a topology on a real server: see `tests/connector_contract.py`.

Must not know: any connector.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.connector_contract import (
    CONNECTOR,
    WRONG_PASSWORD,
    Reading,
    SourceWorld,
    counted,
    seen,
    unreadable,
)


def killed(world: SourceWorld, folder: Path | None) -> None:
    """A server that is killed is waited for, the status says so, and nothing is lost."""
    _away(world, folder, "killed")


def frozen(world: SourceWorld, folder: Path | None) -> None:
    """A server that is frozen is waited for, the status says so, and nothing is lost."""
    _away(world, folder, "frozen")


def _away(world: SourceWorld, folder: Path | None, how: str) -> None:
    with Reading(world, folder) as run:
        world.put(range(10))
        run.sees(range(10))
        with world.away(how):
            run.waits(how)
        world.put(range(10, 20))
        run.sees(range(20))
        run.goes_on()


def restarted(world: SourceWorld, folder: Path | None) -> None:
    """A server that is killed and started at once, while messages flow, loses nothing."""
    with Reading(world, folder) as run:
        world.put(range(200))
        run.until(lambda: seen(world))
        with world.away("killed"):
            pass
        world.put(range(200, 220))
        run.sees(range(220))


def away_at_the_start(world: SourceWorld, folder: Path | None) -> None:
    """A topology that starts while the server is away waits for it."""
    world.put(range(10))
    with world.away("killed"):
        run = Reading(world, folder)
        try:
            run.waits()
        except BaseException:
            run.cluster.shutdown()
            raise
    with run:
        run.sees(range(10))


def unreadable_message(world: SourceWorld, folder: Path | None) -> None:
    """A message that cannot be decoded is reported, kept and passed; it holds up nothing."""
    with Reading(world, folder) as run:
        world.put([0])
        world.put_unreadable()
        world.put([1])
        run.sees([0, 1])
        run.reports(world.unreadable_words)
        outputs = world.spout().outputs
        if isinstance(outputs, dict) and "unreadable" in outputs:
            run.until(lambda: unreadable(world))
            assert len(unreadable(world)) == 1 or not run.once
        run.until(world.settled)


def large_message(world: SourceWorld, folder: Path | None) -> None:
    """A message of the greatest size is read, or replaced by an error that says why; it holds up nothing."""
    with Reading(world, folder) as run:
        words = world.put_large(0)
        world.put([1])
        if words:
            run.reports(words)
        run.sees([1] if words else [0, 1])


def missing(world: SourceWorld, folder: Path | None) -> None:
    """A missing topic, table or queue is an error that says so, and is read once it is there."""
    world.remove()
    with Reading(world, folder) as run:
        run.reports(world.missing_words)
        if world.needs_place:
            run.refuses_to_begin()
        world.create()
        world.put(range(3))
        if not world.needs_place:
            run.sees(range(3))
    if world.needs_place:
        with Reading(world, folder) as run:
            run.sees(range(3))


def wrong_login(world: SourceWorld, folder: Path | None) -> None:
    """A wrong password is an error that says so, without the password."""
    spout, words = world.wrong_login()
    with Reading(world, folder, spout=spout) as run:
        run.reports(words)
        assert not any(WRONG_PASSWORD in error for error in run.errors())
        assert not seen(world)


def nothing_lost(world: SourceWorld, folder: Path | None) -> None:
    """Of a topology whose tuples fail, and that is ended at any moment, no message is lost; with epochs none counts twice."""
    for part in range(3):
        world.put(range(100 * part, 100 * part + 100))
        with Reading(world, folder, fail_first=True) as run:
            run.until(lambda part=part: len(set(seen(world))) > 100 * part + 30)  # type: ignore[misc]
            if part == 2:
                run.until(lambda: set(seen(world)) == set(range(300)))
                if run.once:
                    run.sees(range(300))
                run.until(world.settled)


def ordered(world: SourceWorld, folder: Path | None) -> None:
    """The messages of a partition come in their order."""
    numbers = {part: range(1000 * part, 1000 * part + 100) for part in range(world.partitions)}
    with Reading(world, folder, tasks=min(2, world.most_tasks, world.partitions)) as run:
        for part, those in numbers.items():
            world.put(those[:50], part)
        for part, those in numbers.items():
            world.put(those[50:], part)
        run.sees(number for those in numbers.values() for number in those)
        for those in numbers.values():
            found = [number for number in seen(world) if number in those]
            assert found == list(those) or (not run.once and list(dict.fromkeys(found)) == list(those))


def rebalanced(world: SourceWorld, folder: Path | None) -> None:
    """Tasks share the messages, and share them again when their number changes; nothing is lost, with epochs nothing twice."""
    with Reading(world, folder, tasks=2) as run:
        wanted: list[int] = []
        for tasks in (3, 1, 2):
            for part in range(world.partitions):
                those = range(1000 * part + len(wanted), 1000 * part + len(wanted) + 40)
                world.put(those, part)
                wanted += those
            run.until(lambda: len(set(seen(world))) > len(wanted) - 40 * world.partitions)  # noqa: B023
            run.cluster.rebalance(run.name, parallelism={CONNECTOR: tasks})
            run.until(
                lambda tasks=tasks: (
                    (status := run.cluster.status(run.name)).state == "ACTIVE"  # type: ignore[misc]
                    and status.components[CONNECTOR].tasks == tasks
                )
            )
        run.sees(wanted)


def nothing_twice(world: SourceWorld, folder: Path | None) -> None:
    """A topology with epochs that is ended and started again, while its server is killed, counts each message once."""
    for part in range(3):
        world.put(range(100 * part, 100 * part + 100))
        with Reading(world, folder) as run:
            run.until(lambda part=part: len(counted(world)) > 100 * part + 10)  # type: ignore[misc]
            if part == 1 and world.server is not None:
                with world.away("killed"):
                    pass
            if part == 2:
                run.sees(range(300))
            assert len(set(counted(world))) == len(counted(world))


Promise = Callable[[SourceWorld, "Path | None"], None]

#: By the words of the table in docs/connectors.md.
PROMISES: Final[dict[str, Promise]] = {
    "killed": killed,
    "frozen": frozen,
    "restarted": restarted,
    "away at the start": away_at_the_start,
    "unreadable": unreadable_message,
    "too large": large_message,
    "missing": missing,
    "wrong login": wrong_login,
    "nothing lost": nothing_lost,
    "in order": ordered,
    "rebalanced": rebalanced,
    "nothing twice": nothing_twice,
}
#: Those that mean something with epochs only.
WITH_EPOCHS_ONLY: Final = frozenset({"nothing twice"})
