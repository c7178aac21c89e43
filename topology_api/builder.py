"""TopologyBuilder: how a user declares a topology.

The builder records calls without checking them; `build()` validates everything at once (inspection, packing, validation) and
raises one InvalidTopology with all problems. Must not know: the rules themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from topology_api import inspection, topology
from topology_api.components import Bolt, Spout
from topology_api.declarer import BoltDeclarer, Declaration, Handle, Input
from topology_api.errors import CannotPack, InvalidTopology
from topology_api.fields import Fields
from topology_api.groupings import Grouping
from topology_api.guarantees import requirement_problems
from topology_api.names import RESERVED_PREFIX
from topology_api.options import json_copy
from topology_api.packing import pack
from topology_api.rewindable import keeps_tasks
from topology_api.staged_sink import StagedSink
from topology_api.state_rules import input_problems
from topology_api.state_types import keeps_of
from topology_api.stateful import StatefulBolt
from topology_api.topology import Topology
from topology_api.validation import problems_of_topology
from topology_api.wording import shown, typed


class TopologyBuilder:
    """Collects the spouts and bolts of a topology; `build()` makes a Topology from them.

    name: the topology's name (a str of at most 255 bytes, without `/`, `\\`, `:` and `.`). conf: its configuration.
    No call raises for a wrong argument: `build()` reports all problems at once.
    """

    def __init__(self, name: str, conf: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.conf = conf
        self._declarations: list[Declaration] = []

    def set_spout(
        self, id: str, spout: Spout, parallelism: int = 1, conf: Mapping[str, object] | None = None
    ) -> Handle:
        """Declare a spout and return its handle, which can be passed instead of its id.

        id: unique in the topology. spout: an instance; `build()` inspects and pickles it.
        parallelism: the number of its tasks. conf: its own configuration, which overrides the topology's.
        """
        # The handle is in fact a BoltDeclarer, so that a grouping call on a spout becomes a reported problem, not a traceback.
        return self._declare("spout", id, spout, parallelism, conf)

    def set_bolt(
        self, id: str, bolt: Bolt, parallelism: int = 1, conf: Mapping[str, object] | None = None
    ) -> BoltDeclarer:
        """Declare a bolt, with arguments as in `set_spout`, and return the declarer of its inputs."""
        return self._declare("bolt", id, bolt, parallelism, conf)

    def _declare(self, kind: str, id: str, component: object, parallelism: int, conf: object) -> BoltDeclarer:
        declaration = Declaration(self, kind, id, component, parallelism, conf)
        self._declarations.append(declaration)
        return BoltDeclarer(declaration)

    def build(self) -> Topology:
        """Return a frozen Topology. Raises InvalidTopology with all problems. The builder may be used again."""
        build = _Build(self._declarations)
        specs = [build.spec(declaration) for declaration in self._declarations]
        specs = [build.with_dead_letters(spec) for spec in specs]
        conf = {} if self.conf is None else self.conf
        # List the problems of single components first, then those of the whole topology and of its connections.
        problems = build.problems + problems_of_topology(
            self.name, conf, specs, unread_outputs=build.unread_outputs, unread_inputs=build.unread_inputs
        )
        if not problems:  # bolts can check their inputs only if the inputs are valid
            problems = build.problems_of_inputs(specs)
        if problems:
            raise InvalidTopology(problems, self.name if isinstance(self.name, str) else None)
        components = tuple(replace(spec, conf=json_copy(spec.conf)) for spec in specs)
        made = Topology(self.name, json_copy(conf), components, build.pickles)
        if problems := [*requirement_problems(made, conf, complete=False)]:
            raise InvalidTopology(problems, self.name)
        return made


class _Build:
    """One run of `build()`: turns declarations into specs and pickles, and collects problems."""

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self.declarations = declarations
        self.problems: list[str] = []
        self.pickles: dict[str, bytes] = {}
        self.unread_outputs: set[str] = set()
        self.unread_inputs: set[str] = set()
        self.buried: set[str] = set()  # ids of spouts whose dead letters are read

    def _problem(self, declaration: Declaration, problem: str) -> None:
        self.problems.append(f"{declaration.place}: {problem}")

    def spec(self, declaration: Declaration) -> topology.ComponentSpec:
        conf = {} if declaration.conf is None else declaration.conf
        if not isinstance(conf, Mapping):
            self._problem(declaration, f"its conf is {typed(conf)}: give a dict from keys to values")
            conf = {}
        outputs = self._outputs_and_pickle(declaration)
        inputs = []
        for entry in declaration.inputs:
            if (subscription := self._subscription(declaration, entry)) is None:
                self._unread(self.unread_inputs, declaration)
            else:
                inputs.append(subscription)
        component = declaration.component
        keeps_number = isinstance(component, Spout) and keeps_tasks(component)
        # A component with a problem may declare what no shape can be made of.
        keeps = {} if self.problems else keeps_of(component)
        return topology.ComponentSpec(
            declaration.id,
            declaration.kind,
            declaration.parallelism,
            conf,
            outputs,
            tuple(inputs),
            keeps_number,
            keeps,
            float(component.batch_interval)
            if isinstance(component, StagedSink) and not self.problems
            else None,
        )

    def _outputs_and_pickle(self, declaration: Declaration) -> Mapping[str, topology.StreamSpec]:
        """Return the output streams of the component, and put its pickle into `pickles`."""
        component = declaration.component
        if problem := inspection.kind_problem(declaration.kind, component):
            self._problem(declaration, problem)
            self._unread(self.unread_outputs, declaration)
            return {}
        assert isinstance(component, (Spout, Bolt))
        outputs, problems = inspection.output_streams(component)
        if outputs is None:
            self._unread(self.unread_outputs, declaration)
        for problem in problems + inspection.component_problems(component):
            self._problem(declaration, problem)
        try:
            data = pack(component, declaration.place, Spout if declaration.kind == "spout" else Bolt)
        except CannotPack as error:
            self.problems.append(str(error))
        else:
            if isinstance(declaration.id, str):
                self.pickles[declaration.id] = data
        return outputs or {}

    def _unread(self, ids: set[str], declaration: Declaration) -> None:
        if isinstance(declaration.id, str):
            ids.add(declaration.id)

    def _subscription(self, declaration: Declaration, entry: Input) -> topology.Subscription | None:
        """Return the spec of a grouping call. If the call is invalid, record the problem and return None."""
        problem = self._source_problem(declaration, entry)
        source = entry.source.id if isinstance(entry.source, Handle) else entry.source
        grouping = None
        if problem is None and entry.kind == "dead_letters":
            problem = self._dead_letters_problem(source)
            grouping = topology.GroupingSpec("shuffle")
        elif problem is None:
            problem = _stream_problem(entry.stream) or _fields_problem(entry.fields)
        if problem is None and entry.kind == "custom":
            grouping = self._custom(declaration, entry)
        elif problem is None and grouping is None:
            grouping = topology.GroupingSpec(entry.kind, entry.fields)
        if problem is not None:
            self._problem(declaration, f"{entry.call}: {problem}")
        if grouping is None or problem is not None or not isinstance(source, str):
            return None
        if entry.kind == "dead_letters":
            self.buried.add(source)
        return topology.Subscription(source, str(entry.stream), grouping)

    def _source_problem(self, declaration: Declaration, entry: Input) -> str | None:
        source = entry.source
        if isinstance(source, Handle):
            if source._declaration.builder is not declaration.builder:
                return f"{source!r} was declared with another builder"
            return None  # an id that is not a str is reported with the source
        if isinstance(source, str):
            return None
        for other in self.declarations:
            if other.component is source:
                return f"the source is the instance itself: give its id, {shown(other.id)}"
        return f"the source is {typed(source)}: give an id, or what set_spout or set_bolt returned"

    def _dead_letters_problem(self, source: object) -> str | None:
        for other in self.declarations:
            if other.id != source:
                continue
            if other.kind == "bolt":
                return f"{other.place} is a bolt: only spouts have dead letters"
            try:
                replays = getattr(other.component, "replay", True) is not None
            except Exception:
                return None  # the error is reported with the spout
            if not replays:
                return (
                    f"{other.place} has replay = None: the runtime keeps no values that could be dead letters"
                )
        return None

    def _custom(self, declaration: Declaration, entry: Input) -> topology.GroupingSpec | None:
        if not (problems := inspection.grouping_problems(entry.grouping)):
            try:
                place = f"{declaration.place}, {entry.call}"
                return topology.GroupingSpec("custom", custom=pack(entry.grouping, place, Grouping))
            except CannotPack as error:
                self.problems.append(str(error))
        for problem in problems:
            self._problem(declaration, f"{entry.call}: {problem}")
        return None

    def problems_of_inputs(self, specs: Sequence[topology.ComponentSpec]) -> list[str]:
        """Return the problems that the bolts report about their inputs and each other."""
        outputs = {spec.id: spec.outputs for spec in specs}
        problems = []
        earlier: dict[str, Bolt] = {}
        for declaration, spec in zip(self.declarations, specs):
            if isinstance(declaration.component, Bolt):
                inputs = {
                    (entry.source, entry.stream): Fields(*outputs[entry.source][entry.stream].fields)
                    for entry in spec.inputs
                }
                found = inspection.bolts_own_problems(declaration.component, inputs, dict(earlier))
                if isinstance(declaration.component, StatefulBolt):
                    found += input_problems(declaration.component, spec.inputs)
                earlier[spec.id] = declaration.component
                problems += [f"{declaration.place}: {problem}" for problem in found]
        return problems

    def with_dead_letters(self, spec: topology.ComponentSpec) -> topology.ComponentSpec:
        """Add the dead-letter stream to a spout whose dead letters are read."""
        if spec.kind != "spout" or not isinstance(spec.id, str) or spec.id not in self.buried:
            return spec
        dead_letters = topology.StreamSpec(topology.DEAD_LETTER_FIELDS)
        return replace(spec, outputs={**spec.outputs, topology.DEAD_LETTERS: dead_letters})


def _stream_problem(stream: object) -> str | None:
    if not isinstance(stream, str):
        return f"the stream is {typed(stream)}: give the name of one of the source's output streams"
    if stream.startswith(RESERVED_PREFIX):
        return f"the stream {shown(stream)} begins with {RESERVED_PREFIX!r}: reserved (see dead_letters)"
    return None


def _fields_problem(fields: Sequence[object]) -> str | None:
    wrong = [name for name in fields if not isinstance(name, str)]
    return f"the field name {typed(wrong[0])} is not a str" if wrong else None
