"""`--state PATH`: where the state of another topology is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.packages.state_paths import StateStart
from worker.loop.epoch_store import EpochFiles
from worker.loop.state_start import source_of


@pytest.mark.parametrize(
    ("path", "topology", "found"),
    [("", "words", "words"), ("/words", "other", "words"), ("", "other", None), ("/absent", "words", None)],
)
def test_a_path_is_the_folder_of_a_topology_or_the_one_above(
    tmp_path: Path, path: str, topology: str, found: str | None
) -> None:
    (tmp_path / "words" / "log").mkdir(parents=True)
    own = EpochFiles("/elsewhere", topology)
    source = source_of(own, StateStart(f"{tmp_path}{path}", 1))
    assert (None if source is None else source.folder) == (None if found is None else f"{tmp_path}/{found}")
