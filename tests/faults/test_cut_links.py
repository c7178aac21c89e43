"""Links are cut in one direction or both, delayed, broken and garbled by proxies between the workers: the workers notice it,
reconnect, and the ledger adds up. `test_cut_networks.py` does the same by dropping packets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.links import Links
from tests.faults.running import Run, Surroundings, ledger_run

pytestmark = pytest.mark.faults

#: Seconds for which a link stays cut.
LONG = 3.0
WAYS = {"one way": [(0, 1)], "both ways": [(0, 1), (1, 0)]}


@contextmanager
def linked_run(tmp_path: Path, dies: bool = False, **options: Any) -> Iterator[Run]:
    """A run with proxies in between.

    The links themselves must notice a loss, long before the message timeout, so a tree that timed out is a fault. Except if a
    worker `dies`: no other process knows what it had emitted and not sent.
    """
    surroundings = Surroundings(links=Links())
    conf = {"topology.message.timeout.secs": 10 if dies else 60}
    with ledger_run(tmp_path, surroundings, conf=conf, **options) as run:
        yield run
        total = run.total if run.total.emitted else run.drain()
        assert set(total.failed) <= ({"lost", "timeout"} if dies else {"lost"}), total


def links_of(run: Run) -> tuple[Links, list[str]]:
    assert run.links is not None
    return run.links, [one.worker for one in run.workers()]


def reconnects(run: Run, links: Links, before: int) -> None:
    """Wait until a silence was noticed: connections are made again."""
    run.wait_for(lambda: links.connections() > before, "new connections")


def untouched(run: Run, pids: dict[str, int]) -> None:
    """The same processes as before: a cut link makes no worker be killed or die."""
    assert run.pids() == pids, run.report()


@pytest.mark.parametrize("ways", ["one way", pytest.param("both ways", marks=pytest.mark.soak)])
def test_a_link_that_is_cut_and_healed_resumes(tmp_path: Path, ways: str, soak: float) -> None:
    with linked_run(tmp_path) as run:
        links, names = links_of(run)
        assert links.passed() > 0, "the proxies are in between"
        pids = run.pids()
        for _ in range(max(1, round(soak))):
            before = links.connections()
            for sender, receiver in WAYS[ways]:
                links.cut(names[sender], names[receiver])
            reconnects(run, links, before)
            time.sleep(LONG)  # the duration of the fault
            links.heal()
            run.flows()
            untouched(run, pids)
        total = run.drain()
        assert total.spout_lives == 2


def test_a_cut_shorter_than_the_silence_is_bridged(tmp_path: Path, soak: float) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        pids = run.pids()
        for _ in range(max(1, round(4 * soak))):
            links.cut(first, second)
            time.sleep(0.5)  # the duration of the fault
            links.heal()
            run.flows()
        untouched(run, pids)
        total = run.drain()
        assert not total.failed, "nothing was lost, only late"


def test_a_link_that_is_cut_while_a_worker_is_replaced_heals(tmp_path: Path) -> None:
    with linked_run(tmp_path, dies=True) as run:
        links, (first, second) = links_of(run)
        links.cut(first, second)
        links.cut(second, first)
        pid = run.pids()[second]
        os.kill(pid, signal.SIGKILL)
        run.replaced(second, pid)
        links.heal()
        run.flows()


def test_connections_that_break_repeatedly_are_made_again(tmp_path: Path, soak: float) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        pids = run.pids()

        def break_off(_: int) -> None:
            links.break_off(first, second)

        run.last_for(4.0 * soak, 0.4, break_off)
        run.flows()
        untouched(run, pids)


@pytest.mark.parametrize(
    "distances", [(0, 9, 5000), pytest.param((1, 64, 1000), marks=pytest.mark.soak)], ids=str
)
def test_a_bit_flipped_on_the_way_is_refused_and_the_link_repaired(
    tmp_path: Path, distances: tuple[int, ...]
) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        pids = run.pids()
        for distance in distances:
            for sender, receiver in ((first, second), (second, first)):
                links.flip(sender, receiver, distance)
                run.flows(200)
            untouched(run, pids)


@pytest.mark.parametrize("distance", [70, *(pytest.param(at, marks=pytest.mark.soak) for at in (0, 12, 200))])
def test_a_bit_flipped_in_a_handshake_costs_a_connection_and_no_link(tmp_path: Path, distance: int) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        links.flip_welcome(first, second, distance)
        run.flows(200)


@pytest.mark.parametrize("count", [100, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 3000))])
def test_bytes_lost_on_the_way_are_noticed_and_the_link_repaired(tmp_path: Path, count: int) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        pids = run.pids()
        for sender, receiver in ((first, second), (second, first)):
            links.vanish(sender, receiver, count)
            run.flows(200)
        untouched(run, pids)


@pytest.mark.parametrize("distance", [pytest.param(30, marks=pytest.mark.soak), 150_000])
def test_a_bit_flipped_in_a_large_value_never_yields_another_value(tmp_path: Path, distance: int) -> None:
    # Large values travel outside the checksum of their frame: the encryption must refuse the change.
    with linked_run(tmp_path, size=200_000, rate=50.0) as run:
        links, (first, second) = links_of(run)
        for sender, receiver in ((first, second), (second, first)):
            links.flip(sender, receiver, distance)
            run.flows(60)


def test_a_slow_network_makes_no_tuple_fail(tmp_path: Path) -> None:
    with linked_run(tmp_path) as run:
        links, (first, second) = links_of(run)
        links.delay(first, second, 0.3)
        links.delay(second, first, 0.3)
        run.flows(500)
        links.heal()
        total = run.drain()
        assert not total.failed
        assert not total.duplicates
