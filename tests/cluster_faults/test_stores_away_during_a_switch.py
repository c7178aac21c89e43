"""A store is away while `--replace` switches versions: ZooKeeper, or the store that a bolt writes to. The new version may be
rolled back, but each line of the source is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster_faults.daemon_processes import Daemons
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds without the store.
AWAY = 10.0
#: The lines of the source, one each 10 ms: more than are written before the store is back.
LINES = {"zookeeper": 1400, "the_bolts": 400}

#: The source goes back to the first line that was not acked, as a file or a broker's offsets can.
COPY = """
import os
from topology_api import Bolt, Spout, TopologyBuilder

def note(name, text):
    with open(os.path.join(FOLDER, name), "a") as file:
        file.write(f"{text}\\n")

class Lines(Spout):
    outputs = "line"
    def open(self, context):
        acked = os.path.join(FOLDER, "acked")
        done = set(map(int, open(acked))) if os.path.exists(acked) else set()
        self.left = [line for line in range(LINES) if line not in done][::-1]
    def next_tuple(self):
        if not self.left:
            self.finish()
            return None
        line = self.left.pop()
        self.emit([line], message_id=line)
        return 0.01
    def ack(self, message_id):
        note("acked", message_id)
    def fail(self, message_id, failure):
        note("failed", failure.reason)

class Write(Bolt):
    def execute(self, tup):
        if os.path.exists(os.path.join(FOLDER, "away")):
            raise ConnectionError("the store is away")
        note("written", tup["line"])

def topology():
    builder = TopologyBuilder(NAME, {"topology.message.timeout.secs": 5})
    builder.set_spout("lines", Lines())
    builder.set_bolt("write", Write()).shuffle_grouping("lines")
    return builder.build()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zk")) as server:
        yield server


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, server: ZooKeeperServer) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("cluster"), server.servers, nimbuses=1, supervisors=1) as daemons:
        yield daemons


@contextmanager
def away(which: str, folder: Path, server: ZooKeeperServer) -> Iterator[None]:
    """The store is away."""
    flag = folder / "away"
    server.freeze() if which == "zookeeper" else flag.touch()
    try:
        yield
    finally:
        server.thaw() if which == "zookeeper" else flag.unlink()


def lines_in(file: Path) -> set[int]:
    return set(map(int, file.read_text().split())) if file.exists() else set()


@pytest.mark.parametrize(
    "which", [pytest.param(which, marks=pytest.mark.soak if which == "zookeeper" else ()) for which in LINES]
)
def test_every_line_is_written_when_a_store_is_away_during_the_switch(
    which: str, tmp_path: Path, daemons: Daemons, server: ZooKeeperServer
) -> None:
    name, lines = f"copy-{which}", LINES[which]
    file = tmp_path / "copy_lines.py"
    head = f"FOLDER, LINES, NAME = {str(tmp_path)!r}, {lines}, {name!r}\n"
    file.write_text(head + COPY)
    done = daemons.squall("submit", str(file))
    assert done.returncode == 0, done.stderr
    daemons.wait_for(lambda: len(lines_in(tmp_path / "acked")) > 50, "the first lines")
    done = daemons.squall("submit", str(file), "--replace", "-w", "5")
    assert done.returncode == 0, done.stderr
    began = time.monotonic()
    with away(which, tmp_path, server):
        daemons.wait_for(lambda: time.monotonic() > began + AWAY, "the end of the outage")
        assert len(lines_in(tmp_path / "written")) < lines, "the switch was not over"

    def state() -> str:
        found = daemons.asked(lambda: daemons.client.get(f"topologies/{name}"))
        return "" if found is None else str(found["state"])

    daemons.wait_for(lambda: state() == "COMPLETED", "the end of the source", cap=90.0)
    assert lines_in(tmp_path / "written") == set(range(lines))
    assert lines_in(tmp_path / "acked") == set(range(lines))
    failed = tmp_path / "failed"
    assert not failed.exists() or set(failed.read_text().splitlines()) <= {"stopped", "handed over"}
    assert daemons.squall("kill", name, "-w", "0", "--wait").returncode == 0
