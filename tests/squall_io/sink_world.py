"""A sink's task in simulated surroundings: a store in memory, a fake Spark, and time that passes when it waits.

    world = SinkWorld()
    life = world.life()
    life.open()
    life.tidy(life.commit(world.rows(3)))

`world.gate` may make calls to the store fail, `world.spark_trouble` writes of Spark, `world.dead` sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall.stores.files import FilesUnavailable
from squall_io.spark.manifest.state import TableState, read_state
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.sink import sink_table as sink_life
from squall_io.spark.sink.epoch_writer import EpochWriter
from squall_io.spark.sink.errors import Retries
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.sink.sink_writer import SinkWriter
from tests.squall_io.memory_files import ROOT, Gate, MemoryFiles, MemoryStore, Step, straight
from topology_api import Context

SCHEMA = "word string, count bigint"


class Killed(BaseException):
    """The process has died: our code never catches this."""


class OpenedFiles(MemoryFiles):
    """`Files` in memory, as `open_files` returns them."""

    closed = False

    def close(self) -> None:
        """Set by the tests."""
        self.closed = True


class MadeUpWriter:
    """Spark as a sink sees it: writes one file to a folder."""

    def __init__(self, world: SinkWorld, session: object) -> None:
        self.world = world
        self.given = session
        #: A session of its own, which may die alone.
        self.session = object()
        self.closed = False
        world.writers.append(self)

    def close(self) -> None:
        """Set by the tests."""
        self.closed = True

    def warm_up(self, folder: str) -> None:
        """Write something."""
        self.write(self.world.rows(1), folder)

    def write(self, rows: Any, folder: str) -> None:
        """Write rows as text, unless a fault is set: then a partial write stays there."""
        world = self.world
        assert folder.startswith(f"{ROOT}/")
        place = f"{folder.removeprefix(f'{ROOT}/')}/part-00000-{len(world.written)}.txt"
        world.written.append(folder)
        if not world.elsewhere:
            world.store.write(place, rows.text)
        if world.spark_trouble:
            raise world.spark_trouble.pop(0)
        if self.session in world.dead or self.given in world.dead:
            raise ConnectionRefusedError("no process listens")


class MadeUpLease:
    """The shared session, faked."""

    def __init__(self, world: SinkWorld) -> None:
        self.world = world
        self.session: object = world.new_session()
        self.released = False

    def renew(self, broken: object) -> object:
        """Another session."""
        if self.session is broken:
            self.session = self.world.new_session()
        return self.session

    def release(self, linger: float = 0.0) -> None:
        """Set by the tests."""
        self.released = True


class SinkWorld:
    """The surroundings of one sink's tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = MemoryStore()
        self.gate: Gate = straight
        self.sessions: list[object] = []
        self.dead: set[object] = set()
        self.leases: list[MadeUpLease] = []
        self.opened: list[OpenedFiles] = []
        #: The folders into which Spark was asked to write.
        self.written: list[str] = []
        self.spark_trouble: list[Exception] = []
        #: Whether Spark writes where this process does not see it.
        self.elsewhere = False
        self.writers: list[MadeUpWriter] = []
        #: The exception that is raised in place of a session.
        self.no_session: list[Exception] = []
        self.steps: list[str] = []
        self.at: Callable[[str], None] = lambda step: None
        #: Those of the newest life.
        self.context = SimpleNamespace()
        self.time = 1000.0
        self.progress = 0
        #: The latest reported wait.
        self.waits_for = ""
        monkeypatch.setattr(sink_life, "shared_session", self._shared_session)
        monkeypatch.setattr(sink_life, "open_files", self._open_files)
        monkeypatch.setattr(sink_life, "is_broken", lambda session: session in self.dead)
        monkeypatch.setattr(sink_life, "TableWriter", lambda session, *_: MadeUpWriter(self, session))
        monkeypatch.setattr(sink_life, "Retries", self._retries)

    def life(
        self,
        incarnation: tuple[int, int] = (1, 0),
        index: int = 0,
        parallelism: int = 1,
        schema: str = SCHEMA,
    ) -> SinkWriter:
        """A task of the sink, not opened yet."""
        return SinkWriter(*self._task(incarnation, index, parallelism, schema), self._at)

    def epoch_life(self, index: int = 0, parallelism: int = 1) -> EpochWriter:
        """A task of the sink in a topology with epochs, not opened yet."""
        return EpochWriter(*self._task((1, 0), index, parallelism, SCHEMA), self._at)

    def _task(
        self, incarnation: tuple[int, int], index: int, parallelism: int, schema: str
    ) -> tuple[SinkSettings, Context]:
        settings = SinkSettings("/table", parse_schema(schema), "parquet", (), None, None, {})
        self.context = context = SimpleNamespace(
            topology="words",
            topology_id="words-1",
            component="store",
            index=index,
            parallelism=parallelism,
            incarnation=incarnation,
            log=logging.getLogger("tests.sink"),
            progress=self._note_progress,
            stopped=False,
        )
        return settings, cast(Context, context)

    def rows(self, count: int, text: str = "rows") -> Any:
        """A stand-in for an Arrow table."""
        return SimpleNamespace(num_rows=count, text=text.encode())

    def state(self) -> TableState:
        """The content of the table."""
        return read_state(MemoryFiles(self.store))

    def left(self) -> set[str]:
        """Files of the store that neither belong to the manifest nor are named by it."""
        named = {file.path for entry in self.state().entries for file in entry.files}
        ours = (
            "_squall/commits/",
            "_squall/claims/",
            "_squall/schemas/",
            "_squall/table.json",
            "_squall/checkpoints/",
            "_delta_log/",
        )
        return {path for path in self.store.files if path not in named and not path.startswith(ours)}

    def new_session(self) -> object:
        """A fake session."""
        self.sessions.append(object())
        return self.sessions[-1]

    def _note_progress(self, why: str | None = None) -> None:
        self.progress += 1
        self.waits_for = self.waits_for if why is None else why

    def _at(self, step: str) -> None:
        self.steps.append(step)
        self.at(step)

    def _shared_session(self, *_: object) -> MadeUpLease:
        if self.no_session:
            raise self.no_session.pop(0)
        self.leases.append(MadeUpLease(self))
        return self.leases[-1]

    def _open_files(self, path: str, *, session: object, conf: Mapping[str, str]) -> OpenedFiles:
        def gate(step: Step, effect: Callable[[], Any]) -> Any:
            if session in self.dead:
                raise FilesUnavailable(f"{step.call} {path}: the JVM is gone")
            return self.gate(step, effect)

        self.opened.append(OpenedFiles(self.store, gate))
        return self.opened[-1]

    def _retries(
        self,
        what: str,
        log: logging.Logger,
        progress: Callable[[str], None],
        limit: float | None,
        stopped: Callable[[], bool],
    ) -> Retries:
        def sleep(seconds: float) -> None:
            self.time += seconds

        return Retries(what, log, progress, limit, stopped, now=lambda: self.time, sleep=sleep)


@contextmanager
def gated(world: SinkWorld, gate: Gate) -> Iterator[None]:
    """The world with this gate, for a while."""
    before, world.gate = world.gate, gate
    try:
        yield
    finally:
        world.gate = before
