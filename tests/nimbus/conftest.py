"""Nimbus over an empty store, for transcripts; `transcripts.py` says how to read them."""

from __future__ import annotations

import pytest

from tests.nimbus.transcripts import Play, Scenario


@pytest.fixture
def scenario() -> Scenario:
    """Nimbus over an empty store at second 0."""
    return Scenario()


@pytest.fixture
def play(scenario: Scenario) -> Play:
    """Plays a transcript."""
    return scenario.play
