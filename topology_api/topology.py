"""Topology and its specs: a frozen, typed description plus one pickle per component.

Nimbus and supervisors work from the description and never unpickle; the pickles are for workers only.
Must not know: how a description is made (builder), whether it is valid (validation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from topology_api import graph
from topology_api.errors import InvalidConfig, InvalidTopology, SquallError
from topology_api.names import name_problem

DEAD_LETTERS = "__dead_letters"
DEAD_LETTER_FIELDS = ("message_id", "values", "stream", "failure")


@dataclass(frozen=True)
class StreamSpec:
    """An output stream: the names of its values, and whether only `emit_direct` may emit to it."""

    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True)
class GroupingSpec:
    """The way in which tasks are chosen for a stream's tuples. `kind` is one of declarer.KINDS.

    fields: for `fields` and `partial_key`. custom: for `custom`, the Grouping instance as pickled by cloudpickle.
    """

    kind: str
    fields: tuple[str, ...] = ()
    custom: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Subscription:
    """One input of a bolt: the component and stream that it reads, and the grouping."""

    source: str
    stream: str
    grouping: GroupingSpec


def _read_only(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(mapping))


@dataclass(frozen=True)
class ComponentSpec:
    """A spout or bolt as the control plane sees it: everything except its code."""

    id: str
    kind: str
    parallelism: int = 1
    conf: Mapping[str, object] = field(default_factory=dict)
    outputs: Mapping[str, StreamSpec] = field(default_factory=dict)
    inputs: tuple[Subscription, ...] = ()
    #: Whether the number of tasks cannot change in a topology with a state path: a spout's positions cannot be merged.
    keeps_tasks: bool = False
    #: What it keeps over its versions (`topology_api.state_types.keeps_of`), as JSON values.
    keeps: Mapping[str, Any] = field(default_factory=dict)
    #: How often the readers of a staged sink should get something, in seconds; None for all other components.
    batch_interval: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "conf", _read_only(self.conf))
        object.__setattr__(self, "outputs", _read_only(self.outputs))
        object.__setattr__(self, "keeps", _read_only(self.keeps))

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only views cannot be pickled; the dicts behind them can.
        values = (self.id, self.kind, self.parallelism, dict(self.conf), dict(self.outputs), self.inputs)
        return ComponentSpec, (*values, self.keeps_tasks, dict(self.keeps), self.batch_interval)


@dataclass(frozen=True, repr=False)
class Topology:
    """An immutable topology, ready to run. `TopologyBuilder.build()` returns it.

    name; conf (the topology's own configuration); components (ComponentSpec, in order of declaration);
    pickles (component id -> bytes, for workers).
    """

    name: str
    conf: Mapping[str, object]
    components: tuple[ComponentSpec, ...]
    pickles: Mapping[str, bytes]

    def __post_init__(self) -> None:
        object.__setattr__(self, "conf", _read_only(self.conf))
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "pickles", _read_only(self.pickles))

    def __reduce__(self) -> tuple[Any, ...]:
        return Topology, (self.name, dict(self.conf), self.components, dict(self.pickles))

    def __repr__(self) -> str:
        tasks = sum(component.parallelism for component in self.components)
        return f"<Topology {self.name!r}: {len(self.spouts)} spouts, {len(self.bolts)} bolts, {tasks} tasks>"

    @cached_property
    def _by_id(self) -> dict[str, ComponentSpec]:
        return {component.id: component for component in self.components}

    def component(self, component_id: str) -> ComponentSpec:
        """Return the spec of one component. Raises SquallError for an unknown id."""
        try:
            return self._by_id[component_id]
        except KeyError:
            known = ", ".join(map(repr, self._by_id)) or "none"
            raise SquallError(
                f"topology {self.name!r} has no component {component_id!r} (it has: {known})"
            ) from None

    @cached_property
    def spouts(self) -> tuple[ComponentSpec, ...]:
        """The specs of the spouts, in order of declaration."""
        return tuple(component for component in self.components if component.kind == "spout")

    @cached_property
    def bolts(self) -> tuple[ComponentSpec, ...]:
        """The specs of the bolts, in order of declaration."""
        return tuple(component for component in self.components if component.kind == "bolt")

    @cached_property
    def _edges(self) -> tuple[graph.Edge, ...]:
        return tuple(
            graph.Edge(target=component.id, source=subscription.source, stream=subscription.stream)
            for component in self.components
            for subscription in component.inputs
        )

    @cached_property
    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """The cycles among the bolts. A cycle is a group of ids that can reach each other, or one bolt that reads itself.

        Cycles are allowed. Ids within a group, and the groups, are in order of declaration.
        """
        return graph.cycles([component.id for component in self.components], self._edges)

    @cached_property
    def closing_edges(self) -> frozenset[tuple[str, str, str]]:
        """The edges that close a cycle, as (target, source, stream); without them the graph is acyclic."""
        return frozenset(graph.closing_edges([component.id for component in self.components], self._edges))

    def load(self, component_id: str) -> Any:
        """Unpickle a new instance of a component. Raises SquallError if that fails here."""
        import pickle

        self.component(component_id)
        try:
            return pickle.loads(self.pickles[component_id])
        except Exception as error:
            raise SquallError(
                f"topology {self.name!r}: component {component_id!r} cannot be unpickled here: {type(error).__name__}: {error}"
            ) from error

    def renamed(self, name: str) -> Topology:
        """Return the topology under a different name. Raises InvalidTopology for an invalid name."""
        if problem := name_problem(name):
            raise InvalidTopology([f"the topology's name {problem}"])
        return replace(self, name=name)

    def with_conf(self, extra: Mapping[str, object]) -> Topology:
        """Return the topology with more configuration, which overrides the topology's own. Raises InvalidConfig with all
        problems."""
        from topology_api.options import json_copy, problems_of

        if problems := problems_of(extra, "topology"):
            raise InvalidConfig(problems, f"topology {self.name!r}")
        return replace(self, conf={**self.conf, **json_copy(extra)})

    def with_parallelism(self, counts: Mapping[str, int]) -> Topology:
        """Return the topology with a different parallelism for some components. Raises InvalidConfig with all problems."""
        from topology_api.validation import problems_of_parallelism

        now = {component.id: component.parallelism for component in self.components}
        if problems := problems_of_parallelism(counts, now):
            raise InvalidConfig(problems, f"topology {self.name!r}")
        if {**now, **counts} == now:
            return self
        components = tuple(
            replace(component, parallelism=counts.get(component.id, component.parallelism))
            for component in self.components
        )
        return replace(self, components=components)

    def describe(self) -> dict[str, Any]:
        """Return the typed description as JSON-compatible values, without pickles; the inverse is `from_description`."""
        from topology_api.description import describe

        return describe(self)

    @classmethod
    def from_description(cls, description: Mapping[str, Any], pickles: Mapping[str, bytes]) -> Topology:
        """Return the described topology. Raises InvalidTopology with all problems if it is invalid."""
        from topology_api.description import parse

        return parse(description, pickles)
