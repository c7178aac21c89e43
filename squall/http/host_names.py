"""The name that a daemon gives to others for its host, unless a name is configured: one rule for Nimbuses and supervisors.

A daemon that listens on one address is reached at that address. A daemon that listens on all addresses is reached by the full
name that DNS or /etc/hosts has for this host, or else by the host's own name. Names such as "localhost", which refer on each
host to that host itself, are skipped; if there is no other name, the daemon has to warn.
Must not know: what listens, options.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

#: Addresses that mean all interfaces; to connect, other hosts need a name instead.
EVERYWHERE: Final = ("", "*", "0.0.0.0", "::", "[::]")
_LOCAL: Final = ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")


def own_host() -> str:
    """Return the name by which other hosts may reach this host; "localhost" or a similar name if it has no other."""
    names = [socket.getfqdn(), socket.gethostname()]
    return next((name for name in names if not _is_unreachable(name)), names[1] or _LOCAL[0])


def _is_unreachable(name: str) -> bool:
    """Return whether other hosts cannot use a name: on each host it refers to that host itself, or it is a reverse-lookup
    name."""
    return not name or is_local_name(name) or name.rstrip(".").endswith(".arpa")


def is_local_name(host: str) -> bool:
    """Return whether this name or address refers, on each host, to that host itself. Asks no name server."""
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare.partition(".")[0] in _LOCAL or bare.endswith(".localhost")


def reached_at(bound: str, host: str | None = None) -> str:
    """Return the name by which others reach a daemon that listens on `bound`. `host`: the name of a daemon that listens on all
    addresses (default: `own_host`)."""
    if bound not in EVERYWHERE:
        return bound
    return own_host() if host is None else host
