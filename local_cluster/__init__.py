"""Squall on one machine: the objects of the daemons in one process, for development and tests."""

from local_cluster.cluster import LocalCluster
from squall.status import ComponentStatus, TopologyStatus

__all__ = ["ComponentStatus", "LocalCluster", "TopologyStatus"]
