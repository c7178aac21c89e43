"""ZooKeeper has lost everything, and so have all hosts: topologies come back from a backup in a new cluster, and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster_faults.daemon_processes import Daemons
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Each start of the counting task writes its topology's id and its incarnation, each tuple a line.
COUNTING = """
from topology_api import Bolt, Spout, TopologyBuilder
import words_of_all

class Words(Spout):
    outputs = "word"
    def next_tuple(self):
        self.emit([words_of_all.WORD], message_id=1)
        return 0.05

class Count(Bolt):
    def prepare(self, context):
        self.file = open(FOLDER + "/" + context.topology, "a", buffering=1)
        print("start", context.topology_id, *context.incarnation, file=self.file)
    def execute(self, tup):
        print(tup["word"], file=self.file)

def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    builder.set_bolt("count", Count()).shuffle_grouping("words")
    return builder.build()
"""


def obey(daemons: Daemons, *arguments: str) -> None:
    done = daemons.squall(*arguments)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{daemons.report()}"


def told(daemons: Daemons, name: str) -> dict[str, Any]:
    """What a cluster says about a topology: its versions with their options, and its state."""
    versions = daemons.client.get(f"topologies/{name}/history")["versions"]
    kept = [{key: each[key] for key in ("id", "submitted", "by", "options", "code")} for each in versions]
    return {"versions": kept, "state": daemons.client.get(f"topologies/{name}")["state"]}


def test_topologies_run_again_from_a_backup_in_a_new_cluster(tmp_path: Path) -> None:
    file, backup, counted = tmp_path / "counting.py", tmp_path / "backup.tar", tmp_path / "words"
    file.write_text(f"FOLDER = {str(tmp_path)!r}\n{COUNTING}")
    (tmp_path / "words_of_all.py").write_text("WORD = 'squall'\n")

    def starts() -> list[tuple[str, int]]:
        lines = counted.read_text().splitlines() if counted.exists() else []
        found = [line.split() for line in lines if line.startswith("start ")]
        return [(id, int(version)) for _, id, version, _ in found]

    def counts() -> bool:
        """Whether the last start has counted."""
        return counted.exists() and counted.read_text().endswith("squall\nsquall\n")

    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        with Daemons(tmp_path / "old", server.servers, supervisors=1, slots=3) as daemons:
            obey(daemons, "submit", str(file))
            daemons.wait_for(counts, "the first words")
            obey(daemons, "submit", str(file), "--name", "resting", "--inactive")
            obey(daemons, "submit", str(file), "--replace", "-w", "5", "-o", "topology.workers=2")
            daemons.wait_for(lambda: len(starts()) == 2 and counts(), "words of the second version")
            obey(daemons, "backup", str(backup))
            before = {name: told(daemons, name) for name in ("words", "resting")}
            assert [each["options"] for each in before["words"]["versions"]] == [{"topology.workers": 2}, {}]
        server.wipe()
        with Daemons(tmp_path / "new", server.servers, supervisors=1, slots=3) as daemons:
            obey(daemons, "restore", str(backup))
            daemons.wait_for(lambda: len(starts()) == 3 and counts(), "words of the restored version")
            assert {name: told(daemons, name) for name in before} == before
            (_, old), (id, new) = starts()[1:]
            assert id == before["words"]["versions"][0]["id"] and new > old, (
                "its sinks take their writer ids over"
            )
            obey(daemons, "activate", "resting")
            resting = tmp_path / "resting"
            daemons.wait_for(
                lambda: resting.exists() and "squall" in resting.read_text(), "words of the other"
            )
