"""Whose entry is in an access list of ZooKeeper: Squall's own credentials, or a stranger's."""

from __future__ import annotations

import pytest
from kazoo.security import make_digest_acl_credential

from squall.cluster.zookeeper.access import AclEntry, foreign_node, open_node, own_ids, stranger_in

OURS = ("squall", "a:secret:of-ours")
OWN = own_ids(OURS)
MINE = AclEntry("digest", make_digest_acl_credential(*OURS), 31)


def test_own_credentials_are_recognised_whatever_hash_the_server_uses() -> None:
    assert stranger_in([MINE, MINE], OWN) is None
    sha256 = "squall:/RbGBMJ2nbz7mrpAsj5VbEYbrMSYB8V1DmEUpGWYzZE="
    assert len(OWN) == 4 and all(each.startswith("squall:") for each in OWN)
    assert sha256 not in OWN  # of another password


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (AclEntry("world", "anyone", 1), "world:anyone (r)"),
        (AclEntry("ip", "0.0.0.0/0", 31), "ip:0.0.0.0/0 (cdrwa)"),
        (AclEntry("ip", "127.0.0.1", 4), "ip:127.0.0.1 (c)"),
        (AclEntry("x509", "CN=host,O=us", 31), "x509:CN=host,O=us (cdrwa)"),
        (AclEntry("sasl", "squall", 31), "sasl:squall (cdrwa)"),
        (AclEntry("auth", "", 31), "auth: (cdrwa)"),
        (AclEntry("digest", make_digest_acl_credential("mallory", OURS[1]), 3), "digest:mallory (rw)"),
        (
            AclEntry("digest", make_digest_acl_credential(OURS[0], "guessed"), 16),
            "digest:squall with another password (a)",
        ),
        (AclEntry("world", MINE.id, 31), f"world:{MINE.id} (cdrwa)"),
    ],
)
def test_every_other_entry_is_a_strangers(entry: AclEntry, shown: str) -> None:
    assert stranger_in([MINE, entry, MINE], OWN) is entry
    assert entry.text(OURS[0]) == shown


def test_the_error_names_node_and_entry_and_says_what_to_do_without_any_hash() -> None:
    other = AclEntry("digest", make_digest_acl_credential("mallory", "hers"), 31)
    text = open_node("/squall/nimbuses", "zk1:2181", other, OURS[0], "/squall")
    assert text.startswith("/squall/nimbuses in the ZooKeeper at zk1:2181 is open to strangers: ")
    assert "digest:mallory (cdrwa)" in text and "`setAcl -R /squall auth::cdrwa`" in text
    assert other.id.partition(":")[2] not in text and OURS[1] not in text
    world = open_node("/squall", "zk1:2181", AclEntry("world", "anyone", 31), OURS[0], "/squall")
    assert "open to everybody" in world
    assert "superuser" in foreign_node("/squall/x", "zk1:2181", "/squall")
