"""Versions of a topology with state, on real daemons and under load: each line counts once, whatever becomes of a version."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.squall_cli.small_cluster import SmallCluster, small_cluster
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

COUNT = """
from squall_io.files import FileSpout
from topology_api import Bolt, Fields, StatefulBolt, TopologyBuilder, ValueState

class Split(Bolt):
    outputs = Fields("word")
    def execute(self, tup):
        for word in tup["line"].split():
            self.emit((word,))
        FAULT

class Count(StatefulBolt):
    key = "word"
    times = ValueState(TYPE)
    MORE
    def execute(self, tup):
        self.times.value = (self.times.value or 0) + 1

def topology(lines, state):
    conf = {"topology.state.path": f"file://{state}", "topology.epoch.secs": 0.2, "topology.workers": 2}
    builder = TopologyBuilder("counted", conf=conf)
    builder.set_spout("lines", FileSpout(lines))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder.build()
"""


def version(folder: Path, fault: str = "", kind: str = "int", more: str = "") -> None:
    text = COUNT.replace("FAULT", fault).replace("TYPE", kind).replace("MORE", more)
    (folder / "counted.py").write_text(text)


class Load(threading.Thread):
    """Appends lines to a file until it is stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.stopped, self.lines = path, threading.Event(), 0

    def run(self) -> None:
        with open(self.path, "a") as file:
            while not self.stopped.wait(0.02):
                file.write("to be or not to be\n")
                file.flush()
                self.lines += 1

    def end(self) -> int:
        """Stop, and return the number of lines."""
        self.stopped.set()
        self.join()
        return self.lines


def submitted(cluster: SmallCluster, folder: Path, *more: str) -> Any:
    arguments = ("submit", "counted.py", *more, "--", str(folder / "lines.txt"), str(folder / "state"))
    return cluster.squall(*arguments, cwd=folder)


def committed(cluster: SmallCluster, folder: Path, word: str, state: str = "times") -> int:
    done = cluster.squall("state", "get", str(folder / "state"), "count", word, "--json")
    if done.returncode:
        return 0
    return sum(row["value"] for row in json.loads(done.stdout)["rows"] if row["state"] == state)


def test_versions_replace_each_other_under_load_and_each_line_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    load = Load(folder / "lines.txt")
    load.start()
    with small_cluster(tmp_path, {"nimbus.replace.timeout.secs": 20}) as cluster:
        version(folder)
        done = submitted(cluster, folder)
        assert done.returncode == 0, done.stderr
        eventually(lambda: committed(cluster, folder, "to") > 0)
        version(folder, kind="str")
        refused = submitted(cluster, folder, "--replace", "--wait")
        assert refused.returncode == 1
        assert (
            "state 'times' was saved as ValueState(int) and is declared as ValueState(str) now"
            in refused.stderr
        )
        version(folder, fault="raise ValueError('a bad version')")
        rolled_back = submitted(cluster, folder, "--replace", "--wait")
        assert rolled_back.returncode == 1
        assert "its tuples fail" in rolled_back.stderr
        version(folder, kind="float", more="seen = ValueState(int, default=7)")
        passed = submitted(cluster, folder, "--replace", "--wait")
        assert passed.returncode == 0, passed.stderr
        assert "trial passed" in passed.stderr
        lines = load.end()
        eventually(lambda: committed(cluster, folder, "to") >= 2 * lines)
        assert {word: committed(cluster, folder, word) for word in ("to", "be", "or", "not")} == {
            "to": 2 * lines,
            "be": 2 * lines,
            "or": lines,
            "not": lines,
        }
        assert cluster.squall("kill", "counted", "--wait").returncode == 0
