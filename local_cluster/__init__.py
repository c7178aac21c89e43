"""Squall on one machine, for development and tests: the objects of the daemons, in one process or in several processes."""

from typing import TYPE_CHECKING, Any

from local_cluster.cluster import LocalCluster
from squall.epoch_status import EpochStatus
from squall.status import ComponentStatus, TopologyStatus

if TYPE_CHECKING:
    from local_cluster.process_engine import WorkerView

__all__ = ["ComponentStatus", "EpochStatus", "LocalCluster", "TopologyStatus", "WorkerView"]


def __getattr__(name: str) -> Any:
    if name == "WorkerView":  # imported only on access, because the import of ZeroMQ is slow
        from local_cluster.process_engine import WorkerView

        return WorkerView
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
