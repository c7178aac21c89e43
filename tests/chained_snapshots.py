"""Makes small states do what large ones do: snapshots are chains of changes, and are encoded in many slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest


@contextmanager
def chained_snapshots(longest: int = 4) -> Iterator[None]:
    """A snapshot is whole only when a chain has `longest` files; a slice is one part, of two cells."""
    from worker.epochs.snapshot_chain import SnapshotChain
    from worker.state import saving
    from worker.tasks import snapshot_slices

    def wants_whole(self: Any, touched: int) -> bool:
        return not self.links or len(self.links) >= longest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotChain, "wants_whole", wants_whole)
        patch.setattr(saving, "MOST_CELLS", 2)
        patch.setattr(snapshot_slices, "SLICE_SECS", 0.0)
        patch.setattr(snapshot_slices, "SLICE_SHARE", 0.0)
        yield


@pytest.fixture
def maybe_chained(seed: int) -> Iterator[None]:
    """With an odd seed, snapshots are chains of changes. For tests with a parameter `seed`."""
    with chained_snapshots() if seed % 2 else nullcontext():
        yield
