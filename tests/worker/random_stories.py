"""Random topologies and everything that happens in them, written down: two runs with one seed give equal journals.

`python -c 'from tests.worker.random_stories import main; main()' FIRST COUNT` prints them. Everything is drawn from the seed:
components, streams, groupings, values, the actions of each call, wrong uses included. Time is simulated. All kinds of bolts and
of groupings occur. Must not know: which core runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from local_cluster import LocalCluster
from squall.reports.error_reports import ErrorReport
from tests.worker.story_plans import Plan, random_plans, random_row
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Failure,
    Fields,
    Grouping,
    Hook,
    Replay,
    Spout,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
)

#: All events in order, a line each.
JOURNAL: list[str] = []

#: Simulated seconds in which a story ends by itself, and in which it is killed.
SECONDS, STEP = 200.0, 5.0


def note(who: str, what: str, *details: object) -> None:
    """Write down an event."""
    JOURNAL.append(f"{who} {what} {' '.join(ascii(one) for one in details)}")


# Wrong uses


def tried(who: str, what: str, call: Callable[[], object]) -> None:
    """Do something that may be wrong, and write down how it is refused."""
    try:
        note(who, f"{what} ->", call())
    except Exception as error:
        note(who, f"{what} raised", type(error).__name__, str(error), type(error.__cause__).__name__)


def elsewhere(call: Callable[[], object]) -> object:
    """Call something in another thread."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append((type(error).__name__, str(error)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def wrong_emits(component: Any, plan: Plan) -> list[tuple[str, Callable[[], object]]]:
    """Refused emissions, by name."""
    stream = plan.streams[0]
    name, row = stream.name, ("x",) * len(stream.fields)
    return [
        ("one value too many", lambda: component.emit((*row, "more"), stream=name)),
        ("a list too long", lambda: component.emit([*row, 1, 2], stream=name)),
        ("a text", lambda: component.emit("text", stream=name)),
        ("bytes", lambda: component.emit(b"bytes", stream=name)),
        ("a number", lambda: component.emit(7, stream=name)),
        ("None", lambda: component.emit(None, stream=name)),
        ("a dict", lambda: component.emit({"a": 1}, stream=name)),
        ("a set", lambda: component.emit({1}, stream=name)),
        ("no such stream", lambda: component.emit(row, stream="nowhere")),
        ("no stream at all", lambda: component.emit(row, stream=None)),
        ("emit on a direct stream", lambda: component.emit(("x",), stream="straight")),
        ("emit_direct on another stream", lambda: component.emit_direct(1, row, stream=name)),
        ("emit_direct to nobody", lambda: component.emit_direct(9999, ("x",), stream="straight")),
        ("emit_direct to no task", lambda: component.emit_direct("9", ("x",), stream="straight")),
        ("another thread", lambda: elsewhere(lambda: component.emit(row, stream=name))),
    ]


def wrong_acks(bolt: Any, plan: Plan, tup: Tuple, settled: Sequence[Tuple]) -> list[tuple[str, Any]]:
    """Refused uses of anchors, ack and fail, by name."""
    stream = plan.streams[0]
    name, row = stream.name, ("x",) * len(stream.fields)
    wrong = [
        ("anchor 5", lambda: bolt.emit(row, anchors=5, stream=name)),
        ("anchors [5]", lambda: bolt.emit(row, anchors=[5], stream=name)),
        ("ack of a text", lambda: bolt.ack("tuple")),
        ("fail of None", lambda: bolt.fail(None)),
        ("reset_timeout of a number", lambda: bolt.reset_timeout(3)),
        ("ack in another thread", lambda: elsewhere(lambda: bolt.ack(tup))),
    ]
    if settled:
        old = settled[-1]
        wrong += [
            ("ack twice", lambda: bolt.ack(old)),
            ("fail of what is settled", lambda: bolt.fail(old, "again")),
            ("reset_timeout of what is settled", lambda: bolt.reset_timeout(old)),
            ("a settled anchor", lambda: bolt.emit(row, anchors=old, stream=name)),
            ("settled among others", lambda: bolt.emit(row, anchors=[tup, old], stream=name)),
        ]
    return wrong


