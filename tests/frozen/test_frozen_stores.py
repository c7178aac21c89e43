"""A store of today, whole and in its single values, is read by the current code as it was; its secrets open, its names hold."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.frozen import current_code
from tests.frozen.current_code import READ_STORE, store_of
from tests.frozen.frozen_checks import check_mutations
from tests.frozen.frozen_data import DATA, as_bytes, load
from tests.frozen.plain_values import lacking, plain

STORE: dict[str, Any] = load("store")
VALUES: dict[str, bytes] = {path: as_bytes(text) for path, text in STORE["values"].items()}
SINGLE: dict[str, Any] = load("store_values")
SEALS: dict[str, Any] = load("seals")
MUTATED: dict[str, Any] = load("mutated_values")

ID: Final = "words-3-1700000000"
MARK: Final = "1b4e28ba-2fa1-11d2-883f-0016d3cca427/66306:1234567"
SECRETS: Final = {name: bytes([number] * 32) for number, name in enumerate(("n1", "s1", "s2"), 1)}
CHUNKS: Final = {0: b"one and ", 1: b"two"}
GONE_WITH_SESSIONS: Final = ("/leadership/leader", "/presence/s1")


@pytest.mark.parametrize("what", READ_STORE)
def test_what_stands_in_a_store_of_then_is_what_it_was(what: str) -> None:
    assert lacking(plain(READ_STORE[what](store_of(VALUES))), STORE["read"][what]) == []


def test_all_that_was_read_of_a_store_still_is() -> None:
    assert STORE["read"].keys() == READ_STORE.keys()


def test_a_file_of_squall_dev_holds_what_it_held_but_for_what_goes_with_sessions(tmp_path: Path) -> None:
    shutil.copy(DATA / "store.db", tmp_path / "store.db")
    kept = {path: data for path, data in VALUES.items() if path not in GONE_WITH_SESSIONS}
    assert current_code.sqlite_values(tmp_path / "store.db") == kept


@pytest.mark.parametrize("held", SINGLE["counters"])
def test_a_counter_goes_on_from_what_it_held(held: str) -> None:
    values = {path: data for path, data in VALUES.items() if path.startswith("/assignments/")}
    assert current_code.read_number("assignments", as_bytes(held), values) == SINGLE["counters"][held]


@pytest.mark.parametrize("stood", SINGLE["presence"])
def test_a_process_knows_the_sign_of_the_one_before_it(stood: str) -> None:
    assert current_code.stands_already(stood.encode(), MARK) == SINGLE["presence"][stood]


def test_names_stand_in_paths_as_they_did() -> None:
    for name, quoted in SINGLE["quoted"].items():
        assert (current_code.quoted(name), current_code.unquoted(quoted)) == (quoted, name)
    for each, told in SINGLE["ids"].items():
        assert [current_code.name_of_topology(each), current_code.number_of_topology(each)] == told


def test_daemons_know_each_other_by_what_they_did() -> None:
    for name, secret in SECRETS.items():
        assert current_code.public_key(secret) == SINGLE["public"][name]
    for pair, token in SINGLE["tokens"].items():
        one, other, context = pair.split()
        found = current_code.token_between(SECRETS[one], SINGLE["public"][other], context)
        assert found == token
    for name, header in SINGLE["header"].items():
        assert current_code.daemon_header(name, "abc") == header
    for header, told in SINGLE["headers"].items():
        assert plain(current_code.read_daemon_header(header)) == told


@pytest.mark.parametrize("name", SEALS)
def test_what_was_sealed_opens_as_it_did(name: str) -> None:
    encoded, told = SEALS[name]
    data = base64.b64decode(encoded)
    if isinstance(told, dict):
        assert current_code.sealed_to(data) == SINGLE["public"]["n1"]
        assert current_code.open_sealed(SECRETS["n1"], data, ID) == told
        return
    with pytest.raises(Exception) as refused:
        current_code.open_sealed(SECRETS["n1"], data, ID)
    assert type(refused.value).__name__ == told


def test_the_keys_and_the_token_of_a_store_of_then_open() -> None:
    for recipient in ("n1", "s1"):
        texts = current_code.open_sealed(SECRETS[recipient], VALUES[f"/keys/{ID}/{recipient}"], ID)
        assert texts == {"public": "p" * 40, "secret": "s" * 40}
    token = current_code.open_sealed(SECRETS["n1"], VALUES["/keys/operator/n1"], "operator")
    assert token == {"token": "the token"}


def test_a_clusters_id_that_is_not_as_it_should_be_is_read_or_refused_as_it_was() -> None:
    check_mutations("cluster", current_code.read_cluster, MUTATED["cluster"])


def test_a_blobs_manifest_that_is_not_as_it_should_be_is_read_or_refused_as_it_was() -> None:
    check_mutations("manifest", lambda data: current_code.read_blob(data, CHUNKS), MUTATED["manifest"])
