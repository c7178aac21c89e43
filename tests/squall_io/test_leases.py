"""Leases: what a reader holds, when it expires, and what happens to a lease that is left."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from squall.stores.files import FilesRefused, FilesUnavailable
from squall.stores.local import LocalFiles
from squall_io.spark.manifest.layout import LEASES, TABLE, WriterId
from squall_io.spark.manifest.leases import (
    SWEEP_AFTER,
    TERM,
    ReaderLease,
    held_leases,
    new_path,
    put_lease,
    seen_in,
    sweep_leases,
)
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import ROWS, TableRecord, open_table
from squall_io.spark.retention import holding
from squall_io.spark.retention.holding import Holding, held
from tests.squall_io.memory_files import MemoryFiles
from tests.squall_io.test_time_travel import put, table

REWRITER = WriterId("rewrite~~", "table", 0)


def test_a_lease_holds_what_was_replaced_after_it_was_last_put() -> None:
    files = table()
    one, two = put(files, 1, "1"), put(files, 2, "1")
    first = put(files, 3, "1", replaces=(str(one.batch),))
    second = put(files, 5, "1", replaces=(str(two.batch),))
    everything = ReaderLease("a reader", 0.0)
    assert everything.holds(first.batch) and everything.holds(second.batch)
    seen = ReaderLease("a reader", 0.0, seen=seen_in(read_state(files).counted.values()))
    assert seen.seen == {"words-1.sink.0.1": ((3, 3), (5, 5))}
    third = put(files, 6, "1", replaces=(str(first.batch), str(second.batch)))
    assert [seen.holds(entry.batch) for entry in (first, second, third)] == [False, False, True]


def test_rewrites_that_follow_one_another_are_a_range() -> None:
    files = table()
    for number in (1, 2, 3, 5):
        put(files, number, "1", replaces=("x.y.0.1.1",))
    assert seen_in(read_state(files).entries) == {"words-1.sink.0.1": ((1, 3), (5, 5))}


def test_a_lease_expires_by_the_clock_that_dates_it_unless_it_is_put_again() -> None:
    files = MemoryFiles()
    path = new_path()
    put_lease(files, path, ReaderLease("a reader", 5.0))
    put_at = files.store.clock
    [found] = held_leases(files, put_at + TERM)
    assert (found.lease.holder, found.until) == ("a reader", put_at + TERM)
    assert held_leases(files, put_at + TERM + 1) == ()
    files.store.clock += TERM
    put_lease(files, path, ReaderLease("a reader", 5.0))
    assert len(held_leases(files, put_at + TERM + 1)) == 1


def test_leases_that_expired_long_ago_are_deleted_and_no_others() -> None:
    files = MemoryFiles()
    for secs in (TERM, 10 * SWEEP_AFTER):
        put_lease(files, new_path(), ReaderLease(f"for {secs}", 5.0, secs))
    now = files.store.clock + TERM + SWEEP_AFTER
    sweep_leases(files, now - 2)
    assert len(files.list(LEASES)) == 2
    sweep_leases(files, now + 1)
    assert [each.lease.holder for each in held_leases(files, now)] == [f"for {10 * SWEEP_AFTER}"]


def test_a_lease_that_cannot_be_read_holds_everything_until_it_expires() -> None:
    files = MemoryFiles()
    files.replace(f"{LEASES}/0.json", b"{}")
    [found] = held_leases(files, files.store.clock)
    assert found.lease.seen is None and "whose lease _squall/leases/0.json is damaged" in found.lease.holder
    assert held_leases(files, files.store.clock + TERM + 1) == ()


@pytest.fixture
def local(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path / "table"))
    open_table(files, TableRecord(ROWS, "parquet", ()))
    return files


def leases(files: LocalFiles) -> list[ReaderLease]:
    return [each.lease for each in held_leases(files, 0.0)]


def test_a_table_is_held_while_it_is_read_and_not_after(local: LocalFiles) -> None:
    with held(local, "a test"):
        [lease] = leases(local)
        assert lease.holder.startswith("a test on ") and lease.seen is None
    assert leases(local) == []
    with pytest.raises(KeyError), held(local, "a test"):
        raise KeyError
    assert leases(local) == []


def test_where_no_table_is_nothing_is_written(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path / "nothing"))
    with held(files, "a test") as holding:
        assert holding is None
    assert not files.exists(TABLE) and not (tmp_path / "nothing").exists()


def test_a_reader_that_has_read_the_manifest_holds_less(local: LocalFiles) -> None:
    with held(local, "a test") as holding:
        assert holding is not None
        holding.saw(read_state(local))
        assert leases(local)[0].seen == {}


def test_a_thread_renews_the_lease(local: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    renewed = threading.Event()
    monkeypatch.setattr(holding, "RENEW", 0.001)
    monkeypatch.setattr(Holding, "renew", lambda self: renewed.set())
    with held(local, "a test"):
        assert renewed.wait(60)


def test_without_permission_to_write_the_table_is_read_without_a_lease(
    local: LocalFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(path: str, data: bytes) -> None:
        raise FilesRefused("permission denied")

    monkeypatch.setattr(local, "replace", refused)
    with caplog.at_level(logging.WARNING), held(local, "a test") as holding:
        assert holding is not None
        holding.saw(read_state(local))
    assert "is read without a lease, so a vacuum may delete files that are being read" in caplog.text


def test_a_renewal_that_fails_is_said_once_and_one_that_is_late_too(
    local: LocalFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = Holding(local, "a test")
    mine.hold()

    def away(path: str, data: bytes) -> None:
        raise FilesUnavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(local, "replace", away)
        mine.renew()
        mine.renew()
    assert caplog.text.count("is not renewed: no answer") == 1
    monkeypatch.setattr(mine, "_put_at", mine._put_at - TERM - 60)
    mine.renew()
    assert "was read without a lease for 60 s" in caplog.text
    mine.release()
    mine.release()
    assert leases(local) == []
