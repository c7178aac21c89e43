"""Sinks in memory of which the first commit of an epoch shows the rows of all tasks: a right one, and wrong ones."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.connectors_in_memory import LOCK, SHOWN
from topology_api import Context, StagedSink

#: What tasks have staged, by place, batch and index: of all objects, as if they were processes with one system outside.
PARTS: defaultdict[str, dict[str, dict[int, tuple[int, list[Any]]]]] = defaultdict(dict)


class TogetherInMemory(StagedSink):
    """Shows a batch for each epoch. A batch that is shown stays as it is."""

    counter = 0

    def __init__(self, place: str) -> None:
        self.place = place

    def prepare(self, context: Context) -> None:
        self.component, self.index = context.component, context.index
        self.staged, self.shown = PARTS[self.place], SHOWN[self.place]

    def row(self, tup: Any) -> Any:
        return tuple(tup.values)

    def batch(self, epoch: int | None) -> str:
        return f"{self.component}/{self.lineage}/{epoch}"

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        with LOCK:
            TogetherInMemory.counter += 1
            part = TogetherInMemory.counter
        batch = self.batch(epoch) if epoch is not None else f"{self.index}/no epoch/{part}"
        self.staged.setdefault(batch, {})[self.index] = part, list(rows)
        return {"batch": batch, "index": self.index, "part": part}

    def commit(self, epoch: int | None, handle: Any) -> None:
        batch = handle["batch"]
        parts = self.staged.get(batch)
        if parts is not None and batch not in self.shown:
            self.shown[batch] = [row for _, rows in parts.values() for row in rows]
        self.staged.pop(batch, None)
        self.sweep(epoch)

    def sweep(self, epoch: int | None) -> None:
        for batch in list(self.staged):
            component, lineage, number = batch.split("/")
            if (component, lineage) == (self.component, self.lineage) and int(number) < (epoch or 0):
                self.staged.get(batch, {}).pop(self.index, None)
                if not self.staged.get(batch):
                    self.staged.pop(batch, None)

    def abort(self, epoch: int | None, handle: Any) -> None:
        parts = self.staged.get(handle["batch"], {})
        if parts.get(handle["index"], (0, []))[0] == handle["part"]:
            parts.pop(handle["index"], None)


class ShowsOwnPart(TogetherInMemory):
    """The rows of the other tasks are lost."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        parts = self.staged.get(handle["batch"], {})
        if handle["index"] in parts and handle["batch"] not in self.shown:
            self.shown[handle["batch"]] = parts[handle["index"]][1]
        self.staged.pop(handle["batch"], None)
        self.sweep(epoch)


class ShowsPartByPart(TogetherInMemory):
    """A reader may see a part of an epoch."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        for index, (_, rows) in dict(self.staged.get(handle["batch"], {})).items():
            self.shown.setdefault(f"{handle['batch']}/{index}", list(rows))
        self.staged.pop(handle["batch"], None)
        self.sweep(epoch)


class ForgetsBeforeItShows(TogetherInMemory):
    """Another task finds nothing to show after a fault."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        parts = self.staged.pop(handle["batch"], None)
        rows = [row for _, rows in (parts or {}).values() for row in rows]
        if parts is not None and handle["batch"] not in self.shown:
            self.shown[handle["batch"]] = rows
        self.sweep(epoch)


class LooksAndShows(TogetherInMemory):
    """Two that look at the same moment both show."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        batch = handle["batch"]
        parts = dict(self.staged.get(batch, {}))
        there = any(name.startswith(f"{batch}/") for name in list(self.shown))
        rows = [row for _, rows in parts.values() for row in rows]
        if not there and rows:
            with LOCK:
                TogetherInMemory.counter += 1
            self.shown[f"{batch}/{TogetherInMemory.counter}"] = rows
        self.staged.pop(batch, None)
        self.sweep(epoch)


TOGETHER_MUTANTS: dict[type[TogetherInMemory], str] = {
    ShowsOwnPart: "one commit shows the rows of all tasks",
    ShowsPartByPart: "a process may be killed while it commits for all",
    ForgetsBeforeItShows: "a commit for all may raise at any line",
    LooksAndShows: "two tasks may commit at once",
}
