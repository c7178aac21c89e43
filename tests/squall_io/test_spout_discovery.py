"""Files that come while HdfsLines reads, or before it is submitted again: each is read once, by the task that owns it."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall.stores.files import FilesUnavailable
from squall_io.lines.errors import UnreadableFile
from squall_io.spark import HdfsLines
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.spouts import discovery, lines
from squall_io.spark.spouts.discovery import FileDiscovery, FileList, FoundFile, source_of
from squall_io.spark.spouts.reading_spout import RETRY_SECONDS
from squall_io.spark.stores import open_files
from tests.squall_io.memory_files import MemoryFiles, MemoryStore
from topology_api import Bolt, Topology, TopologyBuilder, Tuple

#: Long enough for two checks in a row and their consequences.
A_WHILE = 4 * lines.POLL_SECONDS


class Keep(Bolt):
    """Adds each line to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        with self.path.open("a") as file:
            file.write(tup["line"] + "\n")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, count: int = 30) -> list[str]:
    """A file that appears complete."""
    found = [f"{name} {line} {'x' * line}" for line in range(count)]
    folder.mkdir(exist_ok=True)
    (folder / f"_{name}").write_text("".join(f"{line}\n" for line in found))
    (folder / f"_{name}").rename(folder / name)
    return found


def kept(folder: Path) -> Counter[str]:
    path = folder.parent / "kept"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def write(path: Path, text: str, at: float) -> None:
    """A file that was written at this time."""
    path.write_text(text)
    os.utime(path, (at, at))


@contextmanager
def discovery_of(inbox: Path) -> Iterator[FileDiscovery]:
    """One task's knowledge of the files of an inbox."""
    with open_files(str(inbox.parent)) as files, open_files(str(inbox.parent / "positions")) as positions:
        yield FileDiscovery(files, source_of(str(inbox)), positions, 1024)


def topology(inbox: Path, tasks: int = 2, path: str | None = None, **arguments: object) -> Topology:
    builder = TopologyBuilder("reader")
    spout = HdfsLines(path or str(inbox), split_bytes=1024, **arguments)  # type: ignore[arg-type]
    builder.set_spout("lines", spout, parallelism=tasks)
    builder.set_bolt("keep", Keep(inbox.parent / "kept")).shuffle_grouping("lines")
    return builder.build()


def test_files_that_come_to_a_followed_folder_are_read_once_and_the_topology_goes_on(inbox: Path) -> None:
    expected = Counter(put(inbox, "a"))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, follow=True))
        for name in ("b", "c", "d"):
            cluster.advance(A_WHILE)
            assert kept(inbox) == expected
            expected += Counter(put(inbox, name) + put(inbox, f"{name}0"))
        cluster.advance(A_WHILE)
        assert kept(inbox) == expected
        assert cluster.status("reader").state == "ACTIVE" and not cluster.status("reader").errors


def test_a_spout_that_looks_often_reads_new_files_soon(inbox: Path) -> None:
    expected = Counter(put(inbox, "a"))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, follow=True, poll_interval=0.2))
        cluster.advance(1)
        expected += Counter(put(inbox, "b"))
        cluster.advance(0.5)
        assert kept(inbox) == expected


def test_a_file_that_was_written_a_minute_ago_is_read_at_the_first_look(inbox: Path) -> None:
    with discovery_of(inbox) as discovery:
        discovery.begin(None)
        write(inbox / "moved", "old", at=100.0)
        write(inbox / "new", "new", at=100.5)
        found = discovery.poll(reports=True, now=0, wall=160.0)
        assert [file.path for file in found] == ["in/moved"]
        assert [file.path for file in discovery.poll(True, now=0, wall=160.2)] == ["in/new"]


@pytest.mark.parametrize("path", ["", "/*.log"])
def test_an_empty_or_missing_folder_can_be_followed(inbox: Path, path: str) -> None:
    inbox.rmdir()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, path=f"{inbox}{path}", follow=True))
        cluster.advance(A_WHILE)
        expected = Counter(put(inbox, "a.log"))
        cluster.advance(A_WHILE)
        assert kept(inbox) == expected and not cluster.status("reader").errors


@pytest.mark.parametrize("follow", [False, True])
def test_a_resubmitted_topology_reads_only_files_that_have_come_since(
    inbox: Path, tmp_path: Path, follow: bool
) -> None:
    expected: Counter[str] = Counter()
    for life in range(3):
        expected += Counter(put(inbox, f"life{life}", 50))
        with LocalCluster(simulated_time=True) as cluster:
            positions = str(tmp_path / "positions")
            cluster.submit(topology(inbox, life + 1, follow=follow, positions=positions))
            cluster.advance(A_WHILE)
            assert cluster.status("reader").state == ("ACTIVE" if follow else "COMPLETED")
            cluster.kill("reader", wait_secs=0)
            cluster.advance(A_WHILE)
        assert kept(inbox) == expected
        if life == 1:
            (inbox / "life0").unlink()  # files already read may be removed


