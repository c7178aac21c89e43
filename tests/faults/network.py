"""A network namespace for one test, in which rules drop packets: for the faults of a real network.

The namespace belongs to the thread that runs the test's body; processes it starts inherit it. It has only a loopback, and
routing rules silently drop packets to or from given TCP ports: connections stay, and no end gets an error. Needs root and `ip`
(iproute2), no firewall. Must not know: who communicates there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable

NEW_NETWORK = 0x40000000
#: Our rules precede the table of local addresses, which has priority 0 in a new namespace.
LOCAL_PLACE, OUR_PLACE = 100, 10


class Network:
    """The rules of a namespace; created in the thread that lives in it."""

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
        """Drop packets to and from these TCP ports from now on."""
        rules = [("dport", str(port)) for port in to_ports] + [("sport", str(port)) for port in from_ports]
        for rule in rules:
            ip("rule", "add", "pref", str(OUR_PLACE), "ipproto", "tcp", *rule, "blackhole")
            self._rules.append(rule)

    def cut_one_way(self, sender: Iterable[int], receiver: Iterable[int]) -> None:
        """Block all traffic from one process to another, given the ports on which each listens: on connections that it made as
        well as answers on those that were made to it.
        """
        self.drop(to_ports=receiver, from_ports=sender)

    def heal(self) -> None:
        """Let all traffic through again."""
        for rule in self._rules:
            ip("rule", "del", "pref", str(OUR_PLACE), "ipproto", "tcp", *rule, "blackhole")
        self._rules.clear()


def ip(*arguments: str) -> None:
    """Run `ip`; the error has its output if it fails."""
    done = subprocess.run(
        ["ip", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stdout.strip()}")


def in_own_network(body: Callable[[Network], None]) -> None:
    """Run a test's body in a network of its own; its exceptions are raised here."""
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
    """Why this machine does not support it; None if it does."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip (Debian: apt install iproute2)"
    try:
        in_own_network(lambda network: network.drop(to_ports=[9]))
    except OSError as error:
        return f"no network namespaces with rules here: {error}"
    return None
