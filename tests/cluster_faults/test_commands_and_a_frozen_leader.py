"""The leading Nimbus, first in the list of URLs, is frozen: commands still reach the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.daemon_processes import Daemons
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

TOPOLOGY = """
from topology_api import Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    def open(self, context):
        self.number = 0
    def next_tuple(self):
        self.number += 1
        self.emit(("word",), message_id=self.number)
        return 0.1

builder = TopologyBuilder("words")
builder.set_spout("words", Words())
topology = builder.build()
"""


#: `deactivate` and `activate` are changes like `rebalance`; each command waits for seconds for the frozen Nimbus.
COMMANDS = [
    "submit words.py --wait",  # while there is no leader yet
    "rebalance words --wait",
    "kill words --wait -w 1",
]
ALL = [*COMMANDS[:-1], "deactivate words --wait", "activate words", COMMANDS[-1]]


@pytest.mark.parametrize("lines", [COMMANDS, pytest.param(ALL, marks=pytest.mark.soak)], ids=["some", "all"])
def test_each_command_is_executed_by_the_new_leader(
    tmp_path: Path, zookeeper: ZooKeeperServer, lines: list[str]
) -> None:
    with Daemons(tmp_path, zookeeper.servers, nimbuses=2, supervisors=1) as daemons:
        daemons.wait_for(lambda: daemons.nimbuses_there() == 2, "both Nimbuses")
        daemons.wait_for(lambda: daemons.leader() is not None, "a leader")
        (tmp_path / "words.py").write_text(TOPOLOGY)
        old = daemons.leader()
        assert old is not None
        daemons.nimbuses[old].freeze()
        urls = f"{daemons.urls[old]},{daemons.urls[1 - old]}"
        for line in lines:
            done = daemons.squall(*line.split(), "--nimbus", urls)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}\n{daemons.report()}"
        daemons.nimbuses[old].thaw()
