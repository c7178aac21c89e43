"""Parts with a life are no values: each equals only itself, and its text shows no fields."""

from __future__ import annotations

import pytest

from squall.cluster.record_sets import KnownRecords, RecordSet
from squall.cluster.zookeeper.client import TimedCall
from squall.http.client import Client
from squall.transport.channels import Arrivals, OrderedChannel
from squall.transport.exchange import Peer
from squall.transport.in_flight import InFlight
from squall.transport.link import LocalWorker


@pytest.mark.parametrize(
    "part",
    [Arrivals, Client, OrderedChannel, InFlight, KnownRecords, LocalWorker, Peer, RecordSet, TimedCall],
)
def test_a_part_equals_only_itself_and_shows_no_fields(part: type) -> None:
    half_made: object = object.__new__(part)
    assert part.__name__ in repr(half_made)
    assert half_made != object.__new__(part)