# The components


class Picky(Grouping):
    """Chooses none, one or several tasks; rarely an invalid choice."""

    def __init__(self, seed: int, wild: float) -> None:
        self.seed, self.wild = seed, wild

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.random = Random(f"{self.seed} {context.task}")
        self.targets = list(target_tasks)

    def choose(self, values: tuple[object, ...]) -> Sequence[int]:
        if self.random.random() < self.wild:
            strange: Sequence[int] = self.strange()
            return strange
        chosen: list[int] = self.random.sample(self.targets, self.random.randrange(len(self.targets) + 1))
        return chosen

    def strange(self) -> Any:
        kind = self.random.randrange(6)
        if kind == 0:
            raise ValueError("the grouping's own")
        if kind == 1:
            raise FailTuple("the grouping's reason")
        answers: list[Any] = [None, "text", [9999], [[1]]]
        return answers[kind - 2]


class Watching(Hook):
    """Records a task's emissions, their target tasks, its acks and its failures."""

    def opened(self, context: Context) -> None:
        self.who = f"hook of {context.component}[{context.index}]"

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        note(self.who, "emitted", stream, values, list(targets))

    def acked(self, tup: Tuple) -> None:
        note(self.who, "acked", tup)

    def failed(self, tup: Tuple, failure: Failure) -> None:
        note(self.who, "failed", tup, failure)

    def spout_acked(self, message_id: object) -> None:
        note(self.who, "spout_acked", message_id)


class Acting:
    """The shared part of spouts and bolts."""

    plan: Plan

    def begin(self, context: Context) -> None:
        self.context = context
        self.random = Random(f"{self.plan.seed} {context.index}")
        self.who = f"{self.plan.name}[{context.index}]"

    def act(self, **options: Any) -> None:
        """Emit on one of the streams; a wrong key is written down."""
        random, plan = self.random, self.plan
        stream = random.choice(plan.streams)
        row = random_row(random, stream, plan.wild)
        component: Any = self
        if not stream.direct:
            tried(self.who, "emit", lambda: component.emit(row, stream=stream.name, **options))
        elif stream.name in plan.readers:
            task = random.choice(self.context.tasks(plan.readers[stream.name]))
            tried(
                self.who,
                "emit_direct",
                lambda: component.emit_direct(task, row, stream=stream.name, **options),
            )

    def fall(self) -> None:
        """Raise a random error."""
        kind = self.random.randrange(4)
        if kind == 0:
            raise FailTuple("the bolt's reason")
        if kind == 1:
            raise ValueError(f"text {self.random.randrange(3)}")
        if kind == 2:
            self.deeper(3)
        component: Any = self
        component.emit("a text", stream=self.plan.streams[0].name)

    def deeper(self, depth: int) -> None:
        if depth:
            self.deeper(depth - 1)
        try:
            dict[str, int]()["missing"]
        except KeyError as error:
            raise RuntimeError("from below") from error


