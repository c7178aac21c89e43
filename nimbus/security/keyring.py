"""The secrets that Nimbus hands out, always sealed: the key pair of each topology's links, and the operators' token.

A topology's key pair is made when the topology is submitted. The store holds only copies that are sealed to one recipient each.
Every registered Nimbus gets a copy, so that the next leader can continue, and each supervisor gets a copy before it gets
workers of the topology. The operators' token is sealed to the Nimbuses in the same way.

Promises: no unencrypted key is in the store; a supervisor that runs no worker of a topology has no copy of the topology's keys.
A process that may write to the store can register a supervisor of its own, and so get copies: the store's access rules must
keep such processes out.

A `KeyRing` belongs to one Nimbus and one thread. While the Nimbus leads, the key ring's registry guards its writes; while it
does not lead, the key ring only reads.
Must not know: the use of the keys, files, HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from squall.cluster import paths
from squall.cluster.records import NimbusRecord, SupervisorRecord
from squall.cluster.registry import Registry
from squall.security.sealing import BadKey, BadSeal, KeyPair, fingerprint, seal_texts, sealed_to
from squall.security.tokens import make_token
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Makes the keys of a topology's links. Nimbus passes these keys on and does not use them.
MakeKeys = Callable[[], Mapping[str, str]]

_TOKEN: Final = "token"


class NoKeys(SquallError):
    """The keys of a topology's links are lost."""


