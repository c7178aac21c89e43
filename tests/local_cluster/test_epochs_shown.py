"""What the status says of the epochs of a topology: the last commit, what its components hold, and what it waits for."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local_cluster import EpochStatus, LocalCluster
from squall.epoch_status import EpochWait
from tests.local_cluster.staged_words import StagedRows
from tests.local_cluster.words_with_state import (
    Count,
    Needs,
    Pass,
    Words,
    counts,
    expected,
    words,
    words_to_rows,
)
from worker.epochs.alignment import Alignment
from worker.epochs.emissions import Emissions
from worker.epochs.in_memory import InMemory, NothingToUndo
from worker.epochs.messages import Barrier, BeginEpochEnd, EndMark, RestoreTask, ResumeTask
from worker.epochs.parking import Parking
from worker.epochs.participant import Participant
from worker.loop.epoch_lead import EpochLead
from worker.loop.epoch_telling import EpochTelling
from worker.loop.epoch_worker import EpochWorker


def epoch_of(cluster: LocalCluster) -> EpochStatus:
    """The epochs of the topology."""
    epoch = cluster.status("words").epoch
    assert epoch is not None
    return epoch


def test_a_topology_without_a_state_path_tells_of_no_epochs(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(50, 100), Pass(), Count()))
        cluster.advance(1)
        status = cluster.status("words")
    assert status.epoch is None
    found = {(each.keys, each.parked, each.uncommitted) for each in status.components.values()}
    assert found == {(None, 0, None)}


@pytest.mark.parametrize("workers", [1, 3])
def test_the_status_tells_the_last_commit_and_what_components_hold(tmp_path: Path, workers: int) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 0.5,
        "topology.workers": workers,
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(500, 100), Pass(), Count()), conf)
        cluster.advance(3.1)
        epoch = epoch_of(cluster)
        parts = cluster.status("words").components
        assert epoch.number >= 5 and epoch.age is not None and epoch.age < 0.6 and not epoch.quiet
        assert (parts["count"].keys, parts["pass"].keys) == (7, None)
        assert 0 < (parts["words"].uncommitted or 0) <= 60
        assert (epoch.rewinds, epoch.rewound, epoch.rewind_reason, epoch.waits) == (0, None, "", ())
        cluster.advance(20)
        done = epoch_of(cluster)
        assert done.quiet and done.age is not None and done.age > 10, (
            "nothing happens, so nothing is committed"
        )
        last = max(int(path.name.split("-")[0]) for path in (tmp_path / "words" / "snapshots").iterdir())
        files = (tmp_path / "words" / "snapshots").glob(f"{last}-*")
        assert (done.number, done.bytes) == (last, sum(path.stat().st_size for path in files))
        cluster.rebalance("words", 2)
        cluster.advance(3)
        moved = epoch_of(cluster)
        assert moved.rewinds >= 1 and moved.rewound is not None
        cluster.kill("words")
        cluster.advance(60)
        final = cluster.last_status("words").epoch
    assert final is not None and final.number >= moved.number and final.waits == ()


def test_a_topology_that_goes_on_at_the_end_of_its_input_says_so(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.5}
    for start in (1, 2):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words(Words(30), Pass(), Count()), conf)
            cluster.advance(5)
            epoch = epoch_of(cluster)
            emitted = cluster.status("words").components["words"].emitted
            assert epoch.quiet and emitted == (30 if start == 1 else 0)
            if start == 1:
                assert epoch.began == 0
                last = epoch.number
            else:
                assert epoch.began == last


def test_parked_tuples_are_counted(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.on.outage": "wait"}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(30), Needs(str(tmp_path / "store")), Count()), conf)
        cluster.advance(3)
        status = cluster.status("words").components
        assert (status["pass"].parked, status["count"].parked) == (30, 0)


def test_an_epoch_that_does_not_end_names_its_task_and_spouts_at_their_limit_wait_for_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}/state",
        "topology.epoch.secs": 0.5,
        "topology.epoch.uncommitted": 100,
        "topology.workers": 2,
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(10_000, 100), Count(), StagedRows(str(tmp_path / "rows"))), conf)
        cluster.advance(2)
        before = epoch_of(cluster)
        (tmp_path / "rows" / "away").touch()
        cluster.advance(4)
        assert epoch_of(cluster).waits == (), "for some seconds this is no news"
        cluster.advance(20)
        waits = epoch_of(cluster).waits
        assert {(each.what, each.component) for each in waits} == {("commit", "words"), ("alignment", "rows")}
        sinks = [each for each in waits if each.what == "alignment"]
        assert [each.why for each in sinks] == ["its rows are being staged"] * 2
        assert epoch_of(cluster).number <= before.number + 1
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        texts = [each for each in said if each.startswith("an epoch has not ended for 10 s: ")]
        assert len(texts) == 2, "its workers, each once"
        for sink in sinks:
            assert any(f"rows[{sink.task}]: its rows are being staged" in text for text in texts)
        (tmp_path / "rows" / "away").unlink()
        cluster.advance(5)
        assert epoch_of(cluster).waits == () and epoch_of(cluster).number > before.number + 3


def waits_of_store(since: float | None, error: str = "", away: float = 0.0) -> list[EpochWait]:
    """What is reported of a store at 100.0."""
    calls = SimpleNamespace(call_since=since, waits_for=error, waits_since=away)
    worker: Any = SimpleNamespace(
        calls=calls, files=SimpleNamespace(doing="writing /state/words/log/000000000009")
    )
    return EpochTelling(worker).of_store(100.0)


def test_a_store_that_fails_is_named_at_once_and_one_that_does_not_answer_after_some_seconds() -> None:
    assert waits_of_store(None) == waits_of_store(96.0) == []
    why = "writing /state/words/log/000000000009 has not ended"
    assert waits_of_store(90.0) == [EpochWait("store", 90.0, why)]
    assert waits_of_store(99.0, "No space left\non device", 99.5) == [
        EpochWait("store", 99.5, "No space left on device")
    ]


def test_a_spout_waits_when_as_many_tuples_wait_for_their_commit_as_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, step = [True], EpochLead.step

    def slow_step(self: EpochLead, now: float) -> None:
        self.coordinator.on_trial = bool(waits)  # the epoch ends at once, and its commit waits
        step(self, now)

    monkeypatch.setattr(EpochLead, "step", slow_step)
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 5,
        "topology.epoch.uncommitted": 100,
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(250), Pass(), Count()), conf)
        cluster.advance(4)
        spout = cluster.status("words").components["words"]
        assert 100 <= spout.emitted < 250
        assert (spout.idle, spout.pending, spout.acked) == ("waits for a commit", 0, 0)
        assert spout.uncommitted == spout.emitted
        waits.clear()
        cluster.advance(15)
        assert counts(cluster) == expected(list(range(250)))


def test_a_process_that_ends_is_the_reason_of_a_rewind(tmp_path: Path) -> None:
    conf = {
        "topology.state.path": f"file://{tmp_path}",
        "topology.epoch.secs": 0.5,
        "topology.workers": 2,
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(500, 100), Pass(), Count()), conf)
        cluster.advance(2)
        for worker in cluster._host.workers("words"):
            if isinstance(worker, EpochWorker) and worker.lead is not None:
                worker.lead.peer_gone("w7")
        cluster.advance(1)
        epoch = epoch_of(cluster)
    assert (epoch.rewinds, epoch.rewind_reason) == (1, "the process of worker w7 has ended")


def bolt(*inputs: str) -> Participant:
    """A running participant of a bolt's task."""
    found = Participant(
        "count/0",
        0,
        Alignment(inputs),
        Parking("count/0", 10),
        Emissions(True),
        lambda files: files,
        InMemory(NothingToUndo()),
    )
    found.message(RestoreTask(1, 0, {}))
    found.snapshots_read(1, [], lambda snapshots: snapshots[0], 0.0)
    found.restored_if_shown()
    found.message(ResumeTask(1))
    return found


