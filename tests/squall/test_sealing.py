"""Key pairs of daemons: only the recipient opens a sealed text, and only two daemons can make the token that they share."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.security.private_files import BadPrivateFile
from squall.security.sealing import (
    NIMBUS_TO_SUPERVISOR,
    SUPERVISOR_TO_NIMBUS,
    BadKey,
    BadSeal,
    KeyPair,
    daemon_header,
    read_daemon_header,
    seal,
    seal_texts,
    sealed_to,
)

ALICE, BOB, EVE = KeyPair.make(), KeyPair.make(), KeyPair.make()
NO_KEYS = ["", "x", "zz" * 32, "00" * 31, "00" * 33, "00" * 32, "01" + "00" * 31, "é" * 32]


@given(st.binary(max_size=2000))
def test_a_sealed_text_opens_for_its_owner_only(data: bytes) -> None:
    sealed = seal(ALICE.public, data)
    assert ALICE.open(sealed) == data
    assert sealed_to(sealed) == ALICE.public
    assert len(data) < 8 or data not in sealed[46:]  # behind the format and the key
    with pytest.raises(BadSeal):
        BOB.open(sealed)


def test_equal_texts_are_sealed_differently_each_time() -> None:
    assert seal(ALICE.public, b"the same") != seal(ALICE.public, b"the same")


@given(st.data())
def test_a_seal_that_was_changed_anywhere_does_not_open(data: st.DataObject) -> None:
    sealed = seal(ALICE.public, b"word")
    place = data.draw(st.integers(0, len(sealed) - 1))
    flip = data.draw(st.integers(1, 255))
    with pytest.raises(BadSeal):
        ALICE.open(sealed[:place] + bytes([sealed[place] ^ flip]) + sealed[place + 1 :])


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_seal_and_nothing_else(data: bytes) -> None:
    for garbage in (data, seal(ALICE.public, b"x")[: len(data)]):
        with pytest.raises(BadSeal):
            ALICE.open(garbage)
        with pytest.raises(BadSeal):
            ALICE.open_texts(garbage, "topology")


def test_a_copy_sealed_for_one_topology_does_not_replace_that_of_another() -> None:
    sealed = seal_texts(ALICE.public, "words-1", {"public": "p", "secret": "s3cret"})
    assert ALICE.open_texts(sealed, "words-1") == {"public": "p", "secret": "s3cret"}
    with pytest.raises(BadSeal) as refused:
        ALICE.open_texts(sealed, "words-2")
    assert "words-1" in str(refused.value) and "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "text", [b"{}", b"[]", b"s3cret", b'{"purpose": "t", "texts": {"a": 1}}', b"[" * 100_000]
)
def test_sealed_bytes_that_are_no_text_are_refused_and_not_shown(text: bytes) -> None:
    with pytest.raises(BadSeal) as refused:
        ALICE.open_texts(seal(ALICE.public, text), "t")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", NO_KEYS)
def test_an_invalid_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadKey):
        ALICE.token_with(text, "any")
    assert ALICE.is_token_of(text, "any", "") is False
    with pytest.raises(BadKey):
        seal(text, b"x")


def test_two_daemons_make_the_same_token_and_a_third_cannot() -> None:
    token = ALICE.token_with(BOB.public, SUPERVISOR_TO_NIMBUS)
    assert BOB.token_with(ALICE.public, SUPERVISOR_TO_NIMBUS) == token
    assert BOB.is_token_of(ALICE.public, SUPERVISOR_TO_NIMBUS, token)
    assert token not in {
        EVE.token_with(BOB.public, SUPERVISOR_TO_NIMBUS),
        EVE.token_with(ALICE.public, SUPERVISOR_TO_NIMBUS),
    }
    assert not BOB.is_token_of(EVE.public, SUPERVISOR_TO_NIMBUS, token)


def test_a_token_is_valid_in_one_direction_only() -> None:
    token = ALICE.token_with(BOB.public, SUPERVISOR_TO_NIMBUS)
    assert not BOB.is_token_of(ALICE.public, NIMBUS_TO_SUPERVISOR, token)
    for other in ("", token[:-1], token + "0", token.upper(), "é", "\udcff"):
        assert not BOB.is_token_of(ALICE.public, SUPERVISOR_TO_NIMBUS, other)


@given(st.text(min_size=1), st.text("0123456789abcdef", min_size=1))
def test_a_daemons_header_is_read_as_written(name: str, token: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    header = daemon_header(name, token)
    assert header.isascii() and header.isprintable()
    assert read_daemon_header(header) == (name, token)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer abc",
        "Squall-Daemon",
        "Squall-Daemon ",
        "Squall-Daemon a",
        "Squall-Daemon :b",
        "Squall-Daemon a:",
    ],
)
def test_other_headers_are_no_daemon_headers(header: str) -> None:
    assert read_daemon_header(header) is None


def test_a_pair_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "key"
    first = KeyPair.load_or_make(path)
    assert KeyPair.load_or_make(path).open(seal(first.public, b"x")) == b"x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(BadPrivateFile, match=f"chmod 600 {path}"):
        KeyPair.load_or_make(path)


@pytest.mark.parametrize("text", ["s3cret", "00" * 31, "00" * 33])
def test_a_file_without_a_key_is_named_and_left_unchanged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadKey) as refused:
        KeyPair.load_or_make(path)
    assert str(path) in str(refused.value) and text not in str(refused.value)
    assert path.read_text() == text


def test_the_secret_half_is_never_shown(tmp_path: Path) -> None:
    pair = KeyPair.load_or_make(tmp_path / "key")
    secret = (tmp_path / "key").read_text().strip()
    assert secret not in repr(pair) and secret not in str(vars(pair))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(pair)
