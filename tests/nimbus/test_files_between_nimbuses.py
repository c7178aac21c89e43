"""Nimbuses and the files of topologies, over real HTTP: a leader without files lets another lead, and a bad source does no
harm.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.files import housekeeping
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.packages.archives import pack
from squall.security.sealing import KeyPair
from tests.nimbus_http.nimbuses import Cluster, client_of, closing, submission, until

pytestmark = pytest.mark.slow


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def cluster(store: InMemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(housekeeping, "LOOK_SECS", 0.05)
    found = Cluster(store, tmp_path)
    yield found
    found.stop()


def submitted(leader: NimbusDaemon, folder: Path) -> str:
    """A topology with a file; returns the file's name."""
    code = folder / "code.tar.gz"
    name = pack({"my_words.py": b"x = 1"}, code)
    with closing(client_of(leader)) as client:
        client.put_file(f"files/{name}", code)
        client.post("topologies", submission(files={"code": name}))
    return name


def lose_the_disk(daemon: NimbusDaemon) -> None:
    """Everything is deleted, and nothing can be written any more."""
    shutil.rmtree(daemon.files.directory)
    daemon.files.directory.write_text("no directory")


def test_a_leader_that_lost_its_files_lets_a_nimbus_lead_that_has_them(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = cluster.start_leader("first", store.session())
    second = cluster.start_standby("second", store.session())
    name = submitted(first, tmp_path)
    until(lambda: second.files.has(name), "the file at the standby")
    lose_the_disk(first)
    until(lambda: second.leading, "the lead of the one that has it")
    assert not first.leading
    assert f"lacks the file {name} of topology 'words', which {second.me.id} has" in caplog.text
    first.files.directory.unlink()
    until(lambda: first.files.has(name), "that it is whole again")
    second.stop()
    until(lambda: first.leading, "the lead of the first one again")


def test_a_leader_that_lost_the_only_copy_of_a_file_goes_on_and_reports_it(
    cluster: Cluster,
    store: InMemoryStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(housekeeping, "PATIENCE_SECS", 0.0)
    leader = cluster.start_leader("first", store.session())
    name = submitted(leader, tmp_path)
    lose_the_disk(leader)
    until(lambda: f"the file {name} of topology 'words' is lost" in caplog.text, "that it says so")
    assert leader.leading


def test_a_nimbus_that_does_not_answer_may_have_the_file(
    cluster: Cluster,
    store: InMemoryStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(housekeeping, "PATIENCE_SECS", 0.0)
    monkeypatch.setattr(housekeeping, "UNSURE_SECS", 4.0)
    leader = cluster.start_leader("first", store.session())
    name = submitted(leader, tmp_path)
    leader.stop()
    (leader.files.directory / name).unlink()
    silent = NimbusRecord("silent", "http://127.0.0.1:9", "gone", KeyPair.make().public)
    Registry(store).nimbuses.put(silent)
    again = cluster.start("first", store.session())
    until(lambda: "no answer yet from silent" in caplog.text, "that it waits for an answer")
    until(lambda: again.leading, "the lead all the same, after a while")
    assert "no Nimbus that answers has it; silent did not answer (" in caplog.text


def test_a_nimbus_that_delivers_a_wrong_file_is_named_and_the_right_one_comes_from_a_third(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = cluster.start_leader("first", store.session())
    second = cluster.start_standby("second", store.session())
    name = submitted(first, tmp_path)
    until(lambda: second.files.has(name), "the file at the standby")
    bad = min((first, second), key=lambda daemon: daemon.me.id)  # asked first
    (bad.files.directory / name).write_bytes(b"something else")
    third = cluster.start_standby("third", store.session())
    until(lambda: third.files.has(name), "the file at the third one")
    assert sha256((third.files.directory / name).read_bytes()).hexdigest() == name
    assert f"{bad.me.id} delivered a wrong file instead of {name}" in caplog.text
