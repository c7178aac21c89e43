"""The files for workers are prepared once, off the supervisor's loop, shared, and removed when they are unused."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall.atomic_files import TEMPORARY
from squall.cluster.blobs import put_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import TopologyRecord
from squall.values import TopologyState
from supervisor.artifacts import Artifacts, Failed, PackageLimits, Pending, Provision, State
from supervisor.removals import delete
from tests.supervisor.hosts import a_topology
from tests.supervisor.programs import until
from tests.supervisor.wheels import archive, sha256

RECORD = TopologyRecord(
    id="words-1-0", name="words", state=TopologyState.ACTIVE, previous=None, conf={}, component_confs={}, tasks=(),
    version=0, deadline=None, error=None, submitted=0.0,
)  # fmt: skip


class Files:
    """A Nimbus's files."""

    def __init__(self, *datas: bytes) -> None:
        self.there = {sha256(data): data for data in datas}
        self.fetched: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def fetch(self, digest: str, target: Path) -> None:
        self.fetched.append(digest)
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        target.write_bytes(self.there[digest])


@pytest.fixture
def store() -> InMemoryStore:
    store = InMemoryStore()
    for name in ("words-1-0", "words-2-0"):
        put_bundle(store, name, a_topology("words", 2))
    return store


@pytest.fixture
def code(tmp_path: Path) -> bytes:
    return archive(tmp_path, {"mine.py": b"x = 1\n", "data/words.txt": b"a b c\n"})


def ready(state: State) -> Provision:
    assert isinstance(state, Provision), state
    return state


def failed(state: State) -> Failed:
    assert isinstance(state, Failed), state
    return state


def with_code(code: bytes, id: str = "words-1-0") -> TopologyRecord:
    return replace(RECORD, id=id, files={"code": sha256(code)})


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def test_a_topology_without_files_needs_its_bundle_only(tmp_path: Path, store: InMemoryStore) -> None:
    found = ready(Artifacts(tmp_path, store).state(RECORD, 0.0))
    assert (found.bundle / "manifest.json").exists()
    assert (found.python, found.folders) == (None, ())


def test_code_is_unpacked_once_for_all_and_is_read_only(
    tmp_path: Path, store: InMemoryStore, code: bytes
) -> None:
    files = Files(code)
    provisions = Artifacts(tmp_path, store, files.fetch)
    folders = [ready(provisions.state(with_code(code, id), 0.0)).folders for id in ("words-1-0", "words-2-0")]
    assert folders[0] == folders[1] == (str(tmp_path / "code" / sha256(code)),)
    assert files.fetched == [sha256(code)]
    folder = Path(folders[0][0])
    assert (folder / "mine.py").read_text() == "x = 1\n"
    assert (folder / "data" / "words.txt").read_text() == "a b c\n"
    assert not stat.S_IMODE((folder / "mine.py").stat().st_mode) & 0o222
    ready(Artifacts(tmp_path, store, files.fetch).state(with_code(code), 0.0))
    assert len(files.fetched) == 1, "the next supervisor finds it"


def test_unused_files_are_removed(tmp_path: Path, store: InMemoryStore, code: bytes) -> None:
    provisions = Artifacts(tmp_path, store, Files(code).fetch)
    one, other = with_code(code), with_code(code, "words-2-0")
    for record in (one, other):
        ready(provisions.state(record, 0.0))
    provisions.keep([other], [])
    assert names(tmp_path / "code") == [sha256(code)]
    provisions.keep([], ["words-2-0"])
    assert names(tmp_path / "code") == [sha256(code)], "one of its workers still runs"
    provisions.keep([], [])
    assert names(tmp_path / "code") == []


def test_what_a_thread_is_writing_is_not_removed_with_unused_files(
    tmp_path: Path, store: InMemoryStore, code: bytes
) -> None:
    provisions = Artifacts(tmp_path, store, Files(code).fetch)
    ready(provisions.state(with_code(code), 0.0))
    (tmp_path / "digests" / f".17.18{TEMPORARY}").touch()  # `write_bytes` renames it in a moment
    provisions.keep([], [])
    assert names(tmp_path / "digests") == [f".17.18{TEMPORARY}"]
    provisions.sweep()
    assert names(tmp_path / "digests") == [], "it is a remainder of an earlier supervisor"


@pytest.mark.parametrize("deleted", ["topologies", "topologies/words-1-0/bundle", "code"])
def test_deleted_files_are_prepared_again(
    tmp_path: Path, store: InMemoryStore, code: bytes, deleted: str
) -> None:
    provisions = Artifacts(tmp_path, store, Files(code).fetch)
    before = ready(provisions.state(with_code(code), 0.0))
    delete(tmp_path / deleted)
    assert ready(provisions.state(with_code(code), 1.0)) == before
    assert (before.bundle / "manifest.json").exists()
    assert (Path(before.folders[0]) / "mine.py").read_text() == "x = 1\n"


