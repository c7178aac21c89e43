"""TopologyBuilder: how a user declares a topology.

The builder only writes down what it is told, right or wrong; `build()` judges everything at once (inspection,
packing, validation) and raises one InvalidTopology with all problems. It must not know the rules themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from topology_api.components import Bolt, Spout
from topology_api.errors import CannotPack, InvalidTopology
from topology_api.fields import DEFAULT_STREAM, Fields
from topology_api.groupings import Grouping
from topology_api.inspection import (
    bolts_own_problems,
    component_problems,
    grouping_problems,
    kind_problem,
    output_streams,
)
from topology_api.names import RESERVED_PREFIX
from topology_api.options import json_copy
from topology_api.packing import pack
from topology_api.topology import (
    DEAD_LETTER_FIELDS,
    DEAD_LETTERS,
    ComponentSpec,
    GroupingSpec,
    StreamSpec,
    Subscription,
    Topology,
)
from topology_api.validation import problems_of_topology
from topology_api.wording import shown, typed

__all__ = ["BoltDeclarer", "Handle", "TopologyBuilder"]


@dataclass(eq=False)
class _Input:
    """A grouping call as it was made."""

    source: object
    stream: object
    kind: str
    fields: tuple[str, ...] = ()
    grouping: object = None

    @property
    def call(self) -> str:
        source = self.source.id if isinstance(self.source, Handle) else self.source
        name = self.kind if self.kind == "dead_letters" else f"{self.kind}_grouping"
        return f"{name}({shown(source)})"


@dataclass(eq=False)
class _Declaration:
    """A set_spout or set_bolt call as it was made, and the grouping calls that followed."""

    builder: TopologyBuilder
    kind: str
    id: str
    component: object
    parallelism: int
    conf: object
    inputs: list[_Input] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{self.kind} {shown(self.id)}"


class Handle:
    """What `set_spout` returns: it is taken wherever the id of a source is. `id` is that id."""

    __slots__ = ("_declaration",)

    def __init__(self, declaration: _Declaration) -> None:
        self._declaration = declaration

    @property
    def id(self) -> str:
        """The component's id."""
        return self._declaration.id

    def __repr__(self) -> str:
        return f"<{self._declaration.place}>"


