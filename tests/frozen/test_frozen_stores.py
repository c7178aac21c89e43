"""The current code reads an existing store as before, as a whole and in its single values; its secrets open, its names hold."""

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
def test_a_frozen_store_is_read_unchanged(what: str) -> None:
    assert lacking(plain(READ_STORE[what](store_of(VALUES))), STORE["read"][what]) == []


def test_all_frozen_parts_of_a_store_are_read() -> None:
    assert STORE["read"].keys() == READ_STORE.keys()


def test_a_file_of_squall_dev_has_its_earlier_contents_without_ephemeral_values(tmp_path: Path) -> None:
    shutil.copy(DATA / "store.db", tmp_path / "store.db")
    kept = {path: data for path, data in VALUES.items() if path not in GONE_WITH_SESSIONS}
    assert current_code.sqlite_values(tmp_path / "store.db") == kept


@pytest.mark.parametrize("held", SINGLE["counters"])
def test_a_counter_continues_from_its_frozen_value(held: str) -> None:
    values = {path: data for path, data in VALUES.items() if path.startswith("/assignments/")}
    assert current_code.read_number("assignments", as_bytes(held), values) == SINGLE["counters"][held]


@pytest.mark.parametrize("stood", SINGLE["presence"])
def test_a_process_recognises_the_presence_of_its_predecessor(stood: str) -> None:
    assert current_code.stands_already(stood.encode(), MARK) == SINGLE["presence"][stood]


def test_names_are_quoted_in_paths_as_before() -> None:
    for name, quoted in SINGLE["quoted"].items():
        assert (current_code.quoted(name), current_code.unquoted(quoted)) == (quoted, name)
    for each, told in SINGLE["ids"].items():
        assert [current_code.name_of_topology(each), current_code.number_of_topology(each)] == told


def test_daemons_identify_each_other_as_before() -> None:
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
def test_a_frozen_seal_opens_as_before(name: str) -> None:
    encoded, told = SEALS[name]
    data = base64.b64decode(encoded)
    if isinstance(told, dict):
        assert current_code.sealed_to(data) == SINGLE["public"]["n1"]
        assert current_code.open_sealed(SECRETS["n1"], data, ID) == told
        return
    with pytest.raises(Exception) as refused:
        current_code.open_sealed(SECRETS["n1"], data, ID)
    assert type(refused.value).__name__ == told


def test_the_keys_and_the_token_of_a_frozen_store_open() -> None:
    for recipient in ("n1", "s1"):
        texts = current_code.open_sealed(SECRETS[recipient], VALUES[f"/keys/{ID}/{recipient}"], ID)
        assert texts == {"public": "p" * 40, "secret": "s" * 40}
    token = current_code.open_sealed(SECRETS["n1"], VALUES["/keys/operator/n1"], "operator")
    assert token == {"token": "the token"}


def test_an_invalid_cluster_id_is_read_or_refused_as_before() -> None:
    check_mutations("cluster", current_code.read_cluster, MUTATED["cluster"])


def test_an_invalid_blob_manifest_is_read_or_refused_as_before() -> None:
    check_mutations("manifest", lambda data: current_code.read_blob(data, CHUNKS), MUTATED["manifest"])
