"""A fake Nimbus whose answers the tests choose, the command line that asks it, in this process, and a place for a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_cli.options import site
from squall_io.spark.stores import open_files
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall, fake_nimbus, topology


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as there:
        there.put(topology("word_count"))
        yield there


@pytest.fixture
def run(nimbus: FakeNimbus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Squall:
    """Runs a command line against the fake, in an empty folder, without a home directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "SQUALL_CONFIG", "SQUALL_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(site, "HOST_FILE", tmp_path / "no-file-of-this-host.yaml")
    monkeypatch.setenv("SQUALL_NIMBUS", nimbus.url)

    def command(line: str, *more: str) -> Result:
        return CliRunner().invoke(squall, [*line.split(), *more], prog_name="squall")

    return command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStore]:
    """The store of a table `counts`, which is not there yet, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    with open_files(str(tmp_path / "counts")) as opened:
        yield opened
