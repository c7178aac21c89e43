"""How a daemon names its host: never by a name with which every host means itself, if there is another."""

from __future__ import annotations

import socket

import pytest

from squall.http.host_names import is_local_name, own_host, reached_at


@pytest.mark.parametrize(
    ("in_full", "own", "named"),
    [
        ("nimbus-1.example.org", "nimbus-1", "nimbus-1.example.org"),
        ("localhost", "vm", "vm"),
        ("localhost.localdomain", "vm", "vm"),
        ("ip6-localhost", "vm", "vm"),
        ("1.0.0.127.in-addr.arpa", "vm", "vm"),
        ("", "vm", "vm"),
        ("localhost", "localhost", "localhost"),
        ("localhost", "", "localhost"),
    ],
)
def test_a_host_is_named_as_others_know_it(
    monkeypatch: pytest.MonkeyPatch, in_full: str, own: str, named: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: in_full)
    monkeypatch.setattr(socket, "gethostname", lambda: own)
    assert own_host() == named
    for everywhere in ("", "0.0.0.0", "::", "*"):
        assert reached_at(everywhere) == named
        assert reached_at(everywhere, "worker-1.example.org") == "worker-1.example.org"


def test_a_daemon_that_listens_on_one_address_uses_it_without_a_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(socket, "getfqdn")
    assert [reached_at(bound) for bound in ("127.0.0.1", "::1", "nimbus-1")] == [
        "127.0.0.1",
        "::1",
        "nimbus-1",
    ]


def test_names_with_which_each_host_means_itself_are_recognised() -> None:
    for host in (
        "localhost",
        "LOCALHOST.",
        "localhost.localdomain",
        "a.localhost",
        "127.0.0.1",
        "[::1]",
        "127.1.2.3",
    ):
        assert is_local_name(host), host
    for host in ("", "vm", "10.0.0.1", "localhost-1", "0.0.0.0", "example.org"):
        assert not is_local_name(host), host