def test_files_of_a_running_worker_stay_though_the_supervisor_is_another(
    tmp_path: Path, store: InMemoryStore, code: bytes
) -> None:
    ready(Artifacts(tmp_path, store, Files(code).fetch).state(with_code(code), 0.0))
    provisions = Artifacts(tmp_path, store)
    provisions.keep([], ["words-1-0"])
    assert names(tmp_path / "code") == [sha256(code)]


def test_the_loop_does_not_wait_for_slow_work(tmp_path: Path, store: InMemoryStore, code: bytes) -> None:
    files, told = Files(code), threading.Event()
    files.gate.clear()
    provisions = Artifacts(tmp_path, store, files.fetch, threads=True, done=told.set)
    state = provisions.state(with_code(code), 0.0)
    assert state == Pending(None)
    until(lambda: files.fetched)
    assert told.wait(30), "its bundle is there"
    assert provisions.state(with_code(code), 1.0) == Pending(None)
    until(lambda: provisions.state(with_code(code), 5.0) == Pending("code"))
    assert isinstance(until_known(provisions, RECORD), Provision), "others are not held up"
    told.clear()
    files.gate.set()
    assert told.wait(30), "the loop is woken"
    ready(until_known(provisions, with_code(code)))
    assert files.fetched == [sha256(code)]
    provisions.close()


def until_known(provisions: Artifacts, record: TopologyRecord) -> State:
    found: list[State] = []

    def known() -> bool:
        found.append(provisions.state(record, 0.0))
        return not isinstance(found[-1], Pending)

    until(known)
    return found[-1]


def test_a_failed_fetch_is_reported_and_retried_ever_later(
    tmp_path: Path, store: InMemoryStore, code: bytes
) -> None:
    files = Files(code)
    files.error = OSError(errno.ENOSPC, "No space left on device")
    provisions = Artifacts(tmp_path, store, files.fetch)
    record = with_code(code)
    first = failed(provisions.state(record, 0.0))
    assert first.part == "code" and "No space left" in first.why
    times = []
    now = 0.0
    for _ in range(4):
        now = failed(provisions.state(record, now)).backoff.not_before
        times.append(now)
    assert times == [1.0, 3.0, 7.0, 15.0]
    asked = len(files.fetched)
    assert failed(provisions.state(record, 14.9)).backoff.not_before == 15.0
    assert len(files.fetched) == asked == 4, "it rests"
    files.error = None
    ready(provisions.state(record, 15.0))
    assert names(tmp_path / "code") == [sha256(code)], "nothing else is left"


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data + b"more", lambda data: b"x"])
def test_a_file_with_another_hash_is_refused(
    tmp_path: Path, store: InMemoryStore, code: bytes, damage: Callable[[bytes], bytes]
) -> None:
    files = Files(code)
    files.there[sha256(code)] = damage(code)
    found = failed(Artifacts(tmp_path, store, files.fetch).state(with_code(code), 0.0))
    assert "Nimbus sent a wrong file" in found.why
    assert names(tmp_path / "code") == []


def test_an_archive_that_is_too_large_unpacked_is_refused_and_leaves_nothing(
    tmp_path: Path, store: InMemoryStore
) -> None:
    data = archive(tmp_path, {"big": b"\0" * 100_000})
    provisions = Artifacts(tmp_path, store, Files(data).fetch, limits=PackageLimits(1_000_000, 50_000))
    assert failed(provisions.state(with_code(data), 0.0)).part == "code"
    assert names(tmp_path / "code") == []


def test_interrupted_work_is_removed(tmp_path: Path, store: InMemoryStore, code: bytes) -> None:
    (tmp_path / "code" / "abc.new-12").mkdir(parents=True)
    (tmp_path / "code" / "abc.new-12" / "half").write_text("")
    (tmp_path / "code" / "0.new-1.file").write_text("")
    provisions = Artifacts(tmp_path, store, Files(code).fetch)
    ready(provisions.state(with_code(code), 0.0))
    provisions.sweep()
    assert names(tmp_path / "code") == [sha256(code)]


def test_without_a_nimbus_a_topology_with_code_waits(
    tmp_path: Path, store: InMemoryStore, code: bytes
) -> None:
    assert "no Nimbus" in failed(Artifacts(tmp_path, store).state(with_code(code), 0.0)).why


def test_a_damaged_bundle_in_the_store_is_reported(tmp_path: Path, store: InMemoryStore) -> None:
    path = "/blobs/words-1-0/description"
    found = store.get(path)
    assert found is not None
    store.put(path, b"{}")
    assert failed(Artifacts(tmp_path, store).state(RECORD, 0.0)).part == "bundle"
