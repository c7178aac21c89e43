"""One task of a spout against its server: what it emits, reports and shows, with the acks in the hands of the test."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

from tests.zookeeper_servers import eventually
from topology_api import Context, Failure, RewindableSpout
from worker.epochs.sinks import kept_handle

#: A broker that was killed takes this long to serve its partitions again, on a machine under load.
PATIENCE_SECS = 60.0


class CountingMetrics:
    """A Context's metrics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], float]] = {}

    def counter(self, name: str) -> Any:
        return _Counter(self.counts, name)

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        self.gauges[name] = function

    def histogram(self, name: str) -> Any:
        raise AssertionError(name)


class _Counter:
    def __init__(self, counts: dict[str, int], name: str) -> None:
        self._counts, self._name = counts, name

    def add(self, count: int = 1) -> None:
        self._counts[self._name] = self._counts.get(self._name, 0) + count


class KafkaSpoutTask:
    """A task. `state`: whether the topology has one, so that positions count."""

    def __init__(
        self,
        spout: RewindableSpout,
        index: int = 0,
        parallelism: int = 1,
        *,
        state: bool = False,
        position: Any = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spout = spout
        self.metrics = CountingMetrics()
        self.emitted: list[tuple[str, tuple[Any, ...], Any]] = []
        self.errors: list[str] = []
        self.shown = ""
        vars(spout)["_squall_task"] = self
        conf = {"topology.state.path": "/state"} if state else {}
        context = Context(
            topology="shop", topology_id="shop-1", component="orders", task=1, index=index, parallelism=parallelism,
            conf=conf, tasks=lambda component: [], log=logging.getLogger("task"), metrics=self.metrics, resources={},
            directory=lambda: "", now=now, random=random.Random(0), wake=lambda: None, progress=self._progress,
        )  # fmt: skip
        spout.open(context)
        if state:
            spout.rewind(None if position is None else kept_handle(position))

    def _progress(self, text: str | None) -> None:
        self.shown = text or ""

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        self.emitted.append((stream, tuple(values), message_id))

    def emit_many(self, rows: Any, *, message_ids: Any = None, stream: str = "default") -> None:
        for values, message_id in zip(rows, message_ids, strict=True):
            self.emit(values, message_id=message_id, stream=stream)

    def step(self) -> None:
        """Call `next_tuple`; note its error."""
        try:
            self.spout.next_tuple()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    def until(self, what: Callable[[], Any], secs: float = PATIENCE_SECS) -> Any:
        """Call the spout until something is true."""

        def stepped() -> Any:
            self.step()
            return what()

        return eventually(stepped, secs, every=0.001)

    def read(self, count: int) -> list[Any]:
        """The first values of tuples, when there are as many as that."""
        self.until(lambda: len(self.values()) >= count)
        return self.values()

    def values(self, stream: str = "default") -> list[Any]:
        """The first value of each tuple of a stream."""
        return [values[0] for name, values, _ in self.emitted if name == stream]

    def nothing_more(self, calls: int = 6) -> None:
        """Check that the next calls emit nothing."""
        before = len(self.emitted)
        for _ in range(calls):
            self.step()
        assert self.emitted[before:] == []

    def ack(self, *chosen: int) -> None:
        """Ack tuples by their numbers; without numbers, all."""
        for _, _, message_id in [self.emitted[n] for n in chosen] if chosen else self.emitted:
            self.spout.ack(message_id)

    def fail(self, number: int, reason: str) -> None:
        """Fail a tuple."""
        self.spout.fail(self.emitted[number][2], Failure(reason, "bolt", 1, None))

    def close(self) -> None:
        """End in good order."""
        self.spout.close()

    def __enter__(self) -> KafkaSpoutTask:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
