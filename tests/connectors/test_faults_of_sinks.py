"""Each sink on its real server, while that is killed, frozen, restarted, and sends or refuses what it should not.

The worlds are in this folder, the promises in `sink_promises.py`; docs/connectors.md shows the matrix.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector_contract import SinkWorld
from tests.connectors.sink_promises import PROMISES
from tests.connectors.worlds import cells

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "promise", "epochs"), cells(SinkWorld, PROMISES))
def test_sink(request: pytest.FixtureRequest, folder: Path, name: str, promise: str, epochs: bool) -> None:
    PROMISES[promise](request.getfixturevalue(name), folder if epochs else None)
