"""FileSpout in topologies of this process: each line is counted once while files grow and rotate, and finite input ends."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from squall_io.files import FileSpout
from tests.squall_io.rotated_logs import rotate
from topology_api import Bolt, FailTuple, Replay, Topology, TopologyBuilder, Tuple


class Keep(Bolt):
    """Adds each line to a file; a line that says so fails at its first attempt in a task."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: set[str] = set()

    def execute(self, tup: Tuple) -> None:
        line = tup["line"]
        if "poison" in line and line not in self.failed:
            self.failed.add(line)
            raise FailTuple("as the test has it")
        with self.path.open("a") as file:
            file.write(f"{line}\n")


def topology(spout: FileSpout, kept: Path, tasks: int = 2) -> Topology:
    builder = TopologyBuilder("reader")
    builder.set_spout("lines", spout, parallelism=tasks)
    builder.set_bolt("keep", Keep(kept)).shuffle_grouping("lines")
    return builder.build()


def test_each_line_is_acked_and_counted_once_while_the_files_grow_and_rotate(tmp_path: Path) -> None:
    logs, kept = tmp_path / "logs", tmp_path / "kept"
    logs.mkdir()
    written: list[str] = []

    def write(name: str, turn: int) -> None:
        lines = [f"{name} {turn} {number} {'poison' if number % 7 == 0 else ''}" for number in range(20)]
        written.extend(lines)
        text = "".join(f"{line}\n" for line in lines)
        with (logs / name).open("a") as file:  # cut in the middle of a line
            file.write(text[:100])
            file.flush()
            cluster.advance(0.6)
            file.write(text[100:])

    with LocalCluster(simulated_time=True) as cluster:
        spout = FileSpout(logs / "*.log", replay=Replay(first_delay=0.1))
        cluster.submit(topology(spout, kept), {"topology.max.spout.pending": 10})
        for turn in range(6):
            for name in ("a.log", "b.log", "c.log"):
                write(name, turn)
                if turn % 2:
                    rotate(logs / name)
            cluster.advance(0.7)
        cluster.advance(30)
        lines = cluster.status("reader").components["lines"]
        assert Counter(kept.read_text().splitlines()) == Counter(written)
        assert (lines.acked, lines.failed, lines.pending) == (len(written), 0, 0)
        assert lines.replayed >= len([line for line in written if "poison" in line])


@pytest.mark.parametrize("tasks", [1, 3])
def test_without_follow_the_topology_completes_with_each_line_once(tmp_path: Path, tasks: int) -> None:
    written = []
    (tmp_path / "in").mkdir()
    for name in range(10):
        lines = [f"{name} {number}" for number in range(50)]
        (tmp_path / "in" / f"x{name}").write_text("\n".join(lines))
        written += lines
    done = complete_topology(topology(FileSpout(tmp_path / "in", follow=False), tmp_path / "kept", tasks))
    assert Counter(line for (line,) in done.emitted("lines")) == Counter(written)
    assert len(done.acked("lines")) == len(written)


def test_the_number_of_files_is_in_the_status_while_the_spout_waits_for_them(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(FileSpout(tmp_path / "a.log"), tmp_path / "kept"))
        cluster.advance(5)
        assert cluster.status("reader").components["lines"].metrics["files"] == 0
        assert not cluster.status("reader").errors
        (tmp_path / "a.log").write_text("one\n")
        cluster.advance(5)
        assert cluster.status("reader").components["lines"].metrics["files"] == 1
        assert (tmp_path / "kept").read_text() == "one\n"


def test_the_spout_can_be_shipped() -> None:
    spout = pickle.loads(pickle.dumps(FileSpout(Path("/logs//*.txt"), fields="line")))
    assert (spout.path, spout.outputs, spout.threaded) == ("/logs/*.txt", ("line",), True)
