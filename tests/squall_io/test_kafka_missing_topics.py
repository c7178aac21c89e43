"""How the Kafka sink asks for topics that rows name, without a broker: one that is missing holds up its rows once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from squall_io.kafka import producing
from squall_io.kafka.client import MissingTopic
from squall_io.kafka.messages import TopicLimits
from squall_io.kafka.producing import Producing
from topology_api import RowsRefused


class Topics:
    """A cluster with these topics. asked: each topic that was asked for, and whether it was waited for."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.asked: list[tuple[str, bool]] = []

    def limits(self, name: str, until: float) -> TopicLimits:
        self.asked.append((name, until > time.monotonic()))
        if name not in self.there:
            raise MissingTopic(f"there is no {name}")
        return TopicLimits(partitions=1, most_bytes=None, needs_key=False)


def rows(*names: str) -> list[Any]:
    return [(b"v", None, name, -1, 0, None) for name in names]


def refused(sink: Producing, *names: str) -> list[int]:
    """The positions of rows that are refused since their topic is missing."""
    try:
        sink._check(rows(*names))
    except RowsRefused as error:
        assert all("there is no" in why for why in error.reasons.values())
        return sorted(error.reasons)
    return []


def test_a_topic_that_is_missing_is_waited_for_once() -> None:
    cluster = Topics("orders")
    sink = Producing(cluster, "", "tokens", {})  # type: ignore[arg-type]
    for _ in range(3):
        assert refused(sink, "orders", "order", "orders") == [1]
    assert [waited for name, waited in cluster.asked if name == "order"] == [True, False, False]
    assert refused(sink, "oder") == [0]
    assert cluster.asked[-1] == ("oder", True), "another name is waited for"


def test_a_topic_that_is_made_is_written_at_once() -> None:
    cluster = Topics()
    sink = Producing(cluster, "", "tokens", {})  # type: ignore[arg-type]
    assert refused(sink, "orders") == [0]
    cluster.there.add("orders")
    assert refused(sink, "orders") == []
    cluster.there.clear()
    sink.forget_limits()
    assert refused(sink, "orders") == [0]
    assert [waited for _, waited in cluster.asked] == [True, False, True]


def test_it_is_waited_for_again_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "MISSING_SECS", 0.0)
    cluster = Topics()
    sink = Producing(cluster, "", "tokens", {})  # type: ignore[arg-type]
    assert refused(sink, "orders") == refused(sink, "orders") == [0]
    assert [waited for _, waited in cluster.asked] == [True, True]
