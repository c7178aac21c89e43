"""Who may hold how many connections to a daemon's HTTP server.

A connection is *unknown* until a request on it has shown valid credentials. Unknown connections get a quarter of the places and
never more, so that strangers cannot take the places of daemons and operators; an address also has a limit of its own. No limit
turns a newcomer away: the oldest unknown connection has to go instead. So a stranger who holds connections loses them, while a
client that shows its credentials at once gets in, even if it shares its address (a proxy, a NAT) with the stranger. Known
connections are never closed to make room.
Must not know: sockets, requests, what valid credentials are.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from typing import Final

import msgspec

#: Unknown connections of one address; `squall.http.unknown.per.address` sets a different number.
PER_ADDRESS: Final = 32
#: An unknown connection that is younger (in seconds) may yet show credentials: the limit of its address does not close it.
YOUNG_SECS: Final = 1.0
#: The share of unknown connections, and their least number.
_SHARE, _LEAST = 4, 16
#: Seconds between two notices.
_NOTICE_EVERY: Final = 60.0

#: Why connections are closed: their address has too many unknown ones; there are too many unknown ones; there are too many.
ADDRESS, UNKNOWN, FULL = "address", "unknown", "full"


class Notice(msgspec.Struct, frozen=True):
    """What is logged of closed connections: how many since the last notice, and why and for whom the last one."""

    closed: int
    why: str
    host: str


class Decision(msgspec.Struct, frozen=True):
    """What happens when a connection arrives. admitted: whether it may stay; evicted: the connection that is closed for it."""

    admitted: bool
    evicted: int | None = None
    notice: Notice | None = None


class Admission:
    """The connections of one server, each with a number that its owner chose. Any thread may call it. `most`: the most
    connections at a time; `now`: a monotonic clock."""

    def __init__(
        self, most: Callable[[], float], now: Callable[[], float], per_address: int = PER_ADDRESS
    ) -> None:
        self._most, self._now = most, now
        self.per_address = per_address
        #: The connections that were closed, by reason.
        self.closed = dict.fromkeys((ADDRESS, UNKNOWN, FULL), 0)
        self._lock = threading.Lock()
        #: By address: the unknown connections that were not evicted, the oldest first, with the time of their arrival.
        self._unknown: dict[str, dict[int, float]] = {}
        #: The address of each connection that has not ended yet.
        self._open: dict[int, str] = {}
        self._unnoticed = 0
        self._noticed: float | None = None

    @property
    def unknown(self) -> int:
        """The number of unknown connections."""
        with self._lock:
            return self._count_unknown()

    @property
    def open(self) -> int:
        """The number of all connections."""
        return len(self._open)

    @property
    def turned_away(self) -> int:
        """The number of connections that were closed for want of room."""
        return sum(self.closed.values())

    def enter(self, number: int, host: str) -> Decision:
        """Take a connection from a host, an IP address."""
        address = shared_address(host)
        with self._lock:
            now = self._now()
            if len(self._open) >= self._most():
                return Decision(False, None, self._close(FULL, host, now))
            why, victim = self._victim(address, now)
            notice = None
            if victim is not None:
                notice = self._close(why, self._open[victim], now)
                self._forget(victim)
            self._open[number] = address
            self._unknown.setdefault(address, {})[number] = now
            return Decision(True, victim, notice)

    def is_known(self, number: int) -> bool:
        """Return whether a connection has shown valid credentials."""
        address = self._open.get(number)
        return address is not None and number not in self._unknown.get(address, ())

    def show(self, number: int) -> None:
        """Record that a connection has shown valid credentials."""
        with self._lock:
            self._forget(number)

    def leave(self, number: int) -> None:
        """Record that a connection has ended."""
        with self._lock:
            self._forget(number)
            self._open.pop(number, None)

    def _victim(self, address: str, now: float) -> tuple[str, int | None]:
        """Return the connection that has to go for one more from an address, and why."""
        own = self._unknown.get(address, {})
        if len(own) >= self.per_address:
            oldest = next(iter(own))
            if now >= own[oldest] + YOUNG_SECS:
                return ADDRESS, oldest
        if self._count_unknown() >= max(self._most() // _SHARE, _LEAST):
            busiest = max(self._unknown, key=lambda each: len(self._unknown[each]))
            return UNKNOWN, next(iter(self._unknown[busiest]))
        return "", None

    def _count_unknown(self) -> int:
        return sum(map(len, self._unknown.values()))

    def _forget(self, number: int) -> None:
        address = self._open.get(number, "")
        of_address = self._unknown.get(address)
        if of_address is not None:
            of_address.pop(number, None)
            if not of_address:
                del self._unknown[address]

    def _close(self, why: str, host: str, now: float) -> Notice | None:
        self.closed[why] += 1
        self._unnoticed += 1
        if self._noticed is not None and now < self._noticed + _NOTICE_EVERY:
            return None
        notice = Notice(self._unnoticed, why, host)
        self._unnoticed, self._noticed = 0, now
        return notice


def shared_address(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 network of an IPv6 address, which one host has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
