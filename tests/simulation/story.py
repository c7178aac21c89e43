"""The events of a simulated cluster: commands and faults at random times, all from a seed.

A story is a list of independent `Step`s, so that a shorter story can leave some of them out.
Must not know: what is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from squall.cluster import paths
from tests.simulation.daemons import Agent, Candidate
from tests.simulation.machines import Habits
from tests.simulation.timeline import Actor
from tests.simulation.world import Settings, World

#: Seconds between the first step and the last, at most.
LENGTH: Final = 60.0
NAMES: Final = ("alpha", "beta", "gamma")
#: The share of stories with real workers and tuples; they take about 2.5 times as long as the others.
WITH_TUPLES: Final = 0.3
#: Values that may be damaged.
DAMAGED: Final = tuple(
    f"{top}/"
    for top in (
        *(paths.TOPOLOGIES, paths.ASSIGNMENTS, paths.LEAVING, paths.REPORTS),
        *(paths.SUPERVISORS, paths.REPLACEMENTS, paths.REPLACED),
    )
)
#: Commands of operators; one listed twice is twice as frequent.
COMMANDS: Final = (
    *("submit", "submit", "kill", "resubmit", "resubmit", "rebalance", "rebalance", "rebalance", "rebalance"),
    *("deactivate", "activate", "drain", "drain", "undrain", "replace", "replace"),
)


@dataclass(frozen=True)
class Step:
    """An event."""

    at: float
    what: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.at:7.3f}  {self.what}({', '.join(map(repr, self.args))})"

    def do(self, world: World) -> None:
        """Make it happen."""
        world.log(f"* {self}")
        DOINGS[self.what](world, *self.args)


def settings_of(seed: int) -> Settings:
    """The cluster of a seed."""
    random = Random(f"{seed}/settings")
    habits = Habits(stillborn=random.choice([0.0, 0.0, 0.1, 0.5]))
    if random.random() < 0.3:
        habits = replace(habits, boot=(0.5, 8.0), drain=(0.05, 10.0), stop=(0.01, 8.0), kill=(0.1, 10.0))
    return Settings(
        tuples=random.random() < WITH_TUPLES,
        candidates=random.choice([1, 2, 2, 3]),
        machines=random.choice([1, 2, 3, 3, 4]),
        slots=random.choice([1, 2, 2, 4]),
        habits=habits,
    )


def story_of(seed: int, settings: Settings) -> list[Step]:
    """The steps of a seed."""
    random = Random(f"{seed}/story")
    length = random.choice([5.0, 10.0, 20.0, LENGTH])
    names = random.choice([NAMES[:1], NAMES[:1], NAMES[:2], NAMES])
    steps = [
        Step(random.uniform(0.5, 3.0), "submit", (name, *a_topology(random, settings)))
        for name in names[: random.randint(1, 2)]
    ]
    for _ in range(random.randint(0, 8)):
        steps.append(a_command(random, settings, random.choice(names), random.uniform(1.0, length)))
    kinds = random.sample(
        sorted(FAULTS), random.randint(1, 4)
    )  # a story has few kinds of faults, but each of them often
    for _ in range(random.choice([0, 1, 2, 4, 8])):
        # Half of them soon after a command, while an operation is in progress.
        at = random.uniform(1.0, length)
        if random.random() < 0.5:
            at = random.choice(steps).at + 3.0 * random.random() ** 2
        steps.append(FAULTS[random.choice(kinds)](random, settings, at))
    if random.random() < 0.4:
        steps.append(Step(random.uniform(0.0, length / 2), "rough", rough(random)))
    return sorted(steps, key=lambda step: step.at)


def a_topology(random: Random, settings: Settings) -> tuple[Any, ...]:
    """Arguments of `World.submit` after the name."""
    finite = random.uniform(5.0, 30.0) if random.random() < 0.15 else None
    return random.randint(1, 3), random.randint(0, 4), random.randint(1, 4), random.random() < 0.85, finite


def a_command(random: Random, settings: Settings, name: str, at: float) -> Step:
    """A command of an operator."""
    what = random.choice(COMMANDS)
    if what == "submit":
        return Step(at, "submit", (name, *a_topology(random, settings)))
    if what in ("resubmit", "replace"):
        wait = random.choice([None, 0.0, 2.0])
        return Step(at, what, (name, wait, *a_topology(random, settings)))
    if what == "kill":
        return Step(at, "kill", (name, random.choice([None, 0.0, 3.0, 20.0])))
    if what == "rebalance":
        parallelism = random.choice([None, {"count": random.randint(1, 5)}, {"lines": random.randint(1, 3)}])
        return Step(at, "rebalance", (name, random.choice([None, random.randint(1, 4)]), parallelism))
    if what in ("drain", "undrain"):
        return Step(at, "drain", (a_machine(random, settings), what == "drain"))
    return Step(at, what, (name,))


def a_machine(random: Random, settings: Settings) -> str:
    return f"h{random.randint(1, settings.machines)}"


def a_nimbus(random: Random, settings: Settings) -> str:
    return f"n{random.randint(1, settings.candidates)}"


def rough(random: Random) -> tuple[Any, ...]:
    """The length of a bad period in seconds, and its faults."""

    def bad(most: float) -> float:
        return random.choice([0.0, 0.0, most / 10, most])

    sessions = {
        "fail_before": bad(0.1),
        "fail_after": bad(0.1),
        "slow": bad(0.05),
        "stall": bad(0.002),
        "lose_event": bad(0.5),
        "double_event": bad(0.3),
        "late_event": bad(0.3),
    }
    links = {"lose": bad(0.3), "double": bad(0.3), "late": bad(0.2)}
    return random.uniform(5.0, 40.0), sessions, links, (bad(0.1), bad(0.1), bad(0.1))


def seconds(random: Random, most: float) -> float:
    """A duration that is short as often as long."""
    return round(most * random.random() ** 2, 3)


Make = Callable[[Random, Settings, float], Step]

FAULTS: Final[dict[str, Make]] = {
    "kill nimbus": lambda r, s, at: Step(at, "kill_nimbus", (a_nimbus(r, s), seconds(r, 30))),
    "pause nimbus": lambda r, s, at: Step(at, "pause_nimbus", (a_nimbus(r, s), seconds(r, 40))),
    "cut nimbus": lambda r, s, at: Step(at, "cut_nimbus", (a_nimbus(r, s), seconds(r, 40))),
    "expire nimbus": lambda r, s, at: Step(at, "expire_nimbus", (a_nimbus(r, s),)),
    "nimbus dies writing": lambda r, s, at: Step(
        at, "dies_writing", (a_nimbus(r, s), r.randint(0, 15), seconds(r, 20))
    ),
    "kill supervisor": lambda r, s, at: Step(at, "kill_supervisor", (a_machine(r, s), seconds(r, 40))),
    "kill supervisors often": lambda r, s, at: Step(
        at, "kill_often", (a_machine(r, s), r.randint(2, 20), seconds(r, 1.0))
    ),
    "supervisor dies starting": lambda r, s, at: Step(
        at, "dies_starting", (a_machine(r, s), r.choice(["before", "after"]), seconds(r, 20))
    ),
    "pause supervisor": lambda r, s, at: Step(at, "pause_supervisor", (a_machine(r, s), seconds(r, 40))),
    "cut supervisor": lambda r, s, at: Step(at, "cut_supervisor", (a_machine(r, s), seconds(r, 40))),
    "expire supervisor": lambda r, s, at: Step(at, "expire_supervisor", (a_machine(r, s),)),
    "lose power": lambda r, s, at: Step(at, "lose_power", (a_machine(r, s), seconds(r, 60))),
    "freeze machine": lambda r, s, at: Step(at, "freeze_machine", (a_machine(r, s), seconds(r, 60))),
    "cut machine": lambda r, s, at: Step(at, "cut_machine", (a_machine(r, s), seconds(r, 60))),
    "kill worker": lambda r, s, at: Step(at, "kill_worker", (r.random(),)),
    "pause worker": lambda r, s, at: Step(at, "pause_worker", (r.random(), seconds(r, 30))),
    "cut link": lambda r, s, at: Step(at, "cut_link", (a_machine(r, s), a_nimbus(r, s), seconds(r, 40))),
    "store down": lambda r, s, at: Step(at, "store_down", (seconds(r, 40),)),
    "store empty": lambda r, s, at: Step(at, "store_empty", (seconds(r, 30),)),
    "damage": lambda r, s, at: Step(at, "damage", (r.random(), seconds(r, 40))),
    "disk full": lambda r, s, at: Step(at, "disk_full", (a_machine(r, s), seconds(r, 30))),
}


# Actions.


def submit(
    world: World, name: str, spouts: int, bolts: int, workers: int, active: bool, finite: float | None
) -> None:
    world.submit(name, spouts, bolts, workers, active, finite)


def kill(world: World, name: str, wait: float | None) -> None:
    world.ask("kill", name, lambda nimbus: nimbus.kill(name, wait))


def resubmit(world: World, name: str, wait: float | None, *topology: Any) -> None:
    kill(world, name, wait)
    world.submit_when_free(name, *topology)


def replace_topology(world: World, name: str, wait: float | None, *topology: Any) -> None:
    spouts, bolts, workers, active, finite = topology
    world.submit(name, spouts, bolts, workers, active, finite, replace=True, wait_secs=wait)


def rebalance(world: World, name: str, workers: int | None, parallelism: dict[str, int] | None) -> None:
    world.ask("rebalance", name, lambda nimbus: nimbus.rebalance(name, workers, parallelism))


def activate(world: World, name: str) -> None:
    world.ask("activate", name, lambda nimbus: nimbus.activate(name))


def deactivate(world: World, name: str) -> None:
    world.ask("deactivate", name, lambda nimbus: nimbus.deactivate(name))


def drain(world: World, machine: str, on: bool) -> None:
    world.drain(machine, on)


def kill_nimbus(world: World, name: str, back_after: float) -> None:
    world.candidates[name].die()
    world.line.after(back_after, world.nature, lambda: world.start_candidate(name))


def pause(world: World, actor: Actor, secs: float) -> None:
    actor.freeze(secs)


def cut(world: World, actor: Any, secs: float) -> None:
    """No message arrives between a process and the store."""
    actor.session.cut = True

    def heal() -> None:
        actor.session.cut = False

    world.line.after(secs, world.nature, heal)


def dies_writing(world: World, name: str, writes: int, back_after: float) -> None:
    candidate = world.candidates[name]
    candidate.session.dies_after = writes
    when_dead(world, candidate, lambda: world.start_candidate(name), back_after)


def dies_starting(world: World, name: str, when: str, back_after: float) -> None:
    world.machines[name].dies_starting = when
    when_dead(world, world.agents[name], lambda: world.start_agent(name), back_after)


def when_dead(world: World, actor: Actor, start: Callable[[], None], back_after: float) -> None:
    """Have a process started again, this long after it died."""
    actor.on_death.append(lambda: world.line.after(back_after, world.nature, start))


def kill_supervisor(world: World, name: str, back_after: float) -> None:
    world.agents[name].die()
    world.line.after(back_after, world.nature, lambda: world.start_agent(name))


def kill_often(world: World, name: str, times: int, pause_secs: float) -> None:
    if times:
        kill_supervisor(world, name, pause_secs)
        world.line.after(
            pause_secs + 0.7, world.nature, lambda: kill_often(world, name, times - 1, pause_secs)
        )


def lose_power(world: World, name: str, back_after: float) -> None:
    world.machines[name].lose_power()
    kill_supervisor(world, name, back_after)


def freeze_machine(world: World, name: str, secs: float) -> None:
    for actor in (world.agents[name], *world.machines[name].living()):
        actor.freeze(secs)


def cut_link(world: World, machine: str, nimbus: str, secs: float) -> None:
    pair = (machine, nimbus)
    world.link_chances.cut |= {pair}

    def heal() -> None:
        world.link_chances.cut -= {pair}

    world.line.after(secs, world.nature, heal)


def cut_machine(world: World, name: str, secs: float) -> None:
    cut(world, world.agents[name], secs)
    world.air.cut.add(name)
    world.line.after(secs, world.nature, lambda: world.air.cut.discard(name))
    for nimbus in world.candidate_names:
        cut_link(world, name, nimbus, secs)


def a_worker(world: World, which: float) -> Any:
    """One of the running processes, selected by a number from 0 to 1."""
    there = list(world.processes.all())
    return there[int(which * len(there))] if there else None


def kill_worker(world: World, which: float) -> None:
    process = a_worker(world, which)
    if process is not None:
        process.kill(0.001)


def pause_worker(world: World, which: float, secs: float) -> None:
    process = a_worker(world, which)
    if process is not None:
        process.freeze(secs)


def store_down(world: World, secs: float) -> None:
    world.server.up = False

    def heal() -> None:
        world.server.up = True

    world.line.after(secs, world.nature, heal)


def store_empty(world: World, secs: float) -> None:
    """The store comes back empty, and later with all its values."""
    if world.server.empty or not world.server.up:
        return
    if not all(memory.cluster for memory in world.memories.values()):
        return  # a process that remembers no cluster may found one in an empty store
    world.server.lose_everything()
    world.line.after(secs, world.nature, world.server.find_everything)


def damage(world: World, which: float, secs: float) -> None:
    """Replace a value in the store with garbage; it is repaired later, if it is still there."""
    there = sorted(path for path in world.server.store._tree.values if path.startswith(DAMAGED))
    if not there or world.server.empty:
        return
    path = there[int(which * len(there))]
    world.log(f"{path} is damaged")
    world.repairs.append(world.server.damage(path))
    world.line.after(secs, world.nature, world.repairs[-1])


def disk_full(world: World, name: str, secs: float) -> None:
    machine = world.machines[name]
    machine.full = True

    def heal() -> None:
        machine.full = False

    world.line.after(secs, world.nature, heal)


def rough_time(
    world: World,
    secs: float,
    sessions: dict[str, float],
    links: dict[str, float],
    air: tuple[float, float, float],
) -> None:
    world.air.be(air)
    for chances in world.chances.values():
        chances.become(sessions)
    world.link_chances.__dict__.update(links)

    def calm() -> None:
        world.air.be((0.0, 0.0, 0.0))
        for chances in world.chances.values():
            chances.calm()
        cut = world.link_chances.cut
        world.link_chances.calm()
        world.link_chances.cut = cut

    world.line.after(secs, world.nature, calm)


def all_is_well(world: World) -> None:
    """The last fault is over: everything is back, and no faults occur any more."""
    world.server.up = True
    world.server.find_everything()
    for repair in reversed(world.repairs):
        repair()
    for chances in world.chances.values():
        chances.calm()
    world.link_chances.calm()
    world.air.cut.clear()
    world.air.be((0.0, 0.0, 0.0))
    for machine in world.machines.values():
        machine.full = False
        machine.dies_starting = None
    daemons: list[Candidate | Agent] = [*world.candidates.values(), *world.agents.values()]
    for actor in daemons:
        actor.session.cut = False
        actor.session.dies_after = None
        actor.thaws_at = 0.0
    for process in world.processes.all():
        process.thaws_at = 0.0
    world.habits.stillborn = 0.0
    world.give_up_asking()
    for name in world.candidate_names:
        world.start_candidate(name)
    for name in world.machine_names:
        world.start_agent(name)
        world.drain(name, False)


DOINGS: Final[dict[str, Callable[..., None]]] = {
    "submit": submit,
    "kill": kill,
    "resubmit": resubmit,
    "replace": replace_topology,
    "rebalance": rebalance,
    "activate": activate,
    "deactivate": deactivate,
    "drain": drain,
    "rough": rough_time,
    "kill_nimbus": kill_nimbus,
    "pause_nimbus": lambda world, name, secs: pause(world, world.candidates[name], secs),
    "cut_nimbus": lambda world, name, secs: cut(world, world.candidates[name], secs),
    "expire_nimbus": lambda world, name: world.candidates[name].session.end_early(),
    "dies_writing": dies_writing,
    "dies_starting": dies_starting,
    "kill_supervisor": kill_supervisor,
    "kill_often": kill_often,
    "pause_supervisor": lambda world, name, secs: pause(world, world.agents[name], secs),
    "cut_supervisor": lambda world, name, secs: cut(world, world.agents[name], secs),
    "expire_supervisor": lambda world, name: world.agents[name].session.end_early(),
    "lose_power": lose_power,
    "freeze_machine": freeze_machine,
    "cut_machine": cut_machine,
    "kill_worker": kill_worker,
    "pause_worker": pause_worker,
    "cut_link": cut_link,
    "store_down": store_down,
    "store_empty": store_empty,
    "damage": damage,
    "disk_full": disk_full,
}
