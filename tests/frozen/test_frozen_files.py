"""The current code reads files of workers and of state directories as before: a current supervisor finds the workers of an
earlier one, a Nimbus its counters, and both keep their identity.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frozen import current_code
from tests.frozen.current_code import READ_FILE, READ_PART, WRITE_FILE
from tests.frozen.frozen_checks import check_mutations, check_read, check_written
from tests.frozen.frozen_data import as_bytes, load
from tests.frozen.plain_values import lacking, plain
from tests.frozen.state_folders import identities, states

FILES: dict[str, dict[str, Any]] = load("files")
PARTS: dict[str, dict[str, Any]] = load("parts_of_files")
MUTATED: dict[str, dict[str, Any]] = load("mutated_files")
PLACES: dict[str, Any] = load("state_directories")


@pytest.mark.parametrize("name", FILES)
def test_a_frozen_file_is_read_unchanged(name: str) -> None:
    frozen = FILES[name]
    kind, data = frozen["kind"], as_bytes(frozen["data"])
    check_read(READ_FILE[kind], data, frozen["value"])
    check_written(WRITE_FILE[kind], READ_FILE[kind](data), as_bytes(frozen.get("again", frozen["data"])))


@pytest.mark.parametrize("name", FILES)
def test_a_file_written_over_a_longer_one_is_read_unchanged(name: str) -> None:
    check_read(
        READ_FILE[FILES[name]["kind"]], as_bytes(FILES[name]["data"]).ljust(10_000), FILES[name]["value"]
    )


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_frozen_files_are_read_unchanged(name: str) -> None:
    frozen = PARTS[name]
    check_read(READ_PART[frozen["kind"]], as_bytes(frozen["data"]), frozen["value"])


@pytest.mark.parametrize("kind", MUTATED)
def test_an_invalid_file_is_read_or_refused_as_before(kind: str) -> None:
    check_mutations(kind, {**READ_FILE, **READ_PART}[kind], MUTATED[kind])


def test_every_kind_of_file_is_frozen() -> None:
    assert {each["kind"] for each in FILES.values()} == READ_FILE.keys() == WRITE_FILE.keys()
    assert MUTATED.keys() == READ_FILE.keys() | READ_PART.keys()


@pytest.mark.parametrize("with_process", [False, True])
def test_a_supervisor_finds_the_worker_of_an_earlier_one(tmp_path: Path, with_process: bool) -> None:
    for kind in ("orders", "pulse", "keys", "lease"):
        (tmp_path / f"{kind}.json").write_bytes(as_bytes(FILES[f"{kind}: full"]["data"]))
    if with_process:
        data = as_bytes(FILES["process: full"]["data"]).replace(b"4711", b"999999999")  # no live one
        (tmp_path / "process.json").write_bytes(data)
    assert current_code.found_worker(tmp_path) == PLACES["found"][str(with_process)]


def test_the_directory_of_a_worker_is_where_it_was() -> None:
    for pair, folder in PLACES["folders"].items():
        assert str(current_code.worker_directory(Path("/state"), *json.loads(pair))) == folder


@pytest.mark.parametrize("name", PLACES["told"])
def test_a_daemon_keeps_its_identity_by_its_state_directory(tmp_path: Path, name: str) -> None:
    assert lacking(plain(identities(tmp_path, *states(PLACES)[name])), PLACES["told"][name]) == []


def test_a_nimbus_finds_the_counters_of_topologies(tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    frozen = FILES["counters of a topology: full"]
    (tmp_path / "counters" / "a%20b-1-0.json").write_bytes(as_bytes(frozen["data"]))
    (tmp_path / "counters" / "damaged-2-0.json").write_bytes(b"damaged")
    found = plain(current_code.nimbus_state(tmp_path))["counters"]
    assert lacking(found, {"a b-1-0": frozen["value"]}) == []
