"""The fixtures of the worlds: each module of this folder that is called `NAME_world.py` brings its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector_contract import WRONG, WRONG_PASSWORD
from tests.connectors.worlds import modules

for _module in modules():
    globals().update(
        {name: each for name, each in vars(_module).items() if hasattr(each, "_fixture_function")}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a topology keeps its state; the wrong password is in its variable meanwhile."""
    monkeypatch.setenv(WRONG, WRONG_PASSWORD)
    return tmp_path
