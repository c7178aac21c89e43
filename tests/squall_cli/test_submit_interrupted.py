"""`squall submit` that is interrupted reports whether the cluster has received anything, and leaves no file."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.squall.http_servers import Frozen, frozen
from tests.squall_cli.run_process import CAP, environment
from tests.squall_cli.taking_nimbus import TakingNimbus, taking_nimbus

__all__ = ["frozen"]

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
TOPOLOGY = """
import sys, time
from topology_api import Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    def next_tuple(self):
        self.finish()

def topology(wait=None):
    if wait:
        print("the file is loaded", flush=True)
        time.sleep(600)
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    return builder.build()
"""


@contextmanager
def submitting(folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "temporary").mkdir()
    (folder / "words.py").write_text(TOPOLOGY)
    process = subprocess.Popen(
        [sys.executable, "-m", "squall_cli", "submit", "words.py", *arguments],
        cwd=folder,
        env=environment(SQUALL_NIMBUS=url, HOME=str(folder), TMPDIR=str(folder / "temporary")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], folder: Path) -> str:
    """Its last line, if it has ended properly: with status 1, and without its files."""
    _, errors = process.communicate(timeout=CAP)
    assert process.returncode == 1, errors
    assert list((folder / "temporary").iterdir()) == []
    return errors.splitlines()[-1]


def test_ctrl_c_while_the_file_is_loaded_reports_that_nothing_was_submitted(tmp_path: Path) -> None:
    with submitting(tmp_path, "http://127.0.0.1:1", "--", "wait") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "the file is loaded\n"
        process.send_signal(signal.SIGINT)
        assert said(process, tmp_path) == "squall submit: interrupted: nothing was submitted"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_it_is_sent_leaves_no_file(
    number: signal.Signals, tmp_path: Path, frozen: Frozen
) -> None:
    with submitting(tmp_path, frozen.url) as process:
        frozen.listener.settimeout(CAP)
        with frozen.listener.accept()[0]:  # it has packed, and asks Nimbus
            assert list((tmp_path / "temporary").iterdir())
            process.send_signal(number)
            assert said(process, tmp_path) == "squall submit: interrupted: nothing was submitted"


def test_a_signal_while_nimbus_has_not_answered_reports_the_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, let_go = threading.Event(), threading.Event()
    real = TakingNimbus.take

    def hold(nimbus: TakingNimbus, body: Any) -> dict[str, Any]:
        taken.set()
        let_go.wait(CAP)
        return real(nimbus, body)

    monkeypatch.setattr(TakingNimbus, "take", hold)
    (tmp_path / "files").mkdir()
    with taking_nimbus(tmp_path / "files") as nimbus, submitting(tmp_path, nimbus.url) as process:
        try:
            assert taken.wait(CAP)
            process.send_signal(signal.SIGTERM)
            assert said(process, tmp_path) == (
                "squall submit: it is not known whether topology 'words' was submitted: the command was interrupted before"
                " Nimbus answered; once a Nimbus answers again, run `squall status words` to find out"
            )
        finally:
            let_go.set()
