"""`squall logs` of an ended topology, over real daemons and worker processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.squall_cli.small_cluster import SmallCluster, small_cluster
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

FILE = """
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    left = ["some", "words"]
    def next_tuple(self):
        if not self.left:
            self.finish()
        else:
            self.emit((self.left.pop(0),), message_id=len(self.left))

class Show(Bolt):
    def execute(self, tup):
        print("shown:", tup["word"])

def topology():
    builder = TopologyBuilder("mine")
    builder.set_spout("words", Words())
    builder.set_bolt("show", Show()).shuffle_grouping("words")
    return builder.build()
"""


def wait_for_the_end(cluster: SmallCluster) -> None:
    """Wait until no worker is left."""

    def over() -> bool:
        told = json.loads(cluster.squall("status", "mine", "--json").stdout)
        return told["state"] == "COMPLETED" and all(each["state"] == "STOPPED" for each in told["workers"])

    eventually(over, every=0.5)


def test_the_logs_of_workers_are_available_until_the_topology_is_killed_and_as_previous_logs_after_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "my_topology.py").write_text(FILE)
    with small_cluster(tmp_path) as cluster:
        done = cluster.squall("submit", "my_topology.py", "-o", "topology.workers=2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        wait_for_the_end(cluster)
        told = json.loads(cluster.squall("status", "mine", "--json").stdout)
        assert {task[1] for worker in told["workers"] for task in worker["tasks"]} == {"words", "show"}
        supervisors = json.loads(cluster.squall("supervisors", "--json").stdout)
        assert [each["used"] for each in supervisors["supervisors"]] == [0]

        done = cluster.squall("logs", "mine", "--component", "show", "--json")
        assert done.returncode == 0, done.stderr
        lines = [line["text"] for line in json.loads(done.stdout)["lines"]]
        assert "shown: some" in lines and "shown: words" in lines
        [worker] = [each for each in told["workers"] if any(task[1] == "words" for task in each["tasks"])]
        assert cluster.squall("logs", "mine", "--worker", worker["worker"]).returncode == 0

        assert cluster.squall("kill", "mine", "-w", "0", "--wait").returncode == 0
        assert cluster.squall("logs", "mine").returncode == 1

        done = cluster.squall("logs", "mine", "--previous", "--component", "show", "--json")
        assert done.returncode == 0, done.stderr
        assert [line["text"] for line in json.loads(done.stdout)["lines"]] == lines
        assert f"{told['id']}, killed at " in done.stderr
        done = cluster.squall("errors", "mine", "--previous")
        assert done.returncode == 0 and "show: emitted 0, executed 2, acked 2, failed 0" in done.stdout
        done = cluster.squall("logs", "mine", "--previous", "--worker", "w99")
        assert done.returncode == 1 and "mine has no worker 'w99'" in done.stderr