def test_a_topology_resubmitted_after_all_files_were_read_and_removed_has_nothing_to_do(
    inbox: Path, tmp_path: Path
) -> None:
    expected = Counter(put(inbox, "a"))
    for _ in range(2):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(inbox, positions=str(tmp_path / "positions")))
            cluster.advance(A_WHILE)
            assert cluster.status("reader").state == "COMPLETED"
        assert kept(inbox) == expected
        (inbox / "a").unlink(missing_ok=True)


def test_a_folder_read_to_its_end_can_be_followed_later(inbox: Path, tmp_path: Path) -> None:
    expected = Counter(put(inbox, "a"))
    for life, follow in enumerate((False, True, False)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(inbox, follow=follow, positions=str(tmp_path / "positions")))
            cluster.advance(A_WHILE)
        assert kept(inbox) == expected
        expected += Counter(put(inbox, f"after life {life}"))


def test_a_file_that_is_being_written_is_read_when_it_is_stable(inbox: Path) -> None:
    with discovery_of(inbox) as discovery:
        assert discovery.begin(None) == []
        for size in range(4):
            write(inbox / "slow", "x" * size, at=100)
            (inbox / "copied._COPYING_").write_text("half")
            assert discovery.poll(reports=True, now=0, wall=0) == []
        write(inbox / "slow", "yyy", at=101)  # the same size, and different content
        assert discovery.poll(reports=True, now=0, wall=0) == []
        assert discovery.poll(reports=True, now=0, wall=0) == [FoundFile("in/slow", 3, 1024, 101.0)]
        assert discovery.poll(reports=True, now=0, wall=0) == [] and not discovery.problems


def test_a_file_replaced_by_another_of_the_same_size_is_reported_with_the_time(inbox: Path) -> None:
    write(inbox / "a", "old\n", at=1_700_000_000)
    with discovery_of(inbox) as discovery:
        snapshot = discovery.snapshot(now=0)
        assert not discovery.problems
        (inbox / "a").unlink()
        write(inbox / "a", "new\n", at=1_700_000_060)
        assert discovery.snapshot(now=0) == snapshot
        (problem,) = discovery.problems
        assert f"{inbox}/a was written again at 2023-11-14 22:14:20+00:00, and has 4 bytes as before" in str(
            problem
        )


def test_a_growing_file_is_reported_ever_more_rarely_and_a_stable_one_is_not(
    inbox: Path,
) -> None:
    for name in ("grows", "rests"):
        write(inbox / name, "x", at=1)
    with discovery_of(inbox) as discovery:
        discovery.snapshot(now=0)
        write(inbox / "rests", "xx", at=2)
        told = []
        for now in range(10_000, 30_000, 5):
            write(inbox / "grows", "x" * (now % 1000 + 2), at=now)
            discovery.poll(reports=True, now=now, wall=0)
            told += [(now, str(problem)) for problem in discovery.problems]
            discovery.problems.clear()
    assert sum("/rests has 2 bytes, and had 1" in text for _, text in told) == 1
    times = [now for now, text in told if "/grows has " in text]
    assert len(told) == 1 + len(times)
    waits = [after - before for before, after in pairwise(times)]
    assert times[0] == 10_000 and waits[:6] == [60, 120, 240, 480, 960, 1920] and set(waits[6:]) == {3600}


def test_growth_of_an_unreported_file_is_reported_in_the_end(inbox: Path) -> None:
    write(inbox / "a", "x", at=1)
    with discovery_of(inbox) as discovery:
        discovery.snapshot(now=0)
        told = []
        for now in (0, 5, 10, 59, 60, 65, 1000):
            write(inbox / "a", "x" * min(now + 2, 12), at=min(now + 2, 12))
            discovery.poll(reports=True, now=now, wall=0)
            told += [(now, str(problem).split(":")[1].split("/in/")[1]) for problem in discovery.problems]
            discovery.problems.clear()
    assert told == [(0, "a has 2 bytes, and had 1"), (60, "a has 12 bytes, and had 1")]


def test_a_link_to_a_folder_is_no_file_to_read_and_a_named_one_is_followed(inbox: Path) -> None:
    elsewhere = inbox.parent / "elsewhere"
    expected = Counter(put(elsewhere, "there"))
    (elsewhere / "circle").symlink_to(elsewhere)
    (inbox / "link").symlink_to(elsewhere)
    (inbox / "below").mkdir()
    (inbox / "below" / "self").symlink_to(inbox)
    for path, lines_there in ((inbox, Counter(put(inbox, "here"))), (inbox / "link", expected)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(inbox, path=str(path), follow=True))
            cluster.advance(A_WHILE + 2 * RETRY_SECONDS)
            assert kept(inbox) == lines_there and not cluster.status("reader").errors
        (inbox.parent / "kept").unlink()


