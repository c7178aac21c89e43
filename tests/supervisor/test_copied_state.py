"""A state directory was copied to another host: its supervisor waits until the other one of that id is gone."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from supervisor.directories import Directories
from supervisor.store_view import StoreView


def store_view(store: InMemoryStore, host: str, state: Path) -> StoreView:
    record = SupervisorRecord("s1", host, 2)
    mark = Directories(state).mark()
    return StoreView(Registry(store.session()), record, lambda: None, lambda: None, mark)


def test_a_copy_does_nothing_while_the_other_is_there_and_reports_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "id").write_text("s1\n")
    shutil.copytree(tmp_path / "state", tmp_path / "copy", copy_function=shutil.copy2)
    first = store_view(store, "host-1", tmp_path / "state")
    copy = store_view(store, "host-2", tmp_path / "copy")
    assert first.refresh(0.0, {})
    with caplog.at_level(logging.WARNING):
        for second in range(1, 30):
            assert not copy.refresh(float(second), {}) and not copy.known
            assert first.refresh(float(second), {})
    assert [record.host for record in first.registry.all_supervisors()] == ["host-1"]
    told = [
        each.getMessage() for each in caplog.records if "remove the files `id` and `key`" in each.getMessage()
    ]
    assert len(told) == 1
    first.leave(for_good=False)
    assert copy.refresh(60.0, {}) and copy.known


def test_a_restarted_supervisor_waits_for_nothing(tmp_path: Path) -> None:
    store = InMemoryStore()
    assert store_view(store, "host-1", tmp_path).refresh(0.0, {})
    after = store_view(store, "host-1", tmp_path)  # the session of the previous process has not expired
    assert after.refresh(0.0, {}) and after.known
    assert store.get(paths.presence("s1")) is not None
