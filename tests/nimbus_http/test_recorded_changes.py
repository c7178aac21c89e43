"""Nimbus records who changed what, and which credentials it refused: in bounded files that only its user may read."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.security import changes
from nimbus.security.changes import CHANGES, REFUSED, BoundedLines, ChangeFiles
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client, Refused
from squall.security.tokens import bearer, make_token
from tests.nimbus_http.nimbuses import Cluster, client_of, closing, submission, words


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state directory of the leader."""
    return tmp_path / "nimbus"


def test_each_change_is_one_line_with_who_what_and_its_outcome(
    leader: NimbusDaemon, client: Client, folder: Path
) -> None:
    submitted = client.post("topologies", submission())
    client.post("topologies/words/deactivate")
    client.post("topologies/words/rebalance", {"workers": 2, "wait_secs": 0})
    client.delete("topologies/words", wait_secs=7)
    with pytest.raises(Refused):
        client.post("topologies/nothing/activate")
    client.get("topologies")
    client.post("checks", submission(words("other")))
    found = lines(folder, CHANGES)
    assert {(line.pop("who"), line.pop("address")) for line in found} == {("operator", "127.0.0.1")}
    assert all(line.pop("time").endswith("+00:00") for line in found)
    assert found == [
        {"what": "submit", "status": 201, "name": "words", "id": submitted["id"], "state": "ACTIVE"},
        {"what": "deactivate", "status": 202, "name": "words", "state": "INACTIVE"},
        {
            "what": "rebalance",
            "status": 202,
            "name": "words",
            "workers": 2,
            "wait_secs": 0,
            "state": "INACTIVE",
        },
        {"what": "kill", "status": 202, "name": "words", "wait_secs": 7, "state": "KILLED"},
        {"what": "activate", "status": 404, "name": "nothing", "error": "NoSuchTopology"},
    ]
    assert stat.S_IMODE((folder / CHANGES).stat().st_mode) == 0o600
    assert leader.token and leader.token not in (folder / CHANGES).read_text()


def test_a_false_token_is_recorded_and_logged(
    leader: NimbusDaemon, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    false = make_token()
    with closing(Client([leader.url], lambda url: bearer(false))) as stranger, pytest.raises(Refused):
        stranger.delete("topologies/words")
    with closing(Client([leader.url], lambda url: None)) as nobody, pytest.raises(Refused):
        nobody.get("topologies")
    found = lines(folder, REFUSED)
    assert [(line["request"], line["address"]) for line in found] == [
        ("DELETE /api/v1/topologies/words", "127.0.0.1"),
        ("GET /api/v1/topologies", "127.0.0.1"),
    ]
    assert found[0]["why"] == "this is not the operators' token"
    assert "this needs the operators' token" in found[1]["why"]
    assert lines(folder, CHANGES) == []
    assert stat.S_IMODE((folder / REFUSED).stat().st_mode) == 0o600
    assert false not in (folder / REFUSED).read_text()
    [warning] = [each for each in caplog.records if "was refused" in each.message]
    assert f"see {folder / REFUSED}" in warning.message


def test_a_request_that_is_redirected_is_recorded_where_it_is_carried_out(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path
) -> None:
    leader = cluster.start_leader("leading", store.session())
    standby = cluster.start_standby("standing-by", store.session())
    with closing(client_of(standby)) as client:
        client.post("topologies", submission())
    assert leader.leading
    assert lines(tmp_path / "standing-by", CHANGES) == []
    assert [line["what"] for line in lines(tmp_path / "leading", CHANGES)] == ["submit"]


# The files


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_of_refusals_is_counted_and_pushes_no_change_out(tmp_path: Path) -> None:
    clock = Clock()
    files = ChangeFiles(tmp_path, clock)
    files.changed("kill", "10.0.0.1", 202, {"name": "words"})
    for _ in range(1_000):
        files.refused("a false token", "10.0.0.2", "GET /")
    clock.now += 1
    files.refused("a false token", "10.0.0.2", "GET /")
    found = lines(tmp_path, REFUSED)
    assert len(found) == changes.REFUSED_A_SECOND + 1
    assert found[-1]["not_written_before"] == 1_000 - changes.REFUSED_A_SECOND
    assert [line["what"] for line in lines(tmp_path, CHANGES)] == ["kill"]


def test_files_are_renamed_when_they_are_full_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    file = BoundedLines(tmp_path / "f", most=100, older=2)
    for number in range(95):
        file.append(f"line {number:05}")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["f", "f.1", "f.2"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * (100 + 11)
    kept = [line for name in ("f.2", "f.1", "f") for line in (tmp_path / name).read_text().splitlines()]
    assert kept == [f"line {number:05}" for number in range(95 - len(kept), 95)], "none is lost between"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_no_value_makes_a_line_of_its_own_or_a_long_one(tmp_path: Path) -> None:
    files = ChangeFiles(tmp_path, Clock())
    files.changed("kill", "10.0.0.1", 404, {"name": 'a"}\n{"what": "forged"}\x1b[2J'})
    files.changed("rebalance", "10.0.0.1", 202, {"parallelism": {str(n): n for n in range(100_000)}})
    files.refused("x" * 100_000, "10.0.0.2", "GET /" + "y" * 100_000)
    text = (tmp_path / CHANGES).read_text() + (tmp_path / REFUSED).read_text()
    assert [line["what"] for line in lines(tmp_path, CHANGES)] == ["kill", "rebalance"]
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(map(len, text.splitlines())) < 5 * changes.LONGEST


def test_a_disk_that_accepts_no_line_is_reported_in_the_log_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = ChangeFiles(tmp_path, Clock())
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(os, "write", full)
        files.changed("kill", "10.0.0.1", 202, {"name": "words"})
        files.changed("kill", "10.0.0.1", 202, {"name": "others"})
    said = [record.message for record in caplog.records]
    assert [name in each for name, each in zip(("words", "others"), said, strict=True)] == [True, True]
    assert all("No space left" in each for each in said), "each change is somewhere"
    files.changed("kill", "10.0.0.1", 202, {"name": "third"})
    assert [line["name"] for line in lines(tmp_path, CHANGES)] == ["third"]


def test_half_a_line_on_a_full_disk_is_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    files = ChangeFiles(tmp_path, Clock())
    files.changed("kill", "10.0.0.1", 202, {"name": "words"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        files.changed("kill", "10.0.0.1", 202, {"name": "others"})
    files.changed("kill", "10.0.0.1", 202, {"name": "third"})
    assert [line["name"] for line in lines(tmp_path, CHANGES)] == ["words", "third"]
    assert '"name": "others"' in caplog.text


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / CHANGES).symlink_to(precious)
    ChangeFiles(tmp_path, Clock()).changed("kill", "10.0.0.1", 202, {})
    assert precious.read_text() == "mine"
