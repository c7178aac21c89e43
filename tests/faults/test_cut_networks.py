"""The network between two workers silently drops all packets, in one direction or both: the workers notice it, reconnect, and
the ledger adds up. It runs in a namespace of its own; `test_cut_links.py` needs none.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults import leaks
from tests.faults.links import OverTCP
from tests.faults.network import Network, in_own_network, why_no_namespaces
from tests.faults.running import Surroundings, ledger_run

REASON = why_no_namespaces()
pytestmark = [pytest.mark.faults, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

NETWORK = Surroundings(links=OverTCP())
LONG = 4.0


@pytest.mark.parametrize("ways", ["one way", "both ways"])
def test_workers_recover_when_lost_packets_come_through_again(tmp_path: Path, ways: str) -> None:
    def body(network: Network) -> None:
        with ledger_run(tmp_path, NETWORK, conf={"topology.message.timeout.secs": 60}) as run:
            pids = run.pids()
            first, second = (leaks.listening_ports(pid) for pid in pids.values())
            assert first and second
            network.cut_one_way(sender=first, receiver=second)
            if ways == "both ways":
                network.cut_one_way(sender=second, receiver=first)
            time.sleep(LONG)  # the duration of the fault
            network.heal()
            run.flows()
            assert run.pids() == pids, run.report()
            assert set(run.drain().failed) <= {"lost"}, "the loss was noticed, and no tree timed out"

    in_own_network(body)


def test_a_cut_longer_than_the_message_timeout_loses_no_acked_tuple(tmp_path: Path) -> None:
    def body(network: Network) -> None:
        with ledger_run(tmp_path, NETWORK, conf={"topology.message.timeout.secs": 2}) as run:
            first, second = (leaks.listening_ports(pid) for pid in run.pids().values())
            network.cut_one_way(sender=first, receiver=second)
            time.sleep(LONG)  # the duration of the fault
            network.heal()
            run.flows()
            assert run.drain().failed

    in_own_network(body)
