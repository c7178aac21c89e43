"""Sending and receiving messages through a carrier, with waiting: for tests of carriers.

Must not know: which carrier.
"""

from __future__ import annotations

import time

import pytest

from squall.transport.carrier import Carrier, Parts
from squall.transport.carriers import same_host

#: Generous: a busy machine is no failure.
CAP = 30.0
#: Seconds between two checks.
PACE = 0.001


def only_tcp(patch: pytest.MonkeyPatch) -> None:
    """No peer recognises another one on its host."""
    patch.setattr(same_host, "nearest", lambda keys, endpoint: endpoint)


def send(carrier: Carrier, peer: str, channel: int, parts: Parts) -> None:
    """Send a message once there is room."""
    end = time.monotonic() + CAP
    while not carrier.send(peer, channel, parts):
        assert time.monotonic() < end, "no room in time"
        time.sleep(PACE)


def receive(carrier: Carrier, channel: int) -> list[bytes]:
    """The next message."""
    end = time.monotonic() + CAP
    while (parts := carrier.receive(channel)) is None:
        assert time.monotonic() < end, "nothing came in time"
        time.sleep(PACE)
    return [bytes(part) for part in parts]
