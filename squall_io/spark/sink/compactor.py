"""Compacts the table of a sink that has `compact_after`: in a thread of the sink's first task, beside its batches.

Now and then it looks which batches have come. When a directory has too many small files, it compacts the directories that do,
by PyArrow, in the worker's own process, as `squall compact` would. No batch and no ack waits for it.

All compactions of a task have one claim: it is the rewriter until another one takes over. After an error that leaves open
whether the entry of a batch is in the table, it claims the next epoch, so that the entry counts before it chooses, or never.
Must not know: Spark, how files are merged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from logging import INFO, WARNING, Logger
from typing import Final

from squall.stores.files import Files, FilesError
from squall_io.spark.compaction.compacting import Compacted, compact_as
from squall_io.spark.compaction.parquet_merges import merge_parquet
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.crowding import Crowding
from squall_io.spark.manifest.entries import Parts
from squall_io.spark.manifest.holders import Myself
from squall_io.spark.manifest.layout import REWRITER
from squall_io.spark.manifest.rewriting import (
    Merge,
    Rewriter,
    RewriterBusy,
    Step,
    Wanted,
    plan,
    require_idle,
)
from squall_io.spark.manifest.state import read_state, require_readable

#: Seconds between two looks at the manifest.
LOOK: Final = 60.0
#: The longest pause after errors, which doubles with each, in seconds.
LONGEST: Final = 3600.0
#: How long the end of the task waits for a compaction to give up, in seconds.
LAST: Final = 5.0
#: Steps from which on a batch is finished, also when the task ends: it takes some renames, and another owner would have to
#: look for what was renamed.
_FINISHED: Final = frozenset({"move", "publish", "look", "clear", "end"})


class _Ended(Exception):
    """The task ends: the compaction is given up."""


class SinkCompactor:
    """Compacts a table. `open` and `close` are for the sink's thread.

    files: returns the store of the table, which may be another one after a failure. data: as `TableRecord.data`.
    limit: how many small files a directory may have. whose: component, host and process, for people; me: the same, for
    others that would wait for it.
    count: called with the number of files whose rows are in another file now.
    """

    def __init__(
        self,
        files: Callable[[], Files],
        data: str,
        limit: int,
        whose: str,
        log: Logger,
        count: Callable[[int], None],
        me: Myself = Myself(),  # noqa: B008 - it is frozen
        wall: Callable[[], float] = time.time,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._files = files
        self._wanted = Wanted(data=data)
        self._crowding = Crowding(self._wanted.small, limit)
        self._whose = whose
        self._me = me
        self._log = log
        self._count = count
        self._wall = wall
        self._at = at
        self._rewriter: Rewriter | None = None
        #: Whether files or the entry of a batch may be in the table without being known to count.
        self._in_doubt = False
        self._failures = 0
        #: What was logged last, so that it is logged once.
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="squall-compact", daemon=True)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Give up a compaction, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(LAST)

    def round(self) -> float:
        """Compact the table if necessary; return after how many seconds to look again."""
        began = time.monotonic()
        try:
            done = self._look()
        except _Ended:
            return 0.0
        except (RewriterBusy, Superseded) as error:
            self._say(INFO, type(error).__name__, "this sink compacts the table later: %s", error)
            return LOOK
        except Exception as error:
            if self._stop.is_set():
                return 0.0
            self._failures += 1
            self._say(WARNING, str(error), "a compaction did not finish, and no row is lost: %s", error)
            return min(LOOK * 2.0**self._failures, LONGEST)
        self._failures, self._said = 0, ""
        if done.made:
            self._log.info(
                "compacted %d files of %d batches into %d, %d bytes into %d (%.1f s)",
                done.files_before,
                done.replaced,
                done.files_after,
                done.size_before,
                done.size_after,
                time.monotonic() - began,
            )
        return LOOK

    def _look(self) -> Compacted:
        files = self._files()
        if not self._crowding.may_be_crowded(files):
            return Compacted()
        state = require_readable(files, read_state(files))
        wanted = replace(self._wanted, only=self._crowding.begin(state))
        if not wanted.only or not plan(state, wanted):
            self._crowding.rest()
            return Compacted()
        rewriter = self._rewriter
        if rewriter is None or rewriter.epoch != state.claims.newest(REWRITER):
            require_idle(files, self._me)
            rewriter = None
        if rewriter is None or self._in_doubt:
            rewriter = self._rewriter = Rewriter(
                files, self._whose, self._wall, holder=self._me.holder, at=self._step
            )
        rewriter.files = files
        self._in_doubt = False
        try:
            return compact_as(rewriter, wanted, self._merge, committed=self._committed)
        except Exception:
            if not self._in_doubt:
                with suppress(FilesError):
                    rewriter.give_up()
            raise

    def _merge(self, files: Files, merge: Merge, path: str, sign: Callable[[], None]) -> Parts:
        def go_on() -> None:
            self._require_going()
            sign()

        return merge_parquet(files, merge, path, go_on)

    def _step(self, step: str) -> None:
        if step not in _FINISHED:
            self._require_going()
        self._in_doubt |= step == "move"
        self._at(step)

    def _committed(self, step: Step) -> None:
        self._in_doubt = False
        self._count(sum(len(merge.sources) for merge in step.merges))

    def _require_going(self) -> None:
        if self._stop.is_set():
            raise _Ended

    def _say(self, level: int, key: str, text: str, error: Exception) -> None:
        """Log an error, unless it was the last one, too."""
        if key != self._said:
            self._log.log(level, text, error)
        self._said = key

    def _run(self) -> None:
        pause = LOOK
        while not self._stop.wait(pause):
            pause = self.round()
