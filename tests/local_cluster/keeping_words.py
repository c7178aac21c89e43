"""Bolts between the words and their counts that have tuples in their hands at the end of an epoch, or in calls that run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.local_cluster.words_with_state import Pass, Words
from topology_api import BatchBolt, Context, Tuple


class Gathers(Pass):
    """Holds tuples, and settles them later in other calls: some fail now and then."""

    auto_ack = auto_anchor = False
    tick_interval = 0.35

    def __init__(self, most: int = 7, failing: float = 0.0, poison: frozenset[int] = frozenset()) -> None:
        super().__init__(failing, poison)
        self.most = most

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.own: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.own.append(tup)
        if len(self.own) >= self.most:
            self.settle()

    def tick(self) -> None:
        self.settle()

    def settle(self) -> None:
        own, self.own = self.own, []
        for tup in own:
            anchors: Any = self.random.choice([tup, (), (tup,)]) if tup["number"] not in self.poison else tup
            if tup["number"] in self.poison or self.random.random() < self.failing:
                self.emit((tup["word"], tup["number"]), anchors=tup)  # for a tuple that fails: dropped
                self.fail(tup, "not now")
            else:
                self.emit((tup["word"], tup["number"]), anchors=anchors)
                self.ack(tup)


class Batches(BatchBolt):
    """Passes batches on, and raises for some of them: after it has emitted."""

    outputs = Words.outputs

    def __init__(
        self,
        size: int = 10,
        interval: float = 0.5,
        failing: float = 0.0,
        poison: frozenset[int] = frozenset(),
        threaded: bool = False,
    ) -> None:
        self.batch_size, self.batch_interval = size, interval
        self.failing, self.poison, self.threaded = failing, poison, threaded

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup["word"], tup["number"]), anchors=self.random.choice([None, tup]))
            if tup["number"] in self.poison:
                raise ValueError(f"number {tup['number']}")
        if self.random.random() < self.failing:
            raise ValueError(f"a batch of {len(tups)}")


class Async(Pass):
    """Waits in each call, and raises in some: after it has emitted."""

    max_concurrency = 5

    def __init__(
        self, secs: float = 0.05, failing: float = 0.0, poison: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(failing, poison)
        self.secs = secs

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        self.emit((tup["word"], tup["number"]))
        await asyncio.sleep(self.random.uniform(0, self.secs))
        if tup["number"] in self.poison or self.random.random() < self.failing:
            raise ValueError(f"number {tup['number']}")


class AsyncRich(Async):
    """Settles tuples in calls of others."""

    auto_ack = False
    tick_interval = 0.3

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.own: list[Tuple] = []

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(self.random.uniform(0, self.secs))
        self.own.append(tup)
        if len(self.own) > 4:
            self.settle()

    def tick(self) -> None:
        self.settle()

    def settle(self) -> None:
        own, self.own = self.own, []
        for tup in own:
            if self.random.random() < self.failing:
                self.fail(tup)
            else:
                self.emit((tup["word"], tup["number"]), anchors=tup)
                self.ack(tup)
