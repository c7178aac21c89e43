"""Links between the workers of a topology with state break, lose and garble bytes, or are cut: each tuple counts once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.links import Links
from tests.faults.running import Surroundings, cluster_without_leaks
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import Count, Finite, eventually, expected_rows, words_to_rows

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.soak,
]  # tests/worker loses and doubles messages


def broken(links: Links, first: str, second: str) -> None:
    links.break_off(first, second)


def vanished(links: Links, first: str, second: str) -> None:
    links.vanish(first, second, 300)
    links.vanish(second, first, 300)


def flipped(links: Links, first: str, second: str) -> None:
    links.flip(first, second, 500)


def late(links: Links, first: str, second: str) -> None:
    links.delay(first, second, 0.3)


def cut(links: Links, first: str, second: str) -> None:
    """Longer than a silent link is kept."""
    links.cut(first, second)
    time.sleep(3.5)  # the duration of the fault


@pytest.mark.parametrize("fault", [broken, vanished, flipped, late, cut])
def test_each_tuple_counts_once_whatever_a_link_does(
    tmp_path: Path, fault: Callable[[Links, str, str], None]
) -> None:
    links, rows, total = Links(), tmp_path / "rows", 4_000
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.2,
        "topology.workers": 2,
    }
    with cluster_without_leaks(tmp_path, Surroundings(links=links)) as cluster:
        cluster.submit(words_to_rows(Finite(total, 250), Count(), StagedRows(str(rows)), 3), conf)
        for _ in range(3):
            before = len(list((rows / "shown").glob("*")))
            eventually(lambda before=before: len(list((rows / "shown").glob("*"))) > before)  # type: ignore[misc]
            assert cluster.status("words").state == "ACTIVE", (
                "it was faster than the faults: give it more tuples"
            )
            first, second = (each.worker for each in cluster.workers("words"))
            fault(links, first, second)
            links.heal()
        assert links.passed() > 0, "the proxies are in between"
        cluster.wait("words", 120)
    assert shown_rows(rows) == expected_rows(list(range(total)))
