"""What a topology guarantees between each spout and each sink: how often a tuple counts in state, and in what a sink writes.

A *sink* is a bolt that no other bolt reads, or a committing sink; in a cycle that no bolt outside reads, each is one. All
paths from a spout to a sink are judged together, since their number may explode: a pair is as good as the worst component on
any of them. What only a running topology shows, such as an emission without a message id, is a condition of the pair.
Must not know: how tuples, epochs and commits work, how the answer is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from topology_api.committing_sink import CommittingSink
from topology_api.components import BatchBolt
from topology_api.epoch_rules import ACKING, REQUIRE, STATE_PATH, bolt_problem, epoch_problems, has_path
from topology_api.letter_streams import reached
from topology_api.rewindable import RewindableSpout
from topology_api.stateful import StatefulBolt
from topology_api.topology import DEAD_LETTERS, Topology
from topology_api.wording import listed

Level = Literal["exactly-once", "at-least-once", "at-most-once"]
EXACTLY_ONCE: Final = "exactly-once"

#: What is true of every topology, and easily forgotten.
NOTES: Final = (
    "Attributes of components are not state: they begin again whenever a worker starts. Only declared state is kept.",
    "Only sinks are judged: what other bolts write outside may be written again.",
    "A tuple whose attempts are used up is a dead letter: it does not reach the sink.",
)


@dataclass(frozen=True)
class Obstacle:
    """Why a pair is not exactly once. `subject`: a component or an option; `component`: its id, None for an option. `refused`:
    a topology with `topology.state.path` does not start with it."""

    subject: str
    component: str | None
    why: str
    change: str
    refused: bool = False

    @property
    def text(self) -> str:
        """The sentence: what, why, and what to do."""
        return f"{self.subject} {self.why}: {self.change}"


@dataclass(frozen=True)
class StateGuarantee:
    """How often tuples of one spout count in the state of one bolt. `short`: for a table, without the names."""

    bolt: str
    short: str
    text: str


@dataclass(frozen=True)
class PairGuarantee:
    """What holds from one spout to one sink. `through`: the bolts between them, on any path. `outside`: the sentence on what
    the sink writes. `conditions`: what the components themselves must do for it."""

    spout: str
    sink: str
    through: tuple[str, ...]
    level: Level
    outside: str
    conditions: tuple[str, ...]
    states: tuple[StateGuarantee, ...]
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True)
class Guarantees:
    """What a topology guarantees. `refused`: why it does not start with its `topology.state.path`."""

    topology: str
    pairs: tuple[PairGuarantee, ...]
    refused: tuple[str, ...]

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """All obstacles, each once."""
        return tuple(dict.fromkeys(each for pair in self.pairs for each in pair.obstacles))


def guarantees(topology: Topology, conf: Mapping[str, object]) -> Guarantees:
    """Return what a topology guarantees with these settings. Of the components, which are unpickled, only
    `guarantee_conditions` is called."""
    judge = _Judge(topology, conf)
    pairs = tuple(judge.pair(*each) for each in _connected(topology, judge.components))
    return Guarantees(topology.name, pairs, tuple(epoch_problems(topology, conf)))


def requirement_problems(
    topology: Topology, conf: Mapping[str, object], *, complete: bool = True
) -> Iterator[str]:
    """Yield what keeps a topology from what `topology.require` asks for; nothing if the option is not set.

    complete: False if other settings may follow, which may still give a `topology.state.path`. What `epoch_problems` yields for
    these settings is left out.
    """
    if conf.get(REQUIRE) is None:
        return
    kept = has_path(topology, conf)
    for obstacle in guarantees(topology, conf).obstacles:
        open_yet = obstacle.subject == STATE_PATH and not complete and STATE_PATH not in conf
        if not open_yet and not (obstacle.refused and kept and complete):
            yield f"{REQUIRE} is {EXACTLY_ONCE}, but {obstacle.text}"


def counting_again(topology: Topology) -> list[str]:
    """Return the spouts that cannot rewind, and that reach state or a committing sink: with a state path, what they emit counts
    once only while their own worker lives."""
    judge = _Judge(topology, {})
    return list(
        dict.fromkeys(
            spout
            for spout, through, sink in _connected(topology, judge.components)
            if not judge.rewinds(spout) and any(map(judge.counts_once, (*through, sink)))
        )
    )


def rewind_note(spouts: Sequence[str]) -> str:
    """Return what to know of these spouts."""
    return (
        f"{'spouts' if len(spouts) > 1 else 'spout'} {listed(spouts)} cannot rewind: what such a spout emits again after its "
        "own worker has died may count twice, and what it does not may be lost; derive from RewindableSpout (docs/state.md)"
    )


class _Judge:
    """The settings and the components of one topology, each loaded once."""

    def __init__(self, topology: Topology, conf: Mapping[str, object]) -> None:
        self.topology = topology
        self.tracked = conf.get(ACKING) is not False
        self.with_path = has_path(topology, conf)
        self.components: dict[str, Any] = {spec.id: topology.load(spec.id) for spec in topology.components}

    def pair(self, spout: str, through: Sequence[str], sink: str) -> PairGuarantee:
        """Judge one pair."""
        bolts = list(dict.fromkeys((*through, sink)))
        obstacles = tuple(self.obstacles(spout, bolts, sink))
        level: Level = "at-least-once" if obstacles else EXACTLY_ONCE
        if not self.tracked:
            level = "at-most-once"
        conditions = tuple(self.conditions(spout, bolts, sink)) if level != "at-most-once" else ()
        states = tuple(
            self.state(spout, bolt) for bolt in bolts if isinstance(self.components[bolt], StatefulBolt)
        )
        outside = self.outside(level, spout, sink)
        return PairGuarantee(spout, sink, tuple(through), level, outside, conditions, states, obstacles)

    def obstacles(self, spout: str, bolts: Sequence[str], sink: str) -> Iterator[Obstacle]:
        """Yield everything that keeps a pair from exactly once."""
        if not self.tracked:
            why = "is false, so what is lost on the way is not emitted again"
            yield Obstacle(ACKING, None, why, "set it to true", refused=True)
        if not self.with_path:
            why = "is not set, so tuples that are emitted again are processed and written again"
            yield Obstacle(STATE_PATH, None, why, "give a folder as file:///path or hdfs://host:port/path")
        if not self.rewinds(spout):
            why = "cannot rewind, so what it emitted since the last commit is lost, or comes again, when its worker ends"
            yield Obstacle(f"spout {spout!r}", spout, why, "derive from RewindableSpout")
        for bolt in bolts:
            component = self.components[bolt]
            if bolt == sink and not isinstance(component, CommittingSink):
                why = "is no TokenSink or StagedSink, so what it has written since the last commit may be written again"
                yield Obstacle(f"bolt {bolt!r}", bolt, why, "derive from one of them", refused=False)
            elif (problem := bolt_problem(component)) is not None:
                yield Obstacle(f"bolt {bolt!r}", bolt, *problem, refused=True)

    def rewinds(self, spout: str) -> bool:
        return isinstance(self.components[spout], RewindableSpout)

    def counts_once(self, bolt: str) -> bool:
        return isinstance(self.components[bolt], (StatefulBolt, CommittingSink))

    def conditions(self, spout: str, bolts: Sequence[str], sink: str) -> Iterator[str]:
        """Yield what must be true for the level of a pair, and only the user can know."""
        for component in (spout, *bolts):
            yield from self.components[component].guarantee_conditions(component)
        if self.with_path:
            if not self.rewinds(spout):
                yield f"the source of {spout!r} delivers again what was not acked"
            for bolt in bolts:
                if not self.components[bolt].auto_ack:
                    yield f"{bolt!r} emits what comes of a tuple in the call that acks it: what it holds is executed again"
            return
        yield f"{spout!r} emits with a message id: all else is delivered at most once"
        if self.components[spout].replay is None:
            yield f"{spout!r} emits failed tuples again itself, since its replay is None"
        if not self.rewinds(spout):
            yield f"the source of {spout!r} delivers again what was not acked when its worker ended"
        for bolt in bolts:
            component = self.components[bolt]
            if bolt != sink and (isinstance(component, BatchBolt) or not component.auto_anchor):
                yield f"{bolt!r} gives anchors= with what it emits: its emissions are not anchored otherwise"
            if not component.auto_ack:
                yield f"{bolt!r} acks a tuple only when it has done all its work, since its auto_ack is False"

    def state(self, spout: str, bolt: str) -> StateGuarantee:
        """Judge how often tuples of a spout count in the state of a bolt."""
        head = f"the state of {bolt!r}"
        if not self.tracked:
            return StateGuarantee(
                bolt,
                "at most once, ends with its worker",
                f"{head} misses lost tuples, and ends with its worker",
            )
        if not self.with_path:
            return StateGuarantee(
                bolt,
                "replays twice, ends with its worker",
                f"{head} counts replays twice, and ends with its worker",
            )
        if self.rewinds(spout):
            return StateGuarantee(bolt, "once", f"{head} counts each tuple of {spout!r} once")
        return StateGuarantee(
            bolt,
            "once, while the worker lives",
            f"{head} counts each tuple of {spout!r} once while its worker lives; then it is as in the last commit",
        )

    def outside(self, level: Level, spout: str, sink: str) -> str:
        """Return the sentence on what a sink writes."""
        if level == EXACTLY_ONCE:
            return f"what {sink!r} writes is there exactly once"
        if level == "at-most-once":
            return f"what {sink!r} writes is there at most once: what is lost on the way is not emitted again"
        head = f"what {sink!r} writes is there at least once"
        if not self.with_path:
            return f"{head}: tuples that are emitted again are written again"
        if not isinstance(self.components[sink], CommittingSink):
            return f"{head}: what it has written since the last commit may be written again"
        return f"{head}: once for each time that {spout!r} emits it"


def _connected(topology: Topology, components: Mapping[str, Any]) -> Iterator[tuple[str, list[str], str]]:
    """Yield each spout and each sink that it reaches, with the bolts between them, in order of declaration. Dead letters are
    no tuples on their way to a sink."""
    readers: dict[str, list[str]] = defaultdict(list)
    sources: dict[str, list[str]] = defaultdict(list)
    for spec in topology.bolts:
        for entry in spec.inputs:
            if entry.stream != DEAD_LETTERS:
                readers[entry.source].append(spec.id)
                sources[spec.id].append(entry.source)
    ids = [spec.id for spec in topology.bolts]
    before = {sink: reached(sink, sources) for sink in _sinks(topology, components, readers)}
    for spout in topology.spouts:
        after = reached(spout.id, readers)
        for sink in before:
            if sink in after:
                between = after & before[sink]
                yield spout.id, [each for each in ids if each in between and each != sink], sink


def _sinks(
    topology: Topology, components: Mapping[str, Any], readers: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return the bolts that no bolt reads, the committing sinks, and the members of cycles that no bolt outside reads."""
    members_of = {member: set(members) for members in topology.cycles for member in members}
    found = []
    for spec in topology.bolts:
        members = members_of.get(spec.id, {spec.id})
        last = all(members.issuperset(readers.get(each, ())) for each in members)
        if last or isinstance(components[spec.id], CommittingSink):
            found.append(spec.id)
    return found
