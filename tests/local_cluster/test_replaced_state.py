"""`--replace` with state, in simulated time: the new version goes on from the last commit, and a bad one costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from nimbus.submission.submission import Submission
from squall.settings import merged, overrides_of
from tests.local_cluster.words_with_state import (
    Count,
    Pass,
    Words,
    commits_at,
    counts,
    expected,
    words,
)
from topology_api import Bolt, InvalidConfig, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState

#: Longer than a trial.
TRIAL = 15.0


class MeanCount(Count):
    """Another version of `Count`."""

    total = ValueState(float, default=0.0)
    words_seen = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.words_seen.value += 1


class TextCount(Count):
    times = ValueState(str, default="")


class Raises(Pass):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        raise ValueError("a bad version")


class FailsLater(Count):
    """Keeps what no snapshot can hold."""

    marks = ValueState(list[int])

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.marks.value = ["not a number"]


class Shows(StatefulBolt):
    """Counts what reaches it."""

    key = "word"
    seen = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.5, **more}


def replace(cluster: LocalCluster, topology: Topology, conf: dict[str, Any]) -> None:
    """Submit another version of a topology."""
    whole, components = merged(topology, {}, {}, overrides_of(conf), local=True)
    nimbus = cluster._engine.nimbus
    cluster._driver.command(lambda: nimbus.submit(Submission(topology, whole, components, replace=True)))


def run(cluster: LocalCluster, secs: float) -> None:
    """Let time pass, while Nimbus gets the counters of workers as it does on a cluster."""
    for _ in range(int(secs)):
        cluster.advance(1)
        cluster.status("words")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_new_version_goes_on_from_the_state_of_the_old_one(tmp_path: Path, workers: int) -> None:
    conf = conf_at(tmp_path, **{"topology.workers": workers})
    total = 600
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(0.1), Count(0.1)), conf)
        run(cluster, 7)
        replace(cluster, words(Words(total, 20), Pass(0.1), MeanCount(0.1), 3), conf)
        run(cluster, 60)
        assert counts(cluster) == expected(list(range(total)))
        seen = cluster.state("words", "count", "w0")["words_seen"]
        assert 0 < seen < cluster.state("words", "count", "w0")["times"]
        assert cluster.dead_letters("words") == []


def test_while_a_version_is_on_trial_nothing_is_committed(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(10_000, 20), Pass(), Count()), conf)
        run(cluster, 7)
        replace(cluster, words(Words(10_000, 20), Pass(), MeanCount()), conf)
        run(cluster, 3)
        at_switch = commits_at(tmp_path / "words")[-1][0].epoch
        run(cluster, 5)
        assert commits_at(tmp_path / "words")[-1][0].epoch == at_switch
        assert cluster.status("words").components["words"].acked == 0  # of this version
        run(cluster, TRIAL)
        assert commits_at(tmp_path / "words")[-1][0].epoch > at_switch
        assert cluster.status("words").components["words"].acked > 0


@pytest.mark.parametrize("workers", [1, 3])
def test_a_version_whose_tuples_fail_is_rolled_back_to_the_epoch_at_the_switch(
    tmp_path: Path, workers: int
) -> None:
    conf = conf_at(tmp_path, **{"topology.workers": workers})
    total = 1000
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf)
        for _ in range(2):  # the second time, the old version has been through a trial already
            run(cluster, 5)
            replace(cluster, words(Words(total, 20), Raises(), MeanCount()), conf)
            run(cluster, TRIAL)
        run(cluster, 60)
        assert counts(cluster) == expected(list(range(total)))
        assert "words_seen" not in cluster.state("words", "count", "w0")
        assert cluster.dead_letters("words") == []


def test_a_version_whose_state_cannot_be_kept_is_rolled_back(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(400, 20), Pass(), Count()), conf)
        run(cluster, 5)
        replace(cluster, words(Words(400, 20), Pass(), FailsLater()), conf)
        run(cluster, TRIAL + 30)
        assert counts(cluster) == expected(list(range(400)))


def test_a_version_with_a_state_of_another_type_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(200, 20), Pass(), Count()), conf)
        run(cluster, 3)
        with pytest.raises(
            InvalidConfig,
            match=r"state 'times' was saved as ValueState\(int\) and is declared as ValueState\(str\)",
        ):
            replace(cluster, words(Words(200, 20), Pass(), TextCount()), conf)
        run(cluster, 20)
        assert counts(cluster) == expected(list(range(200)))


def with_more(total: int, more: Bolt | None) -> Topology:
    """The word count, with a further bolt behind it."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(total, 20))
    builder.set_bolt("pass", Pass()).shuffle_grouping("words")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("pass", "word")
    if more is not None:
        builder.set_bolt("shows", more, parallelism=2).fields_grouping("count", "word")
    return builder.build()


def test_a_component_that_is_gone_is_found_again_with_its_state(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_more(900, Shows()), conf)
        run(cluster, 5)
        replace(cluster, with_more(900, None), conf)
        run(cluster, TRIAL)
        without = cluster.state("words", "count", "w0")["times"]
        replace(cluster, with_more(900, Shows()), conf)
        run(cluster, 40)
        seen, times = (cluster.state("words", name, "w0") for name in ("shows", "count"))
        assert times["times"] == expected(list(range(900)))["w0"][0]
        assert 0 < seen["seen"] < times["times"]
        assert seen["seen"] > times["times"] - without  # those before it was gone count, too
