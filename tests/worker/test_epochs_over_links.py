"""Several workers with one state, over a network that loses messages, with processes that die: each tuple counts once."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.local_cluster.words_with_state import Count, Pass, Words, expected
from tests.worker.lossy_carrier import Faults
from tests.worker.network_of_workers import InMemory, Net, World
from topology_api import Bolt, Spout, TopologyBuilder
from worker.loop.epoch_worker import EpochWorker
from worker.state import contents
from worker.state.keys import canonical
from worker.tasks.stateful_bolt import StatefulBoltTask

HOSTS = {"a": ["words/0", "count/0"], "b": ["pass/0", "pass/1"], "c": ["words/1", "count/1"]}
import os
SEEDS = int(os.environ.get("SEEDS", "6"))
WORD_LIST = sorted(expected([]))


class Ended(Exception):
    """What a worker has ended with."""


def net_of(
    path: Path,
    world: World,
    faults: Faults | None = None,
    total: int = 300,
    between: Bolt | None = None,
    hosts: dict[str, list[str]] | None = None,
    spout: Spout | None = None,
    conf: dict[str, Any] | None = None,
) -> Net:
    """A count of words over three workers."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout or Words(total, 200), parallelism=2)
    builder.set_bolt("pass", between or Pass(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("pass", "word")
    conf = {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.3, **(conf or {})}
    return Net(builder.build(), hosts or HOSTS, world, faults, conf)


def counts_of(net: Net) -> dict[str, tuple[int, int]]:
    """word -> (times, total), over the tasks of all workers."""
    found: dict[str, tuple[int, int]] = {}
    for node in net.nodes.values():
        for task in node.worker.tasks.values():
            if isinstance(task, StatefulBoltTask) and task.spec.id == "count":
                for word in WORD_LIST:
                    if contents.has_state(task.states, canonical(word)):
                        values = contents.read(task.states, word)
                        found[word] = (values["times"], values["total"])
    return found


def wanted(total: int) -> dict[str, tuple[int, int]]:
    """What a run without failures counts: both spout tasks emit all numbers."""
    return {word: (2 * values[0], 2 * values[1]) for word, values in expected(list(range(total))).items()}


def problems_of(net: Net) -> list[str]:
    """The errors with which workers have ended."""
    return [node.worker.crash.render() for node in net.nodes.values() if node.worker.crash]


def run(net: Net, seconds: float, total: int) -> None:
    """Let time pass until all is counted and committed."""

    def done() -> bool:
        leads = [node.worker.lead for node in net.nodes.values() if isinstance(node.worker, EpochWorker)]
        rests = any(lead is not None and lead.coordinator.view.newest is not None for lead in leads)
        return bool(problems_of(net)) or (rests and counts_of(net) == wanted(total))

    reached = net.run(seconds, done)
    assert problems_of(net) == []
    assert reached, (counts_of(net), wanted(total))


def test_three_workers_count_each_tuple_once(tmp_path: Path) -> None:
    net = net_of(tmp_path, InMemory())
    net.start()
    run(net, 20, 300)
    net.run(3)
    assert counts_of(net) == wanted(300)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whoever_dies_and_whatever_is_lost_each_tuple_counts_once(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    faults = Faults(draw, lose=draw.choice([0.0, 0.02]), double=0.02)
    net = net_of(tmp_path, InMemory(), faults, 1000, conf={"topology.queue.size": draw.choice([16, 4096])})
    net.start()
    for _ in range(6):
        net.run(draw.uniform(0.05, 0.9))
        name = draw.choice(sorted(net.hosts))
        net.kill(name)
        net.run(draw.uniform(0.0, 0.3))
        net.restart(name)
    run(net, 60, 1000)
    net.run(3)
    assert counts_of(net) == wanted(1000)