def reason_of(participant: Participant, epoch: int, **values: Any) -> str:
    """Why a task has not ended an epoch."""
    task = SimpleNamespace(id=9, jobs=0, busy_since=0.0, inbox=())
    names = {1: "words/0", 2: "words/1", 3: "words/2", 4: "words/3", 5: "words/4", 9: "count/0"}
    epochs = SimpleNamespace(marked={}, **values)
    worker: Any = SimpleNamespace(plan=SimpleNamespace(names=names), epochs=epochs)
    return EpochTelling(worker).why_not_ended(task, participant, epoch, 100.0)  # type: ignore[arg-type]


def test_the_inputs_whose_barriers_are_missing_are_named() -> None:
    participant = bolt("words/0", "words/1", "words/2")
    participant.arrive("words/0", Barrier(1))
    participant.arrive("words/2", EndMark())
    assert reason_of(participant, 1) == "no barrier from words[2]"
    participant.arrive("words/1", Barrier(1))
    assert reason_of(participant, 1) == "", "its marker is in the inbox, or taken"
    many = bolt(*(f"words/{index}" for index in range(5)))
    assert reason_of(many, 1) == "no barrier from words[1], words[2], words[3] and 2 more tasks"


def test_a_task_without_open_inputs_has_to_hear_that_an_epoch_ends() -> None:
    source = bolt()
    assert reason_of(source, 1) == "it has not reached the barrier"
    source.message(BeginEpochEnd(1, 1))
    assert reason_of(source, 1) == ""
