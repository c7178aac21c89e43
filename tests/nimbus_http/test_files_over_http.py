"""The files of topologies, over real HTTP: sent once, checked on the way, kept by every Nimbus, removed when unused."""

from __future__ import annotations

import io
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.files import housekeeping
from nimbus.files.stored_files import FileStore
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client, Refused, at
from squall.packages.archives import pack
from tests.nimbus_http.nimbuses import Cluster, PlayedSupervisor, client_of, closing, submission, until


def a_file(folder: Path, size: int = 3_000_000) -> tuple[Path, str]:
    path = folder / "a file"
    path.write_bytes(os.urandom(size))
    return path, sha256(path.read_bytes()).hexdigest()


def test_a_file_is_sent_found_and_fetched_again(client: Client, tmp_path: Path) -> None:
    path, name = a_file(tmp_path)
    assert not client.exists(at("files", name))
    seen: list[int] = []
    answer = client.put_file(at("files", name), path, seen.append)
    assert answer == {"sha256": name, "size": 3_000_000}
    assert seen == sorted(seen) and seen[-1] == 3_000_000
    assert client.exists(at("files", name))
    assert client.put_file(at("files", name), path) == answer, "sent again, it is there already"
    target = io.BytesIO()
    assert client.get_file(at("files", name), target) == name
    assert target.getvalue() == path.read_bytes()


def test_a_supervisor_fetches_the_files_of_its_workers_only(
    client: Client, store: InMemoryStore, leader: NimbusDaemon, supervisor: PlayedSupervisor, tmp_path: Path
) -> None:
    files = {}
    for version in ("first", "second"):
        path = tmp_path / version
        files[version] = pack({"my_words.py": version.encode()}, path)
        client.put_file(at("files", files[version]), path)
    client.post("topologies", submission(files={"code": files["first"]}))
    assert {place.supervisor for place in supervisor.assignment().placements} == {"s1"}
    supervisor.say()
    stranger = PlayedSupervisor(store, leader, "s2")
    stranger.registry.save_drained("s2")

    def fetched(sender: PlayedSupervisor, name: str) -> bool:
        with closing(sender.client()) as daemon:
            try:
                return daemon.get_file(at("files", name), io.BytesIO()) == name
            except Refused as error:
                assert (error.status, error.kind) == (401, "Unauthorized")
                return False

    assert fetched(supervisor, files["first"])
    assert not fetched(stranger, files["first"]), "it has no worker of the topology"
    assert not fetched(supervisor, files["second"]), "no topology has the file yet"
    client.post("topologies", submission(files={"code": files["second"]}, replace=True))
    assert fetched(supervisor, files["second"]), "its host prepares the next version"
    assert not fetched(stranger, files["second"])


def test_a_supervisor_sends_no_files(client: Client, supervisor: PlayedSupervisor, tmp_path: Path) -> None:
    path, name = a_file(tmp_path, 1000)
    client.put_file(at("files", name), path)
    with closing(supervisor.client()) as daemon, pytest.raises(Refused) as refused:
        daemon.put_file(at("files", name), path)
    assert refused.value.status == 401


def test_a_file_that_differs_from_its_hash_is_not_kept(
    client: Client, leader: NimbusDaemon, tmp_path: Path
) -> None:
    path, name = a_file(tmp_path)
    other = sha256(b"something else").hexdigest()
    with pytest.raises(Refused, match=name) as refused:
        client.put_file(at("files", other), path)
    assert (refused.value.status, refused.value.kind) == (400, "BadRequest")
    assert not client.exists(at("files", other))
    assert list(leader.files.directory.iterdir()) == [], "and nothing is left of it"


def test_a_file_over_the_limit_is_refused_with_the_limit(cluster: Cluster, tmp_path: Path) -> None:
    leader = cluster.start_leader(conf={"nimbus.package.limit.bytes": 1_000_000})
    path, name = a_file(tmp_path)
    with closing(client_of(leader)) as client, pytest.raises(Refused, match="1,000,000") as refused:
        client.put_file(at("files", name), path)
    assert (refused.value.status, refused.value.kind) == (413, "TooLarge")
    assert list(leader.files.directory.iterdir()) == []


def test_a_deleted_directory_is_made_again(client: Client, leader: NimbusDaemon, tmp_path: Path) -> None:
    path, name = a_file(tmp_path, 1000)
    client.put_file(at("files", name), path)
    shutil.rmtree(leader.files.directory)
    assert (client.exists(at("files", name)), leader.files.names()) == (False, set())
    client.put_file(at("files", name), path)
    assert client.get_file(at("files", name), io.BytesIO()) == name