class KeyRing:
    """The secrets of a cluster that one Nimbus has."""

    def __init__(self, registry: Registry, pair: KeyPair, nimbus_id: str, make_keys: MakeKeys) -> None:
        self._registry = registry
        self._pair = pair
        self._id = nimbus_id
        self._make_keys = make_keys
        #: Opened copies: topology id -> (the sealed bytes, the content).
        self._opened: dict[str, tuple[bytes, dict[str, str]]] = {}
        #: Copies that could not be opened, and have been logged.
        self._damaged: dict[str, bytes] = {}
        #: Copies that are known to be in the store: (topology id, recipient, public key).
        self._given: set[tuple[str, str, str]] = set()

    # The keys of topologies

    def make(self, topology_id: str) -> None:
        """Make the keys of a new topology and seal them to every registered Nimbus. Existing keys are kept."""
        if self._texts(topology_id) is None:
            self._give(topology_id, self._id, self._pair.public, dict(self._make_keys()))
        self.share([topology_id])

    def seal_for(self, topology_id: str, supervisors: Iterable[SupervisorRecord]) -> None:
        """Give each supervisor a copy that only this supervisor can open. Raises `NoKeys` if this Nimbus does not have the
        keys."""
        missing = [each for each in supervisors if not self._has_copy(topology_id, each.id, each.public_key)]
        if not missing:
            return
        texts = self._texts(topology_id)
        if texts is None:
            raise NoKeys(
                f"the keys of {topology_id} were sealed to Nimbuses that are gone, so no further supervisor can have them:"
                " kill the topology and submit it again"
            )
        for supervisor in missing:
            self._try_to_give(topology_id, supervisor, texts)

    def share(self, topology_ids: Iterable[str]) -> None:
        """Give every registered Nimbus the secrets that this Nimbus has: the keys of these topologies, and the operators'
        token."""
        others = [record for record in self._registry.all_nimbuses() if record.id != self._id]
        for what in (*topology_ids, paths.OPERATOR):
            missing = [each for each in others if not self._has_copy(what, each.id, each.public_key)]
            texts = self._texts(what) if missing else None
            for other in missing:
                if texts is not None:
                    self._try_to_give(what, other, texts)

    def forget(self, topology_id: str) -> None:
        """Drop every copy of a topology's keys."""
        self._registry.remove_keys(topology_id)
        self._opened.pop(topology_id, None)
        self._given = {given for given in self._given if given[0] != topology_id}

    def lacks(self, topology_ids: Iterable[str]) -> str | None:
        """Return why this Nimbus should not lead: another Nimbus has all secrets of this Nimbus, and more. None if there is no
        such Nimbus.

        If each of two Nimbuses has secrets that the other lacks, either may lead. The leader gives its secrets to the other
        Nimbus, which then has more secrets than the leader. So this method says that the other Nimbus should lead.
        """
        topology_ids = set(topology_ids)
        # Forget topologies that are gone, even if a different Nimbus dropped their keys.
        there = {*topology_ids, paths.OPERATOR}
        self._opened = {what: known for what, known in self._opened.items() if what in there}
        self._damaged = {what: sealed for what, sealed in self._damaged.items() if what in there}
        self._given = {given for given in self._given if given[0] in there}
        others = [record for record in self._registry.all_nimbuses() if record.id != self._id]
        if not others:
            return None
        known = {what: self._texts(what) is not None for what in (paths.OPERATOR, *sorted(topology_ids))}
        mine = [what for what, is_known in known.items() if is_known]
        missing = [what for what, is_known in known.items() if not is_known]
        for other in others:
            more = [what for what in missing if self._is_sealed_to(what, other.id, other.public_key)]
            if more and all(self._is_sealed_to(what, other.id, other.public_key) for what in mine):
                which = "the operators' token" if more[0] == paths.OPERATOR else f"the keys of {more[0]}"
                return f"lacks {which}, which {other.id} has"
        return None

    # The operators' token

    def token(self) -> str | None:
        """Return the operators' token; None if there is none yet, or this Nimbus cannot open it."""
        texts = self._texts(paths.OPERATOR)
        return None if texts is None else texts.get(_TOKEN)

    def settle_token(self, offered: str | None = None) -> str:
        """Return the operators' token. If the leader has no token, the offered token is used, or else a new token."""
        token = self.token()
        if token is None:
            token = offered or make_token()
            self._replace_token(token)
            _log.info("the operators' token is %s", "the one from the file" if offered else "a new one")
        self.share(())
        return token

    def renew_token(self) -> str:
        """Replace the operators' token with a new token, and return the new token. From now on the old token is refused."""
        token = make_token()
        self._replace_token(token)
        self.share(())
        _log.info("the operators have a new token; the previous token is refused")
        return token

    def _replace_token(self, token: str) -> None:
        # No daemon keeps a copy of the old token; absent daemons get the new one when they return.
        self.forget(paths.OPERATOR)
        self._give(paths.OPERATOR, self._id, self._pair.public, {_TOKEN: token})

    # Copies

    def _texts(self, what: str) -> dict[str, str] | None:
        sealed = self._registry.sealed_keys(what, self._id)
        if sealed is None:
            self._opened.pop(what, None)
            return None
        known = self._opened.get(what)
        if known is not None and known[0] == sealed:
            return known[1]
        try:
            texts = self._pair.open_texts(sealed, what)
        except BadSeal as error:
            if self._damaged.get(what) != sealed:  # log this once: this method is called often
                self._damaged[what] = sealed
                _log.warning("the copy at %s: %s", paths.sealed_keys(what, self._id), error)
            return None
        self._opened[what] = sealed, texts
        return texts

    def _has_copy(self, what: str, recipient: str, public: str) -> bool:
        copy = what, recipient, public
        if copy not in self._given and self._is_sealed_to(*copy):
            self._given.add(copy)
        return copy in self._given

    def _is_sealed_to(self, what: str, recipient: str, public: str) -> bool:
        sealed = self._registry.sealed_keys(what, recipient)
        try:
            return sealed is not None and sealed_to(sealed) == public
        except BadSeal:
            return False

    def _try_to_give(self, what: str, record: SupervisorRecord | NimbusRecord, texts: dict[str, str]) -> None:
        try:
            self._give(what, record.id, record.public_key, texts)
        except BadKey as error:
            # A bad record does not affect other records; the supervisor with the bad record reports that it cannot start the
            # workers.
            _log.error("%s gets no copy of the secrets of %s: %s", record.id, what, error)
            return
        which = "the operators' token" if what == paths.OPERATOR else f"the keys of {what}"
        kind = "Nimbus" if isinstance(record, NimbusRecord) else "supervisor"
        whom = kind, record.id, record.host, record.url or "no address", fingerprint(record.public_key)
        _log.info("%s: sealed to %s %s on %s (%s), whose key is %s", which, *whom)

    def _give(self, what: str, recipient: str, public: str, texts: dict[str, str]) -> None:
        self._registry.save_sealed_keys(what, recipient, seal_texts(public, what, texts))
        self._given.add((what, recipient, public))
