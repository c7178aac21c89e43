"""A network namespace of a test's own, in which packets vanish by rule: for faults as a network makes them.

The namespace belongs to the thread that runs the test's body; what it starts inherits it. It has a loopback and nothing else,
and rules of routing drop what goes to or comes from given TCP ports, in silence: connections stay, and nobody is told. Needs
root and `ip` (iproute2), no firewall. Must not know: who talks there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable

NEW_NETWORK = 0x40000000
#: Our rules come before the table of local addresses, which has place 0 in a new namespace.
LOCAL_PLACE, OUR_PLACE = 100, 10


class Network:
    """The rules of a namespace; made in the thread that lives in it."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_NETWORK):
            error = ctypes.get_errno()
            raise OSError(error, f"unshare: {os.strerror(error)}")
        ip("link", "set", "lo", "up")
        ip("rule", "add", "pref", str(LOCAL_PLACE), "lookup", "local")
        ip("rule", "del", "pref", "0")
        self._rules: list[tuple[str, ...]] = []

    def drop(self, to_ports: Iterable[int] = (), from_ports: Iterable[int] = ()) -> None:
        """Packets to and from these TCP ports vanish from now on."""
        rules = [("dport", str(port)) for port in to_ports] + [("sport", str(port)) for port in from_ports]
        for rule in rules:
            ip("rule", "add", "pref", str(OUR_PLACE), "ipproto", "tcp", *rule, "blackhole")
            self._rules.append(rule)

    def cut_one_way(self, sender: Iterable[int], receiver: Iterable[int]) -> None:
        """Nothing goes from a process to another, given the ports that each listens on: neither what it sends on connections
        that it made, nor its answers on those that were made to it."""
        self.drop(to_ports=receiver, from_ports=sender)

    def heal(self) -> None:
        """Everything goes through again."""
        for rule in self._rules:
            ip("rule", "del", "pref", str(OUR_PLACE), "ipproto", "tcp", *rule, "blackhole")
        self._rules.clear()


def ip(*arguments: str) -> None:
    """Run `ip`; its words are in the error when it fails."""
    done = subprocess.run(
        ["ip", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stdout.strip()}")


def in_own_network(body: Callable[[Network], None]) -> None:
    """Run a test's body in a network of its own; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            body(Network())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="own network")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def why_no_namespaces() -> str | None:
    """Why this machine cannot do it, None when it can."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip (Debian: apt install iproute2)"
    try:
        in_own_network(lambda network: network.drop(to_ports=[9]))
    except OSError as error:
        return f"no network namespaces with rules here: {error}"
    return None
