"""Whichever write Nimbus dies at, or is told that it timed out, the cluster comes to where it would have come anyway."""

from __future__ import annotations

import pytest

from tests.nimbus.lives import LIVES, WAYS, Life


@pytest.mark.parametrize("name", LIVES)
def test_a_life_without_faults_goes_as_it_is_told(name: str) -> None:
    life = Life()
    LIVES[name](life)
    assert life.store.failed == []
    assert life.store.writes > 20


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LIVES)
def test_whichever_write_fails_every_topology_comes_to_its_end_with_nothing_left(name: str, way: str) -> None:
    whole = Life()
    LIVES[name](whole)
    for write in range(1, whole.store.writes + 1):
        life = Life(write, way)
        try:
            LIVES[name](life)
        except AssertionError as error:
            raise AssertionError(f"write {write}, {life.store.failed}: {way}") from error
        assert len(life.store.failed) == 1
