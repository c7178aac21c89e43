"""Workers whose directories cannot be written any more run on, follow their orders, and are still found when they hang."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall import atomic_files, spare_files, worker_files
from squall.spare_files import clear_spares, current_path, sweep_spares, write_spare
from squall.worker_files import HEARTBEAT, KEYS, LEASE, ORDERS, BadFile, read, read_heartbeat, write
from tests.read_only import read_only
from tests.supervisor.hosts import Hosts
from tests.supervisor.programs import until


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of `/dev/shm`, which all tests share."""
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr(spare_files, "_ROOT", str(place))
    return place


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch, memory: Path) -> Iterator[list[int]]:
    """Makes writes fail with the error number in the list, except in memory."""
    number: list[int] = []
    original = atomic_files.write_bytes

    def write_bytes(directory: Path | str, name: str, data: bytes, mode: int = 0o644) -> None:
        if number and not str(directory).startswith(str(memory)):
            raise OSError(number[0], os.strerror(number[0]), str(directory))
        original(directory, name, data, mode)

    monkeypatch.setattr(atomic_files, "write_bytes", write_bytes)
    yield number


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.EPERM, errno.EACCES])
def test_the_latest_content_is_read_wherever_it_was_written(
    tmp_path: Path, unwritable: list[int], memory: Path, number: int
) -> None:
    write(tmp_path, LEASE, {"number": 1})
    unwritable[:] = [number]
    for value in (2, 3):
        write(tmp_path, LEASE, {"number": value})
        assert read(tmp_path, LEASE) == {"number": value}
    assert current_path(tmp_path, LEASE).startswith(str(memory))
    unwritable.clear()
    write(tmp_path, LEASE, {"number": 4})
    assert read(tmp_path, LEASE) == {"number": 4}
    assert current_path(tmp_path, LEASE) == str(tmp_path / LEASE)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ENOSPC, errno.EMFILE])
def test_other_failures_stay_failures(tmp_path: Path, unwritable: list[int], number: int) -> None:
    """A worker whose directory was removed has to end; on a full disk heartbeats overwrite the previous ones."""
    unwritable[:] = [number]
    with pytest.raises(OSError, match=os.strerror(number)):
        write(tmp_path, ORDERS, {"number": 1})


def test_keys_are_never_kept_there(tmp_path: Path, unwritable: list[int]) -> None:
    unwritable[:] = [errno.EROFS]
    with pytest.raises(OSError, match="Read-only"):
        write(tmp_path, KEYS, {"public": "p", "secret": "s"})


@pytest.mark.parametrize("wrong", ["open to others", "a link", "a file"])
def test_a_place_that_others_can_change_is_not_used(
    tmp_path: Path, unwritable: list[int], memory: Path, wrong: str
) -> None:
    root = memory / f"squall-{os.geteuid()}"
    write_spare(tmp_path, LEASE, b'{"format":1,"number":666}')
    if wrong == "open to others":
        root.chmod(0o777)
    else:
        root.rename(memory / "aside")
        root.symlink_to(memory / "aside") if wrong == "a link" else root.write_text("")
    assert current_path(tmp_path, LEASE) == str(tmp_path / LEASE)
    unwritable[:] = [errno.EROFS]
    with pytest.raises(OSError, match="Read-only"):
        write(tmp_path, LEASE, {"number": 1})


def test_a_strangers_folder_that_leads_to_the_directory_removes_nothing_there(
    tmp_path: Path, memory: Path
) -> None:
    directory = tmp_path / "worker"
    directory.mkdir()
    place = Path(spare_files._folder_of(directory))
    place.parent.mkdir(mode=0o777)
    place.parent.chmod(0o777)  # as with another owner, it is not private to this user
    place.symlink_to(directory)
    write(directory, LEASE, {"number": 1})
    clear_spares(directory)
    assert read(directory, LEASE) == {"number": 1}


def test_a_full_disk_after_an_unwritable_one_shows_the_latest_lease(
    tmp_path: Path, unwritable: list[int]
) -> None:
    write(tmp_path, LEASE, {"number": 1})
    for number, error in ((2, errno.EROFS), (3, errno.ENOSPC)):
        unwritable[:] = [error]
        write(tmp_path, LEASE, {"number": number})
        assert read(tmp_path, LEASE) == {"number": number}


def test_files_of_removed_directories_are_swept(tmp_path: Path, memory: Path) -> None:
    gone, there = tmp_path / "gone", tmp_path / "there"
    for directory in (gone, there):
        directory.mkdir()
        write_spare(directory, LEASE, b"1")
    gone.rmdir()
    sweep_spares()
    assert current_path(gone, LEASE) == str(gone / LEASE)
    assert current_path(there, LEASE) != str(there / LEASE)
    clear_spares(there)
    sweep_spares()
    assert list(memory.iterdir()) == []


def test_what_user_code_puts_there_is_read_within_limits_too(tmp_path: Path) -> None:
    write_spare(tmp_path, HEARTBEAT, b"{}")
    path = current_path(tmp_path, HEARTBEAT)
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(BadFile):
        read_heartbeat(tmp_path)


@pytest.mark.slow
def test_workers_over_a_read_only_directory_run_on_and_a_hung_one_is_found(
    make_hosts: Callable[..., Hosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the workers are other processes
    hosts = make_hosts()
    record = hosts.submit(timeout=2.0)
    hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"))
    pids = hosts.pids()
    directories = [hosts.directories().worker(record.id, worker) for worker in ("w1", "w2")]

    def numbers() -> list[int]:
        found = map(read_heartbeat, directories)
        return [0 if each is None else each.number for each in found]

    with read_only(hosts.state / "s1"):
        before = numbers()
        hosts.until(
            lambda: min(numbers()) > max(before) + 40, "heartbeats for longer than the worker's timeout"
        )
        assert hosts.pids() == pids
        hosts.nimbus.deactivate("words")
        hosts.until(
            lambda: all(found.asked == "pause" for found in filter(None, map(read_heartbeat, directories)))
        )
        leases = [worker_files.read(directory, LEASE) for directory in directories]
        hosts.until(lambda: [worker_files.read(each, LEASE) for each in directories] != leases)
        os.kill(pids["w2"], signal.SIGSTOP)
        hosts.until(lambda: "w2" not in hosts.pids())
        assert any("it sent no heartbeat" in note for note in hosts.link.notes())
        assert hosts.pids() == {"w1": pids["w1"]}
    hosts.until(lambda: current_path(directories[0], HEARTBEAT) == str(directories[0] / HEARTBEAT))
    hosts.until(lambda: "w2" in hosts.pids())
    assert hosts.pids()["w1"] == pids["w1"]
    hosts.nimbus.kill("words", wait_secs=0)
    hosts.until(lambda: hosts.state_of() is None)
    until(lambda: current_path(directories[0], LEASE) == str(directories[0] / LEASE))
