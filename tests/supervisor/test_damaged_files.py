"""A bundle or code that a disk has damaged is found before a worker starts with it, and fetched again."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall.cluster.blobs import put_bundle, read_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import TopologyRecord
from squall.file_digests import Digests, damage_in, digests_of
from squall.values import TopologyState
from supervisor.artifacts import Artifacts, Failed, Provision
from supervisor.removals import delete
from tests.supervisor.hosts import a_topology
from tests.supervisor.supervisor_daemons import Cluster
from tests.supervisor.wheels import archive, sha256

FILES = {"mine.py": b"x = 1\n" * 100, "data/words.txt": b"a b c\n", "empty.py": b""}
RECORD = TopologyRecord(
    id="words-1-0", name="words", state=TopologyState.ACTIVE, previous=None, conf={}, component_confs={}, tasks=(),
    version=0, deadline=None, error=None, submitted=0.0,
)  # fmt: skip


def flip(path: Path) -> None:
    data = path.read_bytes()
    overwrite(path, data[:1] + bytes([data[1] ^ 1]) + data[2:])


def zero(path: Path) -> None:
    overwrite(path, bytes(path.stat().st_size))


def halve(path: Path) -> None:
    overwrite(path, path.read_bytes()[: path.stat().st_size // 2])


def remove(path: Path) -> None:
    delete(path)


def make_pipe(path: Path) -> None:
    delete(path)
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    delete(path)
    (path / "inside").mkdir(parents=True)


DAMAGES = [flip, zero, halve, remove, make_pipe, make_folder]
Damage = Callable[[Path], None]


def overwrite(path: Path, data: bytes) -> None:
    """As a disk does: the file's mode and times stay."""
    stat = path.stat()
    path.chmod(0o600)
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    path.chmod(stat.st_mode)


class Site:
    """A supervisor's files, a store, and a Nimbus that serves the code."""

    def __init__(self, folder: Path) -> None:
        self.data = archive(folder, FILES)
        self.record = replace(RECORD, files={"code": sha256(self.data)})
        self.store = InMemoryStore()
        put_bundle(self.store, "words-1-0", a_topology("words", 2))
        self.fetched = 0
        self.state = folder / "state"
        self.artifacts = self.restart()

    def restart(self) -> Artifacts:
        self.artifacts = Artifacts(self.state, self.store, self.fetch)
        return self.artifacts

    def fetch(self, digest: str, target: Path) -> None:
        self.fetched += 1
        target.write_bytes(self.data)

    def provision(self, now: float) -> Provision:
        found = self.artifacts.state(self.record, now, now - 1.0)
        assert isinstance(found, Provision), found
        return found

    def code(self) -> Path:
        return self.state / "code" / sha256(self.data)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["description.json", "0001.pickle", "manifest.json"])
def test_a_damaged_bundle_is_fetched_again(site: Site, name: str, damage: Damage) -> None:
    bundle = site.provision(0.0).bundle
    damage(bundle / name)
    site.provision(100.0)
    assert read_bundle(bundle).pickles == a_topology("words", 2).pickles


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["mine.py", "data/words.txt"])
def test_damaged_code_is_fetched_again_by_the_next_supervisor(
    site: Site, name: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    assert site.provision(0.0).folders == (str(site.code()),)
    damage(site.code() / name)
    site.restart()
    site.provision(100.0)
    for each, data in FILES.items():
        assert (site.code() / each).read_bytes() == data
    assert site.fetched == 2
    assert [each.getMessage().partition(": ")[0] for each in caplog.records] == [
        f"the code in {site.code()} is fetched again"
    ]


def test_the_record_of_the_digests_may_be_damaged_too(site: Site) -> None:
    site.provision(0.0)
    (record,) = (site.state / "digests").iterdir()
    for times, data in enumerate([b"", b"{", b"[]", b'{"mine.py": 3}', b'{"mine.py": ["x", 1]}'], 1):
        record.write_bytes(data)
        site.provision(100.0 * times)
        assert site.fetched == 1 + times
    record.unlink()
    site.provision(1000.0)
    site.provision(2000.0)
    assert site.fetched == 7


def test_what_is_sound_is_not_fetched_again_and_needs_no_store(site: Site) -> None:
    site.provision(0.0)
    site.restart()
    site.store.delete("/blobs/words-1-0/description")
    for now in (0.0, 10.0, 20.0):
        site.provision(now)
    assert site.fetched == 1


def test_workers_that_start_together_share_a_check(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.provision(0.0)
    checks: list[Path] = []

    def check(folder: Path, digests: Digests) -> str | None:
        checks.append(folder)
        return damage_in(folder, digests)

    monkeypatch.setattr("supervisor.artifacts.damage_in", check)
    for now in (10.0, 10.0, 10.5, 20.0):
        site.provision(now)
    assert len(checks) == 2
    site.artifacts.state(site.record, 30.0)
    assert len(checks) == 2, "no worker starts"


def test_while_it_cannot_be_fetched_no_worker_starts_with_it(site: Site) -> None:
    bundle = site.provision(0.0).bundle
    halve(bundle / "0001.pickle")
    site.store.put("/blobs/words-1-0/description", b"{}")
    found = site.artifacts.state(site.record, 10.0, 9.0)
    assert isinstance(found, Failed) and found.part == "bundle"


def test_what_is_kept_is_on_the_disk_before_it_has_its_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure leaves names of empty files, or no names."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    site.provision(0.0)
    bundle = site.state / "topologies" / "words-1-0" / "bundle"
    of_bundle = [path for path in synced if path.startswith(str(bundle))]
    assert of_bundle[2] == str(bundle), "the names of the files, after the files"
    assert {Path(path).name for path in of_bundle[:2]} == {"description.json", "0001.pickle"}
    assert of_bundle[-1] == str(bundle) and len(of_bundle) == 5, "the manifest comes last"
    unpacked = [path for path in synced if str(site.code()) in path]
    assert {path.partition("/code/")[2].partition("/")[2] for path in unpacked} == {*FILES, "", "data"}
    assert synced[-1] == str(site.code().parent)


def test_a_record_of_digests_covers_every_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "one").write_bytes(b"1" * 3_000_000)
    (tmp_path / "folder" / "inner" / "two").write_bytes(b"")
    digests = digests_of(tmp_path / "folder")
    assert set(digests) == {"one", "inner/two"}
    assert damage_in(tmp_path / "folder", digests) is None
    (tmp_path / "folder" / "one").write_bytes(b"1" * 3_000_001)
    assert "3,000,001 bytes are not the 3,000,000" in str(damage_in(tmp_path / "folder", digests))


def test_a_worker_whose_code_was_damaged_while_it_ran_starts_with_sound_code(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.start()
    data = archive(tmp_path, {"mine.py": b"x = 1\n"})
    cluster.nimbus.files[sha256(data)] = data
    cluster.submit(workers=1, files={"code": sha256(data)})
    cluster.until(lambda: cluster.opened("w1"))
    pid = cluster.pids()["w1"]
    module = cluster.tmp / "s1" / "code" / sha256(data) / "mine.py"
    zero(module)
    (bundle,) = (cluster.tmp / "s1" / "topologies").glob("*/bundle")
    (bundle / "description.json").unlink()
    (bundle / "0001.pickle").unlink()
    (bundle / "0001.pickle").mkdir()
    with caplog.at_level(logging.WARNING):
        os.kill(pid, signal.SIGKILL)
        cluster.until(lambda: cluster.opened("w1") and cluster.pids().get("w1", pid) != pid)
    assert module.read_bytes() == b"x = 1\n"
    assert read_bundle(bundle).name == "words"
