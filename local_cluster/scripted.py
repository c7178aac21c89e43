"""Spouts with scripted emissions: `ScriptedSpout` with its `Pause`s, and `FixedSource`, which replaces a spout in a test.

Both spouts use positions as message ids, and have the default replay policy. If a spout has several tasks, only the first
(index 0) emits; all other tasks finish at once. So a script is played only once, regardless of the parallelism.
Must not know: how topologies are run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topology_api import Context, Fields, InvalidConfig, InvalidTopology, Spout, Topology
from topology_api.epoch_rules import REQUIRE
from topology_api.fields import DEFAULT_STREAM
from topology_api.packing import pack
from topology_api.topology import ComponentSpec
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import listed, nearest, shown, typed

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Pause:
    """In a script: `seconds` without emissions. Raises InvalidConfig unless `seconds` is a number of 0 or more."""

    seconds: float

    def __post_init__(self) -> None:
        problem = number_problem(self.seconds, 0, MAX_SECONDS, "seconds")
        if problem is not None:
            raise InvalidConfig([f"seconds {problem}"], "a Pause")


class Tick:
    """The class of TICK, which is its only instance."""

    def __repr__(self) -> str:
        return "TICK"

    def __reduce__(self) -> str:
        return "TICK"


#: An input of `run_bolt` that calls the bolt's `tick`.
TICK = Tick()


def row_problem(values: object, fields: Sequence[str]) -> str | None:
    """Return the problem if `values` cannot be the values of a tuple with these fields; else None."""
    if not isinstance(values, (tuple, list)):
        return f"is {typed(values)}: give a tuple of values; one value is written (value,)"
    if len(values) != len(fields):
        return f"has {len(values)} value(s), {shown(values)}, for {len(fields)} field(s): {listed(fields)}"
    return None


class ScriptedSpout(Spout):
    """A spout that plays a script of value tuples and `Pause(seconds)`.

    The message id of a tuple is its position in the script; pauses are counted, too. At the end of the script the spout
    finishes. Failed trees are replayed according to the default policy; for a different policy, set `replay` on the instance or
    in a subclass. fields: the fields of the stream `default`. Raises InvalidTopology, with all problems, if the script does not
    fit the fields.
    """

    def __init__(self, fields: Fields | str | Sequence[str], script: Iterable[Any]) -> None:
        self.outputs = Fields(fields)
        if isinstance(script, (str, bytes, Mapping)) or not hasattr(script, "__iter__"):
            raise InvalidTopology([f"the script is {typed(script)}: give a list of value tuples and Pauses"])
        self.script = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in script)
        problems = [
            f"the script of {type(self).__name__}, position {position}, {problem}"
            for position, entry in enumerate(self.script)
            if not isinstance(entry, Pause) and (problem := row_problem(entry, self.outputs)) is not None
        ]
        if problems:
            raise InvalidTopology(problems)

    def open(self, context: Context) -> None:
        """Start at the beginning of the script (the first task), or at its end (all other tasks)."""
        self.position = 0 if context.index == 0 else len(self.script)

    def next_tuple(self) -> float | None:
        """Play the next entry of the script."""
        position = self.position
        if position >= len(self.script):
            self.finish()
            return None
        self.position += 1
        return self._play(self.script[position], position)

    def _play(self, entry: Any, position: int) -> float | None:
        if isinstance(entry, Pause):
            return entry.seconds
        self.emit(entry, message_id=position)
        return None


class FixedSource(ScriptedSpout):
    """Replaces a spout: plays values that each name their stream, instead of a script for one stream."""

    def __init__(self, entries: Sequence[tuple[str, Row]]) -> None:
        self.script = tuple(entries)

    def _play(self, entry: tuple[str, Row], position: int) -> None:
        stream, row = entry
        self.emit(row, message_id=position, stream=stream)


def with_sources(topology: Topology, sources: Mapping[str, Any]) -> Topology:
    """Replace spouts of a topology with fixed values: id -> value tuples for the stream `default` (or the spout's only stream),
    or id -> {stream: value tuples}. Ids, streams, parallelism, configuration and task ids stay unchanged.

    Raises InvalidTopology with all problems, and CannotPack for values that could not be shipped.
    """
    if not isinstance(sources, Mapping):
        raise InvalidTopology(
            [f"sources is {typed(sources)}: give a dict from spout ids to values"], topology.name
        )
    problems: list[str] = []
    entries: dict[str, list[tuple[str, Row]]] = {}
    specs = {spec.id: spec for spec in topology.components}
    for name, values in sources.items():
        spec = specs.get(name)
        if spec is None or spec.kind != "spout":
            problems.append(_not_a_spout(name, spec, topology))
            continue
        found, wrong = _entries_of(spec, values)
        problems += [f"sources[{name!r}]: {problem}" for problem in wrong]
        entries[name] = found
    if problems:
        raise InvalidTopology(problems, topology.name)
    packed = {name: pack(FixedSource(found), f"sources[{name!r}]", Spout) for name, found in entries.items()}
    # Fixed values cannot rewind.
    conf = {key: value for key, value in topology.conf.items() if key != REQUIRE}
    return replace(topology, conf=conf, pickles={**topology.pickles, **packed})


def near_or_all(name: object, known: Collection[str], there: str = "it has") -> str:
    """Return a hint for an unknown name: the nearest known name, or all known names, introduced by the text `there`."""
    near = nearest(name, known) if isinstance(name, str) else ""
    return near or f" ({there}: {listed(known)})"


def _not_a_spout(name: object, spec: ComponentSpec | None, topology: Topology) -> str:
    spouts = [spout.id for spout in topology.spouts]
    if spec is not None:
        return f"sources[{name!r}]: that is a bolt; only spouts are replaced (there are: {listed(spouts)})"
    return f"sources[{shown(name)}]: there is no such spout{near_or_all(name, spouts, 'there are')}"


def _entries_of(spec: ComponentSpec, values: Any) -> tuple[list[tuple[str, Row]], list[str]]:
    """Return the entries of a `FixedSource`, stream by stream, and the problems of the values."""
    streams = [stream for stream in spec.outputs if not stream.startswith("__")]
    if not isinstance(values, Mapping):
        if DEFAULT_STREAM not in streams and len(streams) != 1:
            return [], [f"the spout's streams are {listed(streams)}: give a dict, {{stream: values}}"]
        values = {DEFAULT_STREAM if DEFAULT_STREAM in streams else streams[0]: values}
    entries: list[tuple[str, Row]] = []
    problems: list[str] = []
    for stream, rows in values.items():
        if stream not in streams:
            problems.append(f"the spout has no stream {shown(stream)}{near_or_all(stream, streams)}")
        elif spec.outputs[stream].direct:
            problems.append(f"stream {stream!r} is direct: fixed values do not name their target task")
        elif isinstance(rows, (str, bytes, Mapping)) or not hasattr(rows, "__iter__"):
            problems.append(f"it is {typed(rows)}: give a list of value tuples")
        else:
            for row in rows:
                problem = row_problem(row, spec.outputs[stream].fields)
                if problem is not None:
                    problems.append(f"position {len(entries)} {problem}")
                entries.append((stream, tuple(row) if problem is None else ()))
    return entries, problems
