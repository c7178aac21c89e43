"""Who the Nimbuses of a cluster are, and to whom the operators' token is sealed: the answer of the API."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster import paths
from squall.cluster.leadership import leads_since
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.http.client import Client
from squall.security.sealing import KeyPair, fingerprint, seal_texts
from tests.nimbus_http.nimbuses import Cluster, until


def listed(client: Client) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in client.get("nimbuses")["nimbuses"]}


def test_leader_and_standby_are_listed_with_keys_and_times(
    cluster: Cluster, leader: NimbusDaemon, client: Client, store: InMemoryStore
) -> None:
    standby = cluster.start_standby("standby", store.session())
    found = until(lambda: len(listed(client)) == 2 and listed(client), "both")
    first, second = found[leader.me.id], found[standby.me.id]
    assert (first["state"], second["state"]) == ("leading", "standby")
    assert (first["url"], second["url"]) == (leader.url, standby.url)
    assert client.get("nimbuses")["why"] is None
    assert first["key"] == fingerprint(leader.me.public_key) != second["key"]
    assert first["has_token"] and second["has_token"]
    assert leader.me.started <= first["since"] <= time.time() and second["since"] == standby.me.started


def test_a_stranger_who_registered_is_listed_and_logged_and_so_is_one_who_left_with_a_copy(
    leader: NimbusDaemon, client: Client, store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registry, stranger, gone = Registry(store), KeyPair.make(), KeyPair.make()
    registry.nimbuses.put(NimbusRecord("stranger", "http://10.0.0.9:1", "there", stranger.public))
    until(lambda: listed(client)["stranger"]["has_token"], "its copy")
    key = fingerprint(stranger.public)
    assert (
        "the operators' token: sealed to Nimbus stranger on there (http://10.0.0.9:1), "
        f"whose key is {key}" in caplog.text
    )
    assert listed(client)["stranger"]["key"] == key
    registry.save_sealed_keys(paths.OPERATOR, "gone", seal_texts(gone.public, paths.OPERATOR, {}))
    found = listed(client)["gone"]
    assert (found["state"], found["key"], found["since"], found["has_token"]) == (
        "away", fingerprint(gone.public), None, True,
    )  # fmt: skip
    registry.nimbuses.drop("stranger")
    assert listed(client)["stranger"]["state"] == "away", "it can still open the token"


def test_a_copy_that_is_sealed_to_another_key_of_a_registered_nimbus_shows_both(
    leader: NimbusDaemon, client: Client, store: InMemoryStore
) -> None:
    other = KeyPair.make()
    registry = Registry(store)
    registry.nimbuses.put(NimbusRecord("n2", "", "there", "no key"))
    registry.save_sealed_keys(paths.OPERATOR, "n2", seal_texts(other.public, paths.OPERATOR, {}))
    found = [each for each in client.get("nimbuses")["nimbuses"] if each["id"] == "n2"]
    assert [(each["state"], each["has_token"], each["key"]) for each in found] == [
        ("standby", False, "-"),
        ("away", True, fingerprint(other.public)),
    ]


def test_a_nimbus_logs_its_own_key_when_it_starts(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    nimbus = cluster.start_leader()
    assert f"its key is {fingerprint(nimbus.me.public_key)}" in caplog.text


@pytest.mark.parametrize(
    ("epoch", "since"),
    [
        (b"n1 12.5", 12.5),
        (b"n1", None),
        (b"n2 12.5", None),
        (b"n1 soon", None),
        (b"n1 nan", None),
        (b"\xff", None),
    ],
)
def test_the_begin_of_a_term_is_read_from_the_epoch_of_its_leader(epoch: bytes, since: float | None) -> None:
    assert leads_since(epoch, "n1") == since


@pytest.mark.parametrize("text", ["", "no key", "é"])
def test_a_fingerprint_needs_a_key(text: str) -> None:
    assert fingerprint(text) == "-"
    assert len(fingerprint(KeyPair.make().public)) == 39
