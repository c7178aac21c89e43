"""Each source on its real server, while that is killed, frozen, restarted, and sends or refuses what it should not.

The worlds are in this folder, the promises in `source_promises.py`; docs/connectors.md shows the matrix.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector_contract import SourceWorld
from tests.connectors.source_promises import PROMISES, WITH_EPOCHS_ONLY
from tests.connectors.worlds import cells

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "promise", "epochs"), cells(SourceWorld, PROMISES, WITH_EPOCHS_ONLY))
def test_source(request: pytest.FixtureRequest, folder: Path, name: str, promise: str, epochs: bool) -> None:
    PROMISES[promise](request.getfixturevalue(name), folder if epochs else None)
