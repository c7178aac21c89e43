"""Checks callers: operators by their token, daemons by their key pairs.

An operator sends the cluster's token. A daemon sends a value that only that daemon and this Nimbus can derive from their key
pairs (`squall.security.sealing`). Nimbus looks up the daemon's public key in the daemon's record in the store, so only a daemon
that can write to the store is accepted. A supervisor that the leader has given up, because it was silent, no longer has a
record in the store. Such a supervisor may still report: the leader keeps its old record.
Must not know: the meaning of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from nimbus.http.errors import NoTokenYet, Unauthorized
from squall.cluster.records import NimbusRecord, SupervisorRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.security.sealing import NIMBUS_TO_NIMBUS, SUPERVISOR_TO_NIMBUS, KeyPair, read_daemon_header
from squall.security.tokens import is_token, read_bearer
from topology_api.errors import SquallError

OPERATOR: Final = "operator"
SUPERVISOR: Final = "supervisor"
NIMBUS: Final = "nimbus"
#: The most records of daemons that are cached, so that an unchanged record is not decoded again.
_REMEMBERED: Final = 10_000

_NO_TOKEN_YET: Final = (
    "this Nimbus does not have the operators' token yet: the leader gives it to every Nimbus soon after the election;"
    " ask again in a few seconds"
)


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request: OPERATOR, or a daemon with its id."""

    kind: str
    id: str = ""


@dataclass(eq=False, repr=False)
class Authenticator:
    """Identifies callers by their credentials. Any thread may call it."""

    token: Callable[[], str | None]
    pair: KeyPair
    store: Store
    #: Returns the record of a supervisor that the leader has given up.
    given_up: Callable[[str], SupervisorRecord | None] = lambda supervisor_id: None

    def __post_init__(self) -> None:
        self._registry = Registry(self.store)

    def operator(self, header: str | None) -> Caller | None:
        """Return the operator if the header contains the operators' token; None if it contains no bearer token. Raises
        `Unauthorized` for a wrong token, and `NoTokenYet` while this Nimbus has no token. Does not read the store.
        """
        given = None if header is None else read_bearer(header)
        if given is None:
            return None
        expected = self.token()
        if expected is None:
            raise NoTokenYet(_NO_TOKEN_YET)
        if not is_token(given, expected):
            raise Unauthorized("this is not the operators' token")
        return Caller(OPERATOR)

    def refusal(self) -> SquallError:
        """Return the error for a request without credentials. If this Nimbus has no token yet, return `NoTokenYet` instead."""
        if self.token() is None:
            return NoTokenYet(_NO_TOKEN_YET)
        return Unauthorized("this needs the operators' token: `Authorization: Bearer TOKEN`")

    def daemon(self, header: str | None) -> Caller:
        """Return the daemon that sent this header; raise `Unauthorized` if the daemon is unknown.

        For a header that is not a daemon's, raises `NoTokenYet` while this Nimbus has no token. The daemon's public key is read
        from the store.
        """
        found = None if header is None else read_daemon_header(header)
        if found is None:
            raise self.refusal()
        daemon_id, shown = found
        known = self._registry.supervisors.known.by_path
        if len(known) > _REMEMBERED:
            known.clear()
        supervisor = self._registry.supervisors.readable(daemon_id) or self.given_up(daemon_id)
        if self._is_token_of(supervisor, SUPERVISOR_TO_NIMBUS, shown):
            return Caller(SUPERVISOR, daemon_id)
        if self._is_token_of(self._registry.nimbuses.readable(daemon_id), NIMBUS_TO_NIMBUS, shown):
            return Caller(NIMBUS, daemon_id)
        raise Unauthorized(f"no daemon {daemon_id!r:.200} with these credentials is known here")

    def _is_token_of(self, record: SupervisorRecord | NimbusRecord | None, context: str, shown: str) -> bool:
        return record is not None and self.pair.is_token_of(record.public_key, context, shown)