class BoltDeclarer(Handle):
    """What `set_bolt` returns: its calls say what the bolt reads, and chain. It is a Handle as well.

    `source` is the id of a spout or bolt, or what set_spout or set_bolt returned for it; it may be declared
    later, and may be the bolt itself (cycles are allowed). `stream` is one of the source's output streams. A
    bolt reads a stream once. Mistakes are reported by `build()`.
    """

    __slots__ = ()

    def _add(self, entry: _Input) -> BoltDeclarer:
        self._declaration.inputs.append(entry)
        return self

    def shuffle_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to one task, fairly: what each task gets from one sender differs by at most 1."""
        return self._add(_Input(source, stream, "shuffle"))

    def fields_grouping(
        self, source: str | Handle, *fields: str | Sequence[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Tuples with equal values of these fields go to one task, whichever task or machine sends them.

        Keys may be None, bool, numbers, str, bytes, date/time/datetime/timedelta, Decimal, Enum, UUID,
        dataclasses, numpy scalars, and tuples, lists and frozensets of these; anything else is a
        GroupingError in the emit.
        """
        return self._add(_Input(source, stream, "fields", tuple(Fields(*fields))))

    def partial_key_grouping(
        self, source: str | Handle, *fields: str | Sequence[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """As `fields_grouping`, but each key has two tasks and the less used one gets the tuple."""
        return self._add(_Input(source, stream, "partial_key", tuple(Fields(*fields))))

    def all_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Every task gets each tuple; the tree waits for all of them."""
        return self._add(_Input(source, stream, "all"))

    def global_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """All tuples go to the task with the lowest id."""
        return self._add(_Input(source, stream, "global"))

    def none_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """You do not care which task gets a tuple. Today that is a shuffle."""
        return self._add(_Input(source, stream, "none"))

    def direct_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """The emitter names the task, by `emit_direct`; the stream is a `Stream(fields, direct=True)`."""
        return self._add(_Input(source, stream, "direct"))

    def local_or_shuffle_grouping(
        self, source: str | Handle, *, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """A shuffle among the tasks in the sender's worker if there are any, else among all."""
        return self._add(_Input(source, stream, "local_or_shuffle"))

    def custom_grouping(
        self, source: str | Handle, grouping: Grouping, *, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """An instance of a subclass of Grouping chooses; each sending task has its own copy."""
        return self._add(_Input(source, stream, "custom", grouping=grouping))

    def dead_letters(self, spout: str | Handle) -> BoltDeclarer:
        """Gets the emissions of that spout whose replays are spent.

        The fields are `message_id`, `values`, `stream` and `failure` (a Failure), shuffled over the
        bolt's tasks. Not for a spout whose `replay` is None: the runtime keeps no values there.
        """
        return self._add(_Input(spout, DEAD_LETTERS, "dead_letters"))


class TopologyBuilder:
    """Collects the spouts and bolts of a topology: declare them, then `build()`.

    name: the topology's name (a str without / \\ : . and not over 255 bytes). conf: its configuration.
    No call raises for a wrong argument: `build()` reports everything at once.
    """

    def __init__(self, name: str, conf: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.conf = conf
        self._declarations: list[_Declaration] = []

    def set_spout(
        self, id: str, spout: Spout, parallelism: int = 1, conf: Mapping[str, object] | None = None
    ) -> Handle:
        """Declares a spout and returns a handle that is taken wherever its id is.

        id: unique in the topology. spout: an instance; it is read and pickled by `build()`.
        parallelism: the number of its tasks. conf: its own configuration, which beats the topology's.
        """
        # In truth a BoltDeclarer: a grouping called on a spout is a problem among others, not a traceback.
        return self._declare("spout", id, spout, parallelism, conf)

    def set_bolt(
        self, id: str, bolt: Bolt, parallelism: int = 1, conf: Mapping[str, object] | None = None
    ) -> BoltDeclarer:
        """Declares a bolt, as `set_spout`; the grouping calls of what it returns say what it reads."""
        return self._declare("bolt", id, bolt, parallelism, conf)

    def _declare(self, kind: str, id: str, component: object, parallelism: int, conf: object) -> BoltDeclarer:
        declaration = _Declaration(self, kind, id, component, parallelism, conf)
        self._declarations.append(declaration)
        return BoltDeclarer(declaration)

    def build(self) -> Topology:
        """The topology, frozen; or InvalidTopology with all problems. The builder can be used on."""
        build = _Build(self._declarations)
        specs = [build.spec(declaration) for declaration in self._declarations]
        specs = [build.with_dead_letters(spec) for spec in specs]
        conf = {} if self.conf is None else self.conf
        # What the components are comes first, then the topology as a whole and how they fit together.
        problems = build.problems + problems_of_topology(
            self.name, conf, specs, unread_outputs=build.unread_outputs, unread_inputs=build.unread_inputs
        )
        if (
            not problems
        ):  # what bolts say of their inputs is worth something only when these are as they should be
            problems = build.problems_of_inputs(specs)
        if problems:
            raise InvalidTopology(problems, self.name if isinstance(self.name, str) else None)
        components = tuple(replace(spec, conf=json_copy(spec.conf)) for spec in specs)
        return Topology(self.name, json_copy(conf), components, build.pickles)


class _Build:
    """One run of `build()`: turns declarations into specs and pickles, and notes what is wrong with them."""

    def __init__(self, declarations: Sequence[_Declaration]) -> None:
        self.declarations = declarations
        self.problems: list[str] = []
        self.pickles: dict[str, bytes] = {}
        self.unread_outputs: set[str] = set()
        self.unread_inputs: set[str] = set()
        self.buried: set[str] = set()  # ids of spouts whose dead letters are read

    def note(self, declaration: _Declaration, problem: str) -> None:
        self.problems.append(f"{declaration.place}: {problem}")

    def spec(self, declaration: _Declaration) -> ComponentSpec:
        conf: Mapping[str, object] = {}
        if isinstance(declaration.conf, Mapping):
            conf = declaration.conf
        elif declaration.conf is not None:
            self.note(declaration, f"its conf is {typed(declaration.conf)}: give a dict from keys to values")
        outputs = self._outputs_and_pickle(declaration)
        inputs = []
        for entry in declaration.inputs:
            subscription = self._subscription(declaration, entry)
            if subscription is None:
                self._unread(self.unread_inputs, declaration)
            else:
                inputs.append(subscription)
        return ComponentSpec(
            declaration.id, declaration.kind, declaration.parallelism, conf, outputs, tuple(inputs)
        )

    def _outputs_and_pickle(self, declaration: _Declaration) -> Mapping[str, StreamSpec]:
        """The output streams of the component; its pickle goes into `pickles`."""
        component = declaration.component
        problem = kind_problem(declaration.kind, component)
        if problem is not None:
            self.note(declaration, problem)
            self._unread(self.unread_outputs, declaration)
            return {}
        assert isinstance(component, (Spout, Bolt))
        outputs, problems = output_streams(component)
        if outputs is None:
            self._unread(self.unread_outputs, declaration)
        for problem in problems + component_problems(component):
            self.note(declaration, problem)
        try:
            data = pack(component, declaration.place, Spout if declaration.kind == "spout" else Bolt)
        except CannotPack as error:
            self.problems.append(str(error))
        else:
            if isinstance(declaration.id, str):
                self.pickles[declaration.id] = data
        return outputs or {}

    def _unread(self, ids: set[str], declaration: _Declaration) -> None:
        if isinstance(declaration.id, str):
            ids.add(declaration.id)

    def _subscription(self, declaration: _Declaration, entry: _Input) -> Subscription | None:
        """The spec of a grouping call; None when it is so wrong that there is none (which is then noted)."""
        problem = self._source_problem(declaration, entry)
        source = entry.source.id if isinstance(entry.source, Handle) else entry.source
        grouping = None
        if problem is None and entry.kind == "dead_letters":
            problem = self._dead_letters_problem(source)
            grouping = GroupingSpec("shuffle")
        elif problem is None:
            problem = _stream_problem(entry.stream) or _fields_problem(entry.fields)
        if problem is None and entry.kind == "custom":
            grouping = self._custom(declaration, entry)
        elif problem is None and grouping is None:
            grouping = GroupingSpec(entry.kind, entry.fields)
        if problem is not None:
            self.note(declaration, f"{entry.call}: {problem}")
        if grouping is None or problem is not None or not isinstance(source, str):
            return None
        if entry.kind == "dead_letters":
            self.buried.add(source)
        return Subscription(source, str(entry.stream), grouping)

    def _source_problem(self, declaration: _Declaration, entry: _Input) -> str | None:
        source = entry.source
        if isinstance(source, Handle):
            if source._declaration.builder is not declaration.builder:
                return f"{source!r} was declared with another builder"
            return None  # if its id is not even a str, that is a problem of the source
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
                return None  # noted already, with the spout
            if not replays:
                return (
                    f"{other.place} has replay = None: the runtime keeps no values that could be dead letters"
                )
        return None

    def _custom(self, declaration: _Declaration, entry: _Input) -> GroupingSpec | None:
        problems = grouping_problems(entry.grouping)
        if not problems:
            try:
                place = f"{declaration.place}, {entry.call}"
                return GroupingSpec("custom", custom=pack(entry.grouping, place, Grouping))
            except CannotPack as error:
                self.problems.append(str(error))
        for problem in problems:
            self.note(declaration, f"{entry.call}: {problem}")
        return None

    def problems_of_inputs(self, specs: Sequence[ComponentSpec]) -> list[str]:
        """What the bolts themselves say is wrong with what they read, and with each other."""
        outputs = {spec.id: spec.outputs for spec in specs}
        problems = []
        earlier: dict[str, Bolt] = {}
        for declaration, spec in zip(self.declarations, specs):
            if isinstance(declaration.component, Bolt):
                inputs = {
                    (entry.source, entry.stream): Fields(*outputs[entry.source][entry.stream].fields)
                    for entry in spec.inputs
                }
                found = bolts_own_problems(declaration.component, inputs, dict(earlier))
                earlier[spec.id] = declaration.component
                problems += [f"{declaration.place}: {problem}" for problem in found]
        return problems

    def with_dead_letters(self, spec: ComponentSpec) -> ComponentSpec:
        """The spec with what is known only when all are read: whether a spout's dead letters are wanted."""
        if spec.kind != "spout" or not isinstance(spec.id, str) or spec.id not in self.buried:
            return spec
        return replace(spec, outputs={**spec.outputs, DEAD_LETTERS: StreamSpec(DEAD_LETTER_FIELDS)})


def _stream_problem(stream: object) -> str | None:
    if not isinstance(stream, str):
        return f"the stream is {typed(stream)}: give the name of one of the source's output streams"
    if stream.startswith(RESERVED_PREFIX):
        return f"the stream {shown(stream)} begins with {RESERVED_PREFIX!r}: reserved (see dead_letters)"
    return None


def _fields_problem(fields: Sequence[object]) -> str | None:
    wrong = [name for name in fields if not isinstance(name, str)]
    return f"the field name {typed(wrong[0])} is not a str" if wrong else None
