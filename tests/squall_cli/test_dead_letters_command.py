"""`squall dead-letters` with real daemons: what was given up is listed, sent again after a repair, and dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.squall_cli.small_cluster import SmallCluster, small_cluster
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

TOPOLOGY = """
from topology_api import Bolt, FailTuple, Fields, Replay, Spout, TopologyBuilder

POISONED = {poisoned}

class Orders(Spout):
    outputs = Fields("number", "what")
    replay = Replay(max_attempts=2, first_delay=0.01)
    def open(self, context):
        self.number = 0 if POISONED else 100
    def next_tuple(self):
        if self.number in (40, 105):
            return 0.02
        self.emit((self.number, {what}), message_id=self.number)
        self.number += 1

class Store(Bolt):
    def execute(self, tup):
        if POISONED and tup["number"] % 4 == 0:
            raise FailTuple("no price for this order")
        with open({path!r}, "a") as file:
            file.write(f"{{tup['number']}} {{tup['what']}}\\n")

def topology():
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", Orders())
    builder.set_bolt("store", Store()).shuffle_grouping("orders")
    return builder.build()
"""
TEN = [str(number) for number in range(0, 40, 4)]


def submit(cluster: SmallCluster, folder: Path, poisoned: bool, *options: str, what: str = "'tea'") -> None:
    folder.mkdir(exist_ok=True)
    text = TOPOLOGY.format(poisoned=poisoned, path=str(folder / "stored.txt"), what=what)
    (folder / "orders.py").write_text(text)
    done = cluster.squall("submit", "orders.py", *options, cwd=folder)
    assert done.returncode == 0, done.stderr


def status_of(cluster: SmallCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.squall("status", "orders", "--json").stdout)
    return found


def is_running_instead_of(cluster: SmallCluster, old: str) -> bool:
    status = status_of(cluster)
    return status["id"] != old and [each["state"] for each in status["workers"]] == ["RUNNING"]


def letters(cluster: SmallCluster, *arguments: str) -> tuple[int, str, str]:
    done = cluster.squall("dead-letters", "orders", *arguments)
    return done.returncode, done.stdout, done.stderr


def kept(cluster: SmallCluster) -> list[dict[str, object]]:
    status, out, err = letters(cluster, "list", "--json")
    assert status == 0, err
    return list(json.loads(out)["letters"])


def test_ten_poisoned_tuples_are_listed_shown_exported_and_processed_after_a_repair(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with small_cluster(tmp_path) as cluster:
        submit(cluster, folder, poisoned=True)
        eventually(lambda: len(kept(cluster)) == 10)
        found = kept(cluster)
        assert sorted((each["message_id"] for each in found), key=lambda each: int(str(each))) == TEN
        _, table, _ = letters(cluster, "list")
        assert (
            table.splitlines()[0].split()[:3] == ["ID", "HOST", "COMPONENT"] and len(table.splitlines()) == 11
        )
        assert "no price for this order" in table
        assert all("values" not in each for each in found), "a list does not look as if there were none"
        first = str(found[0]["id"])
        status, shown, _ = letters(cluster, "show", first)
        assert status == 0 and '  what = "tea"' in shown and "task" in shown
        status, lines, err = letters(cluster, "export")
        exported = [json.loads(line) for line in lines.splitlines()]
        assert status == 0 and "10 dead letters of orders written" in err
        assert sorted(each["values"][0] for each in exported) == [int(each) for each in TEN]
        eventually(lambda: status_of(cluster)["dead_letters"] == 10)
        assert "10 dead letters" in cluster.squall("status", "orders").stdout

        old = status_of(cluster)["id"]
        submit(cluster, folder, False, "--replace")
        eventually(lambda: is_running_instead_of(cluster, old))
        status, out, err = letters(cluster, "resend", "--all")
        assert (status, out) == (0, "10 dead letters of orders being sent again.\n"), err
        eventually(lambda: kept(cluster) == [])
        stored = (folder / "stored.txt").read_text().split("\n")
        assert {f"{number} tea" for number in range(40)} <= set(stored)
        spout = status_of(cluster)["components"]["orders"]
        assert spout["failed"] == 0


def test_letters_outlive_their_topology_and_stay_when_they_cannot_be_sent_again(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        submit(cluster, tmp_path / "project", True, what="{'tea'}")
        eventually(lambda: len(kept(cluster)) == 10)
        assert cluster.squall("kill", "orders", "--wait").returncode == 0
        found = kept(cluster)
        assert len(found) == 10
        first, second = str(found[0]["id"]), str(found[1]["id"])
        status, out, err = letters(cluster, "resend", first)
        assert (status, out) == (1, "0 dead letters of orders being sent again.\n")
        assert "there is no topology orders at the moment" in err
        status, shown, _ = letters(cluster, "show", first)
        assert "what = {'tea'}  (as text)" in shown and "pickle" in shown
        status, _, err = letters(cluster, "drop", first)
        assert status == 1 and "Remove 1 dead letter of orders for good?" in err
        assert letters(cluster, "drop", first, "--yes")[:2] == (0, "1 dead letter of orders dropped.\n")
        status, _, err = letters(cluster, "drop", first, second, "--yes")
        assert status == 1 and f"no dead letter '{first}'" in err and len(kept(cluster)) == 9
        status, _, err = letters(cluster, "drop", "--yes")
        assert status == 2 and "give their IDs, or --component ID, or --all" in err
        assert letters(cluster, "drop", "--component", "orders", "--yes")[0] == 0
        status, _, err = letters(cluster, "list")
        assert status == 1 and "there is no topology named 'orders'" in err