def test_a_file_that_has_grown_and_an_unreadable_one_are_reported_once_and_others_are_read(
    inbox: Path,
) -> None:
    expected = Counter(put(inbox, "a"))
    (inbox / "b.zst").write_bytes(b"packed")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, follow=True))
        cluster.advance(A_WHILE)
        with (inbox / "a").open("a") as file:
            file.write("more\n")
        cluster.advance(A_WHILE)
        expected += Counter(put(inbox, "c"))
        cluster.advance(A_WHILE)
        packed, grown = sorted((error.text for error in cluster.status("reader").errors), key=len)
        assert kept(inbox) == expected
    assert "b.zst is not read: its compression" in packed
    assert f"/in/a has {os.path.getsize(inbox / 'a')} bytes, and had " in grown and "rename them" in grown


def test_a_damaged_file_does_not_delay_later_ones(inbox: Path) -> None:
    (inbox / "bad.gz").write_bytes(b"this is no gzip")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, tasks=1, follow=True))
        cluster.advance(A_WHILE)
        expected = Counter(put(inbox, "good"))
        cluster.advance(A_WHILE)
        assert kept(inbox) == expected
        (error,) = cluster.status("reader").errors
        assert "bad.gz cannot be read: it is damaged" in error.text
        assert 1 < error.times <= 1 + 2 * A_WHILE / RETRY_SECONDS, "it is tried again, and not all the time"


def test_following_a_single_file_is_refused(inbox: Path) -> None:
    put(inbox, "a")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(inbox, path=f"{inbox}/a", follow=True))
        cluster.advance(A_WHILE)
        assert "/in/a is a file: only a folder or a pattern" in str(cluster.last_status("reader").error)


# How tasks agree on the list.


def some(*names: str) -> list[FoundFile]:
    return [FoundFile(name, 10, 4) for name in names]


@pytest.mark.parametrize("seed", range(20))
def test_lists_of_tasks_are_prefixes_of_one_whatever_they_find_and_whatever_gets_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "WHOLE", 5)
    rounds, store = random.Random(seed), MemoryStore()
    other = FileList(MemoryFiles(store))

    def gate(step, effect):  # type: ignore[no-untyped-def]
        fault = rounds.choice(["", "", "", "", "before", "after", "other"])
        if fault == "before":
            raise FilesUnavailable("as the test has it")
        if fault == "other" and step.writes and rounds.random() < 0.5:
            other.add(some(f"other{rounds.randrange(60)}"))  # in the middle of the call
        result = effect()
        if fault == "after":
            raise FilesUnavailable("the answer was lost")
        return result

    tasks = [FileList(MemoryFiles(store, gate=gate)) for _ in range(3)]
    for number in range(120):
        place = rounds.randrange(3)
        if rounds.random() < 0.2:
            tasks[place] = FileList(MemoryFiles(store, gate=gate))
        try:
            tasks[place].add(some(*(f"file{name}" for name in rounds.sample(range(number + 3), 3))))
        except FilesUnavailable:
            continue
    whole = FileList(MemoryFiles(store))
    whole.read()
    assert whole.records >= 10 and len(whole.found) == len(whole.files) >= whole.records
    for task in (other, *tasks):
        assert whole.files[: len(task.files)] == task.files
        task._kept = MemoryFiles(store)
        task.read()
        assert task.files == whole.files


def test_a_starting_task_reads_few_records_and_one_of_a_snapshot_stops_at_its_end() -> None:
    store, read = MemoryStore(), []
    for number in range(250):
        FileList(MemoryFiles(store)).add(some(str(number)))

    def gate(step, effect):  # type: ignore[no-untyped-def]
        read.append(step)
        return effect()

    files = FileList(MemoryFiles(store, gate=gate))
    files.read()
    assert [file.path for file in files.files] == [str(number) for number in range(250)]
    assert len(read) < 60
    for last in (0, 1, 99, 100, 101, 249):
        snapshot = FileList(MemoryFiles(store))
        snapshot.read(last)
        assert (snapshot.records, len(snapshot.files)) == (last, last)


def test_a_record_that_does_not_follow_the_earlier_ones_is_named() -> None:
    store = MemoryStore()
    for name in ("a", "b", "c"):
        FileList(MemoryFiles(store)).add(some(name))
    store.files["files/2.json"] = store.files["files/3.json"]
    with pytest.raises(
        UnreadableRecord, match=r"files/2\.json is not a valid record of a reader's files: .*file 2, and 1"
    ):
        FileList(MemoryFiles(store)).read()


def test_a_submission_reads_the_files_that_its_first_task_found_though_others_find_more(
    inbox: Path, tmp_path: Path
) -> None:
    put(inbox, "a")
    with open_files(str(tmp_path)) as files, open_files(str(tmp_path / "positions")) as positions:
        first, second = (FileDiscovery(files, source_of(str(inbox)), positions, 1024) for _ in range(2))
        snapshot = first.snapshot(now=0)
        put(inbox, "b")
        assert second.snapshot(now=0) != snapshot
        assert [file.path for file in first.begin(snapshot)] == ["in/a"]
        assert [file.path for file in second.begin(snapshot)] == ["in/a"]
        (inbox / "c.zip").write_bytes(b"x")
        with pytest.raises(UnreadableFile, match=r"in/c\.zip: lines are read from plain files"):
            second.snapshot(now=0)
