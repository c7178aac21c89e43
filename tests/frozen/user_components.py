"""Components and values as users write them, of names that users import alone: they are pickled by reference to this module.

Must not know: anything but the public names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from local_cluster.testing import Pause, ScriptedSpout
from squall_io.spark import CommittedRows, HdfsLines, SparkSink
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Fields,
    Grouping,
    Hook,
    Replay,
    Spout,
    Stream,
    Tuple,
)


class Words(Spout):
    """A spout with streams and a policy of its own."""

    outputs = {"default": Fields("word"), "straight": Stream(Fields("x", "y"), direct=True)}
    replay = Replay(5, 0.5, 8.0)

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.kept = {"fields": Fields("a", "b"), "replay": Replay(), "stream": Stream("x")}

    def open(self, context: Context) -> None:
        self.left = list(self.words)

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        word = self.left.pop(0)
        self.emit((word,), message_id=word)
        return None


class Count(Bolt):
    """A bolt with an output."""

    outputs = Fields("word", "count")

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit((word, self.counts[word]))


class Gather(BatchBolt):
    """A bolt that takes batches."""

    batch_size = 7
    outputs = Fields("number")

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        self.emit((len(tups),))


class ByLength(Grouping):
    """A grouping of its own."""

    def __init__(self, most: int) -> None:
        self.most = most

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = target_tasks

    def choose(self, values: tuple[object, ...]) -> Sequence[int]:
        return [self.targets[min(len(str(values[0])), self.most) % len(self.targets)]]


class Watching(Hook):
    """A hook."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


class Lines(HdfsLines):
    """A spout of ours that a user has made another one of."""


class Rows(SparkSink):
    """A sink of ours that a user has made another one of."""

    batch_size = 5


class Script(ScriptedSpout):
    """A script that a user has named."""

    def __init__(self) -> None:
        super().__init__(Fields("word"), [("a",), Pause(1.5), ("b",)])


SCHEMA = "word string NOT NULL, count bigint COMMENT 'how many', at timestamp_ntz, tags array<string>, more struct<a: int>"


def instances() -> dict[str, Any]:
    """An instance of each, and of ours."""
    return {
        "spout": Words(["to", "be"]),
        "bolt": Count(),
        "batch bolt": Gather(),
        "grouping": ByLength(3),
        "hook": Watching(),
        "script": Script(),
        "scripted": ScriptedSpout(("a", "b"), [(1, "x"), Pause(0), (2, None)]),
        "sink": SparkSink("file:///tables/words", "word string, count bigint"),
        "sink with everything": SparkSink(
            "hdfs://namenode:9000/words", SCHEMA, "orc", ("word",), 100, 2.5, "local[2]",
            {"spark.sql.session.timeZone": "UTC", "spark.hadoop.x": "y"}, "zlib",
        ),
        "sink of a user": Rows("/tables/words", "word string, number decimal(10,2), m map<string,int>"),
        "lines": HdfsLines("/logs"),
        "lines with everything": HdfsLines(
            "hdfs://namenode:9000/logs/*.gz", fields=("offset", "line", "file"), encoding="latin-1", errors="replace",
            split_bytes=1 << 20, follow=True, positions="/positions", replay=Replay(2, 1, 2), conf={"spark.hadoop.a": "b"},
        ),
        "lines of a user": Lines("/logs", replay=None),
        "rows": CommittedRows("/tables/words", ("word", "count")),
        "rows with everything": CommittedRows(
            "hdfs://namenode:9000/words", ["count"], since="2026-03-01T12:00:00Z", until=2_000_000_000, follow=True,
            positions="/positions", replay=Replay(), master="local[2]", conf={"spark.x": "y"},
        ),
    }  # fmt: skip
