"""A cluster of daemons, each of which reaches ZooKeeper through a proxy of its own, which may fail independently.

Must not know: the faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.zookeeper_proxy import ZooKeeperProxy
from tests.zookeeper_servers import ZooKeeperServer


@dataclass(frozen=True)
class Ways:
    """ZooKeeper's addresses for the daemons."""

    nimbuses: list[ZooKeeperProxy]
    supervisors: list[ZooKeeperProxy]

    @property
    def all(self) -> list[ZooKeeperProxy]:
        return [*self.nimbuses, *self.supervisors]


@contextmanager
def proxied_cluster(
    tmp_path: Path, zookeeper: ZooKeeperServer, *, nimbuses: int = 1, supervisors: int = 2, slots: int = 2
) -> Iterator[tuple[ClusterRun, Ways]]:
    """The ledger's topology in such a cluster, run by `ledger_cluster`."""
    with ExitStack() as stack:
        proxies = [
            stack.enter_context(ZooKeeperProxy(zookeeper.servers)) for _ in range(nimbuses + supervisors)
        ]
        run = stack.enter_context(
            ledger_cluster(
                tmp_path,
                [proxy.servers for proxy in proxies],
                direct=zookeeper.servers,
                nimbuses=nimbuses,
                supervisors=supervisors,
                slots=slots,
            )
        )
        yield run, Ways(proxies[:nimbuses], proxies[nimbuses:])
