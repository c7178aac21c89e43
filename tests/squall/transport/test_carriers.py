"""The promises of every carrier: lists in memory, and sockets, encrypted or not, of Unix and TCP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from squall.transport.carrier import CONTROL, DATA, Carrier
from squall.transport.carriers.sockets import Sockets, make_keys
from tests.carrier_in_memory import LoopbackCarrier, LoopbackNetwork
from tests.squall.transport.messages import only_tcp, receive, send

Make = Callable[[], Carrier]


@pytest.fixture(params=["in memory", "plain", "secured", "plain over TCP", "secured over TCP"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Carrier] = []
    network = LoopbackNetwork()
    keys = make_keys() if request.param.startswith("secured") else None
    if request.param.endswith("TCP"):
        only_tcp(monkeypatch)

    def one() -> Carrier:
        made.append(LoopbackCarrier(network) if request.param == "in memory" else Sockets(keys))
        return made[-1]

    yield one
    for carrier in made:
        carrier.close()


def test_messages_arrive_in_order_on_both_channels_both_ways(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    other.connect("one", one.address)
    for number in range(300):
        for channel in (DATA, CONTROL):
            send(one, "other", channel, [b"%d" % number, b"", b"x" * number])
            send(other, "one", channel, [b"%d" % -number])
        if number % 50 == 49:
            for back in range(number - 49, number + 1):
                for channel in (CONTROL, DATA):
                    assert receive(other, channel) == [b"%d" % back, b"", b"x" * back]
                    assert receive(one, channel) == [b"%d" % -back]
    assert one.receive(DATA) is None


def test_unread_messages_of_a_peer_are_bounded_and_accepted_ones_are_not_lost(
    make: Make,
) -> None:
    sender, reader = make(), make()
    sender.connect("reader", reader.address)
    taken, refused, body = 0, 0, b"x" * 100_000
    while refused < 50:
        if sender.send("reader", DATA, [b"%d" % taken, body]):
            taken, refused = taken + 1, 0
        else:
            refused += 1
            time.sleep(0.02)
        assert taken < 5_000, "nothing holds the sender back"
    for number in range(taken):
        assert receive(reader, DATA)[0] == b"%d" % number
    send(sender, "reader", DATA, [b"goes on"])
    assert receive(reader, DATA) == [b"goes on"]


def test_a_full_channel_does_not_block_the_other(make: Make) -> None:
    sender, reader = make(), make()
    sender.connect("reader", reader.address)
    refused = 0
    while refused < 20:
        refused = 0 if sender.send("reader", DATA, [b"x" * 100_000]) else refused + 1
        if refused:
            time.sleep(0.01)
    send(sender, "reader", CONTROL, [b"through"])
    assert receive(reader, CONTROL) == [b"through"]


def test_nothing_is_sent_to_a_peer_that_is_not_connected(make: Make) -> None:
    one, other = make(), make()
    assert not one.send("other", DATA, [b"a"])
    one.disconnect("other")
    one.connect("other", other.address)
    send(one, "other", DATA, [b"b"])
    assert receive(other, DATA) == [b"b"]
    one.disconnect("other")
    assert not one.send("other", DATA, [b"c"])


def test_a_peer_that_comes_back_on_other_ports_is_reached_there_and_the_old_queue_is_dropped(
    make: Make,
) -> None:
    sender, first = make(), make()
    sender.connect("peer", first.address)
    send(sender, "peer", DATA, [b"to the first"])
    assert receive(first, DATA) == [b"to the first"]
    first.close()
    for _ in range(5):
        sender.send("peer", DATA, [b"queued"])
    second = make()
    sender.connect("peer", second.address)
    send(sender, "peer", DATA, [b"to the second"])
    assert receive(second, DATA) == [b"to the second"]