def test_a_body_without_a_length_is_limited_too(tmp_path: Path) -> None:
    files = FileStore(tmp_path / "files", limit=10, unpacked_limit=10)
    incoming = files.receive("0" * 64)
    incoming.write(b"12345")
    with pytest.raises(Exception, match="larger than the 10 bytes"):
        incoming.write(b"678901")
    incoming.close()
    assert list(files.directory.iterdir()) == []


def test_partial_files_of_an_earlier_process_are_removed(tmp_path: Path) -> None:
    files = FileStore(tmp_path / "files", 100, 100)
    (files.directory / "incoming-0123").write_bytes(b"half")
    FileStore(tmp_path / "files", 100, 100)
    assert list(files.directory.iterdir()) == []


def test_an_unused_file_is_removed_after_a_while(tmp_path: Path) -> None:
    now = [1_000_000.0]
    files = FileStore(tmp_path / "files", 100, 100, lambda: now[0])
    names = []
    for data in (b"used", b"unused"):
        names.append(sha256(data).hexdigest())
        incoming = files.receive(names[-1])
        incoming.write(data)
        incoming.finish()
        os.utime(files.directory / names[-1], (now[0], now[0]))
    used, unused = names
    assert files.collect({used}, 60) == []
    now[0] += 61
    assert files.collect({used}, 60) == [unused]
    assert files.names() == {used}


def test_a_standby_fetches_missing_files_and_can_then_lead(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path
) -> None:
    leader = cluster.start_leader("first")
    standby = cluster.start_standby("second", store.session())
    code = tmp_path / "code.tar.gz"
    name = pack({"my_words.py": b"x = 1"}, code)
    with closing(client_of(leader)) as client:
        client.put_file(at("files", name), code)
        client.post("topologies", submission(files={"code": name}))
    until(lambda: standby.files.has(name), "the file at the standby")
    leader.stop()
    until(lambda: standby.leading, "the lead")
    with closing(client_of(standby)) as client:
        assert client.get_file(at("files", name), io.BytesIO()) == name


def test_a_nimbus_does_not_lead_before_it_has_all_files_of_topologies(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path
) -> None:
    leader = cluster.start_leader("first", store.session())
    code = tmp_path / "code.tar.gz"
    name = pack({"my_words.py": b"x = 1"}, code)
    with closing(client_of(leader)) as client:
        client.put_file(at("files", name), code)
        client.post("topologies", submission(files={"code": name}))
    leader.stop()
    late = cluster.start("second", store.session())
    again = cluster.start_leader("first", store.session())
    assert not late.leading
    until(lambda: late.files.has(name), "the file")
    again.stop()
    until(lambda: late.leading, "the lead of the one that has it now")


def test_a_supervisor_that_asks_a_standby_without_the_file_is_redirected_to_the_leader(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path
) -> None:
    leader = cluster.start_leader("first")
    standby = cluster.start_standby("second", store.session())
    path, name = a_file(tmp_path, 1000)
    with closing(client_of(leader)) as client:
        client.put_file(at("files", name), path)  # of no topology: the standby does not fetch it
    with closing(client_of(standby)) as client:
        assert client.get_file(at("files", name), io.BytesIO()) == name
        assert not standby.files.has(name)


def test_a_file_that_no_nimbus_has_any_more_keeps_one_from_leading_only_for_a_while(
    cluster: Cluster,
    store: InMemoryStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(housekeeping, "PATIENCE_SECS", 0.0)
    leader = cluster.start_leader("first", store.session())
    code = tmp_path / "code.tar.gz"
    name = pack({"my_words.py": b"x = 1"}, code)
    with closing(client_of(leader)) as client:
        client.put_file(at("files", name), code)
        client.post("topologies", submission(files={"code": name}))
    leader.stop()
    (leader.files.directory / name).unlink()
    again = cluster.start_leader("first", store.session())
    assert f"the file {name} of topology 'words' is lost" in caplog.text
    with closing(client_of(again)) as client:
        (note,) = client.get("topologies/words")["notes"]
        assert note.startswith(f"its code is lost: no Nimbus that answers has the file {name}.")
        client.put_file(at("files", name), code)
        until(lambda: client.get("topologies/words")["notes"] == [], "that it is whole again")
        client.delete("topologies/words", wait_secs=0)
        until(lambda: client.get("topologies") == {"topologies": []}, "its end: it could be killed")
