"""`--replace` with state, in simulated time: the new version goes on from the last commit, and a bad one costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from nimbus.submission.submission import Submission
from squall.settings import merged, overrides_of
from tests.local_cluster.keeping_words import Batches, Gathers
from tests.local_cluster.words_with_state import (
    WORDS,
    Count,
    Newest,
    Pass,
    Words,
    commits_at,
    counts,
    expected,
    words,
)
from topology_api import (
    Bolt,
    Fields,
    InvalidConfig,
    Replay,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

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


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
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
        said = cluster.status("words").epoch
        assert said is not None and said.on_trial and said.duration is None
        run(cluster, TRIAL)
        said = cluster.status("words").epoch
        assert said is not None and not said.on_trial and said.longest is not None and said.longest < 1
        assert commits_at(tmp_path / "words")[-1][0].epoch > at_switch
        assert cluster.status("words").components["words"].acked > 0


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_version_whose_tuples_fail_is_rolled_back_to_the_epoch_at_the_switch(
    tmp_path: Path, workers: int
) -> None:
    conf = conf_at(tmp_path, **{"topology.workers": workers})
    total = 700
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(total, 20), Pass(), Count()), conf)
        for _ in range(2):  # the second time, the old version has been through a trial already
            run(cluster, 5)
            replace(cluster, words(Words(total, 20), Raises(), MeanCount()), conf)
            run(cluster, TRIAL)
        run(cluster, 30)
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


class KeyedPass(StatefulBolt):
    """`Pass`, and it counts what it passes on."""

    key = "word"
    outputs = Words.outputs
    passed = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.passed.value += 1
        self.emit((tup["word"], tup["number"]))


class NotYet(Pass):
    def execute(self, tup: Tuple) -> None:
        raise OSError("not yet")


def through(bolt: Bolt, keyed: bool, spout: Words | None = None) -> Topology:
    builder = TopologyBuilder("words")
    spout = spout or Words(140, 20)
    spout.replay = Replay(max_attempts=1000, first_delay=100, max_delay=100)
    builder.set_spout("words", spout)
    declarer = builder.set_bolt("pass", bolt, parallelism=2)
    if keyed:
        declarer.fields_grouping("words", "word")
    else:
        declarer.shuffle_grouping("words")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("pass", "word")
    builder.set_bolt("newest", Newest(), parallelism=2).fields_grouping("count", "word")
    return builder.build()


@pytest.mark.parametrize(
    "first", [Gathers(1000), NotYet(), Batches(1000, 100)], ids=["held", "parked", "gathered"]
)
def test_what_a_bolt_had_in_its_hands_goes_to_the_tasks_of_its_keys_when_it_becomes_stateful(
    tmp_path: Path, first: Bolt
) -> None:
    first.tick_interval = None
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 1000})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(through(first, keyed=False), conf)
        cluster.advance(3)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(through(KeyedPass(), keyed=True), conf)
        cluster.advance(120)
        assert counts(cluster) == expected(list(range(140)))
        for word in set(WORDS):  # in one task: in two, neither has all
            assert cluster.state("words", "pass", word)["passed"] == 20


class Numbers(Words):
    """Another version of `Words`."""

    __module__, __qualname__ = Words.__module__, Words.__qualname__
    outputs = Fields("word", "number", "more")

    def emit(self, values: Any, *, message_id: object = None, stream: str = "default") -> None:
        super().emit((*values, 0), message_id=message_id, stream=stream)


@pytest.mark.parametrize("tasks", [pytest.param(2, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize(
    "first", [Gathers(1000), NotYet(), Batches(1000, 100)], ids=["held", "parked", "gathered"]
)
def test_tuples_in_the_hands_of_a_bolt_whose_stream_has_other_fields_now_are_named(
    tmp_path: Path, first: Bolt, tasks: int
) -> None:
    first.tick_interval = None
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 1000})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(through(first, keyed=False), conf)
        cluster.advance(3)
    builder = TopologyBuilder("words")
    builder.set_spout("words", Numbers(140, 20))
    builder.set_bolt("pass", Pass(), tasks).fields_grouping("words", "more")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf)
        cluster.advance(3)
        status = cluster.last_status("words")
        assert status.state == "FAILED"
        assert "has other fields now" in status.errors[-1].text
        assert status.errors[-1].text.startswith("StateError")


class Reordered(Words):
    """Another version of `Words`: the same fields in another order."""

    __module__, __qualname__ = Words.__module__, Words.__qualname__
    outputs = Fields("number", "word")

    def emit(self, values: Any, *, message_id: object = None, stream: str = "default") -> None:
        super().emit(tuple(reversed(values)), message_id=message_id, stream=stream)


@pytest.mark.parametrize(
    "first", [Gathers(1000), NotYet(), Batches(1000, 100)], ids=["held", "parked", "gathered"]
)
def test_tuples_in_the_hands_of_a_bolt_are_matched_with_fields_in_another_order_by_name(
    tmp_path: Path, first: Bolt
) -> None:
    first.tick_interval = None
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 1000})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(through(first, keyed=False), conf)
        cluster.advance(3)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(through(KeyedPass(), keyed=True, spout=Reordered(140, 20)), conf)
        cluster.advance(120)
        assert counts(cluster) == expected(list(range(140)))
