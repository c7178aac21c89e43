"""Files on a host are where they are expected, unreadable to other users, and removed with their topology."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from squall import worker_files
from squall.cluster.blobs import put_bundle, read_bundle
from squall.cluster.memory import InMemoryStore
from squall.values import Incarnation
from supervisor.directories import PROCESS, Directories, Started, read_started, write_started
from tests.supervisor.hosts import a_topology

TALK = ("orders.json", "keys.json", "lease.json", "pulse.json", "counters.json", "end.json", PROCESS)
LOGS = ("worker.log", "worker.log.1", "output.log")


def fill(directory: Path) -> None:
    for name in (*TALK, *LOGS):
        (directory / name).write_text("{}")
    (directory / worker_files.SCRATCH / "split-0").mkdir(parents=True)
    (directory / worker_files.SCRATCH / "split-0" / "data").write_text("much")
    (directory / worker_files.WORK).mkdir(exist_ok=True)
    (directory / worker_files.WORK / "output.txt").write_text("more")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_odd_and_long_names_have_folders_of_their_own_within_the_state(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    ids = ["a/b-1-0", "..", "ü ?-2-0", "plain-3-0", "ü" * 127 + "-4-0", "ü" * 127 + "-5-0"]
    made = [directories.make_worker(topology_id, "w/1") for topology_id in ids]
    assert sorted(directories.workers()) == sorted(made)
    assert len({*made}) == len(ids)
    assert all(path.parent.parent.parent == tmp_path / "topologies" for path in made)
    directories.remove_topologies(ids[3:])
    assert sorted(directories.workers()) == sorted(made[3:])


def test_directories_are_made_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Directories(tmp_path / "state").make_worker("words-1-0", "w1")
    finally:
        os.umask(before)
    for path in (made, *made.parents):
        if path == tmp_path:
            break
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


def test_a_new_process_finds_nothing_of_an_earlier_one_but_its_logs_and_scratch(tmp_path: Path) -> None:
    directories = Directories(tmp_path, own_work=True)
    fill(directories.make_worker("words-1-0", "w1"))
    again = directories.make_worker("words-1-0", "w1")
    kept = {"orders.json", "keys.json", "lease.json", worker_files.SCRATCH, worker_files.WORK}
    assert names(again) == {*LOGS, *kept} and names(again / worker_files.WORK) == set()
    # Orders, keys and the lease are written again before the process starts.


def test_only_the_logs_of_a_worker_that_has_left_stay(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    directory = directories.make_worker("words-1-0", "w1")
    fill(directory)
    directories.clear_worker("words-1-0", "w1")
    assert names(directory) == {*LOGS}


def test_logs_of_workers_that_have_left_do_not_accumulate(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    living = directories.make_worker("words-1-0", "living")
    fill(living)
    for number in range(30):
        directory = directories.make_worker("words-1-0", f"w{number}")
        fill(directory)
        directories.clear_worker("words-1-0", f"w{number}")
        os.utime(directory, (number, number))
    left = {path.name for path in living.parent.iterdir()}
    assert "living" in left and "w29" in left
    assert len(left) <= 10


def test_clearing_a_missing_directory_does_nothing(tmp_path: Path) -> None:
    directories = Directories(tmp_path / "none")
    directories.clear_worker("words-1-0", "w1")
    directories.remove_topologies([])
    assert directories.workers() == []


def test_removed_topologies_are_deleted_with_all_their_files(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    for topology_id in ("words-1-0", "words-2-0"):
        fill(directories.make_worker(topology_id, "w1"))
    directories.remove_topologies(["words-2-0"])
    assert list(directories.root.iterdir()) == [directories.topology("words-2-0")]
    directories.remove_topologies([])
    assert list(directories.root.iterdir()) == []


def test_a_bundle_is_fetched_once_and_again_after_an_interruption(tmp_path: Path) -> None:
    store = InMemoryStore()
    put_bundle(store, "words-1-0", a_topology("words", 2))
    directories = Directories(tmp_path)
    bundle = directories.make_bundle(store, "words-1-0")
    assert read_bundle(bundle).name == "words"
    (bundle / "manifest.json").unlink()
    assert read_bundle(directories.make_bundle(store, "words-1-0")).name == "words"
    assert directories.make_bundle(InMemoryStore(), "words-1-0") == bundle, "it is there"


def test_the_record_of_a_started_process_is_read_back(tmp_path: Path) -> None:
    assert read_started(tmp_path) is None
    started = Started(123, 456, Incarnation(7, 8), 2)
    write_started(tmp_path, started)
    assert read_started(tmp_path) == started
    assert stat.S_IMODE((tmp_path / PROCESS).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format":1}', '{"format":1,"incarnation":3,"pid":1}', '{"format":9}']
)
def test_a_damaged_record_of_a_process_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / PROCESS).write_text(text)
    assert read_started(tmp_path) is None


def test_folders_are_removed_by_the_function_given(tmp_path: Path) -> None:
    removed: list[Path] = []
    directories = Directories(tmp_path, own_work=True, remove=removed.append)
    directories.make_worker("words-1-0", "w1")
    directories.remove_topologies(keep=())
    assert removed[-1] == directories.topology("words-1-0")
    assert removed[-1].is_dir(), "only the function removes it"
