"""When there is little to do: batches are hurried, ticks come, and an idle topology uses almost no CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.engine import Engine
from tests.local_cluster.recording import (
    JOURNAL,
    Journal,
    Keep,
    Numbers,
    Pass,
    advance_until,
    chain,
    message_ids,
    run_to_the_end,
)
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Failure,
    Fields,
    Hook,
    Spout,
    TopologyBuilder,
    Tuple,
)


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class BigBatches(BatchBolt):
    """Would wait for ten thousand tuples, or 500 seconds."""

    outputs = Fields("number")
    batch_size = 10_000
    batch_interval = 500.0

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        JOURNAL.note("batch", len(tups))
        for tup in tups:
            self.emit((tup["number"],), anchors=tup)


class Drips(Spout):
    """Emits a number each tenth of a second, or (`empty`) never, and says when to call it again."""

    outputs = Fields("number")

    def __init__(self, wait: float | None, empty: bool = False) -> None:
        self.wait = wait
        self.empty = empty

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> float | None:
        if not self.empty:
            self.next += 1
            self.emit((self.next,), message_id=self.next)
        return self.wait


# Hurry.


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("bolts", [1, 2])
def test_a_pending_limit_below_the_batch_size_does_not_slow_the_topology_down(
    cluster: LocalCluster, workers: int, bolts: int
) -> None:
    conf = {"topology.max.spout.pending": 100, "topology.workers": workers}
    cluster.submit(chain("hurry", Numbers(2000), *[BigBatches() for _ in range(bolts)], conf=conf))
    took = advance_until(cluster, lambda: len(JOURNAL.of("ack")) == 2000, 10.0)
    assert took <= 2.5 * bolts  # twenty times the limit, at most 20 ms or so each
    sizes = [size for (size,) in JOURNAL.of("batch")]
    assert sum(sizes) == 2000 * bolts
    assert len(sizes) <= 30 * bolts  # and still in batches


@pytest.mark.parametrize("workers", [1, 2])
def test_a_source_that_has_ended_hurries_the_last_batch(cluster: LocalCluster, workers: int) -> None:
    conf = {"topology.workers": workers}
    cluster.submit(chain("end", Numbers(7), BigBatches(), BigBatches(), conf=conf))
    took = advance_until(cluster, lambda: cluster.status("end").state == "COMPLETED", 10.0)
    assert took <= 1.0
    assert JOURNAL.of("batch") == [(7,), (7,)]


def test_an_untracked_source_that_has_ended_hurries_the_last_batch(cluster: LocalCluster) -> None:
    cluster.submit(chain("end", Numbers(7, tracked=False), BigBatches(), BigBatches()))
    advance_until(cluster, lambda: cluster.status("end").state == "COMPLETED", 1.0)
    assert JOURNAL.of("batch") == [(7,), (7,)]


def test_a_kill_hurries_partial_batches(cluster: LocalCluster) -> None:
    cluster.submit(chain("killed", Numbers(7, finishes=False), BigBatches()))
    cluster.advance(5.0)
    assert JOURNAL.of("batch") == []
    cluster.kill("killed")
    assert advance_until(cluster, lambda: not cluster.topologies(), 10.0) <= 1.0
    assert message_ids(JOURNAL.of("ack")) == list(range(7))


def test_batches_take_their_interval_while_no_spout_waits(cluster: LocalCluster) -> None:
    cluster.submit(chain("patient", Drips(0.1), TenSeconds()))
    cluster.advance(35.0)
    assert [size for (size,) in JOURNAL.of("batch")] == [pytest.approx(100, abs=2)] * 3


class TenSeconds(BigBatches):
    """Waits for ten seconds from a batch's first tuple."""

    batch_interval = 10.0


# Ticks.


class Ticks(Bolt):
    """Records its ticks, and emits."""

    outputs = Fields("number")

    def __init__(self, interval: float | None = None) -> None:
        if interval is not None:
            self.tick_interval = interval

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        pass

    def tick(self) -> None:
        JOURNAL.note("tick", self.context.component, self.context.now())
        self.emit((1,))


class ClassTicks(Ticks):
    """Its interval is a class attribute."""

    tick_interval = 4.0


CONF = "topology.tick.tuple.freq.secs"


