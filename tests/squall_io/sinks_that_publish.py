"""One task of a sink that publishes, against its server: which of its tuples are acked, which fail, and why."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from squall_io.kit.publishing import PublishingSink


class SinkTask:
    """A task as it is in a new process."""

    def __init__(self, sink: PublishingSink) -> None:
        self.sink: PublishingSink = pickle.loads(pickle.dumps(sink))
        self.shown: list[str] = []
        self.failed: dict[int, str] = {}
        self._tuples: list[Any] = []
        self._around = Surroundings()
        vars(self.sink)["_squall_task"] = self
        context = context_of("write", 0, 1, self._around)
        context._progress = lambda why: self.shown.append(why or "")
        context._now = time.monotonic
        self.sink.prepare(context)

    def fail(self, tup: Any, reason: Any = None) -> None:
        """What the sink calls for a tuple that fails alone."""
        self.failed[self._tuples.index(tup)] = str(reason)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Write a batch; return why tuples failed, by their position."""
        self._tuples = tuples_of(rows)
        self.failed = {}
        self.sink.execute_batch(self._tuples)
        return self.failed

    def writing(self, rows: Sequence[Mapping[str, Any]]) -> threading.Thread:
        """Write a batch in another thread."""
        thread = threading.Thread(target=self.write, args=(rows,), daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> SinkTask:
        return self

    def __exit__(self, *raised: object) -> None:
        self.sink.cleanup()
        self._around.end()
