"""A worker that leads the epochs of its topology is frozen, replaced, and thaws: two coordinators never both commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.process_engine import ProcessEngine
from tests.faults import leaks
from tests.faults.test_frozen_workers import ON_THEIR_OWN, freeze, thaw
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    eventually,
    expected_rows,
    words_to_rows,
)
from worker.epochs.records import CommitRecord, FloorRecord, LeadRecord
from worker.loop.epoch_store import EpochFiles

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.soak,
]  # tests/epochs plays freezes at each step


@pytest.mark.timeout(400)
@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_thaws_beside_its_replacement_commits_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Its supervisor is as if cut off, and so does not end the frozen process. One of the two workers leads. The
    other one, whose tasks stay where they are, reads nothing."""
    ON_THEIR_OWN.apply(monkeypatch)
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.2,
        "topology.workers": 2,
    }
    folder, total = tmp_path / "rows", 8_000
    with LocalCluster(
        processes=True, supervisors=ON_THEIR_OWN.supervisors, slots=1, settings=(ON_THEIR_OWN.site, {})
    ) as cluster:
        cluster.submit(words_to_rows(Finite(total, 200), Count(), StagedRows(str(folder))), conf)
        eventually(lambda: len(shown_rows(folder)) > 100)
        workers = sorted(cluster.workers("words"), key=lambda worker: worker.worker)
        victim, survivor = workers[which], workers[1 - which]
        engine = cluster._engine
        assert isinstance(engine, ProcessEngine)
        [supervisor] = [
            one for one in engine.supervisors if victim.pid in {each.pid for each in one.workers()}
        ]
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "next_time", lambda now: now + 0.1)
            patch.setattr(supervisor, "sync", lambda now: None)
            pid = freeze(victim)
            before = len(shown_rows(folder))
            # More than what may have been committed before: a replacement works.
            eventually(lambda: len(shown_rows(folder)) > before + 1_000, 100)
            returned = re.findall(r"have returned to .*", (survivor.directory / "worker.log").read_text())
            assert returned and all(each.endswith(": in memory") for each in returned), returned
            thaw(pid)
            eventually(lambda: leaks.state_of(pid) in (None, "Z"), 120)
        cluster.wait("words", 120)
    assert shown_rows(folder) == expected_rows(list(range(total)))
    records = EpochFiles(f"file://{tmp_path}/state", "words").records_after(0)
    epochs = [record.epoch for record in records if isinstance(record, CommitRecord)]
    assert epochs == sorted(set(epochs)), "each epoch is committed once"
    assert any(
        isinstance(record, LeadRecord | FloorRecord) for record in records
    )  # a floor, if it was trimmed
