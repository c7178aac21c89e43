"""Worker processes of topologies with state are killed, one by one and all at once, and at each step of an epoch: whatever kind
of bolt has tuples in its hands, and however the clock steps, each tuple and each timer counts once.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from local_cluster import LocalCluster
from tests.faults import failpoints
from tests.faults.every_kind_with_state import (
    assert_each_counts_once,
    conf_at,
    every_kind,
    shown,
)
from tests.faults.running import cluster_without_leaks
from tests.local_cluster.staged_words import StagedRows, calls_of, shown_rows
from tests.local_cluster.words_with_state import Count, Finite, eventually, expected_rows, words_to_rows
from tests.stepped_clock import SteppedClock
from topology_api import Context

pytestmark = [pytest.mark.faults, pytest.mark.slow]


#: Of the three workers, the first of which leads: each one, two, and all.
WHICH = [slice(0, 1), slice(1, 2), slice(2, 3), slice(1, 3), slice(0, 3)]


def kill(cluster: LocalCluster, chosen: slice) -> None:
    """Kill some of the three workers, and wait until all have other processes."""
    eventually(lambda: len(cluster.workers("words")) == 3)
    workers = sorted(cluster.workers("words"), key=lambda each: each.worker)
    pids = {each.pid for each in workers[chosen]}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: (
            len(cluster.workers("words")) == 3 and not pids & {each.pid for each in cluster.workers("words")}
        )
    )


def progresses(folder: Path) -> None:
    """Wait until more files of rows are visible: an epoch was committed."""

    def files() -> int:
        return sum(len(list((folder / name / "shown").glob("*"))) for name in ("rows", "rung"))

    before = files()
    eventually(lambda: files() > before)


def test_whatever_kind_of_bolt_works_when_workers_are_killed_and_clocks_step_each_tuple_counts_once(
    tmp_path: Path, soak: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each kill the wall clock of all workers steps an hour forward; it steps back while they live, since a timer that
    is read from a snapshot has the time of the clock."""
    total, steps = round(600 * max(1.0, soak)), itertools.count(1)
    clock = SteppedClock(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(str(clock.folder))  # workers have the path of this process
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(every_kind(tmp_path, total, 250), conf_at(tmp_path, **{"topology.workers": 3}))
        for _ in range(max(1, round(soak))):
            for chosen in WHICH if soak > 1 else (WHICH[0], WHICH[-1]):
                progresses(tmp_path)
                clock.set(3_600 * next(steps))
                kill(cluster, chosen)
        progresses(tmp_path)
        epoch = cluster.status("words").epoch
        assert epoch is not None and epoch.rewound is not None and epoch.rewound > time.time() + 3_000
        clock.set(-3_600)
        while shown(tmp_path) < 2 * total:
            progresses(tmp_path)
        cluster.kill("words")  # with a last epoch, in which what counts twice would be
        eventually(lambda: "words" not in cluster.topologies())
    assert_each_counts_once(tmp_path, total)


class DyingCount(Count):
    """Its process dies at calls of the state store."""

    def __init__(self, plan: str) -> None:
        super().__init__(failing=0.01)
        self.plan = plan

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        failpoints.arm(self.plan)


class DyingRows(StagedRows):
    """Its process dies before and after its own calls have had their effects."""

    def __init__(self, folder: str, plan: str) -> None:
        super().__init__(folder)
        self.plan = plan

    def may_fail(self, when: str) -> None:
        failpoints.die_at(self.plan, when)


SINK_STEPS = [
    "before the file is staged",
    "after the file was staged",
    "before the file is shown",
    "after the file was shown",
]
STEPS = [*failpoints.STORE_STEPS, *SINK_STEPS]
GROUPS = [STEPS[at::4] for at in range(4)]


@pytest.mark.soak  # tests/epochs kills processes at each step
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("steps", GROUPS, ids=lambda each: each[0].replace(" ", "-"))
def test_at_whichever_step_of_an_epoch_a_process_dies_each_tuple_counts_once(
    tmp_path: Path, steps: list[str], seed: int
) -> None:
    draw, total = Random(seed), 1_000
    plan, rows = tmp_path / "plan", tmp_path / "rows"
    often = ("put_if_absent", "the file")  # a process reads and sweeps less often
    numbers = {step: draw.choice([1, 2, 4]) if any(map(step.count, often)) else 1 for step in steps}
    # The last step is behind a commit, so that there are snapshots to read.
    failpoints.plan(plan, {**numbers, "after the file was shown": 2})
    with cluster_without_leaks(tmp_path) as cluster:
        topology = words_to_rows(Finite(total, 400), DyingCount(str(plan)), DyingRows(str(rows), str(plan)))
        cluster.submit(topology, conf_at(tmp_path, **{"topology.workers": 2}))
        cluster.wait("words", 120)
    assert failpoints.left(plan) == []
    assert shown_rows(rows) == expected_rows(list(range(total)))
    committed = [name for call, *_, name in calls_of(rows) if call == "commit"]
    assert len(committed) == len(set(committed))
