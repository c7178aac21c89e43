"""State directories: a daemon uses only those that no other user can enter or has prepared."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from squall.cluster.sqlite import SqliteStore
from squall.cluster.store import StoreError
from squall.security.private_files import BadPrivateFolder, own_folder
from squall_cli.commands.daemon_options import keep_private
from squall_cli.main import squall

DAEMONS = {
    "nimbus": ("--zookeeper", "127.0.0.1:1", "--insecure-zookeeper", "--listen", "127.0.0.1:0"),
    "supervisor": ("--zookeeper", "127.0.0.1:1", "--insecure-zookeeper"),
    "dev": ("--listen", "127.0.0.1:0"),
    "zookeeper": ("--listen", "127.0.0.1:0"),
}
#: What each daemon keeps in its state directory.
KEPT = {
    "nimbus": (
        "lock", "id", "key", "cluster", "token", "files", "counters", "changes.jsonl", "changes.jsonl.1", "refused.jsonl",
    ),
    "supervisor": ("lock", "id", "key", "cluster", "workers", "gone", "bundles", "logs"),
    "zookeeper": ("lock", "server.log", "data", "credentials"),
    "dev": ("store.sqlite", "store.sqlite.lock", "store.sqlite-wal", "nimbus", "supervisor", "nimbus/lock", "nimbus/files"),
}  # fmt: skip


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(daemon: str, state: Path, home: Path) -> Result:
    environ = {"XDG_STATE_HOME": str(home), "HOME": str(home), "JAVA_HOME": ""}
    return CliRunner().invoke(
        squall, [daemon, "--state", str(state), *DAEMONS[daemon]], prog_name="squall", env=environ
    )


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A daemon's command sets up the log of its process."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


@pytest.fixture
def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that looks like Java, and jars that look like ZooKeeper's: nothing here starts them."""
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "java").touch(mode=0o755)
    (tmp_path / "programs" / "zookeeper-3.9.jar").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SQUALL_ZOOKEEPER_JARS", str(tmp_path / "programs"))


def test_a_missing_folder_is_made_for_its_owner_only_and_used_again(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        own_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    own_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755, 0o750, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_refused_with_the_chmod_that_helps(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(BadPrivateFolder, match=rf"mode {mode:04o}\).*`chmod 700 {folder}`"):
        own_folder(folder)
    folder.chmod(0o700)
    own_folder(folder)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(BadPrivateFolder, match=rf"belongs to another user \(uid {own}, not {own + 1}\)"):
        own_folder(tmp_path)


def test_an_own_link_to_a_folder_is_followed_and_what_it_leads_to_is_checked(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    own_folder(tmp_path / "state")
    own_folder(tmp_path / "state" / "below")
    (tmp_path / "disk").chmod(0o755)
    with pytest.raises(BadPrivateFolder, match="0755"):
        own_folder(tmp_path / "state")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_link_that_another_user_has_planted_is_not_followed(tmp_path: Path, below: str) -> None:
    (tmp_path / "victim").mkdir(mode=0o700)
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "victim")
    os.lchown(link, 12_345, 12_345)
    with pytest.raises(BadPrivateFolder, match=rf"{link} is a symbolic link of another user \(uid 12345\)"):
        own_folder(link / below)
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.usefixtures("_java")
@pytest.mark.parametrize("daemon", DAEMONS)
def test_no_daemon_uses_a_folder_that_others_can_enter(daemon: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    result = run(daemon, folder, tmp_path / "home")
    assert result.exit_code == 1, result.output
    assert "the state directory cannot be used (--state): other users have access to" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("_java")
@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    ("daemon", "name"), [(daemon, name) for daemon, kept in KEPT.items() for name in kept]
)
def test_a_link_in_place_of_a_file_or_a_folder_is_not_written_through(
    daemon: str, name: str, is_folder: bool, tmp_path: Path
) -> None:
    precious, link = tmp_path / "precious", tmp_path / "state" / name
    precious.mkdir()
    (precious / "file").write_text("precious")
    for folder in (tmp_path / "state", link.parent):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    link.symlink_to(precious if is_folder else precious / "new")
    result = run(daemon, tmp_path / "state", tmp_path / "home")
    assert result.exit_code == 1, result.output
    assert f"{link} is a symbolic link, which is not followed: remove it" in result.stderr
    assert [path.name for path in precious.iterdir()] == ["file"]
    assert (precious / "file").read_text() == "precious"


@pytest.mark.parametrize("name", ["store", "store.lock"])
def test_a_store_in_a_file_is_not_opened_through_a_link(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(tmp_path / "new")
    with pytest.raises(StoreError, match=f"{name} is a symbolic link, which is not followed"):
        SqliteStore(tmp_path / "store")
    assert not (tmp_path / "new").exists()


def test_a_daemon_makes_files_for_its_user_only_and_leaves_the_umask_as_it_was() -> None:
    @click.command()
    def daemon() -> None:
        assert keep_private() == 0o027
        assert os.umask(0o077) == 0o077

    before = os.umask(0o027)
    try:
        assert CliRunner().invoke(daemon).exit_code == 0
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.parametrize("command", DAEMONS)
def test_no_example_of_a_daemon_is_in_a_folder_that_all_users_share(command: str) -> None:
    shown = CliRunner().invoke(squall, [command, "--help"]).output
    assert "/tmp" not in shown and "Examples:" in shown
