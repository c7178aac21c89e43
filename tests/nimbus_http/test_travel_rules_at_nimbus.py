"""Nimbus refuses what the command would not have sent: its clients need not use the command."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from squall.http.client import Client, Refused
from squall.packages import archives
from squall_cli.packing.packing import check_names, read_requirements
from squall_cli.packing.user_modules import CannotShip
from tests.nimbus_http.nimbuses import submission


def sent(client: Client, path: Path, kind: str) -> dict[str, str]:
    """The `files` of a submission with this file."""
    digest = sha256(path.read_bytes()).hexdigest()
    client.put_file(f"files/{digest}", path)
    return {kind: digest}


def refused(client: Client, files: Mapping[str, str]) -> Refused:
    with pytest.raises(Refused) as raised:
        client.post("topologies", submission(files=dict(files)))
    assert client.get("topologies") == {"topologies": []}
    return raised.value


@pytest.mark.parametrize("place", ["worker.py", "supervisor/__init__.py", "zmq.py", "queue.py"])
def test_an_archive_that_would_hide_modules_of_workers_is_refused_as_by_the_command(
    shared_client: Client, tmp_path: Path, place: str
) -> None:
    module = tmp_path / "module.py"
    module.write_text("")
    with pytest.raises(CannotShip) as told:
        check_names({place: module})
    archives.pack({"words.py": b"", place: b""}, tmp_path / "code.tar.gz")
    error = refused(shared_client, sent(shared_client, tmp_path / "code.tar.gz", "code"))
    assert (error.status, error.kind) == (422, "BadArchive")
    assert place in error.message
    assert str(told.value).partition(": ")[2] in error.message


def test_all_problems_are_named(shared_client: Client, tmp_path: Path) -> None:
    archives.pack({"worker.py": b"", "queue.py": b""}, tmp_path / "code.tar.gz")
    error = refused(shared_client, sent(shared_client, tmp_path / "code.tar.gz", "code"))
    assert "my_worker" in error.message and "my_queue" in error.message


@pytest.mark.parametrize("line", ["-e .", "-r other.txt", "./pkg", "x @ file:///etc"])
def test_requirements_that_point_to_files_are_refused_as_by_the_command(
    shared_client: Client, tmp_path: Path, line: str
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"six\n{line}\n")
    with pytest.raises(CannotShip) as told:
        read_requirements(path)
    error = refused(shared_client, sent(shared_client, path, "requirements"))
    assert error.status == 400
    assert str(told.value).partition(": ")[2] in error.message


def test_wheels_may_have_any_name_and_valid_requirements_are_accepted(client: Client, tmp_path: Path) -> None:
    archives.pack({"queue.py": b"", "a-1-py3-none-any.whl": b""}, tmp_path / "wheels.tar.gz")
    (tmp_path / "requirements.txt").write_text("six==1.16\n")
    files = {
        **sent(client, tmp_path / "wheels.tar.gz", "wheels"),
        **sent(client, tmp_path / "requirements.txt", "requirements"),
    }
    assert client.post("topologies", submission(files=files))["name"] == "words"
