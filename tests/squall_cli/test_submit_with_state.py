"""`submit --state`: what a topology begins with is said when nothing refuses it any more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.squall_cli.fake_nimbus import Refusal
from tests.squall_cli.run_process import environment
from tests.squall_cli.taking_nimbus import TakingNimbus, acked, scheduled, taking_nimbus, up

TOPOLOGY = """
from topology_api import Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    def next_tuple(self):
        self.finish()

def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    return builder.build()
"""


@pytest.fixture
def nimbus(tmp_path: Path) -> Iterator[TakingNimbus]:
    (tmp_path / "files").mkdir()
    (tmp_path / "my_words.py").write_text(TOPOLOGY)
    with taking_nimbus(tmp_path / "files") as running:
        yield running


def submit(nimbus: TakingNimbus, *arguments: str) -> subprocess.CompletedProcess[str]:
    home = str(nimbus.folder.parent)
    return subprocess.run(
        [sys.executable, "-m", "squall_cli", "submit", "my_words.py", "--state", "@99", *arguments],
        cwd=home,
        env=environment(SQUALL_NIMBUS=nimbus.url, HOME=home, XDG_STATE_HOME=home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_refusal_of_nimbus_comes_alone(nimbus: TakingNimbus) -> None:
    nimbus.faults.append(Refusal(422, "InvalidConfig", "--state needs a topology that keeps its state"))
    done = submit(nimbus)
    assert done.returncode == 1 and "--state needs a topology that keeps its state" in done.stderr
    assert "begins with" not in done.stderr


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_an_epoch_that_the_workers_do_not_find_is_not_begun_with(
    nimbus: TakingNimbus, wait: list[str]
) -> None:
    nimbus.story.append(lambda status: status.update(state="FAILED", error="w1: epoch 99 is not kept"))
    done = submit(nimbus, *wait)
    assert done.returncode == 1 and "epoch 99 is not kept" in done.stderr
    assert "begins with" not in done.stderr


@pytest.mark.parametrize("how", [[], ["--wait"], ["--inactive"]])
def test_what_a_topology_begins_with_is_said_once_it_is_known(nimbus: TakingNimbus, how: list[str]) -> None:
    nimbus.story.append(lambda status: status.update(epoch={"number": 99, "began": 99, "quiet": False}))
    nimbus.story.extend([scheduled, up, acked])
    done = submit(nimbus, *how)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("begins with epoch 99: what came after it in the input is processed again") == 1
