"""Daemons find their ZooKeeper where they are told, and say so when that can be none."""

from __future__ import annotations

import pytest

from squall_cli.daemon_options import check_servers
from topology_api import SquallError


@pytest.mark.parametrize(
    "servers", ["zoo", "zoo:2181", "a:1,b:65535", "a:1, b:2", "127.0.0.1:2181/squall", "[::1]:2181", "[::1]"]
)
def test_servers_are_hosts_and_ports(servers: str) -> None:
    check_servers(servers)


@pytest.mark.parametrize(
    "servers", ["zoo:99999", "zoo:0", "zoo:port", "zoo:-1", "a b", "a:1,,b:2", ":2181", "[::1", ","]
)
def test_what_can_be_none_is_refused_in_one_sentence(servers: str) -> None:
    with pytest.raises(SquallError, match=r"is no ZooKeeper server: give HOST:PORT,\.\.\."):
        check_servers(servers)
