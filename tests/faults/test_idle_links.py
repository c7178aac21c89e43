"""Links of idle workers (those without a spout): they notice a cut link as busy ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.links import Links
from tests.faults.proxy import FORWARD
from tests.faults.running import Surroundings, ledger_run

pytestmark = pytest.mark.faults


def made_by(links: Links, worker: str, peer: str) -> int:
    """How many connections a worker has made to a peer so far."""
    return sum(proxy.connections for proxy, way in links.between(worker, peer) if way == FORWARD)


@pytest.mark.parametrize("deaf", ["the one with bolts alone", "the one with the spout"])
def test_a_worker_whose_peer_is_silent_reconnects_whatever_it_runs(tmp_path: Path, deaf: str) -> None:
    links = Links()
    # The links themselves must notice the loss, long before the message timeout.
    conf = {"topology.message.timeout.secs": 60}
    with ledger_run(tmp_path, Surroundings(links=links), conf=conf, spouts=1) as run:
        (host,) = (one.worker for one in run.hosts_of("numbers"))
        (other,) = (one.worker for one in run.workers() if one.worker != host)
        pids = run.pids()
        listener, sender = (other, host) if deaf == "the one with bolts alone" else (host, other)
        before = made_by(links, listener, sender)
        assert before > 0, "the proxies are in between"
        links.cut(sender, listener)
        run.wait_for(
            lambda: made_by(links, listener, sender) > before,
            f"new connections of {listener}, which receives nothing",
        )
        links.heal()
        run.flows()
        assert run.pids() == pids, run.report()
        total = run.drain()
        assert set(total.failed) <= {"lost"}, total
