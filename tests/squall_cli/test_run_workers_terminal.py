"""`squall run --workers 2` as a person sees it: one table for both workers, with the events of both, soon."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_cli.terminal.live_table import HIDE_CURSOR, SHOW_CURSOR
from tests.repository.promised_bounds import allowed
from tests.squall_cli.run_process import topology
from tests.squall_cli.terminal import on_terminal

REMOTE = Path(__file__).resolve().parent / "remote_topologies.py"


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every run has this folder for its files, and leaves none."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_the_sums_of_all_workers_and_their_output_appears_above_it() -> None:
    with on_terminal(120, 24, topology("rests"), "--workers", "2") as terminal:
        terminal.wait_for("source empty")
        while not re.search(r"^work +bolt +2 +0 +100 +100 ", terminal.plain, re.MULTILINE):
            assert terminal.read(), terminal.plain
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        lines = terminal.plain.splitlines()
        for task in (2, 3):  # the spout and one of these share a worker, the other one has its own
            for text in ("printed by a bolt", "it has begun", "the bolt is cleaned up"):
                assert any(re.search(rf"\d\d:\d\d:\d\d work\[{task}\]: {text}$", line) for line in lines)
        inside = [line for picture in terminal.pictures for line in picture]
        assert not any("printed by a bolt" in line or "cleaned up" in line for line in inside)
        assert max(map(len, inside)) <= 120
        assert max(map(len, terminal.pictures)) < 24
        assert "100 trees acked, 0 failed" in terminal.plain
        assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)


@pytest.mark.slow
def test_an_error_of_a_worker_without_the_spout_is_shown_soon_and_the_run_goes_on() -> None:
    with on_terminal(120, 40, f"{REMOTE}:far", "--workers", "2") as terminal:
        terminal.wait_for("the spout is in process ")
        while (found := re.search(r"ValueError: refused at ([\d.]+) in (\d+)\.", terminal.plain)) is None:
            assert terminal.read(), terminal.plain
        late = time.time() - float(found[1])
        spout = re.search(r"the spout is in process (\d+)\.", terminal.plain)
        assert spout is not None
        assert spout[1] != found[2], "the bolt should be in another process"
        shown = len(terminal.pictures)
        while len(terminal.pictures) < shown + 2:
            assert terminal.read(), terminal.plain
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 1, "a tree failed for good"
        assert "execute() raised ValueError" in terminal.plain
        assert late <= allowed("error shown")
