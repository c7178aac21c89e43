"""Nothing that is logged looks like an entry of its own, in any of the logs, and no control character reaches them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.reports.log_lines import EntryFormatter, one_entry
from squall_cli.cluster.log_tail import LINE, entries
from squall_cli.commands import daemon_options
from squall_cli.local.worker_logs import readable
from worker.process.logs import LineFormatter

FORGED = "2026-03-01 12:00:00,123 ERROR count[4] forged"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is as before at the end."""
    found = logging.getLogger()
    before = found.handlers[:], found.level
    yield found
    for handler in found.handlers[:]:
        if handler not in before[0]:
            found.removeHandler(handler)
            handler.close()
    found.setLevel(before[1])


def record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("any", logging.INFO, "", 0, text, arguments, None)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\n\n"])
def test_a_value_forges_no_entry_in_a_workers_log(ending: str) -> None:
    text = LineFormatter("w1").format(record("value %s", f"ok{ending}{FORGED}"))
    [entry] = entries("w1", "host-1", text.split("\n"))
    assert (entry.level, entry.place) == ("INFO", "w1")
    assert entry.text.startswith("value ok")
    assert entry.text.endswith(FORGED), "nothing is lost"
    first, *rest = text.split("\n")
    assert readable(first) is not None and [readable(line) for line in rest] == [None] * len(rest)


def test_a_name_forges_no_entry_in_a_daemons_log(root: logging.Logger, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    daemon_options.log_to(handler)
    root.warning("topology %s is odd", "a\n2026-03-01 12:00:00,123 INFO all is well\x1b[2J")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].endswith("WARNING topology a")
    assert lines[1].startswith("    2026-03-01 12:00:00,123 INFO all is well\\x1b[2J")


def test_a_traceback_is_one_entry_and_is_read_as_it_was() -> None:
    try:
        raise ValueError(f"odd\n{FORGED}")
    except ValueError as error:
        failed = record("it failed")
        failed.exc_info = type(error), error, error.__traceback__
    text = LineFormatter("w1").format(failed)
    [entry] = entries("w1", "host-1", text.split("\n"))
    assert entry.text.split("\n")[1] == "Traceback (most recent call last):"
    assert entry.text.endswith(f"ValueError: odd\n{FORGED}")
    assert not any(LINE.fullmatch(line) for line in entry.lines[1:]), "nor on the operator's terminal"


@given(st.text())
def test_every_text_is_one_entry(text: str) -> None:
    first, *rest = (
        EntryFormatter("2026-03-01 12:00:00,123 INFO w1 %(message)s").format(record("%s", text)).split("\n")
    )
    assert LINE.fullmatch(first)
    assert not any(LINE.fullmatch(line) for line in rest)
    assert one_entry(text).splitlines() == one_entry(text).split("\n")[: len(one_entry(text).splitlines())]
