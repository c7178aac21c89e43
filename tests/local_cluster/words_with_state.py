"""Word counts whose state is at a path: their spouts, bolts and true counts."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster
from topology_api import (
    Bolt,
    Context,
    FailTuple,
    Fields,
    Replay,
    RewindableSpout,
    Spout,
    StatefulBolt,
    TokenSink,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.epochs.records import CommitRecord
from worker.epochs.snapshot_files import TaskSnapshot
from worker.loop.epoch_store import EpochFiles

WORDS = [f"w{number % 7}" for number in range(1_000)]


class Words(RewindableSpout):
    """Emits words by position, and can go back to one."""

    outputs = Fields("word", "number")
    replay = Replay(max_attempts=30, first_delay=0.01, max_delay=0.1)

    def __init__(self, count: int, a_second: int | None = None) -> None:
        self.count, self.a_second = count, a_second

    def open(self, context: Context) -> None:
        self.context, self.at = context, 0
        self.acked: list[object] = []

    def position(self) -> int:
        return self.at

    def rewind(self, position: int | None) -> None:
        self.at = position or 0

    def next_tuple(self) -> float | None:
        if self.at >= self.count:
            return 0.1
        number = self.at
        self.at += 1
        self.emit((WORDS[number % len(WORDS)], number), message_id=number)
        return None if self.a_second is None else 1 / self.a_second

    def ack(self, message_id: object) -> None:
        self.acked.append(message_id)


class Partitions(RewindableSpout):
    """Emits the words of twelve partitions, which its tasks share; it ends with `follow=False`."""

    outputs = Fields("word", "number")
    replay = Words.replay
    PARTITIONS = 12

    def __init__(self, count: int, a_second: int, *, follow: bool = True) -> None:
        self.count, self.a_second, self.follow = count, a_second, follow

    def open(self, context: Context) -> None:
        self.context = context
        self.next: dict[int, int] = {}
        self.rewind(None)

    def position(self) -> dict[str, int]:
        return {str(partition): number for partition, number in self.next.items()}

    def rewind(self, position: dict[str, int] | None) -> None:
        own = range(self.context.index, self.PARTITIONS, self.context.parallelism)
        self.next = {partition: (position or {}).get(str(partition), partition) for partition in own}

    def merge_positions(self, positions: list[dict[str, int]]) -> dict[str, int]:
        return {partition: number for each in positions for partition, number in each.items()}

    def next_tuple(self) -> float | None:
        for partition, number in self.next.items():
            if number < self.count:
                self.next[partition] = number + self.PARTITIONS
                self.emit((WORDS[number % len(WORDS)], number), message_id=number)
                return 1 / self.a_second
        if not self.follow:
            self.finish()
        return 0.1


class Pass(Bolt):
    """Passes tuples on, and raises for some of them: after it has emitted."""

    outputs = Fields("word", "number")

    def __init__(self, failing: float = 0.0, poison: frozenset[int] = frozenset()) -> None:
        self.failing, self.poison = failing, poison

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"]))
        if tup["number"] in self.poison or self.random.random() < self.failing:
            raise ValueError(f"number {tup['number']}")


class Count(StatefulBolt):
    key = ("word",)
    outputs = Fields("word", "times", "total")
    times = ValueState(int, default=0)
    total = ValueState(int, default=0)

    def __init__(self, failing: float = 0.0) -> None:
        self.failing = failing

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.total.value += tup["number"]
        self.emit((tup["word"], self.times.value, self.total.value))
        if self.random.random() < self.failing:
            raise ValueError(f"after {self.times.value}")


class SlowCount(Count):
    """Takes so long for one word that all outboxes before it are full."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup["word"] == "w0":
            time.sleep(0.004)


class Needs(Pass):
    """Raises as long as a file is missing."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def execute(self, tup: Tuple) -> None:
        if not Path(self.path).exists():
            raise OSError("the store is away")
        super().execute(tup)


class OneWord(Pass):
    def execute(self, tup: Tuple) -> None:
        self.emit(("w0", tup["number"]))


class Refuses(Pass):
    def execute(self, tup: Tuple) -> None:
        raise FailTuple("refused")


class Finite(Words):
    def next_tuple(self) -> float | None:
        if self.at >= self.count:
            self.finish()
            return None
        return super().next_tuple()


class Forward(Spout):
    """Has no position."""

    outputs = Words.outputs
    replay = Words.replay

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < self.count:
            self.emit((WORDS[self.at % len(WORDS)], self.at), message_id=self.at)
            self.at += 1


class WordsWithoutIds(Words):
    def next_tuple(self) -> float | None:
        if self.at < self.count:
            self.at += 1
            self.emit((WORDS[(self.at - 1) % len(WORDS)], self.at - 1))
        return 0.01


class ForwardWithoutIds(Forward):
    def next_tuple(self) -> float:  # type: ignore[override]
        if self.at < self.count:
            self.at += 1
            self.emit((WORDS[(self.at - 1) % len(WORDS)], self.at - 1))
        return 0.01


class EmitsInOpen(Forward):
    """Emits before anything is restored."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.next_tuple()
        self.next_tuple()


