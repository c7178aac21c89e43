"""Values between worker processes: they arrive unchanged, or their tuple fails and the error names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.value_topologies import (
    odd_one_from_a_bolt,
    odd_one_from_the_spout,
    of_all_kinds,
    values,
)

ROOT = Path(__file__).resolve().parents[2]
CAP = 60.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with LocalCluster(processes=True, supervisors=2, slots=2) as cluster:
        yield cluster
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("codec", ["pickle", "msgpack"])
def test_every_kind_of_value_arrives_equal_and_of_the_same_type(
    cluster: LocalCluster, codec: str, tmp_path: Path
) -> None:
    file = tmp_path / "names"
    cluster.submit(of_all_kinds(codec, file))
    cluster.wait("values", CAP)
    status = cluster.status("values")
    assert [report.render() for report in status.errors] == []
    assert sorted(file.read_text().splitlines()) == sorted(values(codec))
    source = status.components["values"]
    assert (source.acked, source.failed) == (len(values(codec)), 0)


#: (codec, a value that it cannot encode, the text of the report)
ODD = [
    ("pickle", "lock", "cannot pickle '_thread.lock' object"),
    ("pickle", "refuses", "it must stay where it is"),
    ("pickle", "exits", "SystemExit: 3"),
    ("msgpack", "set", "this is a builtins.set"),
    pytest.param("pickle", "in a list", "cannot pickle '_thread.lock' object", marks=pytest.mark.soak),
    pytest.param("msgpack", "large", "can't serialize ints", marks=pytest.mark.soak),
    pytest.param("msgpack", "lock", "this is a _thread.lock", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("codec", "kind", "reason"), ODD)
def test_a_value_that_cannot_be_encoded_fails_its_tuple_alone_and_names_the_field(
    cluster: LocalCluster, codec: str, kind: str, reason: str
) -> None:
    cluster.submit(odd_one_from_the_spout(codec, kind))
    cluster.wait("odd", CAP)
    status = cluster.status("odd")
    source = status.components["source"]
    assert (source.acked, source.failed, source.replayed) == (19, 1, 1)
    assert status.components["takes"].executed == 19
    report = status.errors[0].render()
    assert "the value of field 'odd' cannot be sent to another worker" in report
    assert reason in report
    assert "(7, " in report, "the tuple is shown"
    assert status.errors[0].component == "source"
    assert status.notes == (), "no worker has died"


@pytest.mark.parametrize(("codec", "kind", "reason"), [ODD[0], ODD[3]])
def test_a_bolts_value_that_cannot_be_encoded_fails_the_tree_and_names_the_field(
    cluster: LocalCluster, codec: str, kind: str, reason: str
) -> None:
    cluster.submit(odd_one_from_a_bolt(codec, kind))
    cluster.wait("odd", CAP)
    status = cluster.status("odd")
    source = status.components["source"]
    assert (source.acked, source.failed, source.replayed) == (19, 1, 1)
    report = status.errors[0].render()
    assert status.errors[0].component == "adds"
    assert "the value of field 'odd' cannot be sent to another worker" in report
    assert reason in report
    assert status.notes == ()


SCRIPT = """
import enum, json
from dataclasses import dataclass

from local_cluster import LocalCluster
from topology_api import Bolt, Fields, Spout, TopologyBuilder


class Colour(enum.Enum):
    RED = 1


@dataclass
class Event:
    number: int
    colour: Colour


class Events(Spout):
    outputs = Fields("event")

    def open(self, context):
        self.number = 0

    def next_tuple(self):
        if self.number == 100:
            return self.finish()
        self.emit((Event(self.number, Colour.RED),), message_id=self.number)
        self.number += 1


class Checks(Bolt):
    outputs = Fields("event")

    def execute(self, tup):
        event = tup["event"]
        assert type(event) is Event and event.colour is Colour.RED, (type(event), Event, event)
        self.emit((event,))


class Last(Checks):
    outputs = Fields()

    def execute(self, tup):
        assert tup["event"] == Event(tup["event"].number, Colour.RED)


if __name__ == "__main__":
    builder = TopologyBuilder("main-values", {"topology.workers": 3})
    builder.set_spout("events", Events())
    builder.set_bolt("checks", Checks(), parallelism=2).shuffle_grouping("events")
    builder.set_bolt("last", Last(), parallelism=2).shuffle_grouping("checks")
    with LocalCluster(processes=True, supervisors=2, slots=2) as cluster:
        cluster.submit(builder.build())
        cluster.wait("main-values", timeout=60)
        status = cluster.status("main-values")
    print(json.dumps({
        "acked": status.components["events"].acked,
        "failed": status.components["events"].failed,
        "executed": status.components["last"].executed,
        "errors": [report.render() for report in status.errors],
    }))
"""


def test_values_of_classes_of_the_started_script_arrive_as_instances_of_those_classes(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    folder = tmp_path / "state"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "script.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"acked": 100, "failed": 0, "executed": 100, "errors": []}
    assert list(folder.iterdir()) == []
