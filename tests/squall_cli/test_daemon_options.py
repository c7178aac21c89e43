"""Options of a daemon are checked: ZooKeeper's servers, a host's name, a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall_cli.commands.daemon_options import HOST, check_servers
from squall_cli.main import squall
from topology_api import SquallError


@pytest.mark.parametrize(
    "servers", ["zoo", "zoo:2181", "a:1,b:65535", "a:1, b:2", "127.0.0.1:2181/squall", "[::1]:2181", "[::1]"]
)
def test_servers_are_hosts_and_ports(servers: str) -> None:
    check_servers(servers)


@pytest.mark.parametrize(
    "servers", ["zoo:99999", "zoo:0", "zoo:port", "zoo:-1", "a b", "a:1,,b:2", ":2181", "[::1", ","]
)
def test_an_impossible_value_is_refused_in_one_sentence(servers: str) -> None:
    with pytest.raises(SquallError, match=r"is not a ZooKeeper server: give HOST:PORT,\.\.\."):
        check_servers(servers)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, arguments, prog_name="squall")


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_a_daemon_that_runs_as_root_warns(daemon: str, user: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: user)
        result = run(daemon)  # it ends at once: ZooKeeper is not named
    assert "where is ZooKeeper?" in result.stderr
    assert ["this daemon runs as root" in record.message for record in caplog.records] == [True] * (user == 0)


@pytest.mark.parametrize("host", ["h", "worker-1.example.org", "10.0.0.7", "my_host", "a" * 63 + ".org"])
def test_a_host_has_a_name_or_an_address(host: str) -> None:
    assert HOST.fullmatch(host)


@pytest.mark.parametrize(
    "host",
    ["", " ", "a b", ":", "a:1", "::1", "[::1]", "-a", "a..b", ".a", "a/b", "ä", "a\n", "a" * 64, "0.0.0.0"],
)
def test_a_name_that_no_peer_could_connect_to_is_no_host(host: str) -> None:
    result = run("supervisor", "--zookeeper", "127.0.0.1:1", "--host", host)
    assert result.exit_code == 2
    assert f"other hosts cannot reach this host by {host!r}: give its name or its IPv4" in result.stderr


@pytest.mark.parametrize("listen", ["6627", "a b:6627", "::1:6627", "h:", "h:x", "h:-1", "h:65536", "a/b:1"])
def test_an_invalid_address_to_listen_on_is_wrong_usage(listen: str) -> None:
    for daemon in ("nimbus", "supervisor", "dev", "zookeeper"):
        result = run(daemon, "--listen", listen)
        assert result.exit_code == 2
        assert f"{listen!r} is not HOST:PORT, such as 127.0.0.1:6627 or [::1]:6627" in result.stderr


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor", "dev", "zookeeper"])
def test_a_state_directory_is_named_and_must_not_be_a_file(daemon: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("/dev/null", str(tmp_path / "file")):
        result = run(daemon, "--state", place)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (
            2,
            f"Error: Invalid value for '--state': '{place}' is not a directory",
        )
    assert "it is empty: give a directory" in run(daemon, "--state", "").stderr
