"""Topologies whose state is in a store that is away, full, slow, or loses answers: each tuple counts once all the same."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.stores import local
from squall.stores.local import LocalFiles
from tests.flaky_files import state_on_flaky_files
from tests.local_cluster.words_with_state import (
    Count,
    ForwardWithoutIds,
    Pass,
    Words,
    WordsWithoutIds,
    counts,
    eventually,
    expected,
    words,
)
from topology_api import Spout
from worker.epochs.records import CommitRecord, decode_record


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


def record_numbers(path: Path) -> list[int]:
    return sorted(int(each.name) for each in (path / "words" / "log").iterdir())


@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 40))])
def test_answers_that_are_lost_late_or_given_twice_change_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    stores = state_on_flaky_files(monkeypatch, draw, 0.25)
    total = 400
    for start in range(4):
        conf = conf_at(tmp_path, **{"topology.workers": draw.choice([1, 2, 3])})
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words(Words(total, 100), Pass(0.05), Count(0.05)), conf)
            cluster.advance(draw.uniform(2, 6))
            if start == 3:
                for store in stores:
                    store.chance = 0
                cluster.advance(60)
                assert counts(cluster) == expected(list(range(total)))
                assert cluster.status("words").components["words"].pending == 0
    assert {"put_if_absent", "read", "list"} <= {name for store in stores for name in store.failed}
    numbers = record_numbers(tmp_path)
    assert numbers == list(range(1, len(numbers) + 1))


def test_while_the_store_is_away_spouts_pause_at_the_limit_and_then_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = state_on_flaky_files(monkeypatch)
    conf = conf_at(tmp_path, **{"topology.epoch.uncommitted": 100, "topology.workers": 2})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(1_000, 100), Pass(), Count()), conf)
        cluster.advance(2)
        committed = cluster.status("words").components["words"].acked
        assert committed > 0
        for store in stores:
            store.away = True
        cluster.advance(200)
        status = cluster.status("words")
        spout = status.components["words"]
        assert spout.acked == committed
        assert 100 <= spout.emitted - spout.acked < 120
        assert spout.idle.startswith("waits for the state store: cannot put_if_absent: the server has not")
        assert (status.state, status.errors) == ("ACTIVE", ())
        tries = sum(len(store.failed) for store in stores)
        assert tries < 2 * 40, "the pauses have not grown"
        for store in stores:
            store.away = False
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(1_000)))
        assert cluster.status("words").components["words"].acked == 1_000


@pytest.mark.parametrize(
    "spout", [WordsWithoutIds(1_000), ForwardWithoutIds(1_000)], ids=["rewindable", "other"]
)
def test_spouts_whose_tuples_have_no_message_ids_pause_at_the_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spout: Spout
) -> None:
    stores = state_on_flaky_files(monkeypatch)
    conf = conf_at(tmp_path, **{"topology.epoch.uncommitted": 100, "topology.workers": 2})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, Pass(), Count()), conf)
        cluster.advance(2)
        before = cluster.status("words").components["words"].emitted
        assert before > 0
        for store in stores:
            store.away = True
        cluster.advance(200)
        found = cluster.status("words").components["words"]
        assert found.uncommitted == 100 and found.emitted <= before + 100
        assert found.idle.startswith("waits for the state store: ")
        for store in stores:
            store.away = False
        cluster.advance(30)
        assert counts(cluster) == expected(list(range(1_000)))
        assert cluster.status("words").components["words"].uncommitted == 0


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "delete files on this file system"), (errno.EDQUOT, "quota")]
)
def test_a_full_disk_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    full = False
    write = local._write

    def into(name: str, data: bytes) -> None:
        if full:
            with open(name, "xb") as file:
                file.write(data[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        write(name, data)

    monkeypatch.setattr("squall.stores.local._write", into)
    conf = conf_at(tmp_path, **{"topology.epoch.uncommitted": 50})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(500, 100), Pass(), Count()), conf)
        cluster.advance(1)
        full = True
        before = record_numbers(tmp_path)
        cluster.advance(100)
        assert record_numbers(tmp_path) == before
        assert list((tmp_path / "words" / "_squall" / "tmp").iterdir()) == [], (
            "pieces are left on a full disk"
        )
        status = cluster.status("words")
        assert (status.state, status.errors) == ("ACTIVE", ())
        reason = status.components["words"].idle
        assert reason.startswith(f"waits for the state store: cannot write file://{tmp_path}/words/")
        assert advice in reason
        full = False
        cluster.advance(20)
        assert counts(cluster) == expected(list(range(500)))


def test_with_a_store_slower_than_the_interval_the_next_epoch_waits_for_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot of epoch n + 1 is written before the record of n stands."""
    puts: list[tuple[str, bytes]] = []
    released = threading.Event()

    class Slow(LocalFiles):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            released.wait(0.05)  # the interval is 5 times as short
            done = super().put_if_absent(path, data)
            puts.append((path, data))
            return done

    monkeypatch.setattr("worker.loop.epoch_store.open_store", lambda path, **_: Slow(path))
    conf = conf_at(tmp_path) | {"topology.epoch.secs": 0.01}
    with LocalCluster() as cluster:
        # A source that ends could end before the sixth record on a busy machine.
        cluster.submit(words(Words(1_000_000, 1_000), Pass(), Count()), conf)
        eventually(lambda: sum(path.startswith("log/") for path, _ in puts) > 5)
        released.set()
    last = 0
    for path, data in puts:
        folder, _, name = path.partition("/")
        if folder == "snapshots":
            epoch = int(name.partition("-")[0])
            assert epoch > last, f"a snapshot of epoch {epoch} was written after the commit of {last}"
            begun = epoch
        elif isinstance(record := decode_record(int(name), data), CommitRecord):
            assert record.epoch == begun
            last = record.epoch
    assert last > 3
