"""The settings from a SparkSink's arguments, and their problems, which are found when the topology is built.

Must not know: sessions, file systems, tuples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from squall_io.spark.rows.formats import format_problems
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import SchemaError
from squall_io.spark.session.request import SessionRequest, request_conflict
from squall_io.spark.stores.opening import place_problems, settings_in
from squall_io.spark.stores.paths import InvalidPath, check_table_path, nested
from topology_api import Fields, InvalidConfig
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import listed, nearest, shown, typed

LARGEST_BATCH: Final = 10_000_000
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class SinkSettings:
    """Validated arguments."""

    path: str
    schema: Schema
    file_format: str
    partition_by: tuple[str, ...]
    compression: str | None
    # Both may contain secrets, such as the token of a Spark Connect address.
    master: str | None = field(repr=False)
    conf: Mapping[str, str] = field(repr=False)


def settings_of(
    path: object,
    schema: object,
    file_format: object,
    partition_by: object,
    batch_size: object,
    batch_interval: object,
    master: object,
    conf: object,
    compression: object,
) -> SinkSettings:
    """Return the settings from these arguments; raise `InvalidConfig` with all their problems."""
    problems: list[str] = []
    wrong = f"path is {typed(path)}: give the table's path as text, 'hdfs://host:9000/warehouse/counts'"
    where = _parsed(path, (str, os.PathLike), check_table_path, wrong, problems)
    wrong = f"schema is {typed(schema)}: give Spark's DDL text, 'word string, count bigint'"
    parsed = _parsed(schema, str, parse_schema, wrong, problems)
    by = _names_of(partition_by, problems)
    if parsed is not None:
        problems += format_problems(parsed, file_format, by, compression)
    problems += _batch_problems(batch_size, batch_interval)
    wrong = f"conf is {typed(conf)}: give Spark's settings as a dict, {{'spark.executor.memory': '2g'}}"
    given = {} if conf is None else conf
    settings = _parsed(given, Mapping, lambda conf: settings_in(conf, problems), wrong, problems) or {}
    named = master if isinstance(master, str) else None
    if master is named:
        problems += place_problems(named, settings, writes=[where] if where else [])
    else:
        problems.append(f"master is {typed(master)}: give it as Spark takes it, 'local[2]'")
    if problems or where is None or parsed is None:
        raise InvalidConfig(problems, f"a SparkSink to {shown(path)}")
    by = tuple(column.name for name in by if (column := parsed.column(name)) is not None)
    packed = None if compression is None else str(compression)
    return SinkSettings(where, parsed, str(file_format), by, packed, named, settings)


def missing_fields(schema: Schema, inputs: Mapping[tuple[str, str], Fields]) -> Iterator[str]:
    """Yield the columns of the schema that streams lack, a sentence each."""
    for (component, stream), fields in inputs.items():
        missing = [name for name in schema.names if name not in fields]
        if missing:
            near = nearest(missing[0], fields)
            yield (
                f"its schema names {listed(missing)}, which the tuples of {component!r}, stream {stream!r}, do not have: their"
                f" fields are {listed(fields)}{near}"
            )


def neighbour_problems(own: SinkSettings, earlier: Mapping[str, SinkSettings]) -> Iterator[str]:
    """Yield conflicts of a sink with sinks of the topology that were declared earlier, a sentence each."""
    for component, other in earlier.items():
        requests = SessionRequest.of(other.master, other.conf), SessionRequest.of(own.master, own.conf)
        if request_conflict(*requests) is not None:
            yield (
                f"it wants {requests[1]}, and {component!r} wants {requests[0]}: a worker has one Spark session, and both may"
                " run in one worker, so give them the same master and conf"
            )
        table, others = (own.file_format, own.partition_by), (other.file_format, other.partition_by)
        if own.path == other.path:
            if table != others:
                yield f"{component!r} writes to {own.path} as well, with another format or partition_by; give another path"
        elif (problem := nested(own.path, other.path)) is not None:
            yield f"its table and that of {component!r} are in each other's way: {problem}; give another path"


def _parsed(
    given: Any, kinds: Any, parse: Callable[[Any], _Parsed], wrong: str, problems: list[str]
) -> _Parsed | None:
    """Return an argument's value; None, and a sentence in `problems`, if it is of the wrong kind or cannot be parsed."""
    if not isinstance(given, kinds):
        problems.append(wrong)
        return None
    try:
        return parse(given)
    except InvalidPath as problem:
        problems.append(str(problem))
    except SchemaError as problem:
        problems.append(f"schema: {problem}")
    return None


def _names_of(names: object, problems: list[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        problems.append(f"partition_by is {typed(names)}: give a list of the schema's names")
        return ()
    return tuple(names)


def _batch_problems(size: object, interval: object) -> Iterator[str]:
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_BATCH:
        yield f"batch_size is {typed(size)}: give a number of rows, at least 1 and at most {LARGEST_BATCH}"
    problem = number_problem(interval, 0, MAX_SECONDS, "seconds", above=True)
    if problem is not None:
        yield f"batch_interval {problem}"
