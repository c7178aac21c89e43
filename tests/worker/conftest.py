"""Starting worker processes in a test's own folder.

Must not know: single tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from tests.worker.fake_supervisor import FakeSupervisor, orders_for, ship
from topology_api import Topology


class Launch(Protocol):
    """Starts a worker that runs a whole topology; further arguments change its orders."""

    def __call__(
        self, topology: Topology, conf: Mapping[str, object] | None = None, **changes: Any
    ) -> FakeSupervisor: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with ExitStack() as stack:

        def start(
            topology: Topology, conf: Mapping[str, object] | None = None, **changes: Any
        ) -> FakeSupervisor:
            orders = orders_for(topology, ship(topology, tmp_path / "bundle"), conf)
            return stack.enter_context(FakeSupervisor(tmp_path / "w1", replace(orders, **changes)))

        yield start
