"""Context: a view of the runtime's values."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from topology_api import Context


class Metrics:
    def counter(self, name: str) -> Any:
        return ("counter", name)

    def gauge(self, name: str, function: Any) -> None:
        self.seen = (name, function())

    def histogram(self, name: str) -> Any:
        return ("histogram", name)


def context(**given: Any) -> Context:
    values: dict[str, Any] = {
        "topology": "word-count",
        "component": "count",
        "task": 4,
        "index": 1,
        "parallelism": 2,
        "conf": {"topology.debug": False},
        "tasks": {"count": [3, 4]}.__getitem__,
        "log": logging.getLogger("test"),
        "metrics": Metrics(),
        "resources": {},
        "directory": lambda: "/nowhere",
        "now": lambda: 12.5,
        "random": random.Random(0),
        "wake": lambda: None,
    }
    return Context(**{**values, **given})


def test_it_shows_where_the_task_runs() -> None:
    here = context()
    assert (here.topology, here.component, here.task, here.index, here.parallelism) == (
        "word-count",
        "count",
        4,
        1,
        2,
    )
    assert here.now() == 12.5
    assert here.random.random() == random.Random(0).random()
    assert "count" in repr(here)


def test_conf_is_a_read_only_copy() -> None:
    conf = {"a": 1}
    here = context(conf=conf)
    conf["a"] = 2
    assert here.conf["a"] == 1
    with pytest.raises(TypeError):
        here.conf["a"] = 3  # type: ignore[index]


def test_the_list_of_tasks_belongs_to_the_caller() -> None:
    here = context()
    here.tasks("count").clear()
    assert here.tasks("count") == [3, 4]


def test_the_directory_is_requested_only_when_it_is_used() -> None:
    made: list[str] = []

    def make() -> str:
        made.append("x")
        return "/scratch"

    here = context(directory=make)
    assert made == []
    assert here.directory == Path("/scratch")


def test_metrics_and_wake_reach_the_runtime() -> None:
    metrics, woken = Metrics(), []
    here = context(metrics=metrics, wake=lambda: woken.append(True))
    made: list[Any] = [here.counter("retries"), here.histogram("lookup")]
    assert made == [("counter", "retries"), ("histogram", "lookup")]
    here.gauge("depth", lambda: 7)
    assert metrics.seen == ("depth", 7)
    here.wake()
    assert woken == [True]
