"""How a daemon names its host to others, where nobody has said how: one rule for Nimbuses and supervisors.

A daemon that listens on one address is reached there. One that listens on all of them is reached by the name that DNS or
/etc/hosts has for this host in full, else by the host's own name. Names by which every host means itself are passed over;
where there is no other, the daemon has to say so: whoever is told "localhost" asks itself.
Must not know: what listens, options.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

#: Where every address is bound; others need a name to come by.
EVERYWHERE: Final = ("", "*", "0.0.0.0", "::", "[::]")
_LOCAL: Final = ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")


def own_host() -> str:
    """The name of this host, as others may know it; "localhost" or the like where it has no other."""
    names = [socket.getfqdn(), socket.gethostname()]
    return next((name for name in names if not _is_nobody(name)), names[1] or _LOCAL[0])


def _is_nobody(name: str) -> bool:
    """Whether others cannot come by that name: it is everybody's own, or only an address read backwards."""
    return not name or is_local_name(name) or name.rstrip(".").endswith(".arpa")


def is_local_name(host: str) -> bool:
    """Whether each host means itself by this name or address; nobody is asked."""
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare.partition(".")[0] in _LOCAL or bare.endswith(".localhost")


def reached_at(bound: str, host: str | None = None) -> str:
    """The name by which others reach what listens on an address of the host of that name (default: `own_host`)."""
    if bound not in EVERYWHERE:
        return bound
    return own_host() if host is None else host
