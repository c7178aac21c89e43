"""The table of schemes: which connector an address names, as the source and as the sink of a pipe.

Connectors are imported where an address names them, so that a pipe needs no other library than its own.
Must not know: topologies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from squall_io.pipes.addresses import PipeAddress, WrongAddress, arguments_of, parse_address
from topology_api import Bolt, Fields, Spout
from topology_api.wording import listed, shown

#: What an address begins with if it names a table that Spark writes: `spark+hdfs://`, `spark+file:`.
SPARK: Final = "spark+"


class SinkEnd(NamedTuple):
    """A sink, and the fields that it takes; None: those of the stream, whatever they are."""

    bolt: Bolt
    fields: tuple[str, ...] | None


class SourceEnd(NamedTuple):
    """A spout, and the fields of its rows; None: its tuples have one value, a dict, whose keys are the fields."""

    spout: Spout
    fields: tuple[str, ...] | None


class Scheme(NamedTuple):
    """What addresses of some schemes name. form: how they are written, for people."""

    form: str
    source: Callable[[PipeAddress], SourceEnd] | None
    sink: Callable[[PipeAddress], SinkEnd] | None


def source_of(text: str) -> SourceEnd:
    """Return the source that an address names. Raises WrongAddress, or what the connector raises for its arguments."""
    address = parse_address(text)
    scheme = _scheme(address)
    if scheme.source is None:
        raise WrongAddress(
            f"{shown(text)}: {address.scheme}: names no source, only a sink; sources: {_forms(True)}"
        )
    return scheme.source(address)


def sink_of(text: str) -> SinkEnd:
    """Return the sink that an address names. Raises as `source_of` does."""
    address = parse_address(text)
    scheme = _scheme(address)
    if scheme.sink is None:
        raise WrongAddress(
            f"{shown(text)}: {address.scheme}: names no sink, only a source; sinks: {_forms(False)}"
        )
    return scheme.sink(address)


def _scheme(address: PipeAddress) -> Scheme:
    if address.scheme.startswith(SPARK):
        return SCHEMES[SPARK]
    found = SCHEMES.get(address.scheme.partition("+")[0])
    if found is None:
        raise WrongAddress(
            f"{shown(address.text)}: there is no scheme {address.scheme!r}; sources: {_forms(True)}; sinks: {_forms(False)}"
        )
    return found


def _forms(source: bool) -> str:
    ends = [each for each in SCHEMES.values() if (each.source if source else each.sink) is not None]
    return listed(dict.fromkeys(each.form for each in ends)).replace("'", "")


def _made(component: Callable[..., Any], address: PipeAddress, *given: Any, **named: Any) -> Any:
    """Return a connector: `given` are its first arguments, `named` others, as the address' place says."""
    import inspect

    first = list(inspect.signature(component).parameters)[: len(given)]
    options = arguments_of(component, address, {*first, *named})  # type: ignore[arg-type]
    return component(*given, **named, **options)


def _with_fields(spout: Spout) -> SourceEnd:
    outputs = spout.outputs
    assert isinstance(outputs, Fields)
    return SourceEnd(spout, tuple(outputs))


# Files.


def _file_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.files import FileSpout

    return _with_fields(_made(FileSpout, address, address.path))


def _files(address: PipeAddress) -> SinkEnd:
    from squall_io.files import FileSink

    sink = _made(FileSink, address, address.path)
    return SinkEnd(sink, sink.fields)


def _hdfs_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import HdfsLines

    return _with_fields(_made(HdfsLines, address, f"{address.scheme}:{address.place}"))


# Tables that Spark writes.


def _spark_path(address: PipeAddress) -> str:
    scheme = address.scheme.removeprefix(SPARK)
    return f"file://{address.path}" if scheme == "file" else f"{scheme}:{address.place}"


def _committed_rows(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import CommittedRows

    return _with_fields(_made(CommittedRows, address, _spark_path(address)))


def _spark_table(address: PipeAddress) -> SinkEnd:
    from squall_io.spark import SparkSink

    sink = _made(SparkSink, address, _spark_path(address))
    return SinkEnd(sink, tuple(column.name for column in sink.settings.schema.columns))


#: By the part of the scheme before "+"; tables of Spark by `SPARK`.
SCHEMES: Final[dict[str, Scheme]] = {
    "file": Scheme("file:/PATH", _file_lines, _files),
    "hdfs": Scheme("hdfs://HOST:PORT/PATH", _hdfs_lines, None),
    SPARK: Scheme("spark+hdfs://HOST:PORT/PATH or spark+file:/PATH", _committed_rows, _spark_table),
}
