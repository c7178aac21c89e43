"""Opens the link keys that Nimbus sealed for a supervisor, for its workers.

Must not know: processes, what keys are used for.
"""

from __future__ import annotations

from pathlib import Path

from squall import worker_files
from squall.cluster.registry import Registry
from squall.cluster.store import StoreError
from squall.security.sealing import KeyPair
from squall.values import Keys
from topology_api.errors import SquallError


class LinkKeys:
    """The link keys of all topologies. `pair`: the supervisor's; None in a cluster whose links need no keys."""

    def __init__(self, registry: Registry, supervisor: str, pair: KeyPair | None) -> None:
        self._registry = registry
        self._supervisor = supervisor
        self._pair = pair

    def of(self, topology_id: str, directory: Path) -> Keys | None:
        """Return the keys of a topology; None in a cluster without keys. `directory`: the worker's; while the store is away,
        the keys of an earlier process in that directory are used."""
        try:
            return self._in_store(topology_id)
        except StoreError:
            before = worker_files.read_keys(directory)  # they stay the same
            if before is None:
                raise
            return before

    def _in_store(self, topology_id: str) -> Keys | None:
        if self._pair is None:
            return None
        sealed = self._registry.sealed_keys(topology_id, self._supervisor)
        if sealed is None:
            raise SquallError("Nimbus has not sealed the keys of its links for this supervisor yet")
        try:
            return Keys(**self._pair.open_texts(sealed, topology_id))
        except TypeError:
            raise SquallError("the sealed text of Nimbus for this supervisor holds no keys") from None
