"""Offsets of Structured Streaming: each committed batch is delivered once, in random histories of a table."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from squall.stores.files import Files
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.entries import BatchEntry, DataFile, encode_entry
from squall_io.spark.manifest.layout import REWRITER, BatchName, WriterId
from squall_io.spark.manifest.state import TableState, read_state
from squall_io.spark.source.offsets import (
    Limit,
    Offset,
    TableReading,
    WrongOffset,
    between,
    deliverable,
    next_offset,
)
from squall_io.spark.source.row_ranges import FileRange, places_of
from tests.squall_io.memory_files import MemoryFiles

ROOT = "memory://store/table"


@dataclass
class History:
    """A table whose rows are known: those of each file, in order."""

    files: Files = field(default_factory=MemoryFiles)
    rows: dict[str, list[str]] = field(default_factory=dict)
    owned: dict[WriterId, int] = field(default_factory=dict)
    numbers: Counter[tuple[WriterId, int]] = field(default_factory=Counter)
    #: Entries that are put later than those with higher numbers.
    held: list[BatchEntry] = field(default_factory=list)

    def state(self) -> TableState:
        """What the table holds."""
        return read_state(self.files)

    def take_over(self, writer_id: WriterId) -> None:
        """Give a writer id a new owner."""
        self.owned[writer_id] = take_over(self.files, writer_id, (1, 0), "a test", 0.0)

    def commit(self, writer_id: WriterId, committed: float, files: int = 2, held: bool = False) -> None:
        """Commit a batch, or write its files and put its entry later."""
        if writer_id not in self.owned:
            self.take_over(writer_id)
        made = []
        batch = self._name(writer_id)
        for file in range(files):
            path = batch.data_file(1, file, ".parquet")
            self.rows[path] = [f"{batch}/{file}/{row}" for row in range(1 + file)]
            made.append(DataFile(path, 100, "sha256:0"))
        entry = self._entry(batch, made, committed)
        if held:
            self.held.append(entry)
        else:
            self._put(entry)

    def release(self) -> None:
        """Put all entries that were held: those of a former owner do not count any more."""
        while self.held:
            self._put(self.held.pop())

    def checkpoint(self) -> None:
        """Move all entries into the checkpoint."""
        state = read_state(self.files)
        write_next(self.files, state.checkpoint, state.uncovered)

    def compact(self, replaced: list[BatchEntry], committed: float) -> None:
        """Move the rows of these entries into one file."""
        self.take_over(REWRITER)
        batch = self._name(REWRITER)
        path = batch.data_file(1, 0, ".parquet")
        moved: list[str] = []
        parts: list[tuple[str, int]] = []
        for entry in replaced:
            for file in entry.files:
                parts += file.parts or ((file.name, len(self.rows[file.path])),)
                moved += self.rows[file.path]
        self.rows[path] = moved
        files = [DataFile(path, 1_000, "sha256:0", tuple(parts))] if moved else []
        names = tuple(str(entry.batch) for entry in replaced)
        self._put(replace(self._entry(batch, files, committed), replaces=names))

    def vacuum(self) -> None:
        """Delete the files of replaced entries."""
        for entry in read_state(self.files).replaced:
            for file in entry.files:
                self.rows.pop(file.path, None)

    def read(self, ranges: tuple[FileRange, ...]) -> list[str]:
        """The rows of these ranges."""
        return [row for each in ranges for row in self._range(each)]

    def _range(self, each: FileRange) -> list[str]:
        return self.rows[each.path][each.first : None if each.rows is None else each.first + each.rows]

    def _name(self, writer_id: WriterId) -> BatchName:
        epoch = self.owned[writer_id]
        self.numbers[writer_id, epoch] += 1
        return BatchName(writer_id, epoch, self.numbers[writer_id, epoch])

    def _entry(self, batch: BatchName, files: list[DataFile], committed: float) -> BatchEntry:
        rows = sum(len(self.rows[file.path]) for file in files)
        return BatchEntry(batch, "t", "t-1", "store", (1, 0), 1, rows, tuple(files), committed)

    def _put(self, entry: BatchEntry) -> None:
        assert self.files.put_if_absent(entry.batch.commit, encode_entry(entry))


class Query:
    """A query that reads a history, whose offsets go through JSON as those of Spark do."""

    def __init__(self, history: History, since: float | None = None) -> None:
        self.history = history
        self.log = [Offset(since).to_json()]
        self.delivered: Counter[str] = Counter()

    def offset(self, place: int = -1) -> Offset:
        """An offset in the log."""
        return Offset.of_json(json.loads(json.dumps(self.log[place])), ROOT)

    def plan(self, limit: Limit = Limit()) -> bool:  # noqa: B008
        """Log where the next rows end; return whether there are any."""
        after = next_offset(TableReading(ROOT, self.history.state(), self.offset()), limit).to_json()
        if after == self.log[-1]:
            return False
        self.log.append(after)
        return True

    def rows(self, end: int = -1) -> list[str]:
        """The rows before the offset at `end` in the log, after the offset before it."""
        state = self.history.state()
        places = places_of(state)
        entries = between(ROOT, state, self.offset(end - 1), self.offset(end))
        return [row for entry in entries for row in self.history.read(places.get(str(entry.batch), ()))]

    def deliver(self) -> None:
        """Deliver what is planned."""
        self.delivered.update(self.rows())


def expected(history: History, since: float | None = None) -> Counter[str]:
    """The rows of all batches that count."""
    state = history.state()
    places = places_of(state)
    entries = [entry for entry in (*state.entries, *state.replaced) if not entry.replaces]
    return Counter(
        row
        for entry in entries
        if since is None or entry.committed >= since
        for row in history.read(places.get(str(entry.batch), ()))
    )


def step(history: History, chance: random.Random, moment: float) -> None:
    """Something happens to the table."""
    writer_id = WriterId.of("t-1", "store", chance.randrange(3))
    what = chance.random()
    if what < 0.6:
        history.commit(
            writer_id, moment + chance.uniform(-3, 3), chance.choice([0, 1, 2]), chance.random() < 0.2
        )
    elif what < 0.7:
        history.release()
    elif what < 0.8:
        history.take_over(writer_id)
    elif what < 0.9:
        history.checkpoint()
    else:
        entries = history.state().entries
        chosen = [entry for entry in entries if chance.random() < 0.4]
        if chosen:
            history.compact(chosen, moment)
        if chance.random() < 0.5:
            history.vacuum()


@pytest.mark.parametrize("seed", range(16))
def test_each_row_is_delivered_once_in_any_history(seed: int) -> None:
    chance = random.Random(seed)
    history = History()
    since = chance.choice([None, None, 10.0])
    queries = [Query(history, since)]
    earlier = deliverable(history.state())
    for moment in range(60):
        if moment % 10 == 0:
            earlier = deliverable(history.state())
        step(history, chance, moment)
        if moment == 30:  # this one starts after compactions
            queries.append(Query(history))
        for query in queries:
            if chance.random() < 0.5:
                limit = chance.choice([Limit(), Limit(files=2), Limit(rows=4), Limit(within=earlier)])
                if query.plan(limit):
                    before = sorted(query.rows())
                    step(history, chance, moment)  # between planning and reading, or before a restart
                    assert sorted(query.rows()) == before
                    query.deliver()
    history.release()
    for query, wanted in zip(queries, (expected(history, since), expected(history))):
        while query.plan(Limit(files=3)):
            query.deliver()
        assert query.delivered == wanted
        assert max(query.delivered.values(), default=0) <= 1


def test_an_offset_stays_small_after_many_batches_and_restarts() -> None:
    history, query = History(), None
    sizes = []
    for round_ in range(40):
        for index in range(3):
            writer_id = WriterId.of("t-1", "store", index)
            history.take_over(writer_id)
            for number in range(5):
                history.commit(writer_id, round_ * 100 + number)
        if round_ % 2:
            history.checkpoint()
        query = query or Query(history)
        assert query.plan()
        query.deliver()
        sizes.append(len(json.dumps(query.log[-1])))
    assert query is not None and len(query.delivered) == 40 * 15 * 3
    assert max(sizes) <= 2 * max(sizes[:4])


def test_a_query_without_new_batches_waits_also_after_a_checkpoint_or_a_compaction() -> None:
    history = History()
    for number in range(4):
        history.commit(WriterId.of("t-1", "store", 0), number)
    query = Query(history)
    assert query.plan() and not query.plan()
    history.checkpoint()
    assert not query.plan()
    history.compact(list(history.state().entries), 9)
    assert not query.plan()


def test_a_query_that_reads_what_is_there_now_leaves_out_what_comes_later() -> None:
    history = History()
    writer_id = WriterId.of("t-1", "store", 0)
    history.commit(writer_id, 1)
    query = Query(history)
    there = deliverable(history.state())
    history.commit(writer_id, 0)
    assert query.plan(Limit(within=there))
    query.deliver()
    assert len(query.delivered) == 3 and not query.plan(Limit(within=there))
    assert query.plan()


def test_a_batch_larger_than_the_limit_is_read_alone() -> None:
    history = History()
    for number in range(3):
        history.commit(WriterId.of("t-1", "store", 0), number, files=3)
    query = Query(history)
    for _ in range(3):
        assert query.plan(Limit(files=1))
        assert len(query.rows()) == 6
    assert not query.plan()


def test_a_batch_whose_owner_is_not_decided_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    writer_id = WriterId.of("t-1", "store", 0)
    history.commit(writer_id, 1)
    state = history.state()
    undecided = replace(state, uncovered=(), uncertain=tuple(entry.batch for entry in state.entries))
    query = Query(history)
    monkeypatch.setattr(history, "state", lambda: undecided)
    assert not query.plan()
    monkeypatch.undo()
    assert query.plan()


def test_another_table_at_the_same_place_is_refused() -> None:
    history = History()
    for number in range(3):
        history.commit(WriterId.of("t-1", "store", 0), number)
    history.checkpoint()
    history.commit(WriterId.of("t-1", "store", 0), 9)
    query = Query(history)
    assert query.plan()

    query.history = History()
    with pytest.raises(
        WrongOffset, match=r"another table .* 3 batches of its checkpoint were read, and now it has 0"
    ):
        query.plan()
    for number in range(4):
        query.history.commit(WriterId.of("u-1", "store", 0), number)
    query.history.checkpoint()
    with pytest.raises(WrongOffset, match=r"batch t-1\.store\.0\.1\.3 was read, and is not at its place"):
        query.plan()
    query.history = History()
    for number in range(3):
        query.history.commit(WriterId.of("t-1", "store", 0), number)
    query.history.checkpoint()
    with pytest.raises(
        WrongOffset, match=r"batches from t-1\.store\.0\.1\.4 on were read, and do not count any more"
    ):
        query.plan()


def test_offsets_of_others_are_refused() -> None:
    with pytest.raises(WrongOffset, match="an offset that is none of the table"):
        Offset.of_json({"checkpointed": "many"}, ROOT)
    with pytest.raises(WrongOffset, match="a newer Squall has written the checkpoint of the query"):
        Offset.of_json({"form": 2}, ROOT)


def test_a_batch_that_appears_before_others_in_the_checkpoint_is_not_passed_over() -> None:
    history = History()
    writers = [WriterId.of("t-1", "store", index) for index in range(3)]
    history.commit(writers[0], 5)
    history.commit(writers[1], 6)
    there = deliverable(history.state())
    query = Query(history)
    assert query.plan(Limit(files=1, within=there))
    query.deliver()
    history.commit(writers[2], 1)
    history.checkpoint()
    assert query.plan(Limit(within=there))
    query.deliver()
    assert query.plan()
    query.deliver()
    assert query.delivered == expected(history)
