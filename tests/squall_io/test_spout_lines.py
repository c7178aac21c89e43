"""HdfsLines in topologies of this process, on local files: every line once, and restarts continue after the last acks."""

from __future__ import annotations

import bz2
import gzip
import json
import pickle
import re
from collections import Counter, deque
from pathlib import Path
from shutil import copytree

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from squall_io.spark import HdfsLines
from topology_api import (
    Bolt,
    FailTuple,
    InvalidConfig,
    Replay,
    Topology,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)


class Keep(Bolt):
    """Writes its lines to a file, unless the line says that it fails."""

    outputs = ("line",)

    def __init__(self, path: Path, fails_after: int | None = None) -> None:
        self.path = path
        self.fails_after = fails_after
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        if "poison" in tup["line"] or (self.fails_after is not None and self.seen > self.fails_after):
            raise FailTuple("as the test has it")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(list(tup.values)) + "\n")


def kept(path: Path) -> list[list[str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def topology(lines: HdfsLines, keep: Bolt, tasks: int = 1) -> Topology:
    builder = TopologyBuilder("reader")
    builder.set_spout("lines", lines, parallelism=tasks)
    builder.set_bolt("keep", keep).shuffle_grouping("lines")
    return builder.build()


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with 700 lines in seven files."""
    folder = tmp_path / "book"
    folder.mkdir()
    for number in range(5):
        text = "".join(f"file {number} line {line} {'x' * (line % 37)}\n" for line in range(100))
        (folder / f"{number}.txt").write_text(text)
    (folder / "5.txt.gz").write_bytes(gzip.compress(b"".join(b"file 5 line %d\n" % n for n in range(100))))
    (folder / "6.txt.bz2").write_bytes(bz2.compress(b"".join(b"file 6 line %d\n" % n for n in range(100))))
    return folder


def lines_of(book: Path) -> list[str]:
    found = [line for path in sorted(book.glob("*.txt")) for line in path.read_text().splitlines()]
    return found + [f"file {file} line {line}" for file in (5, 6) for line in range(100)]


@pytest.mark.parametrize("tasks", [1, 3, 8])
def test_however_many_tasks_share_the_files_each_line_is_emitted_once(book: Path, tasks: int) -> None:
    spout = HdfsLines(str(book), split_bytes=1024)
    done = complete_topology(topology(spout, Keep(book.parent / "kept"), tasks))
    assert Counter(line for (line,) in done.emitted("lines")) == Counter(lines_of(book))
    assert not done.failed("lines")


def test_a_tuple_may_have_its_file_and_its_position(book: Path) -> None:
    (book / "0.txt").write_bytes(b"\xef\xbb\xbfone\r\n\ntwo")
    spout = HdfsLines(f"{book}/0.txt", fields=("offset", "line", "file"))
    done = complete_topology(topology(spout, Keep(book.parent / "kept")))
    whole = f"file://{book}/0.txt"
    assert done.emitted("lines") == [(0, "one", whole), (8, "", whole), (9, "two", whole)]


def test_a_resubmitted_topology_continues_after_the_last_acks(book: Path, tmp_path: Path) -> None:
    positions, first, second = str(tmp_path / "positions"), tmp_path / "first", tmp_path / "second"
    with LocalCluster(simulated_time=True) as cluster:
        spout = HdfsLines(str(book), split_bytes=1024, positions=positions, replay=Replay(max_attempts=1000))
        cluster.submit(topology(spout, Keep(first, fails_after=230), 2))
        cluster.advance(30)
        cluster.kill("reader", wait_secs=0)
        cluster.advance(5)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(HdfsLines(str(book), positions=positions), Keep(second), 3))
        cluster.advance(30)
        assert cluster.status("reader").state == "COMPLETED"
    assert len(kept(first)) == 230
    assert Counter(line for (line,) in kept(first) + kept(second)) == Counter(lines_of(book)), (
        "all acks of the first life were in order, so nothing comes again"
    )


def test_lines_cut_off_by_the_end_of_a_topology_come_again_and_finally_failed_ones_do_not(
    book: Path, tmp_path: Path
) -> None:
    (book / "0.txt").write_text("good\npoison\nlate\n")
    positions = str(tmp_path / "positions")
    with LocalCluster(simulated_time=True) as cluster:
        spout = HdfsLines(f"{book}/0.txt", positions=positions, replay=Replay(max_attempts=1))
        cluster.submit(topology(spout, Hold(tmp_path / "held")))
        cluster.advance(5)
        cluster.kill("reader", wait_secs=0)
        cluster.advance(5)
    done = complete_topology(
        topology(HdfsLines(f"{book}/0.txt", positions=positions), Keep(tmp_path / "kept"))
    )
    assert done.emitted("lines") == [("late",)]


class Hold(Keep):
    """Like Keep, but holds the line "late" for ever."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        if tup["line"] == "poison":
            self.fail(tup, "poison")
        elif tup["line"] != "late":
            self.ack(tup)


class Slow(Keep):
    """Like Keep, but spends a tenth of a second on each line."""

    auto_ack = False
    tick_interval = 0.1

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.queue: deque[Tuple] = deque()

    def execute(self, tup: Tuple) -> None:
        self.queue.append(tup)

    def tick(self) -> None:
        if self.queue:
            tup = self.queue.popleft()
            super().execute(tup)
            self.ack(tup)


@pytest.mark.parametrize("pending", [10, 1000], ids=["held by the limit", "all emitted"])
def test_a_run_killed_while_a_slow_bolt_has_everything_continues_near_the_last_ack(
    book: Path, tmp_path: Path, pending: int
) -> None:
    positions, killed, acked = tmp_path / "positions", tmp_path / "killed", tmp_path / "acked"
    conf = {"topology.max.spout.pending": pending, "topology.message.timeout.secs": 300}
    with LocalCluster(simulated_time=True) as cluster:
        spout = HdfsLines(f"{book}/0.txt", positions=str(positions))
        cluster.submit(topology(spout, Slow(acked)), conf)
        cluster.advance(6.05)
        copytree(positions, killed)  # as a kill would leave it
        before = len(kept(acked))
    done = complete_topology(
        topology(HdfsLines(f"{book}/0.txt", positions=str(killed)), Keep(tmp_path / "kept"))
    )
    again = len(done.emitted("lines"))
    assert 50 <= before < 100, "the bolt should be in the middle: the test shows nothing"
    assert 100 - before <= again <= 100 - before + 15, "about a second's acks come again, and all open ones"


def test_positions_of_another_reader_are_refused_as_the_topology_starts(book: Path, tmp_path: Path) -> None:
    positions = str(tmp_path / "positions")
    complete_topology(topology(HdfsLines(str(book), positions=positions), Keep(tmp_path / "kept")))
    other = TopologyBuilder("other")
    other.set_spout("words", HdfsLines(f"{book}/0.txt", positions=positions))
    with pytest.raises(
        TopologyFailed, match=r"open\(\) raised ReaderMismatch: the positions in file:///.*positions belong"
    ):
        complete_topology(other.build())


def test_a_line_that_is_no_text_is_omitted_and_reported_once_for_each_split(
    book: Path, tmp_path: Path
) -> None:
    (book / "0.txt").write_bytes(b"a\n\xff\xff\nb\n\xff\nc\n")
    spout = HdfsLines(f"{book}/0.txt")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(spout, Keep(tmp_path / "kept")))
        cluster.advance(30)
        status = cluster.status("reader")
        assert status.state == "COMPLETED"
    assert kept(tmp_path / "kept") == [["a"], ["b"], ["c"]]
    assert status.components["lines"].errors == 1
    assert status.components["lines"].metrics["lines left out"] == 2
    (report,) = status.errors
    assert re.search(
        r"byte 2 of file:///.*/0\.txt was left out: it is not text in utf-8: .* 0xff", str(report)
    )


def test_with_replace_every_line_is_emitted(book: Path, tmp_path: Path) -> None:
    (book / "0.txt").write_bytes(b"a\n\xff\n")
    done = complete_topology(topology(HdfsLines(f"{book}/0.txt", errors="replace"), Keep(tmp_path / "kept")))
    assert done.emitted("lines") == [("a",), ("\ufffd",)]


def test_a_damaged_file_delays_no_other_and_is_read_once_it_is_repaired(book: Path, tmp_path: Path) -> None:
    whole = (book / "5.txt.gz").read_bytes()
    (book / "5.txt.gz").write_bytes(whole[:-20])
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(HdfsLines(str(book)), Keep(tmp_path / "kept")))
        cluster.advance(30)
        status = cluster.status("reader")
        assert status.state == "ACTIVE", "an unread part is left"
        assert "5.txt.gz cannot be read: it is truncated" in str(status.errors)
        assert len(kept(tmp_path / "kept")) >= 600
        (book / "5.txt.gz").write_bytes(whole)
        cluster.advance(30)
        assert cluster.status("reader").state == "COMPLETED"
    assert Counter(line for (line,) in kept(tmp_path / "kept")) == Counter(lines_of(book))


def test_all_mistakes_in_the_arguments_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        HdfsLines(
            "logs",
            fields=("line", "name"),
            encoding="utf-16",
            errors="loud",
            split_bytes=10,
            follow="yes",  # type: ignore[arg-type]
            poll_interval=0.1,
            positions="here",
            replay=3,  # type: ignore[arg-type]
        )
    assert len(caught.value.problems) == 9
    text = str(caught.value)
    for part in (
        "'logs'",
        "'name'",
        "utf-16",
        "'loud'",
        "10 (int)",
        "'yes'",
        "0.1 (float)",
        "'here'",
        "3 (int)",
    ):
        assert part in text


def test_positions_inside_the_input_are_refused_since_they_would_be_read_too() -> None:
    with pytest.raises(InvalidConfig, match=r"positions: /logs/done would be read as part of /logs"):
        HdfsLines("/logs", positions="/logs/done")
    HdfsLines("/logs", positions="/logs/_done")


def test_the_spout_can_be_shipped_before_and_after_its_arguments_were_checked() -> None:
    spout = pickle.loads(pickle.dumps(HdfsLines("/logs/*.txt", fields="line")))
    assert spout.outputs == ("line",) and spout.threaded
