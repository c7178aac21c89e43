"""Maintains the operators' token and the copies of secrets, in the control thread of a Nimbus.

The leader chooses the token, and gives every registered Nimbus copies of the secrets that it needs to lead. Every Nimbus writes
the token to the file in which commands on its host find it. `token` may be read from any thread, even while the store cannot be
reached.
Must not know: HTTP, elections.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nimbus.security.keyring import KeyRing, MakeKeys
from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.security.private_files import BadPrivateFile
from squall.security.sealing import KeyPair
from squall.security.tokens import FILE, OPTION, read_token, write_token

_log = logging.getLogger(__name__)

#: Seconds between two reads without a notified change.
LOOK_SECS: Final = 1.0


@dataclass(eq=False, repr=False)  # no repr: the token must not be shown
class Secrets:
    """The cluster's secrets that one Nimbus knows."""

    store: Store
    pair: KeyPair
    nimbus_id: str
    make_keys: MakeKeys
    clock: Clock
    #: The state directory.
    state: Path
    #: The URLs under which commands on this host may call this Nimbus.
    urls: Collection[str]
    environ: Mapping[str, str]
    site: Mapping[str, object]
    #: Whether the operators get a new token when this Nimbus leads for the first time.
    new_token: bool = False
    #: The operators' token; None while it is not known yet.
    token: str | None = None

    def __post_init__(self) -> None:
        self._registry = Registry(self.store)
        self._reading = self._make_ring(self.store)
        self._leading: KeyRing | None = None
        self._next = -math.inf
        watched = (paths.NIMBUSES, paths.keys(paths.OPERATOR))
        self._unwatch = [self.store.watch(path, self._changed) for path in watched]
        #: Why another Nimbus should lead, according to the last `tick`: it has secrets that this Nimbus lacks. None: there is
        #: no such Nimbus.
        self.aside: str | None = None

    def _make_ring(self, store: Store) -> KeyRing:
        return KeyRing(Registry(store), self.pair, self.nimbus_id, self.make_keys)

    @property
    def ring(self) -> KeyRing:
        """The key ring of the present term; outside of a term, a key ring that only reads."""
        return self._reading if self._leading is None else self._leading

    def lacks(self) -> str | None:
        """Return why this Nimbus should not lead: another Nimbus has secrets that this Nimbus lacks. None if there is no such
        Nimbus."""
        return self.ring.lacks(sorted(self._registry.known_ids()))

    def begin(self, store: Store) -> None:
        """Begin a term. From now on there is a token."""
        self._leading = self._make_ring(store)
        if self.new_token:
            self._take(self._leading.renew_token())
            self.new_token = False
        self._take(self._leading.settle_token(self._offered()))
        self._next = -math.inf

    def tick(self, now: float) -> None:
        """Read the token; while leading, give every Nimbus its copies."""
        if now < self._next:
            return
        self._next = now + LOOK_SECS
        if self._leading is not None:
            ids = sorted(self._registry.known_ids())
            self._leading.share(ids)
            self.aside = self._leading.lacks(ids)
        self._take(self.ring.token())

    def end(self) -> None:
        """End the term."""
        self._leading = self.aside = None

    def next_time(self, now: float) -> float:
        """Return the time at which `tick` has something to do."""
        return max(now, self._next)

    def close(self) -> None:
        """Stop watching the store."""
        for cancel in self._unwatch:
            cancel()

    def _changed(self, path: str) -> None:
        self._next = -math.inf

    def _take(self, token: str | None) -> None:
        if token is None or token == self.token:
            return
        self.token = token
        try:
            file = write_token(token, self.state, self.urls, self.environ, self.site)
            _log.info("the operators' token is in %s", file)
        except OSError as error:
            _log.error("the operators' token cannot be written, so commands do not find it: %s", error)

    def _offered(self) -> str | None:
        """Return the token that the file already holds, so that a cluster whose store was lost keeps its token."""
        named = self.site.get(OPTION)
        try:
            return read_token(Path(str(named)) if named else self.state / FILE)
        except BadPrivateFile as error:
            _log.warning("%s: the operators get a new token", error)
            return None
