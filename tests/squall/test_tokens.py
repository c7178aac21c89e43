"""The operators' token: where it is written, where commands find it, and which ones are refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from squall.security.private_files import BadPrivateFile
from squall.security.tokens import (
    bearer,
    is_token,
    kept_token,
    make_token,
    read_bearer,
    read_token,
    user_place,
    write_token,
)

URL = "http://127.0.0.1:6627"


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), **more}


def put(path: Path, text: str, mode: int = 0o600) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_token_is_long_a_single_word_and_different_each_time() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 43 and token.isascii() and " " not in token for token in tokens)


def test_commands_of_the_same_user_find_the_token_of_nimbus_under_any_name_of_this_host(
    tmp_path: Path,
) -> None:
    env = environ(tmp_path)
    file = write_token("t0ken", tmp_path / "state", [URL], env, {})
    assert (file, read_token(file)) == (tmp_path / "state" / "token", "t0ken")
    same = [
        URL,
        "http://localhost:6627/",
        "https://LOCALHOST:6627",
        "http://[::1]:6627",
        "http://127.3.2.1:6627/api/v1",
    ]
    assert [kept_token(url, env) for url in same] == ["t0ken"] * len(same)
    assert kept_token("http://127.0.0.1:6628", env) is None
    assert kept_token("http://other:6627", env) is None
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_every_url_of_a_nimbus_has_a_place_and_ports_have_their_defaults(tmp_path: Path) -> None:
    env = environ(tmp_path, XDG_STATE_HOME=str(tmp_path / "xdg"))
    write_token("t0ken", tmp_path / "state", ["https://nimbus-1.example:443", "http://0.0.0.0:6627"], env, {})
    assert kept_token("https://Nimbus-1.example", env) == "t0ken"
    assert kept_token("http://nimbus-1.example", env) is None  # port 80
    assert kept_token(URL, env) == "t0ken"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_token_that_others_may_read_is_refused_and_not_shown(tmp_path: Path, mode: int) -> None:
    with pytest.raises(BadPrivateFile) as refused:
        read_token(Path(put(tmp_path / "open", "s3cret", mode)))
    assert f"chmod 600 {tmp_path / 'open'}" in str(refused.value) and "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", ["two words", "two\nlines", "naïve"])
def test_a_text_that_no_header_could_carry_is_no_token(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadPrivateFile) as refused:
        read_token(Path(put(tmp_path / "token", text)))
    assert text not in str(refused.value)


def test_nimbus_writes_into_the_named_file_and_restricts_one_that_was_too_open(tmp_path: Path) -> None:
    named = Path(put(tmp_path / "named", "old", 0o644))
    file = write_token("new", tmp_path / "state", [URL], environ(tmp_path), {"squall.token.file": str(named)})
    assert (file, read_token(named), (tmp_path / "state").exists()) == (named, "new", False)


def test_an_existing_token_is_not_written_again(tmp_path: Path) -> None:
    file = write_token("t0ken", tmp_path / "state", [], {}, {})
    before = file.stat().st_ino
    write_token("t0ken", tmp_path / "state", [], {}, {})
    assert file.stat().st_ino == before


def test_a_user_without_a_home_has_no_place_for_a_token_without_an_error(tmp_path: Path) -> None:
    for env in ({}, {"HOME": ""}, {"HOME": "relative", "XDG_STATE_HOME": "relative"}):
        assert user_place(URL, env) is None
        assert kept_token(URL, env) is None
    put(tmp_path / "file", "x")
    write_token("t0ken", tmp_path / "state", [URL], {"HOME": str(tmp_path / "file")}, {})
    assert read_token(tmp_path / "state" / "token") == "t0ken"


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://", "http://host:port", "http://[::1:6627", "ftp://host", "//h"]
)
def test_an_invalid_url_has_no_place_for_a_token(tmp_path: Path, url: str) -> None:
    assert user_place(url, environ(tmp_path)) is None


def test_no_url_leads_out_of_the_folder(tmp_path: Path) -> None:
    for url in ("http://..:6627", "http://../../etc:1", "http://a%2f..%2fb:1", "http://[fe80::1%25e]:1"):
        place = user_place(url, environ(tmp_path))
        assert place is None or place.parent == tmp_path / "home/.local/state/squall/tokens"


def test_tokens_are_compared_completely() -> None:
    assert is_token("abc", "abc")
    assert not any(is_token(given, "abc") for given in ("", "ab", "abcd", "ABC", "é", "\udcff"))


def test_a_header_is_read_as_written() -> None:
    assert read_bearer(bearer("t0ken")) == "t0ken"
    assert read_bearer("bearer  t0ken ") == "t0ken"
    assert [read_bearer(header) for header in ("", "Bearer", "Bearer ", "Basic t0ken", "t0ken")] == [None] * 5
