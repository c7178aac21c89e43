"""Cycles of bolts in topologies whose state is at a path: each round of a tuple counts once, and what is on its way is kept."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.transport.frames import Batch
from tests.local_cluster.cycle_of_words import Around, around, visits, wanted_visits
from tests.local_cluster.words_with_state import Finite, Words
from topology_api import Replay
from worker.epochs.messages import Barrier, Rows, SnapshotMarker
from worker.epochs.participant import WriteSnapshot
from worker.epochs.snapshot_files import TaskSnapshot, decode_snapshot
from worker.loop.epoch_worker import EpochWorker
from worker.tasks.epoch_bolt import EpochBoltTask


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(at, marks=pytest.mark.soak) for at in range(2, 40))]
)
def test_each_round_counts_once_however_often_the_cluster_starts_again(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for start in range(5):
        conf = conf_at(
            tmp_path,
            **{
                "topology.epoch.secs": 0.3,
                "topology.queue.size": draw.choice([16, 4096]),
                "topology.workers": draw.choice([1, 2, 3]),
            },
        )
        topology = around(Words(300, 150), Around(0.1), draw.choice([1, 2, 3]), through=bool(seed % 2))
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(6 if start == 4 else draw.uniform(0.3, 1.2))
            if start == 4:
                assert visits(cluster) == wanted_visits(300)
                assert cluster.dead_letters("words") == []


@pytest.mark.parametrize("through", [False, True], ids=["to itself", "two bolts"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_topology_with_a_cycle_completes_when_its_source_ends(
    tmp_path: Path, workers: int, through: bool
) -> None:
    """Also if tuples on the cycle fail at the end, and if it is started again before it has completed."""
    spout = Finite(100, 200)
    spout.replay = Replay(max_attempts=3, first_delay=0.3, max_delay=0.3)
    conf = conf_at(tmp_path, **{"topology.workers": workers})
    letters = 0
    for start, seconds in ((1, 0.55), (2, 20)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(around(spout, Around(poison=99), 2, through), conf)
            cluster.advance(seconds)
            letters += len(cluster.dead_letters("words"))
            status = cluster.last_status("words")
            assert (status.state == "COMPLETED") == (start == 2), status.errors
    assert letters == 1


def test_what_came_over_the_closing_edge_before_its_barrier_is_in_the_snapshot(tmp_path: Path) -> None:
    """It was sent in the epoch that ends, and came behind the marker: it is executed in the next epoch, also after a rewind."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(around(Words(0), Around(), 1, through=True), conf_at(tmp_path))
        cluster.advance(1)
        [worker] = cluster._engine.host.workers("words")  # type: ignore[union-attr]
        assert isinstance(worker, EpochWorker)
        [task] = [bolt for bolt in worker.bolts if bolt.spec.id == "around"]
        [back] = [bolt for bolt in worker.bolts if bolt.spec.id == "back"]
        participant = worker.epochs.participants[task.id]
        assert participant.alignment.closing == {"back/0"}
        source = worker.plan.source("back", back.id, "again")
        batch = Batch(source, task.id, [("w0", 0, 2), ("w1", 1, 0)], [0, 0], [0, 0])
        assert isinstance(task, EpochBoltTask)
        # The barrier of the spout is there, that of the cycle is not; then two tuples come over the closing edge.
        inbox = [*participant.arrive("words/0", Barrier(99)), *participant.arrive("back/0", Rows((batch,)))]
        assert [type(effect).__name__ for effect in inbox] == ["PutInInbox", "PutInInbox"]
        content = TaskSnapshot("around/0", 99, 0, 0)
        task.fill(content)
        participant.end_epoch(SnapshotMarker(99), content, False, None, False, 0.0)
        written = [
            each for each in participant.arrive("back/0", Barrier(99)) if isinstance(each, WriteSnapshot)
        ]
        data = written[0].data
        snapshot = decode_snapshot(data.file(), bytes(data.data))
        task.begin_with(snapshot)
        worker.queue(task)
        cluster.advance(0.5)
        assert [task.executed, back.executed] == [2 + 2, 2]
