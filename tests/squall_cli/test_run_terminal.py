"""`squall run` as a person sees it: a table that fits the window, and a terminal that is restored afterwards."""

from __future__ import annotations

import os
import re
import signal

import pytest

from squall_cli.terminal.live_table import HIDE_CURSOR, SHOW_CURSOR
from tests.squall_cli.run_process import topology
from tests.squall_cli.terminal import on_terminal


@pytest.mark.parametrize(
    ("columns", "head"),
    [
        (140, "COMPONENT  KIND   TASKS      EMITTED     EXECUTED        ACKED     FAILED  PENDING     RATE/s"),
        (120, "COMPONENT  KIND   TASKS  EMITTED  EXECUTED   ACKED  FAILED  PENDING  RATE/s     p50     p99  WHY IDLE"),
        (80, "COMPONENT TASKS EMITTED EXECUTED  ACKED FAILED PENDING RATE/s    p50    p99"),
        (60, "COMPONENT EMITTED EXECUTED FAILED PENDING RATE/s"),
        (35, "COMPONENT FAILED PENDING RATE/s"),
    ],
)  # fmt: skip
def test_the_table_fits_the_window_and_shows_why_the_spout_is_idle(columns: int, head: str) -> None:
    with on_terminal(columns, 24, topology("rests")) as terminal:
        terminal.wait_for("source empty")
        terminal.wait_for("Ctrl-C")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        first = terminal.pictures[0]
        assert first[0].startswith("numbers  active  ")
        assert first[1].startswith(head)
        assert first[2].startswith("source ")
        # The first picture may be drawn before the source has been empty for long enough.
        assert any("source empty" in "".join(picture) for picture in terminal.pictures)
        for picture in terminal.pictures:
            assert max(len(line) for line in picture) <= columns
            assert len(picture) < 24


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (120, 12)])
def test_a_large_topology_shows_as_many_components_as_fit(columns: int, rows: int) -> None:
    with on_terminal(columns, rows, topology("wide"), "--", "60") as terminal:
        terminal.wait_for("more components")
        terminal.wait_for("Ctrl-C")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        for picture in terminal.pictures:
            assert len(picture) < rows
            assert max(len(line) for line in picture) <= columns
        summary = terminal.plain[terminal.plain.rindex("COMPONENT") :]
        assert all(f"\nbolt-{number} " in summary for number in range(60))


def test_a_spout_at_its_limit_is_marked() -> None:
    with on_terminal(120, 24, topology("limited"), "-o", "topology.message.timeout.secs=0.1") as terminal:
        terminal.wait_for("pending limit")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 1


def test_output_and_logs_of_components_appear_above_the_table() -> None:
    with on_terminal(80, 24, topology("rests")) as terminal:
        terminal.wait_for("Ctrl-C")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        lines = terminal.plain.splitlines()
        assert any(line.endswith("printed by a bolt") for line in lines)
        assert any(line.endswith(" INFO work#0: it has begun") for line in lines)
        assert any(line.endswith("the bolt is cleaned up") for line in lines)
        inside = [line for picture in terminal.pictures for line in picture]
        assert not any("printed by a bolt" in line or "cleaned up" in line for line in inside)


def test_errors_appear_below_the_table_with_their_number() -> None:
    with on_terminal(80, 24, topology("refuses"), "-o", "topology.acking=false", "--", "30") as terminal:
        assert terminal.end() == 0
        assert terminal.plain.count("execute() raised ValueError") == 1
        assert "3 errors in work, run_topologies.py:" in terminal.plain


def test_the_first_signal_reports_the_drain_and_the_terminal_is_restored() -> None:
    with on_terminal(80, 24, topology("keeps"), "--", "2") as terminal:
        terminal.wait_for("Ctrl-C drains and ends; a second Ctrl-C ends at once")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("Ctrl-C: draining, 5 trees pending, for at most 2 s (Ctrl-C ends at once)")
        assert terminal.end() == 1
        assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
        assert "numbers interrupted after" in terminal.plain


def test_the_second_signal_restores_the_terminal_too() -> None:
    with on_terminal(80, 24, topology("hangs"), "--", "1000") as terminal:
        terminal.wait_for("Ctrl-C drains and ends; a second Ctrl-C ends at once")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("draining: 1 tree pending, at most ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 1
        assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
        assert "numbers cut off after" in terminal.plain


def test_a_topology_that_is_done_in_a_moment_is_reported_by_its_summary() -> None:
    with on_terminal(80, 24, topology("finite"), "--", "1") as terminal:
        assert terminal.end() == 0
        assert "1 tree acked, 0 failed" in terminal.plain


def test_a_dumb_terminal_gets_plain_lines() -> None:
    with on_terminal(80, 24, topology("finite"), TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.text
        assert "numbers: 2 components, 3 tasks, 1 worker; Ctrl-C drains" in terminal.plain


def test_no_color_is_respected() -> None:
    with on_terminal(80, 24, topology("refuses"), NO_COLOR="1") as terminal:
        assert terminal.end() == 1
        assert "\x1b[1m" in terminal.text
        assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", terminal.text)


def test_breakpoint_in_a_component_gives_the_terminal_to_the_debugger() -> None:
    with on_terminal(80, 24, topology("stops")) as terminal:
        terminal.wait_for("(Pdb) ")
        os.write(terminal.master, b"p 6 * 7\nc\n")
        terminal.wait_for("42")
        assert terminal.end() == 0
        assert "run_topologies.py(" in terminal.plain
        assert "1 tree acked, 0 failed" in terminal.plain
