"""The messages of a worker that has nothing to do any more."""

from __future__ import annotations

from tests.worker.chain_of_numbers import CONF, FINAL_CALLS, HOSTS, chain
from tests.worker.network_of_workers import InMemory, Net


def test_drained_workers_send_nothing_that_others_would_have_to_confirm() -> None:
    run = "drained and silent"
    net = Net(chain(run, 4000), HOSTS, InMemory(), conf=CONF)
    net.start()
    assert net.run(30, lambda: len(FINAL_CALLS[run]) > 100)
    for node in net.nodes.values():
        node.worker.drain()
    assert net.run(
        60, lambda: all(node.worker.drained and node.exchange.settled for node in net.nodes.values())
    )
    net.run(2.0)
    links = [peer.link for node in net.nodes.values() for peer in node.exchange.peers.values()]
    sent = [link.control.sent for link in links]
    assert any(sent), "they have exchanged messages"
    net.run(10.0)
    assert [link.control.sent for link in links] == sent
