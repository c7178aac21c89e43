"""The network of the fault tests drops the packets that its rules name, and no others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.network import Network, in_own_network, ip, why_no_namespaces

CAP = 20.0
QUIET = 0.2
REASON = why_no_namespaces()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


class Connection:
    """A connection from a client to a listening server, and what each end receives."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port: int = server.getsockname()[1]
            self.client = socket.create_connection(("127.0.0.1", self.port))
            self.server, _ = server.accept()

    def goes(self, sender: socket.socket, seconds: float) -> bool:
        """Whether a byte from this end arrives at the other within this time."""
        receiver = self.server if sender is self.client else self.client
        sender.send(b"x")
        receiver.settimeout(seconds)
        try:
            return receiver.recv(1) == b"x"
        except TimeoutError:
            return False

    def close(self) -> None:
        self.client.close()
        self.server.close()


def test_packets_to_a_port_are_lost_until_it_heals_and_then_arrive() -> None:
    def body(network: Network) -> None:
        one = Connection()
        assert one.goes(one.client, CAP)
        network.drop(to_ports=[one.port])
        assert not one.goes(one.client, QUIET)
        assert one.goes(one.server, CAP), "the other direction is open"
        network.heal()
        one.server.settimeout(CAP)
        assert one.server.recv(1) == b"x", "TCP retransmits lost packets"
        one.close()

    in_own_network(body)


def test_one_way_is_cut_on_connections_in_both_directions() -> None:
    def body(network: Network) -> None:
        to_a, to_b = Connection(), Connection()
        network.cut_one_way(sender=[to_a.port], receiver=[to_b.port])
        assert not to_b.goes(to_b.client, QUIET), "packets from A on its own connection"
        assert not to_a.goes(to_a.server, QUIET), "packets from A on B's connection"
        assert to_b.goes(to_b.server, CAP)
        assert to_a.goes(to_a.client, CAP)
        network.heal()
        to_a.close()
        to_b.close()

    in_own_network(body)


def test_processes_started_inside_share_the_network_and_those_outside_do_not() -> None:
    outside = os.readlink("/proc/thread-self/ns/net")

    def body(network: Network) -> None:
        own = os.readlink("/proc/thread-self/ns/net")
        code = "import os; print(os.readlink('/proc/self/ns/net'))"
        child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        assert child.stdout.strip() == own != outside

    in_own_network(body)
    assert os.readlink("/proc/thread-self/ns/net") == outside


def test_an_exception_of_the_body_is_raised_and_a_wrong_command_says_why() -> None:
    with pytest.raises(OSError, match="ip link set no-such-device up: "):
        in_own_network(lambda network: ip("link", "set", "no-such-device", "up"))


def test_the_machine_is_unchanged_afterwards() -> None:
    rules = Path("/proc/self/net/fib_trie").read_text()
    began = time.monotonic()
    in_own_network(lambda network: network.drop(to_ports=[9], from_ports=[9]))
    assert time.monotonic() - began < CAP
    assert Path("/proc/self/net/fib_trie").read_text() == rules