@pytest.mark.parametrize(
    ("bolt", "conf", "own", "interval"),
    [
        (Ticks(), {}, {}, None),
        (Ticks(2.5), {}, {}, 2.5),
        (ClassTicks(), {}, {}, 4.0),
        (ClassTicks(0.5), {}, {}, 0.5),
        (Ticks(), {CONF: 3}, {}, 3.0),
        (Ticks(), {CONF: 3}, {CONF: 6}, 6.0),
        (Ticks(2.5), {CONF: 3}, {CONF: 6}, 2.5),
        (ClassTicks(), {CONF: 3}, {}, 4.0),
    ],
)
def test_ticks_follow_the_bolts_interval_or_else_that_of_the_configuration(
    cluster: LocalCluster, bolt: Bolt, conf: dict[str, object], own: dict[str, object], interval: float | None
) -> None:
    builder = TopologyBuilder("ticks", conf)
    spout = builder.set_spout("numbers", Numbers(3, finishes=False))
    builder.set_bolt("ticks", bolt, conf=own).shuffle_grouping(spout)
    cluster.submit(builder.build())
    cluster.advance(12.1)
    times = [time for _, time in JOURNAL.of("tick")]
    wanted = [] if interval is None else [interval * number for number in range(1, int(12.1 / interval) + 1)]
    assert times == pytest.approx(wanted, abs=0.02)
    status = cluster.status("ticks").components["ticks"]
    assert (status.executed, status.emitted) == (3, len(wanted))  # ticks are no tuples


def test_ticks_go_on_while_the_topology_is_inactive_and_end_with_the_input(cluster: LocalCluster) -> None:
    cluster.submit(chain("ticks", Numbers(3, finishes=False), Ticks(1.0)))
    cluster.deactivate("ticks")
    cluster.advance(5.5)
    assert len(JOURNAL.of("tick")) == 5
    cluster.kill("ticks", wait_secs=0)
    cluster.submit(chain("ends", Numbers(3), Ticks(1.0)))
    cluster.advance(50.0)
    assert cluster.status("ends").state == "COMPLETED"
    assert len(JOURNAL.of("tick")) == 5


def test_emissions_of_a_tick_belong_to_no_tree(cluster: LocalCluster) -> None:
    cluster.submit(chain("loose", Numbers(3, finishes=False), Ticks(1.0), Keep()))
    cluster.advance(5.5)
    assert len(JOURNAL.of("keep")) == 5
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2]


# Hooks.


class Watch(Hook):
    """Records every call of a hook."""

    def opened(self, context: Context) -> None:
        self.name = context.component
        JOURNAL.note("hook", self.name, "opened")

    def note(self, call: str, *args: Any) -> None:
        JOURNAL.note("hook", self.name, call, *args)

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        self.note("emitted", task, stream, values, list(targets))

    def executing(self, tup: Tuple) -> None:
        self.note("executing", tup["number"])

    def executed(self, tup: Tuple) -> None:
        self.note("executed", tup["number"])

    def acked(self, tup: Tuple) -> None:
        self.note("acked", tup["number"])

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.note("failed", tup["number"], failure.reason, failure.error)

    def spout_acked(self, message_id: object) -> None:
        self.note("spout_acked", message_id)

    def spout_failed(self, message_id: object, failure: Failure) -> None:
        self.note("spout_failed", message_id, failure.attempts)

    def closed(self) -> None:
        self.note("closed")


class BrokenHook(Hook):
    """Every call of it raises."""

    def executing(self, tup: Tuple) -> None:
        raise ValueError("this hook is broken")

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        raise ValueError("this hook is broken")


class RefusesOne(Bolt):
    """Passes 0 on and fails 1."""

    outputs = Fields("number")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"],))
        if tup["number"] == 1:
            raise FailTuple("refused")


HOOKS = {"topology.auto.task.hooks": [f"{__name__}:Watch"]}


def hook_calls(component: str) -> list[tuple[Any, ...]]:
    return [tuple(call) for name, *call in JOURNAL.of("hook") if name == component]


def test_hooks_are_called_in_order_with_the_details(cluster: LocalCluster) -> None:
    cluster.submit(chain("hooks", Numbers(2), RefusesOne(), conf=HOOKS))
    run_to_the_end(cluster, "hooks")
    assert hook_calls("numbers") == [
        ("opened",),
        ("emitted", 1, "default", (0,), [2]),
        ("emitted", 1, "default", (1,), [2]),
        ("spout_acked", 0),
        ("spout_failed", 1, 1),
        ("closed",),
    ]
    assert hook_calls("bolt1") == [
        ("opened",),
        ("executing", 0),
        ("emitted", 2, "default", (0,), []),
        ("executed", 0),
        ("acked", 0),
        ("executing", 1),
        ("emitted", 2, "default", (1,), []),
        ("executed", 1),
        ("failed", 1, "failed", "refused"),
        ("closed",),
    ]


