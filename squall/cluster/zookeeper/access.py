"""Who may access a node in ZooKeeper: judges the entries of its access list (ACL).

Only Squall's own credentials may have an entry. Every other entry is a stranger's: `world`, an `ip` range, another user or
password, a certificate. ZooKeeper stores a hash of user and password; the algorithm is a setting of the server.
Must not know: how access lists are read, what the nodes hold.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

#: ZooKeeper's default, and the algorithms to which `zookeeper.DigestAuthenticationProvider.digestAlg` is usually set.
_ALGORITHMS: Final = ("sha1", "sha256", "sha512", "sha3_256")
#: The letters of zkCli.sh, in its order, with their bits.
_RIGHTS: Final = (("c", 4), ("d", 8), ("r", 1), ("w", 2), ("a", 16))
_DIGEST: Final = "digest"


class AclEntry(msgspec.Struct, frozen=True):
    """An entry of an access list: who, and what they may do."""

    scheme: str
    id: str
    rights: int

    def text(self, user: str) -> str:
        """Return the entry as zkCli.sh shows it, without the hash of a password. `user`: Squall's own user."""
        who = self.id
        if self.scheme == _DIGEST:  # a password can be guessed from its hash
            who = self.id.partition(":")[0]
            who += " with another password" if who == user else ""
        rights = "".join(letter for letter, bit in _RIGHTS if self.rights & bit)
        return f"{self.scheme}:{who} ({rights})"


def own_ids(credentials: tuple[str, str]) -> frozenset[str]:
    """Return the ids that ZooKeeper may have stored for these credentials, one for each algorithm."""
    user, whole = credentials[0], ":".join(credentials).encode()
    hashes = (hashlib.new(name, whole, usedforsecurity=False).digest() for name in _ALGORITHMS)
    return frozenset(f"{user}:{base64.b64encode(each).decode()}" for each in hashes)


def stranger_in(entries: Iterable[AclEntry], own: frozenset[str]) -> AclEntry | None:
    """Return the first entry that does not belong to Squall's own credentials, None if there is none."""
    return next((each for each in entries if each.scheme != _DIGEST or each.id not in own), None)


def open_node(path: str, servers: str, entry: AclEntry, user: str, root: str) -> str:
    """Return what to report, and what to do, about a node with a stranger's entry."""
    whom = "everybody" if entry.scheme == "world" else "strangers"
    close = f"`addauth digest USER:PASSWORD`, then `setAcl -R {root} auth::cdrwa`"
    if entry.scheme == "x509":  # with TLS, `auth` would be the certificate of zkCli.sh too
        close = f"`setAcl -R {root} digest:USER:HASH:cdrwa`"
    return (
        f"{path} in the ZooKeeper at {servers} is open to {whom}: its access list has the entry {entry.text(user)}, but only"
        f" Squall's own credentials (user {user}) may have one. Close it (in zkCli.sh: {close}) and check what strangers may"
        " have written (docs/security.md#zookeeper), or choose"
        " another squall.zookeeper.root"
    )


def foreign_node(path: str, servers: str, root: str) -> str:
    """Return what to report, and what to do, about a node that Squall may not read."""
    return (
        f"{path} in the ZooKeeper at {servers} belongs to strangers: Squall's own credentials may not read it."
        f" Remove it as ZooKeeper's superuser and check what strangers may have written below {root}"
        " (docs/security.md#zookeeper), or choose another squall.zookeeper.root"
    )
