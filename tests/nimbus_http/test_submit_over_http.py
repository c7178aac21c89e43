"""Submissions over real HTTP: accepted once, checked again, refused with the reason."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from nimbus.daemon import NimbusDaemon
from nimbus.files.stored_files import FileTooLarge
from nimbus.submission.parse import BODY_LIMIT, PACKAGE_LIMIT
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from squall.http.client import Client, Refused, at
from squall.packages.archives import pack
from squall.packages.tar_members import BadArchive
from squall.packages.versions import minor
from squall.security.tokens import bearer
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.packing.packing import Packed
from squall_cli.packing.submission import OutgoingSubmission, check
from tests.nimbus_http.nimbuses import OWN, Cluster, PlayedSupervisor, closing, submission, until, words
from tests.nimbus_http.test_reads_over_http import raw


def refused(client: Client, body: Any) -> Refused:
    with pytest.raises(Refused) as found:
        client.post("topologies", body)
    return found.value


def upload(client: Client, path: Path, sha256: str) -> None:
    client.put_file(at("files", sha256), path)


def test_a_submission_is_accepted_and_placed(client: Client, supervisor: PlayedSupervisor) -> None:
    answer = client.post("topologies", submission())
    assert (answer["name"], answer["state"]) == ("words", "ACTIVE")
    assert supervisor.assignment().topology_id == answer["id"]


def test_a_retried_submission_makes_one_topology(
    client: Client, leader: NimbusDaemon, store: InMemoryStore
) -> None:
    body = submission()
    first = client.post("topologies", body)
    data, token = json.dumps(body).encode(), f"Bearer {leader.token}"
    status, _, again = raw(leader, "POST", "/api/v1/topologies", data, Authorization=token)
    assert (status, again) == (200, first)
    assert len(Registry(store).all_topologies()) == 1


def test_the_first_submission_is_201(leader: NimbusDaemon) -> None:
    data, token = json.dumps(submission()).encode(), f"Bearer {leader.token}"
    assert raw(leader, "POST", "/api/v1/topologies", data, Authorization=token)[0] == 201


def test_a_name_in_use_is_refused_also_while_its_topology_is_being_killed(
    client: Client, supervisor: PlayedSupervisor
) -> None:
    client.post("topologies", submission())
    error = refused(client, submission())
    assert (error.status, error.kind) == (409, "NameTaken")
    supervisor.assignment()
    client.delete("topologies/words")
    error = refused(client, submission())
    assert (error.status, error.kind) == (409, "NameTaken") and "being killed" in error.message


def test_inactive_topologies_stay_so(client: Client) -> None:
    assert client.post("topologies", submission(active=False))["state"] == "INACTIVE"


def test_replace_takes_over_the_name_of_a_running_topology(
    client: Client, supervisor: PlayedSupervisor, store: InMemoryStore
) -> None:
    first = client.post("topologies", submission())
    supervisor.assignment()
    supervisor.say()
    body = submission(replace=True, wait_secs=60)
    second = client.post("topologies", body)
    assert second["id"] != first["id"]
    assert client.post("topologies", body) == second, "repeated, it is the same"
    assert client.get("topologies/words")["state"] == "REPLACING"


@pytest.mark.parametrize("which", ["python", "cloudpickle"])
def test_a_version_other_than_that_of_nimbus_is_refused_and_both_are_named(
    shared_client: Client, which: str
) -> None:
    error = refused(shared_client, {**submission(), which: "2.7.18"})
    assert (error.status, error.kind) == (422, "VersionMismatch")
    assert "2.7" in error.message and minor(OWN[which]) in error.message and "this Nimbus" in error.message


def test_a_version_other_than_that_of_a_supervisor_is_refused_and_it_is_named(
    client: Client, supervisor: PlayedSupervisor, leader: NimbusDaemon, store: InMemoryStore
) -> None:
    old = PlayedSupervisor(store, leader, "old")
    record = next(each for each in old.registry.all_supervisors() if each.id == "old")
    old.registry.supervisors.put(structs.replace(record, versions={**OWN, "python": "3.9.1"}))
    error = refused(client, submission())
    assert error.kind == "VersionMismatch"
    assert "supervisor old on host-old has Python 3.9" in error.message and len(error.problems) == 1


def test_an_invalid_topology_is_refused_with_all_problems(shared_client: Client) -> None:
    body = submission()
    body["description"]["components"][1]["inputs"][0]["source"] = "nobody"
    body["description"]["components"][0]["parallelism"] = 0
    error = refused(shared_client, body)
    assert (error.status, error.kind) == (422, "InvalidTopology")
    assert len(error.problems) >= 2 and any("nobody" in problem for problem in error.problems)


def test_an_invalid_configuration_is_refused_with_all_problems(shared_client: Client) -> None:
    body = submission(
        conf={"topology.workers": 0, "topology.wrokers": 1},
        component_confs={"count": {"topology.max.spout.pending": "many"}, "nobody": {}},
    )
    error = refused(shared_client, body)
    assert (error.status, error.kind) == (422, "InvalidConfig")
    assert len(error.problems) == 4
    assert any("topology.wrokers" in each and "topology.workers" in each for each in error.problems)


def test_daemon_settings_of_the_submitters_site_are_ignored(client: Client, store: InMemoryStore) -> None:
    client.post("topologies", submission(conf={"topology.workers": 1, "nimbus.supervisor.timeout.secs": 5}))
    record = Registry(store).topologies.get("words")
    assert record is not None and "nimbus.supervisor.timeout.secs" not in record.conf


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"description": []}, "'description' is a list"),
        ({"submission": None}, "'submission' is missing"),
        ({"submission": "x" * 200}, "100 printable"),
        ({"pickles": {"lines": "§"}}, "pickles['lines'] is not base64"),
        ({"pickles": {"lines": 1}}, "pickles['lines'] is not text"),
        ({"active": "yes"}, "'active' is a text"),
        ({"wait_secs": -1}, "'wait_secs'"),
        ({"wait_secs": "5"}, "'wait_secs' is a text, it must be a number"),
        ({"files": {"virus": "0" * 64}}, "files names 'virus'"),
        ({"files": {"code": "../../etc/passwd"}}, "is not a SHA-256"),
        ({"colour": "red"}, "there is no field 'colour'"),
    ],
)
def test_an_unreadable_body_is_refused_by_the_field(
    shared_client: Client, changes: dict[str, Any], problem: str
) -> None:
    error = refused(shared_client, submission(**changes))
    assert (error.status, error.kind) == (400, "BadRequest")
    assert problem in error.message


def test_a_number_with_a_fraction_is_distinguished_from_a_whole_one(shared_client: Client) -> None:
    with pytest.raises(Refused, match="'workers' is a number, it must be a whole number"):
        shared_client.post("topologies/words/rebalance", {"workers": 1.5})


@pytest.mark.parametrize("data", [b"no json", b"[" * 100_000, b'{"conf": NaN}', b"\xff\xfe", b"[]"])
def test_a_body_that_is_no_json_object_is_400(shared_leader: NimbusDaemon, data: bytes) -> None:
    token = f"Bearer {shared_leader.token}"
    status, _, body = raw(shared_leader, "POST", "/api/v1/topologies", data, Authorization=token)
    assert (status, body["error"]["kind"]) == (400, "BadRequest")


def test_pickles_over_the_limit_are_refused_and_the_largest_is_named(shared_client: Client) -> None:
    error = refused(shared_client, submission(words(padding=PACKAGE_LIMIT)))
    assert (error.status, error.kind) == (413, "TooLarge")
    assert "the largest is 'count'" in error.message and f"{PACKAGE_LIMIT:,}" in error.message


def test_pickles_below_the_limit_are_accepted(client: Client, store: InMemoryStore) -> None:
    client.post("topologies", submission(words(padding=PACKAGE_LIMIT - 10_000)))
    assert Registry(store).topologies.get("words") is not None


def test_a_request_over_the_limit_is_refused_before_it_is_read(shared_leader: NimbusDaemon) -> None:
    token = f"Bearer {shared_leader.token}"
    data = b'"' + b"x" * BODY_LIMIT + b'"'
    status, _, body = raw(shared_leader, "POST", "/api/v1/topologies", data, Authorization=token)
    assert (status, body["error"]["kind"]) == (413, "TooLarge")


def test_a_configuration_that_the_store_cannot_hold_is_refused(shared_client: Client) -> None:
    error = refused(shared_client, submission(conf={"topology.workers": 1, "mine": "x" * 1_500_000}))
    assert (error.status, error.kind) == (413, "TooLarge")
    assert shared_client.get("topologies") == {"topologies": []}


def test_a_submission_is_accepted_when_its_files_are_there_and_valid(
    client: Client, tmp_path: Path, store: InMemoryStore
) -> None:
    code = tmp_path / "code.tar.gz"
    sha256 = pack({"my_words.py": b"print('never run')"}, code)
    error = refused(client, submission(files={"code": sha256}))
    assert (error.status, error.kind) == (422, "FileMissing") and sha256 in error.message
    upload(client, code, sha256)
    client.post("topologies", submission(files={"code": sha256}))
    record = Registry(store).topologies.get("words")
    assert record is not None and record.files == {"code": sha256} and record.python == minor(OWN["python"])


def hostile(member: tarfile.TarInfo, data: bytes = b"") -> bytes:
    member.size = len(data)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(hostile(tarfile.TarInfo("../evil.py")), id="dot dot"),
        pytest.param(hostile(tarfile.TarInfo("/etc/evil.py")), id="absolute"),
        pytest.param(hostile(link("evil.py", tarfile.SYMTYPE)), id="symbolic link"),
        pytest.param(hostile(link("evil.py", tarfile.LNKTYPE)), id="hard link"),
        pytest.param(hostile(link("evil", tarfile.CHRTYPE)), id="device"),
        pytest.param(hostile(tarfile.TarInfo("zeros"), bytes(70_000_000)), id="bomb"),
        pytest.param(b"no archive at all", id="no archive"),
    ],
)
def test_an_invalid_archive_is_refused(shared_client: Client, tmp_path: Path, data: bytes) -> None:
    from hashlib import sha256

    path, digest = tmp_path / "evil.tar.gz", sha256(data).hexdigest()
    path.write_bytes(data)
    upload(shared_client, path, digest)
    error = refused(shared_client, submission(files={"code": digest}))
    assert (error.status, error.kind) == (422, "BadArchive")
    assert shared_client.get("topologies") == {"topologies": []}


def test_requirements_must_be_text(shared_client: Client, tmp_path: Path) -> None:
    from hashlib import sha256

    data = b"\xff\xfe requests"
    path, digest = tmp_path / "requirements.txt", sha256(data).hexdigest()
    path.write_bytes(data)
    upload(shared_client, path, digest)
    error = refused(shared_client, submission(files={"requirements": digest}))
    assert error.status == 400 and "UTF-8" in error.message


def test_nothing_is_unpickled(client: Client, leader: NimbusDaemon, tmp_path: Path) -> None:
    written = tmp_path / "unpickled"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (written,)

    import pickle

    data = base64.b64encode(pickle.dumps(Evil())).decode()
    client.post("topologies", submission(pickles={"lines": data, "count": data}))
    until(lambda: client.get("topologies/words")["state"] == "ACTIVE")
    for path in ("components/lines", "workers", "errors", "configuration", "counters"):
        client.get(f"topologies/words/{path}")
    client.delete("topologies/words", wait_secs=0)
    until(lambda: client.get("topologies") == {"topologies": []})
    assert not written.exists()


def paths(store: InMemoryStore, below: str = "") -> set[str]:
    found = {f"{below}/{name}" for name in store.children(below or "/")}
    return found.union(*(paths(store, path) for path in found))


def test_a_check_answers_like_a_submission_and_writes_nothing(client: Client, store: InMemoryStore) -> None:
    before = paths(store)
    assert before
    body = submission(files={"code": "0" * 64})
    answer = client.post("checks", body)
    assert answer == {
        "name": "words", "id": "", "state": "ACTIVE", "kept": {}, "changed": {}, "repeats": None, "rolled_back": None,
        "state_path": None,
    }  # fmt: skip
    assert paths(store) == before
    submitted = client.post("topologies", submission())
    with pytest.raises(Refused, match="exists already"):
        client.post("checks", body)
    replaced = client.post("checks", submission(replace=True, conf={"topology.workers": 4}))
    assert replaced["changed"] == {"topology.workers": [1, 4]}
    assert [each["id"] for each in client.get("topologies")["topologies"]] == [submitted["id"]]


def test_a_check_refuses_the_files_that_an_upload_would_refuse(cluster: Cluster, tmp_path: Path) -> None:
    leader = cluster.start_leader(conf={"nimbus.package.limit.bytes": 1_000_000})
    path = tmp_path / "code.tar.gz"
    sha256 = pack({"module.py": b"x = 1"}, path)
    outgoing = OutgoingSubmission(
        "words", submission(files={"code": sha256}), (Packed("code", path, sha256),)
    )
    client = NimbusClient([leader.url], lambda url: bearer(leader.token or ""))
    with closing(client):
        assert check(client, outgoing).uploaded == path.stat().st_size
        pack({"module.py": b"x = 1", "large.bin": os.urandom(1_000_000)}, path)
        with pytest.raises(FileTooLarge, match="larger than the 1,000,000 bytes that Nimbus accepts"):
            check(client, outgoing)
        path.write_bytes(b"no archive")
        with pytest.raises(BadArchive):
            check(client, outgoing)
        assert client.topologies() == []
