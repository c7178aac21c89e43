"""Limits of topologies whose state is at a path: a spout that stands at one goes on as soon as a commit lets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import Count, Forward, Pass, counts, expected, words

LIMIT = 500


class Unending(Forward):
    """Never ends, and takes half a millisecond for each tuple."""

    def next_tuple(self) -> float:  # type: ignore[override]
        super().next_tuple()
        return 0.0005


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 60, **more}


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_spout_at_the_uncommitted_limit_does_not_wait_for_the_end_of_the_interval(
    tmp_path: Path, workers: int
) -> None:
    """The limit is no rate: with an epoch a minute and a limit of 500, not 500 tuples a minute are processed."""
    conf = conf_at(tmp_path, **{"topology.epoch.uncommitted": LIMIT, "topology.workers": workers})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Unending(10**9), Pass(), Count(), 1), conf)
        cluster.advance(1.1)
        status = cluster.status("words")
        acked = status.components["words"].acked
        assert acked >= 3 * LIMIT
        assert (
            status.epoch is not None and status.epoch.number <= acked // LIMIT + 1
        )  # none for less than the limit
        cluster.deactivate("words")
        cluster.advance(61)
        status = cluster.status("words")
        emitted = status.components["words"].emitted
        assert status.components["words"].acked == emitted
        assert counts(cluster) == expected(list(range(emitted)))
