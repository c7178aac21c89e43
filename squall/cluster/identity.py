"""The id of the cluster to which a store belongs. Daemons remember this id.

The first leader writes the id to /cluster. If a daemon remembers a different id, or remembers an id but finds none (the store
was emptied, or is a different store), it does nothing with that store: a Nimbus does not lead, a supervisor keeps its workers.
Must not know: where a daemon keeps the id.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import lru_cache
from uuid import uuid4

from squall.cluster import paths
from squall.cluster.records import REPEATING
from squall.cluster.store import Exists, Store
from topology_api.errors import SquallError


class OtherCluster(SquallError):
    """The store does not belong to the remembered cluster, but to a different one or to none."""


def check(store: Store, remembered: str | None) -> str:
    """Return the id of the store's cluster, "" if the store has no id and none is remembered. Raises `OtherCluster` if the two
    ids differ."""
    if (found := store.get(paths.CLUSTER)) is None:
        if remembered:
            raise OtherCluster(
                f"the store is empty, but this daemon belongs to cluster {remembered}: if the data comes back, the daemon"
                " goes on by itself; if the data is lost for good, start over with `squall nimbus --new-cluster`"
            )
        return ""
    cluster_id = _id_in(found[0])
    if remembered and cluster_id != remembered:
        raise OtherCluster(
            f"the store holds cluster {cluster_id}, but this daemon belongs to cluster {remembered}: check the daemon's"
            " settings (which ZooKeeper, which root), or use a different state directory for the other cluster"
        )
    return cluster_id


def establish(store: Store, new_id: Callable[[], str] = lambda: uuid4().hex) -> str:
    """Return the id of the store's cluster; write a new id if there is none. Only a leader calls this. May raise
    `OtherCluster`."""
    if found := check(store, None):
        return found
    with contextlib.suppress(Exists):  # written by an unanswered call of this process, or by another leader
        store.create(paths.CLUSTER, json.dumps({"id": new_id(), "format": REPEATING}).encode())
    return check(store, None)


@lru_cache(8)
def _id_in(data: bytes) -> str:
    try:
        body = json.loads(data)
        cluster_id, format_ = body["id"], body["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise OtherCluster(f"{paths.CLUSTER} holds {data!r:.80} instead of a cluster's id") from None
    if not isinstance(cluster_id, str) or not cluster_id:
        raise OtherCluster(f"{paths.CLUSTER} holds {cluster_id!r:.80} instead of a cluster's id")
    if format_ != REPEATING:
        raise OtherCluster(
            f"the cluster's records are of format {format_!r:.20}, this Squall reads format {REPEATING}: all daemons of a"
            " cluster should be of one release"
        )
    return cluster_id
