"""The store has secrets only as copies that their recipients can open, and the next leader can use them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nimbus.security.keyring import KeyRing, NoKeys
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, SupervisorRecord, encode
from squall.cluster.registry import Registry
from squall.cluster.store import Unavailable
from squall.security.sealing import BadSeal, KeyPair
from tests.flaky_store import AFTER, BEFORE, FlakyStore

TOPOLOGY = "words-1-0"
PAIRS = {name: KeyPair.make() for name in ("n1", "n2", "n3", "s1", "s2", "s3")}


class Cluster:
    """A store with Nimbuses and supervisors that have registered."""

    def __init__(self, *nimbuses: str) -> None:
        self.store = FlakyStore(InMemoryStore())
        self.registry = Registry(self.store)
        self.made = 0
        for name in nimbuses:
            self.comes(name)

    def comes(self, name: str) -> None:
        record = NimbusRecord(name, "http://127.0.0.1:1", "host", PAIRS[name].public)
        self.store.put(paths.nimbus(name), encode(record))

    def goes(self, name: str) -> None:
        self.store.delete(paths.nimbus(name))

    def ring(self, name: str, pair: KeyPair | None = None) -> KeyRing:
        return KeyRing(Registry(self.store), pair or PAIRS[name], name, self.make_keys)

    def make_keys(self) -> Mapping[str, str]:
        self.made += 1
        return {"public": f"public {self.made}", "secret": f"s3cret {self.made}"}

    def opened(self, name: str, what: str = TOPOLOGY) -> dict[str, str] | None:
        sealed = self.registry.sealed_keys(what, name)
        return None if sealed is None else PAIRS[name].open_texts(sealed, what)

    def everything(self) -> bytes:
        found: list[bytes] = []

        def walk(path: str) -> None:
            value = self.store.get(path)
            found.append(b"" if value is None else value[0])
            for name in self.store.children(path):
                walk(f"{path.rstrip('/')}/{name}")

        walk("/")
        return b"\n".join(found)


def supervisor(name: str) -> SupervisorRecord:
    return SupervisorRecord(name, "host", 4, public_key=PAIRS[name].public)


def test_each_supervisor_opens_its_own_copy_and_no_other() -> None:
    cluster = Cluster("n1")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    ring.seal_for(TOPOLOGY, [supervisor("s1"), supervisor("s2")])
    assert cluster.opened("s1") == cluster.opened("s2") == {"public": "public 1", "secret": "s3cret 1"}
    assert cluster.opened("s3") is None
    copy = cluster.registry.sealed_keys(TOPOLOGY, "s1")
    assert copy is not None
    with pytest.raises(BadSeal):
        PAIRS["s2"].open(copy)


def test_the_store_has_no_secret_in_the_clear() -> None:
    cluster = Cluster("n1", "n2")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    ring.seal_for(TOPOLOGY, [supervisor("s1")])
    token = ring.settle_token()
    everything = cluster.everything()
    assert b"s3cret" not in everything and token.encode() not in everything
    assert PAIRS["s1"].public.encode() not in cluster.registry.sealed_keys(TOPOLOGY, "s1")  # type: ignore[operator]


def test_keys_are_made_once_per_submission() -> None:
    cluster = Cluster("n1")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    ring.make(TOPOLOGY)
    cluster.ring("n1").make(TOPOLOGY)
    assert cluster.made == 1
    ring.make("words-2-0")
    ring.seal_for("words-2-0", [supervisor("s1")])
    assert cluster.opened("s1", "words-2-0") == {"public": "public 2", "secret": "s3cret 2"}


def test_a_standby_that_was_there_at_submit_goes_on_when_it_leads() -> None:
    cluster = Cluster("n1", "n2")
    cluster.ring("n1").make(TOPOLOGY)
    cluster.goes("n1")
    next_ring = cluster.ring("n2")
    assert next_ring.lacks([TOPOLOGY]) is None
    next_ring.seal_for(TOPOLOGY, [supervisor("s1")])
    assert cluster.opened("s1") == {"public": "public 1", "secret": "s3cret 1"}


def test_a_standby_forgets_topologies_that_the_leader_has_dropped() -> None:
    cluster = Cluster("n1", "n2")
    leader, standby = cluster.ring("n1"), cluster.ring("n2")
    leader.settle_token()
    leader.make(TOPOLOGY)
    assert standby.lacks([TOPOLOGY]) is None and set(standby._opened) == {TOPOLOGY, paths.OPERATOR}
    leader.forget(TOPOLOGY)
    assert standby.lacks([]) is None and set(standby._opened) == {paths.OPERATOR}


def test_a_nimbus_that_came_later_does_not_lead_before_it_has_its_copies() -> None:
    cluster = Cluster("n1")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    token = ring.settle_token()
    cluster.comes("n2")
    standby = cluster.ring("n2")
    assert standby.lacks([TOPOLOGY]) == "lacks the operators' token, which n1 has"
    ring.share(())
    assert standby.token() == token
    assert standby.lacks([TOPOLOGY]) == f"lacks the keys of {TOPOLOGY}, which n1 has"
    ring.share([TOPOLOGY])
    assert standby.lacks([TOPOLOGY]) is None


def test_of_two_nimbuses_that_each_lack_a_key_one_leads_and_then_the_other() -> None:
    cluster = Cluster("n1")
    cluster.ring("n1").make(TOPOLOGY)
    cluster.goes("n1")
    cluster.comes("n2")
    cluster.ring("n2").make("more-2-0")
    cluster.comes("n1")
    both = [TOPOLOGY, "more-2-0"]
    first, second = cluster.ring("n1"), cluster.ring("n2")
    assert first.lacks(both) is None and second.lacks(both) is None
    second.share(both)
    assert first.lacks(both) is None
    assert second.lacks(both) == f"lacks the keys of {TOPOLOGY}, which n1 has"
    first.share(both)
    assert second.lacks(both) is None


def test_keys_that_no_nimbus_has_any_more_are_reported_and_block_no_leader() -> None:
    cluster = Cluster("n1")
    cluster.ring("n1").make(TOPOLOGY)
    cluster.ring("n1").seal_for(TOPOLOGY, [supervisor("s1")])
    cluster.goes("n1")
    cluster.comes("n2")
    ring = cluster.ring("n2")
    assert ring.lacks([TOPOLOGY]) is None
    ring.seal_for(TOPOLOGY, [supervisor("s1")])  # it has its copy: its workers may go on
    with pytest.raises(NoKeys, match=f"keys of {TOPOLOGY} .* kill the topology"):
        ring.seal_for(TOPOLOGY, [supervisor("s1"), supervisor("s2")])
    ring.forget(TOPOLOGY)
    assert cluster.store.children(paths.KEYS) == []


def test_a_daemon_that_lost_its_key_pair_gets_a_copy_for_the_new_one() -> None:
    cluster = Cluster("n1")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    ring.seal_for(TOPOLOGY, [supervisor("s1")])
    ring.seal_for(TOPOLOGY, [replace(supervisor("s1"), public_key=PAIRS["s3"].public)])
    copy = cluster.registry.sealed_keys(TOPOLOGY, "s1")
    assert copy is not None
    assert PAIRS["s3"].open_texts(copy, TOPOLOGY)["secret"] == "s3cret 1"


def test_a_nimbus_with_another_key_pair_does_not_take_the_copy_for_its_own() -> None:
    cluster = Cluster("n1", "n2")
    cluster.ring("n1").make(TOPOLOGY)
    stranger = cluster.ring("n1", KeyPair.make())
    assert stranger.lacks([TOPOLOGY]) == f"lacks the keys of {TOPOLOGY}, which n2 has"


def test_existing_copies_are_not_written_again() -> None:
    cluster = Cluster("n1", "n2")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    ring.settle_token()
    ring.seal_for(TOPOLOGY, [supervisor("s1")])
    writes = cluster.store.writes
    for again in (ring, cluster.ring("n1")):
        again.make(TOPOLOGY)
        again.settle_token()
        again.share([TOPOLOGY])
        again.seal_for(TOPOLOGY, [supervisor("s1")])
    assert cluster.store.writes == writes


def test_a_supervisor_without_a_valid_key_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster("n1")
    ring = cluster.ring("n1")
    ring.make(TOPOLOGY)
    broken = [replace(supervisor("s1"), public_key=key) for key in ("", "no key", "00" * 32)]
    ring.seal_for(TOPOLOGY, [*broken, supervisor("s2")])
    assert cluster.opened("s2") is not None and cluster.registry.sealed_keys(TOPOLOGY, "s1") is None
    assert "s1 gets no copy" in caplog.text and "s3cret" not in caplog.text


def test_a_damaged_copy_is_reported_without_being_shown_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster("n1", "n2")
    cluster.ring("n1").make(TOPOLOGY)
    for recipient in ("n1", "s1"):
        cluster.registry.save_sealed_keys(TOPOLOGY, recipient, b"s3cret")
    damaged = cluster.ring("n1")
    assert damaged.lacks([TOPOLOGY]) is not None
    assert paths.sealed_keys(TOPOLOGY, "n1") in caplog.text and "s3cret" not in caplog.text
    other = cluster.ring("n2")
    other.seal_for(TOPOLOGY, [supervisor("s1")])
    other.share([TOPOLOGY])
    assert cluster.opened("s1") is not None and damaged.lacks([TOPOLOGY]) is None


def test_the_first_leader_makes_the_token_or_takes_the_one_from_the_file() -> None:
    assert Cluster("n1").ring("n1").token() is None
    made = {Cluster("n1").ring("n1").settle_token() for _ in range(3)}
    assert len(made) == 3 and all(len(token) > 40 for token in made)
    cluster = Cluster("n1")
    assert cluster.ring("n1").settle_token("from-the-file") == "from-the-file"
    assert cluster.ring("n1").settle_token("another") == "from-the-file"


def test_a_renewed_token_reaches_all_and_the_old_one_is_removed() -> None:
    cluster = Cluster("n1", "n2", "n3")
    ring = cluster.ring("n1")
    old = ring.settle_token()
    standby = cluster.ring("n2")
    assert standby.token() == old
    cluster.goes("n3")
    new = ring.renew_token()
    assert new != old
    assert standby.token() == cluster.ring("n1").token() == new
    cluster.comes("n3")
    assert cluster.ring("n3").token() is None  # not the old one
    ring.share(())
    assert cluster.ring("n3").token() == new


@pytest.mark.parametrize("how", [BEFORE, AFTER])
def test_a_failed_write_leaves_nothing_half_done(how: str) -> None:
    for failing in range(1, 6):
        cluster = Cluster("n1", "n2")
        ring = cluster.ring("n1")
        cluster.store.fail_write(failing, how)

        def everything() -> None:
            ring.make(TOPOLOGY)  # noqa: B023
            ring.settle_token()  # noqa: B023
            ring.seal_for(TOPOLOGY, [supervisor("s1")])  # noqa: B023

        with pytest.raises(Unavailable):
            everything()
        everything()
        assert cluster.opened("s1") == cluster.opened("n2") == cluster.opened("n1")
        assert cluster.opened("n2", paths.OPERATOR) == {"token": ring.token()}