class Source(Acting, Spout):
    """Emits the planned number of tuples, tracked and not, and finishes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outputs = outputs_of(plan)
        self.replay = Replay(3, 0.5, 4.0) if plan.kind == "replaying" else None

    def open(self, context: Context) -> None:
        self.begin(context)
        self.number = 0

    def next_tuple(self) -> float | None:
        random = self.random
        if self.number >= self.plan.count:
            self.finish()
            return None
        self.number += 1
        if random.random() < self.plan.wild:
            tried(self.who, *random.choice(wrong_emits(self, self.plan)))
        if random.random() < self.plan.wild / 4:
            self.fall()
        for part in range(random.choice([0, 1, 1, 1, 3])):
            ids = [None, f"{self.number}.{part}", (self.number, part), self.number]
            self.act(message_id=random.choice(ids))
        return random.choice([None, None, None, 0, 0.01, 0.3])

    def ack(self, message_id: object) -> None:
        note(self.who, "ack", message_id, self.context.now())

    def fail(self, message_id: object, failure: Failure) -> None:
        note(self.who, "fail", message_id, failure, self.context.now())
        if self.random.random() < 0.1:
            self.act(message_id=None)


class Works(Acting, Bolt):
    """The actions of `execute`: emissions, wrong uses, errors; the kinds of bolts differ in the rest."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outputs = outputs_of(plan)
        if plan.seed % 3 == 0:
            self.tick_interval = 1.5

    def prepare(self, context: Context) -> None:
        self.begin(context)
        self.held: list[Tuple] = []
        self.settled: list[Tuple] = []

    def work(self, tup: Tuple) -> None:
        random, plan = self.random, self.plan
        note(self.who, "execute", tup, tup.component, tup.task, tup.stream, tup.values, self.context.now())
        for _ in range(random.choice([0, 0, 1, 1, 1, 2, 4])):
            self.act(**self.anchoring(tup))
        if random.random() < plan.wild:
            wrong = wrong_emits(self, plan) + wrong_acks(self, plan, tup, self.settled)
            tried(self.who, *random.choice(wrong))
        if random.random() < plan.wild:
            self.fall()

    def anchoring(self, tup: Tuple) -> dict[str, Any]:
        """How an emission is anchored: by default, to this tuple, to several, to one twice, to none."""
        some = self.random.sample(self.held, min(len(self.held), 3))
        choices: list[dict[str, Any]] = [
            {}, {}, {}, {"anchors": tup}, {"anchors": [tup, *some]}, {"anchors": (tup, tup)}, {"anchors": ()},
        ]  # fmt: skip
        return self.random.choice(choices)

    def tick(self) -> None:
        note(self.who, "tick", self.context.now())
        self.act()
        if self.random.random() < self.plan.wild:
            self.fall()

    def end_of_input(self) -> None:
        note(self.who, "end_of_input", self.context.now())
        self.act(anchors=())

    def cleanup(self) -> None:
        component: Any = self
        tried(self.who, "emit in cleanup", lambda: component.emit((), stream=self.plan.streams[0].name))


class Basic(Works):
    """A basic bolt, for the hot loop; acks or fails some tuples itself."""

    def execute(self, tup: Tuple) -> None:
        self.work(tup)
        kind = self.random.randrange(40)
        if kind == 0:
            self.fail(tup, "given up")
        elif kind == 1:
            self.ack(tup)
        elif kind == 2:
            self.reset_timeout(tup)
        if kind < 2:
            self.settled = [tup]


class Unanchored(Basic):
    auto_anchor = False


class Rich(Works):
    """Acks or fails its tuples later, some never."""

    auto_ack = auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        try:
            self.work(tup)
        finally:
            if tup in self.held and self.random.random() < 0.8:
                self.settle(self.random.randrange(len(self.held)))

    def settle(self, at: int) -> None:
        tup = self.held.pop(at)
        kind = self.random.randrange(20)
        if kind == 0:
            note(self.who, "forgets", tup)
            return
        if kind == 1:
            tried(self.who, "fail", lambda: self.fail(tup, self.random.choice([None, "a reason"])))
        elif kind == 2:
            tried(self.who, "reset_timeout", lambda: self.reset_timeout(tup))
            self.held.append(tup)
            return
        else:
            tried(self.who, "ack", lambda: self.ack(tup))
        self.settled = [tup]

    def tick(self) -> None:
        super().tick()
        while self.held:
            self.settle(0)

    def end_of_input(self) -> None:
        while self.held:
            self.settle(0)
        super().end_of_input()


class Coroutine(Works):
    """Tuples whose calls overlap."""

    async def execute(self, tup: Tuple) -> None:
        import asyncio

        await asyncio.sleep(self.random.choice([0, 0.01, 0.2]))
        self.work(tup)


