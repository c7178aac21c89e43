"""A topology of pipes: each has a source, maybe a function, and a sink.

Must not know: addresses' schemes, where functions come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from squall_io.pipes.addresses import WrongAddress
from squall_io.pipes.ends import sink_of, source_of
from squall_io.pipes.rows import MapRows, RowFunction
from topology_api import InvalidConfig, Topology, TopologyBuilder
from topology_api.wording import listed, typed


@dataclass(frozen=True)
class Pipe:
    """One way from a source to a sink.

    source, sink: addresses. function: makes the rows to write of each row; None: rows stay as they are. tasks: the number of
    tasks of the source, of the function and of the sink, each.
    """

    source: str
    sink: str
    function: RowFunction | None = None
    tasks: int = 1

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {typed(value)}: give an address, such as file:/var/log/app.log"
            for name, value in (("source", self.source), ("sink", self.sink))
            if not isinstance(value, str)
        ]
        if self.function is not None and not callable(self.function):
            problems.append(f"function is {typed(self.function)}: give a function from a row to a row")
        if type(self.tasks) is not int or self.tasks < 1:
            problems.append(f"tasks is {typed(self.tasks)}: give a whole number, at least 1")
        if problems:
            raise InvalidConfig(problems, "a Pipe")


def topology_of(
    pipes: Sequence[Pipe], name: str = "pipe", conf: Mapping[str, object] | None = None
) -> Topology:
    """Return the topology of some pipes. Raises WrongAddress, InvalidConfig, or InvalidTopology, with all problems of one kind.

    Its components are `source`, `map` and `sink`; of several pipes `source-1`, `source-2` and so on.
    """
    builder = TopologyBuilder(name, conf)
    for number, pipe in enumerate(pipes, 1):
        _add(builder, pipe, f"-{number}" if len(pipes) > 1 else "")
    return builder.build()


def _add(builder: TopologyBuilder, pipe: Pipe, ending: str) -> None:
    source, sink = source_of(pipe.source), sink_of(pipe.sink)
    wanted, there = sink.fields, source.fields
    before = builder.set_spout(f"source{ending}", source.spout, pipe.tasks)
    direct = pipe.function is None and there is not None and sink.whole is None
    if wanted is None and not direct:
        raise WrongAddress(
            f"{pipe.sink}: the fields of its rows are known only when they come: say which to write, with fields=A,B"
        )
    if direct and there is not None and (missing := [name for name in wanted or () if name not in there]):
        raise WrongAddress(
            f"{pipe.sink} writes {listed(missing)}, and {pipe.source} has {listed(there)}: name other fields, or make them with"
            " --map"
        )
    if not direct:
        middle = MapRows(wanted or (), pipe.function, sink.whole)
        before = builder.set_bolt(f"map{ending}", middle, pipe.tasks).shuffle_grouping(before)
    builder.set_bolt(f"sink{ending}", sink.bolt, pipe.tasks).shuffle_grouping(before)