class EmitsInPrepare(Pass):
    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.emit(("w0", 0))


class Writes(Count):
    """Writes at the end how many tuples it got."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.got = 0

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.got += 1
        with open(self.path, "w") as file:
            file.write(f"{self.times.value}\n")


class CountTexts(Count):
    times = ValueState(str, default="")


class Newest(StatefulBolt):
    key = ("word",)
    seen = ValueState(int, default=0)
    most = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        self.most.value = max(self.most.value, tup["times"])


class Rows(TokenSink):
    """Writes to SQLite; some calls raise, before or after their transaction."""

    def __init__(self, path: str, failing: float = 0.0) -> None:
        self.path, self.failing = path, failing

    def prepare(self, context: Context) -> None:
        self.random = context.random
        with self.connected() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS rows (word TEXT, times INTEGER, total INTEGER)")
            connection.execute("CREATE TABLE IF NOT EXISTS tokens (name TEXT PRIMARY KEY, number INTEGER)")

    def connected(self) -> Any:
        if Path(self.path).with_name("away").exists():
            raise OSError("the database is away")
        return contextlib.closing(sqlite3.connect(self.path, isolation_level=None))

    def read_token(self, token: str) -> int:
        with self.connected() as connection:
            found = connection.execute("SELECT number FROM tokens WHERE name = ?", (token,)).fetchone()
        return 0 if found is None else int(found[0])

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if token is not None:
                found = connection.execute("SELECT number FROM tokens WHERE name = ?", (token,)).fetchone()
                if (0 if found is None else found[0]) != expected:
                    return False
                connection.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?)", (token, epoch))
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            if self.random.random() < self.failing:
                raise OSError("before the commit")
            connection.execute("COMMIT")
        if self.random.random() < self.failing:
            raise OSError("after the commit")
        return True


def rows_at(path: Path) -> list[tuple[str, int]]:
    """Return what `Rows` has written: each word with its count at that moment."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT word, times FROM rows").fetchall())


def expected_rows(numbers: list[int]) -> list[tuple[str, int]]:
    return sorted(
        (word, number) for word, (times, *_) in expected(numbers).items() for number in range(1, times + 1)
    )


def words_to_rows(spout: Spout, between: Bolt, sink: Bolt, parallelism: int = 2) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("count", between, parallelism).fields_grouping("words", "word")
    builder.set_bolt("rows", sink, parallelism).shuffle_grouping("count")
    return builder.build()


def kept_at(folder: Path) -> tuple[EpochFiles, list[CommitRecord]]:
    """Return the commits of a topology that are kept, the last one last."""
    files = EpochFiles(f"file://{folder.parent}", folder.name)
    there = {path.name for path in (folder / "snapshots").iterdir()}
    commits = [record for record in files.records_after(0) if isinstance(record, CommitRecord)]
    return files, [commit for commit in commits if {file.name for file in commit.files.values()} <= there]


def commits_at(folder: Path) -> list[list[TaskSnapshot]]:
    """Return the snapshots of all commits of a topology that are kept, the last ones last. It must not run."""
    files, kept = kept_at(folder)
    return [files.read_snapshots(commit.files) for commit in kept]


def snapshots_at(folder: Path) -> list[TaskSnapshot]:
    """Return the snapshots of the last commit of a topology. It may run: earlier ones are swept meanwhile."""
    files, kept = kept_at(folder)
    return files.read_snapshots(kept[-1].files)


def eventually(true: Callable[[], bool], secs: float = 60.0) -> None:
    end = time.monotonic() + secs
    while not true():
        assert time.monotonic() < end, f"not within {secs:g} seconds"
        time.sleep(0.02)


def words(spout: Spout, between: Bolt, count: Bolt, parallelism: int = 2) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("pass", between, parallelism).shuffle_grouping("words")
    builder.set_bolt("count", count, parallelism).fields_grouping("pass", "word")
    builder.set_bolt("newest", Newest(), parallelism).fields_grouping("count", "word")
    return builder.build()


def counts(cluster: LocalCluster) -> dict[str, tuple[int, int, int, int]]:
    """Of each word: how often it was counted, the sum of its numbers, and what the last bolt has seen of it."""
    found = {}
    for word in sorted(set(WORDS)):
        count, newest = (cluster.state("words", component, word) for component in ("count", "newest"))
        found[word] = (count["times"], count["total"], newest["seen"], newest["most"])
    return found


def expected(numbers: list[int]) -> dict[str, tuple[int, int, int, int]]:
    times: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for number in numbers:
        times[WORDS[number % len(WORDS)]] += 1
        totals[WORDS[number % len(WORDS)]] += number
    return {word: (times[word], totals[word], times[word], times[word]) for word in sorted(set(WORDS))}


class Files(Newest):
    """Writes what it knows of each word to a file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        (Path(self.folder) / tup["word"]).write_text(f"{self.seen.value} {self.most.value}")


def read_all(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}
