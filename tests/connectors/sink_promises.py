"""What a sink promises, each as a run of a topology on a real server: see `tests/connector_contract.py`.

Must not know: any connector.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.connector_contract import WRONG_PASSWORD, SinkWorld, Writing


def killed(world: SinkWorld, folder: Path | None) -> None:
    """A server that is killed is waited for, the status says so, and nothing is lost."""
    _away(world, folder, "killed")


def frozen(world: SinkWorld, folder: Path | None) -> None:
    """A server that is frozen is waited for, the status says so, and nothing is lost."""
    _away(world, folder, "frozen")


def _away(world: SinkWorld, folder: Path | None, how: str) -> None:
    with Writing(world, folder) as run:
        run.give(range(10))
        run.shows(range(10))
        with world.away(how):
            run.give(range(10, 20))
            run.waits(how)
        run.give(range(20, 30))
        run.shows(range(30))
        run.goes_on()
        assert run.refused() == []


def restarted(world: SinkWorld, folder: Path | None) -> None:
    """A server that is killed and started at once, while rows flow, loses nothing."""
    with Writing(world, folder) as run:
        run.give(range(200))
        run.until(world.written)
        with world.away("killed"):
            run.give(range(200, 210))
        run.give(range(210, 220))
        run.shows(range(220))
        assert run.refused() == []


def away_at_the_start(world: SinkWorld, folder: Path | None) -> None:
    """A topology that starts while the server is away waits for it, and keeps its rows."""
    with world.away("killed"):
        run = Writing(world, folder)
        try:
            run.give(range(10))
            run.waits()
        except BaseException:
            run.cluster.shutdown()
            raise
    with run:
        run.shows(range(10))
        assert run.refused() == []


def refused_row(world: SinkWorld, folder: Path | None) -> None:
    """A row that is never taken fails alone, with the reason; all others are written."""
    with Writing(world, folder) as run:
        run.give(range(5))
        run.supply(world.refused(5))
        run.give(range(6, 10))
        run.shows([*range(5), *range(6, 10)])
        run.until(run.refused)
        assert len(run.refused()) == 1 and world.refused_words in run.refused()[0], run.refused()


def large_row(world: SinkWorld, folder: Path | None) -> None:
    """A row of the greatest size is written, or fails alone with the reason; it holds up nothing."""
    row, written = world.large(1)
    with Writing(world, folder) as run:
        run.give([0])
        run.supply(row)
        run.give([2])
        run.shows([0, 1, 2] if written else [0, 2])
        if not written:
            run.until(run.refused)
        assert len(run.refused()) == (not written)


def missing(world: SinkWorld, folder: Path | None) -> None:
    """A missing topic, table or queue is an error that says so, and is written once it is there."""
    world.remove()
    with Writing(world, folder) as run:
        run.give(range(3))
        run.reports(world.missing_words)
        if world.needs_place:
            run.refuses_to_begin()
        world.create()
        if not world.needs_place:
            run.shows(range(3))
    if world.needs_place:
        with Writing(world, folder) as run:
            run.shows(range(3))


def wrong_login(world: SinkWorld, folder: Path | None) -> None:
    """A wrong password is an error that says so, without the password; nothing is given up."""
    sink, words = world.wrong_login()
    with Writing(world, folder, sink=sink) as run:
        run.give(range(3))
        run.reports(words)
        assert not any(WRONG_PASSWORD in error for error in run.errors())


def nothing_lost(world: SinkWorld, folder: Path | None) -> None:
    """Of a topology that is ended at any moment no row is lost; with epochs, and a sink that commits, none is there twice."""
    for part in range(3):
        with Writing(world, folder, tasks=2) as run:
            run.give(range(100 * part, 100 * part + 100))
            run.until(lambda part=part: len(set(world.written())) > 100 * part)  # type: ignore[misc]
            if part == 2:
                run.shows(range(300))


def answer_lost(world: SinkWorld, folder: Path | None) -> None:
    """An answer that is lost after the server did the write loses nothing; with epochs nothing is there twice."""
    with Writing(world, folder) as run:
        run.give(range(10))
        run.shows(range(10))
        with world.answer_lost() as lost:
            run.give(range(10, 20))
            run.until(lost)
        run.give(range(20, 30))
        run.shows(range(30))
        assert run.refused() == []


Promise = Callable[[SinkWorld, "Path | None"], None]

#: By the words of the table in docs/connectors.md.
PROMISES: Final[dict[str, Promise]] = {
    "killed": killed,
    "frozen": frozen,
    "restarted": restarted,
    "away at the start": away_at_the_start,
    "refused": refused_row,
    "too large": large_row,
    "missing": missing,
    "wrong login": wrong_login,
    "nothing lost": nothing_lost,
    "answer lost": answer_lost,
}
