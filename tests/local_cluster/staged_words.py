"""A staged sink that keeps its rows in files, and notes each of its calls."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from topology_api import Context, StagedSink


class StagedRows(StagedSink):
    """Stages a file, and commits it by renaming it. Calls raise, before or after their effect; `abort` before it only."""

    def __init__(self, folder: str, failing: float = 0.0) -> None:
        self.folder, self.failing = folder, failing

    def prepare(self, context: Context) -> None:
        self.random, self.place = context.random, f"{context.component}-{context.index}"
        for name in ("staged", "shown"):
            (Path(self.folder) / name).mkdir(parents=True, exist_ok=True)

    def note(self, call: str, epoch: int | None, name: str) -> None:
        with open(Path(self.folder, "calls"), "a") as file:
            file.write(f"{call} {self.place} {epoch} {name}\n")

    def may_fail(self, when: str) -> None:
        if Path(self.folder, "away").exists() or self.random.random() < self.failing:
            raise OSError(when)

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        self.may_fail("before the file is staged")
        name = f"{self.place}-{self.lineage}-{epoch}-{uuid.uuid4().hex}"
        text = "".join(f"{row[0]} {row[1]}\n" for row in rows)
        Path(self.folder, "staged", name).write_text(text)
        self.note("stage", epoch, name)
        self.may_fail("after the file was staged")
        return {"name": name}

    def commit(self, epoch: int | None, handle: Any) -> None:
        self.may_fail("before the file is shown")
        staged, shown = (Path(self.folder, place, handle["name"]) for place in ("staged", "shown"))
        if staged.exists():
            os.rename(staged, shown)
            self.note("commit", epoch, handle["name"])
        assert shown.exists(), f"{handle} is gone"
        self.may_fail("after the file was shown")

    def abort(self, epoch: int | None, handle: Any) -> None:
        self.may_fail("before the file is removed")
        Path(self.folder, "staged", handle["name"]).unlink()
        self.note("abort", epoch, handle["name"])


def shown_rows(folder: Path) -> list[tuple[str, int]]:
    """Return what `StagedRows` has made visible: each word with the number behind it."""
    lines = [line.split() for path in (folder / "shown").glob("*") for line in path.read_text().splitlines()]
    return sorted((word, int(times)) for word, times in lines)


def calls_of(folder: Path) -> list[list[str]]:
    """Return the calls of `StagedRows` that had an effect: name, task, epoch, file."""
    return [line.split() for line in (folder / "calls").read_text().splitlines()]
