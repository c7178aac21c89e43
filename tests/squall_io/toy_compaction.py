"""A compaction of a `commit_world.World`, where a file is the JSON of a row, or of a list of rows; and what a reader of single
batches finds after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from squall.stores.files import Files
from squall_io.spark.manifest.entries import BatchEntry, Parts
from squall_io.spark.manifest.layout import BatchName, place_in
from squall_io.spark.manifest.originals import OriginalBatch, originals
from squall_io.spark.manifest.rewriting import Merge, Rewriter, Step, Wanted, plan
from squall_io.spark.manifest.state import TableState

Row = dict[str, Any]


class Insist(Protocol):
    """Tries a call again until the store answers, or does not."""

    def __call__(self, call: Callable[[], Any]) -> Any: ...


def compact(
    files: Files,
    wall: Callable[[], float],
    wanted: Wanted,
    insist: Insist,
    committed: Callable[[BatchEntry], None] = lambda entry: None,
) -> int:
    """Compact a table; return how many batches were made. committed: called with the entry of each."""
    rewriter = Rewriter(files, "host:1", wall)
    insist(rewriter.begin)
    steps = plan(insist(rewriter.read), wanted)
    for step in steps:
        name = rewriter.next_batch()
        parts = write(files, name, step, wanted.data, insist)
        commit = rewriter.commit(name, step, parts, wanted.data)
        committed(insist(commit.run))
        insist(commit.clear)
    insist(rewriter.end)
    return len(steps)


def write(files: Files, name: BatchName, step: Step, data: str, insist: Insist) -> dict[str, Parts]:
    """Write the files of a step; return their parts by path."""
    found: dict[str, Parts] = {}
    for number, merge in enumerate(step.merges):
        directory = merge.directory.removeprefix(data).strip("/")
        path = place_in(directory, f"part-{number:05d}.parquet")
        rows, parts = _merged(files, merge, insist)
        text = json.dumps(rows).encode()
        insist(lambda: files.replace(f"{name.attempt(1)}/{path}", text))  # noqa: B023
        found[path] = parts
    return found


def _merged(files: Files, merge: Merge, insist: Insist) -> tuple[list[Row], Parts]:
    rows: list[Row] = []
    parts: list[tuple[str, int]] = []
    for piece in merge.pieces:
        there = rows_in(insist(lambda: files.read(piece.file.path)))  # noqa: B023
        taken = there[piece.first : None if piece.rows is None else piece.first + piece.rows]
        rows += taken
        parts.append((piece.name, len(taken)))
    return rows, tuple(parts)


def rows_in(data: bytes) -> list[Row]:
    """The rows of a file."""
    record = json.loads(data)
    return record if isinstance(record, list) else [record]


def rows_of(original: OriginalBatch, store: Mapping[str, bytes]) -> Iterator[Row]:
    """The rows of a batch, from where they are now."""
    for each in original.ranges:
        rows = rows_in(store[each.file.path])
        yield from rows[each.first : None if each.rows is None else each.first + each.rows]


def wrong_rows(state: TableState, store: Mapping[str, bytes], directories: tuple[str, ...]) -> str:
    """What is wrong with the batches as a reader of single batches finds them; "": nothing."""
    found = originals(state)
    committed = {batch for batch, entry in state.counted.items() if not entry.replaces and entry.files}
    names = [original.entry.batch for original in found]
    if len(set(names)) != len(names) or set(names) != committed:
        return f"the batches are {sorted(map(str, names))}, and {sorted(map(str, committed))} were committed"
    if found != sorted(found, key=lambda each: each.order):
        return "the batches are not in the order of the commits"
    for original in found:
        rows = [(row["batch"], row["directory"]) for row in rows_of(original, store)]
        if not original.is_whole or rows != [(str(original.entry.batch), each) for each in directories]:
            return f"{original.entry.batch} has the rows {rows}"
    return ""
