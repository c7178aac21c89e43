"""The settings of a SparkSink, and problems of its arguments, which are found when the topology is built.

Must not know: sessions, file systems, tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from squall.stores.paths import InvalidPath, nested
from squall_io.spark.rows.formats import FORMATS
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import SchemaError
from squall_io.spark.session.request import SessionRequest, request_conflict
from topology_api import Fields
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import listed, nearest, typed

LARGEST_BATCH: Final = 10_000_000
#: The most small files that `compact_after` lets a partition have.
MOST_SMALL: Final = 1_000_000
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class SinkSettings:
    """The validated arguments of a SparkSink."""

    path: str
    schema: Schema
    file_format: str
    partition_by: tuple[str, ...]
    compression: str | None
    # `master` and `conf` may contain secrets, such as the token of a Spark Connect address.
    master: str | None = field(repr=False)
    conf: Mapping[str, str] = field(repr=False)
    #: How many small files a directory may have; None: any number.
    compact_after: int | None = None

    def missing_fields(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterator[str]:
        """Yield a sentence for each input stream that lacks columns of the schema."""
        for (component, stream), fields in inputs.items():
            if missing := [name for name in self.schema.names if name not in fields]:
                near = nearest(missing[0], fields)
                yield (
                    f"its schema names {listed(missing)}, which the tuples of {component!r}, stream {stream!r}, do not have:"
                    f" their fields are {listed(fields)}{near}"
                )

    def neighbour_problems(self, earlier: Mapping[str, SinkSettings]) -> Iterator[str]:
        """Yield a sentence for each conflict with a sink of the topology that was declared earlier."""
        for component, other in earlier.items():
            requests = SessionRequest.of(other.master, other.conf), SessionRequest.of(self.master, self.conf)
            if request_conflict(*requests) is not None:
                yield (
                    f"it wants {requests[1]}, and {component!r} wants {requests[0]}: a worker has one Spark session, and both"
                    " sinks may run in one worker, so give them the same master and conf"
                )
            own, others = (self.file_format, self.partition_by), (other.file_format, other.partition_by)
            if self.path == other.path:
                if own != others:
                    yield f"{component!r} writes to {self.path} as well, with another format or partition_by; give another path"
            elif (problem := nested(self.path, other.path)) is not None:
                yield f"its table and that of {component!r} are in each other's way: {problem}; give another path"


def parsed(
    given: Any, kinds: Any, parse: Callable[[Any], _Parsed], wrong: str, problems: list[str]
) -> _Parsed | None:
    """Return an argument's value. If it is of the wrong kind or cannot be parsed: None, and a sentence in `problems`."""
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


def names_of(names: object, problems: list[str]) -> tuple[str, ...]:
    """Return the names that `partition_by` gives. If it is not a list of texts: none, and a sentence in `problems`."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        problems.append(f"partition_by is {typed(names)}: give a list of the schema's names")
        return ()
    return tuple(names)


def batch_problems(size: object, interval: object) -> Iterator[str]:
    """Yield a sentence for each problem of a sink's batch size and interval."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_BATCH:
        yield f"batch_size is {typed(size)}: give a number of rows, at least 1 and at most {LARGEST_BATCH}"
    if (problem := number_problem(interval, 0, MAX_SECONDS, "seconds", above=True)) is not None:
        yield f"batch_interval {problem}"


def compaction_problems(after: object, file_format: object) -> Iterator[str]:
    """Yield a sentence for each problem of `compact_after`."""
    if after is None:
        return
    if isinstance(after, bool) or not isinstance(after, int) or not 1 <= after <= MOST_SMALL:
        yield (
            f"compact_after is {typed(after)}: give the number of small files that a partition may have, at least 1 and at most"
            f" {MOST_SMALL}, or None to leave them"
        )
    if file_format in FORMATS and file_format != "parquet":
        yield (
            f"compact_after is {typed(after)}, and format is {file_format!r}: a sink compacts tables of parquet only; leave"
            " compact_after out, and run squall compact PATH now and then"
        )
