"""How long the faults last: `--soak 10` makes them ten times as long."""

from __future__ import annotations

from tests.faults.conftest import soak

__all__ = ["soak"]