def test_a_hook_of_one_component_sees_only_that_one(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("one")
    spout = builder.set_spout("numbers", Numbers(2))
    builder.set_bolt("watched", Pass(), conf=HOOKS).shuffle_grouping(spout)
    builder.set_bolt("other", Pass()).shuffle_grouping(spout)
    cluster.submit(builder.build())
    run_to_the_end(cluster, "one")
    assert {name for name, *_ in JOURNAL.of("hook")} == {"watched"}


def test_a_hook_that_raises_is_reported_and_harms_no_tuple(cluster: LocalCluster) -> None:
    conf = {"topology.auto.task.hooks": [f"{__name__}:BrokenHook", f"{__name__}:Watch"]}
    cluster.submit(chain("broken", Numbers(3), Pass(), conf=conf))
    status = run_to_the_end(cluster, "broken")
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2]
    assert "this hook is broken" in status.errors[-1].render()
    assert "BrokenHook" in status.errors[-1].render()
    assert [call for call in hook_calls("bolt1") if call[0] == "acked"] == [
        ("acked", 0),
        ("acked", 1),
        ("acked", 2),
    ]


# print().


class Prints(Bolt):
    """Prints its tuples."""

    def execute(self, tup: Tuple) -> None:
        print("got", tup["number"])


@pytest.mark.parametrize("simulated", [True, False])
def test_print_in_a_component_is_harmless(capsys: pytest.CaptureFixture[str], simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("prints", Numbers(3), Prints()))
        if simulated:
            run_to_the_end(cluster, "prints")
        cluster.wait("prints", timeout=30)
    assert capsys.readouterr().out.splitlines() == ["got 0", "got 1", "got 2"]
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2]


# An idle topology.


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """When the engine ran its rounds."""
    seen: list[float] = []
    original: Callable[[Engine], bool] = Engine.round

    def counted(engine: Engine) -> bool:
        seen.append(engine.clock.now())
        return original(engine)

    monkeypatch.setattr(Engine, "round", counted)
    yield seen


def rounds_a_second(cluster: LocalCluster, rounds: list[float], seconds: float) -> float:
    cluster.advance(5.0)
    rounds.clear()
    cluster.advance(seconds)
    return len(rounds) / seconds


@pytest.mark.parametrize("workers", [1, 4])
def test_an_empty_source_is_called_a_hundred_times_a_second_at_most(
    cluster: LocalCluster, rounds: list[float], workers: int
) -> None:
    conf = {"topology.workers": workers}
    cluster.submit(chain("empty", Drips(None, empty=True), Pass(), Pass(), Keep(), conf=conf))
    assert rounds_a_second(cluster, rounds, 50.0) <= 250


def test_a_source_that_says_when_to_call_it_costs_almost_nothing(
    cluster: LocalCluster, rounds: list[float]
) -> None:
    cluster.submit(chain("waits", Drips(30.0, empty=True), Pass()))
    assert rounds_a_second(cluster, rounds, 300.0) <= 1


@pytest.mark.parametrize("state", ["INACTIVE", "COMPLETED"])
def test_an_inactive_topology_costs_almost_nothing(
    cluster: LocalCluster, rounds: list[float], state: str
) -> None:
    cluster.submit(chain("rests", Numbers(5, finishes=state == "COMPLETED"), Pass()))
    cluster.advance(1.0)
    if state == "INACTIVE":
        cluster.deactivate("rests")
    assert cluster.status("rests").state == state
    assert rounds_a_second(cluster, rounds, 1000.0) <= 0.1


def test_trees_that_only_wait_cost_little(cluster: LocalCluster, rounds: list[float]) -> None:
    conf = {"topology.message.timeout.secs": 1000}
    cluster.submit(chain("keeps", Numbers(50), Keep(), conf=conf))
    assert rounds_a_second(cluster, rounds, 500.0) <= 10


def test_an_empty_source_is_still_called_while_trees_wait(cluster: LocalCluster) -> None:
    cluster.submit(chain("drips", Drips(0.1), Keep()))
    cluster.advance(20.05)
    assert cluster.status("drips").components["numbers"].emitted == pytest.approx(201, abs=2)
