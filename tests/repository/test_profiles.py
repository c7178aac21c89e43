"""The profile of a worker says of every part of the core what it is."""

from __future__ import annotations

from pathlib import Path

from benchmarks import worker_profile
from topology_api.core_choice import HOT

ROOT = Path(__file__).resolve().parents[2]


def test_every_hot_module_has_a_part_in_the_profile_of_the_plain_core() -> None:
    assert {module.replace(".", "/") + ".py" for module in HOT} <= worker_profile.PARTS.keys()


def test_the_profile_of_the_plain_core_names_no_file_that_is_gone() -> None:
    ours = [file for file in worker_profile.PARTS if not file.startswith("sugar/")]  # which is pyzmq's
    assert [file for file in ours if not (ROOT / file).exists()] == []
