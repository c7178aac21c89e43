"""ZooKeeper's credentials: where daemons find them, and that daemons without them do not start."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.security.private_files import BadPrivateFile, write_private
from squall.security.zookeeper_credentials import (
    find_credentials,
    make_credentials,
    read_credentials,
    read_named_credentials,
)
from squall_cli.commands import daemon_options
from squall_cli.main import squall

HERE, THERE = "127.0.0.1:2181", "zk1.invalid:2181,zk2.invalid:2181"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "home")}


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A daemon's command sets up the log of its process."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


def run(daemon: str, tmp_path: Path, *arguments: str) -> Result:
    environ = {"XDG_STATE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    return CliRunner().invoke(
        squall, [daemon, "--state", str(tmp_path / "state"), *arguments], prog_name="squall", env=environ
    )


# Files


def test_a_file_has_one_line_with_user_and_password(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert read_credentials(file) is None
    write_private(file, "squall:with:colons ")
    assert read_credentials(file) == read_named_credentials(file) == ("squall", "with:colons")


@pytest.mark.parametrize("text", ["squall", ":secret", "squall:", "a:b\nc:d"])
def test_any_other_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    write_private(tmp_path / "file", text)
    with pytest.raises(BadPrivateFile, match=r"one line USER:PASSWORD") as caught:
        read_credentials(tmp_path / "file")
    assert "secret" not in str(caught.value)


def test_a_named_file_that_is_missing_or_open_to_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadPrivateFile, match=r"squall.zookeeper.credentials.file names .* no such file"):
        read_named_credentials(tmp_path / "file")
    write_private(tmp_path / "file", "squall:secret")
    (tmp_path / "file").chmod(0o640)
    with pytest.raises(BadPrivateFile, match=r"chmod 600"):
        read_named_credentials(tmp_path / "file")


# Those of a development server


def test_a_server_keeps_its_credentials_where_daemons_of_its_user_find_them(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    assert find_credentials(HERE, environ) is None
    file, found = make_credentials(tmp_path / "zoo", HERE, (), environ)
    assert (file, found) == (tmp_path / "zoo" / "credentials", True)
    made = find_credentials("localhost:2181/chroot", environ)
    assert made is not None and made == read_credentials(file) and len(made[1]) >= 32
    assert make_credentials(tmp_path / "zoo", HERE, (), environ) == (file, True)
    assert find_credentials(HERE, environ) == made, "a later start keeps them"
    for each in (file, *(tmp_path / "home" / "squall" / "zookeepers").iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert find_credentials(f"{HERE},127.0.0.1:2182", environ) is None, "not of every server"
    assert find_credentials("127.0.0.1:2182", environ) is None
    assert find_credentials(HERE, {"XDG_STATE_HOME": str(tmp_path / "another")}) is None


def test_servers_of_different_credentials_are_not_taken_for_one_cluster(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    for number in (1, 2):
        make_credentials(tmp_path / str(number), f"127.0.0.1:{number}", (), environ)
    assert find_credentials("127.0.0.1:1,127.0.0.1:2", environ) is None
    assert find_credentials("127.0.0.1:2", environ) is not None


def test_the_servers_of_an_ensemble_agree_even_when_they_start_at_once(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    ensemble = tuple(f"127.0.0.1:{number}:{number + 10}" for number in range(8))
    threads = [
        threading.Thread(
            target=make_credentials, args=(tmp_path / str(n), f"127.0.0.1:{n + 1}", ensemble, environ)
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert find_credentials(",".join(f"127.0.0.1:{n + 1}" for n in range(8)), environ) is not None


def test_without_a_home_the_file_in_the_state_directory_is_all_there_is(tmp_path: Path) -> None:
    assert make_credentials(tmp_path, HERE, ("a:1:2",), {}) == (tmp_path / "credentials", False)
    assert find_credentials(HERE, {}) is None


# Daemons


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_a_daemon_without_credentials_does_not_start(daemon: str, tmp_path: Path) -> None:
    result = run(daemon, tmp_path, "--zookeeper", THERE)
    assert result.exit_code == 1
    assert f"squall {daemon}: there are no credentials for ZooKeeper. Without them everyone" in result.stderr
    assert "squall.zookeeper.credentials.file" in result.stderr and "--insecure-zookeeper" in result.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_a_zookeeper_on_loopback_needs_credentials_too(
    daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_options, "SERVER_SECS", 0.01)
    result = run(daemon, tmp_path, "--zookeeper", HERE)
    assert result.exit_code == 1 and "there are no credentials for ZooKeeper" in result.stderr


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_credentials_and_the_flag_that_does_without_them_contradict_each_other(
    daemon: str, tmp_path: Path
) -> None:
    (tmp_path / "squall.yaml").write_text(f"squall.zookeeper.credentials.file: {tmp_path}/file\n")
    config = ("--config", str(tmp_path / "squall.yaml"), "--zookeeper", HERE)
    result = run(daemon, tmp_path, *config, "--insecure-zookeeper")
    assert result.exit_code == 1 and "contradict each other" in result.stderr
    result = run(daemon, tmp_path, *config)
    assert result.exit_code == 1 and "there is no such file" in result.stderr


def test_a_daemon_waits_for_a_server_that_starts_at_the_same_time(
    tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **environ})
    monkeypatch.setattr(daemon_options, "SERVER_SECS", 60.0)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(daemon_options.wait_for_credentials(HERE)))
    waiting.start()
    make_credentials(tmp_path / "zoo", HERE, (), environ)
    waiting.join(60)
    assert found == [find_credentials(HERE, environ)] != [None]


def test_the_flag_warns_and_uses_no_credentials(
    tmp_path: Path,
    environ: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **environ})
    make_credentials(tmp_path / "zoo", HERE, (), environ)
    settings = {"squall.zookeeper.credentials.file": None}
    assert daemon_options.credentials_for(HERE, settings, insecure=True) is None
    assert f"--insecure-zookeeper: everyone who can reach ZooKeeper at {HERE}" in caplog.text
    assert daemon_options.credentials_for(HERE, settings, insecure=False) == find_credentials(HERE, environ)