class Batches(Works, BatchBolt):
    """Tuples in batches."""

    batch_size = 7
    batch_interval = 0.7

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        note(self.who, "batch", len(tups), self.context.now())
        self.held = list(tups)
        if self.random.random() < 0.1:
            self.fail(tups[0], "one of a batch")
            self.settled, self.held = [tups[0]], self.held[1:]
        for tup in self.held:
            self.work(tup)


BOLTS: dict[str, Callable[[Plan], Bolt]] = {
    "basic": Basic,
    "rich": Rich,
    "unanchored": Unanchored,
    "batch": Batches,
    "async": Coroutine,
}


class Letters(Bolt):
    """Reads the dead letters of a spout."""

    def execute(self, tup: Tuple) -> None:
        note("letters", "execute", tup.values)


# A story


def outputs_of(plan: Plan) -> dict[str, Stream]:
    return {stream.name: Stream(Fields(*stream.fields), direct=stream.direct) for stream in plan.streams}


def random_topology(random: Random, name: str) -> Topology:
    """A topology with its configuration."""
    plans = random_plans(random)
    conf: dict[str, object] = {
        "topology.workers": random.choice([1, 1, 2, 3]),
        "topology.max.spout.pending": random.choice([1, 3, 20, None]),
        "topology.message.timeout.secs": random.choice([2, 5]),
        "topology.queue.size": random.choice([128, 4096]),
        "topology.acking": random.random() < 0.9,
        "topology.transport.codec": random.choice(["pickle", "pickle"]),
        "topology.on.error": "fail" if random.random() < 0.95 else "crash",
    }
    if random.random() < 0.3:
        conf["topology.auto.task.hooks"] = [f"{__name__}:Watching"]
    builder = TopologyBuilder(name, conf)
    for plan in plans:
        note("story", "component", plan.name, plan.kind, plan.parallelism, plan.inputs, plan.streams)
        if not plan.inputs:
            builder.set_spout(plan.name, Source(plan), parallelism=plan.parallelism)
            if plan.kind == "replaying" and random.random() < 0.5:
                builder.set_bolt(f"letters-{plan.name}", Letters()).dead_letters(plan.name)
            continue
        declarer: Any = builder.set_bolt(plan.name, BOLTS[plan.kind](plan), parallelism=plan.parallelism)
        for entry in plan.inputs:
            declare = getattr(declarer, f"{entry.kind}_grouping")
            key = (
                random.sample(entry.stream.fields, random.randint(1, max(1, len(entry.stream.fields))))
                if (entry.kind in ("fields", "partial_key"))
                else [Picky(plan.seed, plan.wild)]
                if entry.kind == "custom"
                else []
            )
            declare(entry.source, *key, stream=entry.stream.name)
    return builder.build()


def error_lines(report: ErrorReport) -> list[object]:
    """The contents of a report."""
    return [
        report.component, report.task, report.call, report.text, report.place, report.frames, report.tuple_text,
        report.time, report.times,
    ]  # fmt: skip


def tell(seed: int) -> list[str]:
    """The journal of one story."""
    JOURNAL.clear()
    random = Random(seed)
    name = f"story-{seed}"
    topology = random_topology(random, name)
    with LocalCluster(simulated_time=True, seed=seed, encode=random.random() < 0.5) as cluster:
        cluster.submit(topology)
        passed = 0.0
        while passed < SECONDS and cluster.status(name).state not in ("COMPLETED", "FAILED"):
            cluster.advance(STEP)
            passed += STEP
        status = cluster.status(name)
        note("story", "ends", status.state, passed)
        for component, counts in status.components.items():
            note(
                "story",
                "counts",
                component,
                *(
                    getattr(counts, what)
                    for what in ("emitted", "executed", "acked", "failed", "pending", "errors")
                ),
            )
        for report in status.errors:
            note("story", "error", *error_lines(report))
    return list(JOURNAL)


def main() -> None:
    """Run the stories of `count` seeds, from the first one on."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    from topology_api.core_choice import CHOICE

    print("core", "compiled" if CHOICE.compiled else "plain")
    for seed in range(first, first + count):
        print("seed", seed)
        print("\n".join(tell(seed)), flush=True)
