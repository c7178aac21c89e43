"""A cluster that user code starts inside a worker is refused: each worker would start further workers without end."""

from __future__ import annotations

import pytest

from local_cluster import LocalCluster
from squall.daemon import inside
from topology_api import SquallError


@pytest.mark.parametrize("processes", [True, False])
def test_a_worker_process_starts_no_cluster(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not inside.is_worker()
    monkeypatch.setattr(inside, "_worker", 0)
    inside.begin_worker()
    with pytest.raises(SquallError, match=r"if __name__ == '__main__':"):
        LocalCluster(processes=processes)
