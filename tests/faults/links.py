"""Proxies between the workers of a cluster: each address of a peer that a worker gets is that of a proxy.

`Links.rewrite` is given to the cluster; from then on `cut("w1", "w2")` stops everything that w1 sends to w2 on connections that
w1 made, and its answers on connections that w2 made. Proxies are made as addresses are passed on, with the faults that are in
force. Thread-safe. Must not know: what workers say to each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from squall.values import Address
from tests.faults.proxy import BACKWARD, FORWARD, Proxy

#: The faults of a direction, applied to proxies that are made later as well.
Fault = Callable[[Proxy, str], None]


class Links:
    """The proxies of one cluster, by sender and receiver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._proxies: dict[tuple[str, str, str], Proxy] = {}
        self._faults: dict[tuple[str, str], Fault] = {}

    def rewrite(self, worker: str, peer: str, address: Address) -> Address:
        """The address by which a worker is to reach a peer."""
        data, control = (self._endpoint(worker, peer, endpoint) for endpoint in address)
        return data, control

    def _endpoint(self, worker: str, peer: str, endpoint: str) -> str:
        scheme, _, place = endpoint.partition("://")
        host, _, port = place.rpartition(":")
        with self._lock:
            proxy = self._proxies.get((worker, peer, endpoint))
            if proxy is None:
                proxy = self._proxies[worker, peer, endpoint] = Proxy((host, int(port)))
                for (sender, receiver), fault in self._faults.items():
                    if {sender, receiver} == {worker, peer}:
                        fault(proxy, FORWARD if sender == worker else BACKWARD)
        return f"{scheme}://{proxy.address[0]}:{proxy.address[1]}"

    def between(self, sender: str, receiver: str) -> list[tuple[Proxy, str]]:
        """All proxies that carry traffic from one worker to another, each with the way it takes."""
        with self._lock:
            return [
                (proxy, FORWARD if worker == sender else BACKWARD)
                for (worker, peer, _), proxy in self._proxies.items()
                if {worker, peer} == {sender, receiver}
            ]

    def cut(self, sender: str, receiver: str) -> None:
        """Block all traffic from one worker to the other, on later connections as well."""
        self._do(sender, receiver, Proxy.cut)

    def delay(self, sender: str, receiver: str, seconds: float) -> None:
        """Delay all traffic from one worker to the other."""
        self._do(sender, receiver, lambda proxy, way: proxy.delay(seconds, way))

    def heal(self) -> None:
        """Let all traffic through again."""
        with self._lock:
            self._faults.clear()
            proxies = list(self._proxies.values())
        for proxy in proxies:
            proxy.heal()

    def flip(self, sender: str, receiver: str, distance: int) -> None:
        """Flip one bit on each connection that the sender made, after the given number of bytes."""
        for proxy, way in self.between(sender, receiver):
            if way == FORWARD:
                proxy.flip(distance, way)

    def vanish(self, sender: str, receiver: str, count: int) -> None:
        """Lose the next bytes of each connection that the sender made."""
        for proxy, way in self.between(sender, receiver):
            if way == FORWARD:
                proxy.vanish(count, way)

    def flip_welcome(self, sender: str, receiver: str, distance: int) -> None:
        """Break the sender's connections, and flip a bit in the receiver's half of the next handshakes."""
        for proxy, way in self.between(sender, receiver):
            if way == FORWARD:
                proxy.flip(distance, BACKWARD)
                proxy.break_off()

    def break_off(self, sender: str, receiver: str) -> None:
        """Reset the connections between two workers."""
        for proxy, _ in self.between(sender, receiver):
            proxy.break_off()

    def passed(self) -> int:
        """Bytes that all proxies passed on, both ways."""
        with self._lock:
            return sum(proxy.passed(way) for proxy in self._proxies.values() for way in (FORWARD, BACKWARD))

    def connections(self) -> int:
        """Connections that were made through all proxies so far."""
        with self._lock:
            return sum(proxy.connections for proxy in self._proxies.values())

    def close(self) -> None:
        """End all proxies."""
        with self._lock:
            proxies = list(self._proxies.values())
            self._proxies.clear()
        for proxy in proxies:
            proxy.close()

    def _do(self, sender: str, receiver: str, fault: Fault) -> None:
        with self._lock:
            self._faults[sender, receiver] = fault
        for proxy, way in self.between(sender, receiver):
            fault(proxy, way)


class OverTCP(Links):
    """No proxies: workers of one host use another name for it, and so do not connect by Unix sockets."""

    def rewrite(self, worker: str, peer: str, address: Address) -> Address:
        """The address by which a worker is to reach a peer."""
        data, control = (endpoint.replace("//127.0.0.1:", "//localhost:") for endpoint in address)
        return data, control
