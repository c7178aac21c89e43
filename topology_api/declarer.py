"""The handles that `set_spout` and `set_bolt` return, and the grouping calls that declare a bolt's inputs.

The methods of `BoltDeclarer` are the table of built-in groupings: `KINDS` follows from them, and a worker has a route for each
(`worker/routing/router.py`). The methods only record the calls; `TopologyBuilder.build` checks them.
Must not know: the rules of a topology, how tuples travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Final

from topology_api.fields import DEFAULT_STREAM, Fields
from topology_api.groupings import Grouping
from topology_api.topology import DEAD_LETTERS
from topology_api.wording import shown


@dataclass(eq=False)
class Input:
    """A recorded grouping call, valid or not."""

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
class Declaration:
    """A recorded call of set_spout or set_bolt, valid or not, and the grouping calls that followed."""

    builder: object
    kind: str
    id: str
    component: object
    parallelism: int
    conf: object
    inputs: list[Input] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{self.kind} {shown(self.id)}"


class Handle:
    """The result of `set_spout`. You can pass it instead of the id of a source."""

    __slots__ = ("_declaration",)

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration

    @property
    def id(self) -> str:
        """The component's id."""
        return self._declaration.id

    def __repr__(self) -> str:
        return f"<{self._declaration.place}>"


class BoltDeclarer(Handle):
    """The result of `set_bolt`: a Handle whose grouping calls declare the bolt's inputs. The calls can be chained.

    `source` is the id of a spout or bolt, or its handle. The source may be declared later, and may be the bolt itself (cycles
    are allowed). `stream` is one of the source's output streams; a bolt can read a stream only once. `build()` reports
    mistakes.
    """

    __slots__ = ()

    def _add(self, entry: Input) -> BoltDeclarer:
        self._declaration.inputs.append(entry)
        return self

    def shuffle_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to one task, in turn: two tasks get the same number of tuples from a sender, give or take one."""
        return self._add(Input(source, stream, "shuffle"))

    def fields_grouping(
        self, source: str | Handle, *fields: str | Sequence[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Send tuples with equal values of these fields to the same task, whichever task and host sends them.

        Keys may be None, bool, numbers, str, bytes, date/time/datetime/timedelta, Decimal, Enum, UUID, dataclasses, numpy
        scalars, and tuples, lists and frozensets of these; any other type raises GroupingError in `emit`.
        """
        return self._add(Input(source, stream, "fields", tuple(Fields(*fields))))

    def partial_key_grouping(
        self, source: str | Handle, *fields: str | Sequence[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Group by fields, but with two candidate tasks per key: the less used of the two gets the tuple."""
        return self._add(Input(source, stream, "partial_key", tuple(Fields(*fields))))

    def all_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to every task; the tuple's tree waits for all of them."""
        return self._add(Input(source, stream, "all"))

    def global_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send all tuples to the task with the lowest id."""
        return self._add(Input(source, stream, "global"))

    def none_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Leave the choice of the task to Squall; currently the same as shuffle."""
        return self._add(Input(source, stream, "none"))

    def direct_grouping(self, source: str | Handle, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the emitter choose the task, with `emit_direct`; the stream must be a `Stream(fields, direct=True)`."""
        return self._add(Input(source, stream, "direct"))

    def local_or_shuffle_grouping(
        self, source: str | Handle, *, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Shuffle among the bolt's tasks in the sender's worker; if there are none there, among all of the bolt's tasks."""
        return self._add(Input(source, stream, "local_or_shuffle"))

    def custom_grouping(
        self, source: str | Handle, grouping: Grouping, *, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Let an instance of a subclass of Grouping choose the tasks; each sending task has its own copy of the instance."""
        return self._add(Input(source, stream, "custom", grouping=grouping))

    def dead_letters(self, spout: str | Handle) -> BoltDeclarer:
        """Receive the emissions of a spout that have failed and have no replays left.

        The tuples have the fields `message_id`, `values`, `stream` and `failure` (a Failure), and are shuffled over the bolt's
        tasks. Not possible for a spout whose `replay` is None, because the runtime does not keep its values. With
        `topology.state.path` they come from the bolts in which tuples of the spout failed, with the values that the bolt got.
        """
        return self._add(Input(spout, DEAD_LETTERS, "dead_letters"))


_METHODS: Final = {
    name.removesuffix("_grouping"): method
    for name, method in vars(BoltDeclarer).items()
    if name.endswith("_grouping")
}
#: The possible values of GroupingSpec.kind. Each kind is documented by its method: `fields` by `fields_grouping`.
KINDS: Final = tuple(_METHODS)
#: The groupings by fields.
KEYED_KINDS: Final = tuple(kind for kind, call in _METHODS.items() if "fields" in signature(call).parameters)
