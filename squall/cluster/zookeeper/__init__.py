"""The store of a cluster: ZooKeeper 3.6 or newer, through kazoo.

| file | contents |
|---|---|
| `store` | `ZooKeeperStore`: its cache, its watches, its sessions |
| `client` | the connection and single requests; the only module that uses kazoo |
| `tls` | connects by TLS, and says why that fails |
| `access` | judges access lists |
| `server` | prepares a ZooKeeper server on this machine, for development and tests |
| `certificates` | makes the certificates of such a server |

`squall.cluster.znodes` maps values to nodes of ZooKeeper's tree.
"""

from squall.cluster.zookeeper.client import NoAccess
from squall.cluster.zookeeper.store import ZooKeeperStore

__all__ = ["NoAccess", "ZooKeeperStore"]
