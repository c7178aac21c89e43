"""What happens in one run of the simulation of epochs: settings, and steps with their times, from a seed.

Must not know: how it ends well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.epochs.epoch_cluster import Cluster, Settings, Worker
from tests.epochs.epoch_mutants_of_tasks import OUTSIDES
from tests.epochs.epoch_oracle import Oracle
from tests.epochs.epoch_stores import Outside
from tests.epochs.epoch_timeline import Timeline
from tests.epochs.epoch_topologies import random_plan

#: Seconds until Nimbus notices a worker that is dead or frozen.
NOTICED = 0.04
#: When the last fault happens, and when the run has to be over.
FAULTS_END = 0.5
LIMIT = 8.0
#: The same where spouts pause again and again: since so few of their tuples may wait for a commit; or since a cycle may hold
#: one or two rows, or epochs wait for several commits.
LIMITS_OF_UNCOMMITTED = {3: 14.0, 5: 10.0}
LIMIT_OF_SLOW_ONES = 20.0
MOST_EVENTS = 60_000


@dataclass
class Step:
    """Something that happens at a time."""

    at: float
    what: str
    number: float

    def __str__(self) -> str:
        return f"  {self.at:.3f} {self.what} {self.number:.3f}"


#: Effects at which a worker can be killed or frozen, and up to the how-manieth.
MOMENTS = {
    "PutRecord": 6, "ReadLog": 3, "SendToTask": 30, "SweepFiles": 4, "WriteSnapshot": 20, "ReadSnapshots": 12,
    "SendBarrier": 20, "CommitHandle": 6, "WriteRows": 6, "ReadToken": 3, "ShowLetters": 3, "AckEmissions": 8,
    "LoadSnapshot": 12, "AbortHandle": 3, "SendToCoordinator": 30, "TrimLog": 3,
}  # fmt: skip


def steps_of(seed: int) -> list[Step]:
    """The steps of a seed: faults at times, and at moments ("kill@WriteSnapshot")."""
    random = Random(f"steps {seed}")
    kinds = ("kill", "freeze", "rebalance", "rebalance", "replace", "replace", "kill leader", "freeze leader",
             "kill all", "store away", "call off")  # fmt: skip
    times = sorted(random.uniform(0.01, FAULTS_END) for _ in range(random.choice((0, 1, 1, 2, 3, 4))))
    steps = [Step(at, random.choice(kinds), random.random()) for at in times]
    for _ in range(random.choice((0, 1, 2, 2, 3))):
        name = random.choice([*MOMENTS, "PutRecord", "PutRecord", "PutRecord"])
        action = random.choice(("kill", "freeze", "freeze"))
        steps.append(Step(0.0, f"{action}@{name}", float(random.randint(1, MOMENTS[name]))))
    random = Random(f"versions {seed}")
    if random.random() < 0.2:
        steps.append(Step(random.uniform(0.01, FAULTS_END), "version", random.random()))
    random = Random(f"returns {seed}")
    if random.random() < 0.2:
        action = random.choice(("kill", "freeze"))
        steps.append(Step(0.0, f"{action}@ReturnInMemory", float(random.randint(1, 12))))
    return steps


class Story:
    """One run."""

    def __init__(self, seed: int, without: frozenset[int] = frozenset()) -> None:
        random = Random(f"story {seed}")
        self.steps = [step for number, step in enumerate(steps_of(seed)) if number not in without]
        line = self.line = Timeline(random)
        mild = random.random() < 0.3
        outside = Outside(
            line,
            0.0 if mild else random.choice((0.0, 0.03, 0.1)),
            random.choice((0.002, 0.008, 0.03)),
            random.choice((0.0, 0.0, 0.03, 0.1)),
        )
        OUTSIDES[:] = [outside]
        settings = Settings(
            random.choice((0.005, 0.02, 0.05)),
            lose=0.0 if mild else random.choice((0.0, 0.02, 0.05)),
            gone=0.0 if mild else random.choice((0.0, 0.0, 0.002)),
            late=random.choice((0.0, 0.02, 0.1)),
            sinks=random.choice((1.0, 1.0, 5.0)),
            trim_every=Random(f"trimming {seed}").choice((1, 1, 2, 4, 8)),
        )
        limits, self.limit = Random(f"limits {seed}"), LIMIT
        if limits.random() < 0.25:  # then epochs that are asked for have to end it in time
            settings.interval, settings.most_uncommitted = 0.6, limits.choice((3, 5))
            self.limit = LIMITS_OF_UNCOMMITTED[settings.most_uncommitted]
        settings.most_on_cycle = limits.choice((1, 2, 1_000_000))
        plan = random_plan(random)
        if settings.most_on_cycle <= 2 or any(part.refused > 4 for part in plan.parts.values()):
            self.limit = LIMIT_OF_SLOW_ONES
        self.cluster = Cluster(line, random, plan, outside, settings, random.choice((1, 2, 4)))
        self.oracle = Oracle(self.cluster)
        self.random = random
        #: What happens at moments.
        self.actions: dict[str, str] = {}
        self.hosts = [self.cluster.new_worker() for _ in range(random.choice((1, 2, 3)))]
        names = self.cluster.task_names()
        self.cluster.place({name: random.choice(self.hosts) for name in names}, set())
        for step in self.steps:
            action, _, moment = step.what.partition("@")
            if moment:
                self.cluster.armed[moment] = int(step.number)
                self.actions[moment] = action
            else:
                line.after(step.at, None, self.happen, step)
        self.cluster.on_moment = self.at_moment
        line.after(FAULTS_END, None, self.all_is_well)
        if self.cluster.plan.endless or random.random() < 0.1:
            line.after(random.uniform(0.1, 0.7), None, self.kill)

    def kill(self) -> None:
        """A user kills the topology."""
        patient = self.random.random() < 0.8
        self.cluster.deadline = self.line.now + (100.0 if patient else 0.05)
        if self.cluster.on_trial:
            self.cluster.pass_trial()  # no version can return any more
        self.cluster.log(f"kill, until {self.cluster.deadline}")

    def at_moment(self, name: str, worker: Worker) -> None:
        """A fault that has waited for an effect of a worker."""
        self.cluster.log(f"{self.actions[name]} {worker.name} at {name}")
        if self.actions[name] == "kill":
            worker.alive = False
            self.line.after(NOTICED * (0.2 + self.random.random()), None, self.notice, worker)
        elif not worker.frozen:
            self.freeze(worker, self.random)

    def all_is_well(self) -> None:
        """No more faults of stores and links."""
        self.cluster.armed.clear()
        self.cluster.outside.fault = self.cluster.outside.tail = 0.0
        self.cluster.settings.gone = self.cluster.settings.lose = 0.0

    def happen(self, step: Step) -> None:
        """A step."""
        self.cluster.log(str(step))
        random = Random(step.number)
        leader = self.cluster.placement.leader
        workers: list[Worker] = [leader] if "leader" in step.what else [random.choice(self.hosts)]
        if step.what == "kill all":
            workers = list(self.hosts)
        if step.what.startswith("kill"):
            for worker in workers:
                worker.alive = False
                self.line.after(NOTICED * (0.2 + random.random()), None, self.notice, worker)
        elif step.what.startswith("freeze"):
            for worker in workers:
                if not worker.frozen:
                    self.freeze(worker, random)
        elif step.what == "version":
            self.plan_version(random)
        elif step.what in ("rebalance", "replace"):
            self.plan_change(step.what, random)
        elif step.what == "call off":
            self.call_off()
        else:
            fault = self.cluster.outside.fault
            self.cluster.outside.fault = 0.9
            self.line.after(0.05 + 0.1 * random.random(), None, self.store_back, fault)

    def store_back(self, fault: float) -> None:
        """The store answers again."""
        self.cluster.outside.fault = fault if self.line.now < FAULTS_END else 0.0

    def freeze(self, worker: Worker, random: Random) -> None:
        """A worker stands still, for less or for more than Nimbus waits."""
        worker.frozen = True
        self.line.after(random.choice((0.02, 0.08, 0.2)), None, self.line.thaw, worker)
        self.line.after(NOTICED, None, self.notice, worker)

    def notice(self, worker: Worker) -> None:
        """Nimbus replaces a worker that is dead or frozen."""
        if worker not in self.hosts or (worker.alive and not worker.frozen):
            return
        cluster = self.cluster
        new = cluster.new_worker()
        self.hosts[self.hosts.index(worker)] = new
        places = {task: place[0] for task, place in cluster.placement.places.items()}
        gone = {task for task, place in places.items() if place is worker}
        cluster.replaced |= gone
        places.update(dict.fromkeys(gone, new))
        cluster.place({task: places[task] for task in cluster.task_names()}, gone)

    def plan_change(self, what: str, random: Random) -> None:
        """Nimbus wants other places, or another number of the tasks of a sink, or of a bolt with keyed state."""
        cluster = self.cluster
        if cluster.on_trial:
            return

        def change() -> None:
            if cluster.change is not change:
                return
            movable = [part for part in cluster.plan.parts.values() if part.is_sink or part.kind == "count"]
            moved = set()
            if what == "replace":
                part = random.choice(movable)
                part.parallelism = random.choice((1, 2, 3))
            places = {task: place[0] for task, place in cluster.placement.places.items()}
            changed = {}
            for task in cluster.task_names():
                there = places.get(task)
                to = random.choice(self.hosts) if there is None or random.random() < 0.4 else there
                if to is not there:
                    moved.add(task)
                changed[task] = to
            cluster.replaced |= moved
            cluster.place(changed, moved)

        cluster.change = change
        if Random(f"patience {random.random()}").random() < 0.3:  # Nimbus does not wait for the last epoch
            self.line.after(0.02, None, cluster.make_change, change)

    def plan_version(self, random: Random) -> None:
        """Nimbus lets another version take over, on trial: all processes are new ones."""
        cluster = self.cluster

        def change() -> None:
            if cluster.change is not change or cluster.deadline is not None:
                return
            cluster.on_trial = True
            self.new_processes()
            end = cluster.pass_trial if random.random() < 0.5 else self.roll_back
            self.line.after(random.uniform(0.02, 0.3), None, self.end_trial, end)

        cluster.change = change

    def end_trial(self, end: Callable[[], None]) -> None:
        """Nimbus has seen enough of a version."""
        if self.cluster.on_trial:
            end()

    def roll_back(self) -> None:
        """The version before the one on trial returns."""
        self.cluster.on_trial = False
        self.new_processes()

    def new_processes(self) -> None:
        """Place all tasks in new processes."""
        cluster = self.cluster
        self.hosts = [cluster.new_worker() for _ in self.hosts]
        names = cluster.task_names()
        cluster.replaced |= set(names)
        cluster.place({name: self.random.choice(self.hosts) for name in names}, set(names))

    def call_off(self) -> None:
        """Nimbus does not change anything after all."""
        cluster, leader = self.cluster, self.cluster.placement.leader
        cluster.change = None
        if leader.coordinator is not None:
            self.line.soon(0.002, leader, self.called_off, leader)

    def called_off(self, leader: Worker) -> None:
        """The coordinator hears of it."""
        if leader.coordinator is not None:
            found = leader.coordinator.call_off(self.line.now)
            self.cluster.run_coordinator(leader, leader.coordinator, found)

    # The run.

    def run(self, on_event: Callable[[], None] | None = None) -> str | None:
        """Let everything happen; return what is wrong, or None. Raises Broken, or whatever the cores raise."""
        line, cluster = self.line, self.cluster
        while not cluster.ended:
            if not line.step() or line.now > self.limit or line.events > MOST_EVENTS:
                return f"no end at {line.now:.3f} s, after {line.events} events"
        until = line.now + 1.5
        while line.queue and line.now < until and line.events < 2 * MOST_EVENTS:
            line.step()
        late = cluster.deadline is not None and cluster.deadline < 50
        self.oracle.check_end(complete=not late)
        return None
