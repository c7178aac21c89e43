"""Writing to a folder with foreign files is refused, naming them, before anything is written; on every store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from squall.stores.files import Files
from squall_io.spark.manifest.tables import FolderTaken
from squall_io.spark.results.publishing import open_output
from squall_io.spark.stores import open_files
from tests.squall_io.memory_files import MemoryFiles
from tests.squall_io.sink_world import SinkWorld


def test_a_sink_does_not_start_there_and_tries_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(monkeypatch)
    world.store.write("day=1/part-0.parquet", b"theirs")
    before = dict(world.store.files)
    with pytest.raises(FolderTaken, match=r"already has files \(day=1/part-0\.parquet\)"):
        world.life().open()
    assert (world.store.files, world.time) == (before, 1000.0)
    assert world.leases[0].released


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_no_result_is_begun_there_and_an_empty_place_is_not_written_to_yet(tmp_path: Path, kind: str) -> None:
    makes: dict[str, Callable[[], Files]] = {
        "memory": MemoryFiles,
        "local": lambda: open_files(str(tmp_path / "out")),
    }
    files = makes[kind]()
    open_output(files, None, None)
    assert files.walk("") == []
    files.put_if_absent("a/b/part-0.parquet", b"theirs")
    before = files.walk("")
    with pytest.raises(FolderTaken, match=r"already has files \(a/b/part-0\.parquet\)"):
        open_output(files, None, None)
    assert files.walk("") == before
