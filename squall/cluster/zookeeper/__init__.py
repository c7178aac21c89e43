"""The store of a cluster: ZooKeeper 3.6 or newer, by way of kazoo.

| file | what it holds |
|---|---|
| `store` | `ZooKeeperStore`: its cache, its watches, its sessions |
| `client` | the connection and single requests; the only module that speaks to kazoo |
| `server` | a ZooKeeper server of one's own, for development and tests |

How values lie in ZooKeeper's tree is `squall.cluster.znodes`.
"""

from squall.cluster.zookeeper.client import NoAccess
from squall.cluster.zookeeper.store import ZooKeeperStore

__all__ = ["NoAccess", "ZooKeeperStore"]
