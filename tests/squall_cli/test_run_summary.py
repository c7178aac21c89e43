"""The result of a run: exit status, reason and summary, from a final status."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from squall.dead_letters.letter import DeadLetter
from squall.epoch_status import EpochStatus
from squall.reports.error_reports import ErrorReport
from squall.status import ComponentStatus, TopologyStatus
from squall_cli.local.local_run import Ended, user_place
from squall_cli.local.summary import as_json, exit_status, summary_lines
from squall_cli.terminal.component_table import rows_of
from squall_cli.terminal.error_feed import ErrorFeed, troubles
from squall_cli.terminal.lines import plain
from squall_cli.terminal.views import component_text
from tests.letter_samples import kept_letter
from tests.squall_cli.run_process import CAP, environment
from topology_api import Failure

SPOUT = ComponentStatus(
    "spout", 1, emitted=10, executed=0, acked=10, failed=0, replayed=0, pending=0, errors=0
)
BOLT = ComponentStatus("bolt", 2, emitted=0, executed=10, acked=10, failed=0, replayed=0, pending=0, errors=0)
FAILED = replace(
    SPOUT,
    acked=7,
    failed=3,
    failures={"failed": 2, "stopped": 1},
    first_failure="message id 4: failed in b[2]",
)
REPORT = ErrorReport(
    "t", "b", 2, "execute", "ValueError: 4", "/home/me/words.py:12, in execute", (), "<Tuple>", time=1.0
)


def ended(how: str, spout: ComponentStatus = SPOUT, error: str | None = None, told: bool = False) -> Ended:
    state = {"completed": "COMPLETED", "failed": "FAILED"}.get(how, "KILLED")
    status = TopologyStatus("t", state, {"a": spout, "b": BOLT}, workers=0, error=error)
    return Ended(how, status, 2.0, told)


def test_a_run_of_what_was_completed_before_says_so_and_what_to_do() -> None:
    parts = {"a": replace(SPOUT, emitted=0, acked=0), "b": replace(BOLT, executed=0, acked=0)}
    status = TopologyStatus("t", "COMPLETED", parts, workers=0, error=None, epoch=EpochStatus(9, began=9))
    text = [plain(line) for line in summary_lines(Ended("completed", status, 1.0, folder="/state/t"), 80)]
    assert text[-1] == (
        "  there was nothing to do: its input had been read to its end by epoch 9; to read it again, type `squall state drop "
        "/state/t`"
    )


@pytest.mark.parametrize("how", ["completed", "drained", "interrupted"])
def test_an_end_without_failures_is_a_success(how: str) -> None:
    assert exit_status(ended(how), allow_failures=False) == (0, None)


def test_failed_trees_are_counted_apart_from_those_cut_off_by_the_end() -> None:
    status, reason = exit_status(ended("completed", FAILED), allow_failures=False)
    assert status == 1
    assert reason == "2 trees failed for good; the first: spout 'a', message id 4: failed in b[2]"


def test_allowed_failures_do_not_hide_remaining_trees() -> None:
    allowed = replace(FAILED, failed=2, failures={"failed": 2})
    assert exit_status(ended("completed", allowed), allow_failures=True) == (0, None)
    status, reason = exit_status(ended("interrupted", FAILED), allow_failures=True)
    assert (status, reason) == (1, "1 tree had not been acked or failed when the topology was stopped")
    open_still = replace(SPOUT, pending=4)
    status, reason = exit_status(ended("cut off", open_still), allow_failures=True)
    assert (status, reason) == (1, "4 trees had not been acked or failed when the topology was cut off")


def test_an_end_without_a_drain_is_no_success() -> None:
    assert exit_status(ended("cut off"), allow_failures=True)[0] == 1


def test_a_failed_topology_shows_its_report_in_full_unless_it_was_shown() -> None:
    report = replace(
        REPORT, frames=('File "/home/me/words.py", line 12, in execute', "  code", "caused by it")
    )
    over = ended("failed", error=report.render())
    over = structs.replace(over, status=replace(over.status, errors=(REPORT, replace(report, times=3))))
    _, reason = exit_status(over, allow_failures=True)
    assert reason == f"topology 't' failed:\n{report.render()}"
    _, reason = exit_status(structs.replace(over, reported=True), allow_failures=True)
    head = "b[2] of topology 't': execute() raised ValueError: 4"
    assert reason == f"topology 't' failed:\n{head}\n  at {report.place}"


def test_a_message_of_several_lines_is_shown_in_full_once_and_then_by_its_end() -> None:
    text = "TableMismatch: another table:\n- column a\n- column b\nWrite to another folder."
    report = replace(REPORT, call="prepare", text=text, place="", tuple_text=None)
    head = "b[2] of topology 't': prepare() raised TableMismatch: another table:"
    lines = ["    - column a", "    - column b", "    Write to another folder."]
    over = ended("failed", error=report.render())
    over = structs.replace(over, status=replace(over.status, errors=(report,)))
    _, reason = exit_status(over, allow_failures=True)
    assert reason == "\n".join(["topology 't' failed:", head, *lines])
    _, reason = exit_status(structs.replace(over, reported=True), allow_failures=True)
    assert reason == "\n".join(["topology 't' failed:", head, "    ... (in full above)", lines[-1]])


def test_a_long_error_keeps_its_advice_in_the_summary() -> None:
    long = replace(REPORT, text=f"NotInstalled: {'no Java ' * 300}: install Java 17")
    status = TopologyStatus("t", "FAILED", {"b": replace(BOLT, errors=1)}, workers=0, errors=(long,))
    for width in (100, 1000):
        last = plain(summary_lines(Ended("failed", status, 2.0), width)[-1])
        assert last.startswith("  1 error in b, words.py:12: NotInstalled: no Java")
        assert last.endswith(": install Java 17") and len(last) <= min(width, 320)


def test_trees_cut_off_by_a_stop_are_left_in_every_table_and_line() -> None:
    cut = replace(SPOUT, acked=0, failed=20, failures={"stopped": 20})
    (row,) = rows_of({"a": cut}, {})
    assert (row.component.failed, row.component.pending) == (0, 20)
    assert "0 trees acked, 0 failed, 20 left" in "\n".join(
        plain(line) for line in summary_lines(ended("interrupted", cut), 100)
    )
    assert component_text("a", cut, None) == "a 10 emitted, 0 acked, 20 pending"
    bolt = replace(BOLT, failed=3)
    assert rows_of({"b": bolt}, {})[0].component == bolt


def test_the_summary_has_trees_tuples_and_time() -> None:
    text = "\n".join(plain(line) for line in summary_lines(ended("interrupted", FAILED), 100))
    assert "t interrupted after 2.00 s" in text
    assert "  7 trees acked, 2 failed, 1 left" in text
    assert "  10 tuples executed, 5.0/s" in text


def test_the_summary_of_untracked_tuples_mentions_no_trees() -> None:
    untracked = replace(SPOUT, acked=0)
    assert "tree" not in "\n".join(plain(line) for line in summary_lines(ended("completed", untracked), 100))


def test_the_summary_has_the_number_of_dead_letters_and_the_first_reasons() -> None:
    errors = ["poison", "too late", "poison", "no key", "no\nroom", "odd"]
    letters = [
        kept_letter(number, failure=Failure("failed", "b", number, text, 3)).letter
        for number, text in enumerate(errors)
    ]
    found = structs.replace(ended("completed", FAILED), letters=letters)
    lines = [plain(line) for line in summary_lines(found, 100)]
    assert lines[-5:] == [
        "  6 dead letters, kept until the end of this run:",
        "    2 failed in b: poison",
        "    1 failed in b: too late",
        "    1 failed in b: no key",
        "    2 for other reasons",
    ]
    assert as_json(found, 0, None)["dead_letters"] == 6
    assert "dead letter" not in "\n".join(plain(line) for line in summary_lines(ended("completed"), 100))


def given_up(*errors: str) -> list[DeadLetter]:
    """Letters of the bolt: its topology has epochs, so their trees are acked."""
    failure = Failure("failed", "b", 1, "", 3)
    return [
        kept_letter(number, component="b", source="a", failure=replace(failure, error=text)).letter
        for number, text in enumerate(errors)
    ]


def test_tuples_that_bolts_gave_up_fail_a_run_whose_trees_are_acked() -> None:
    found = structs.replace(ended("completed"), letters=given_up("poison", "too late"))
    reason = "2 tuples failed for good in bolts; the first: failed in b: poison"
    assert exit_status(found, allow_failures=False) == (1, reason)
    assert exit_status(found, allow_failures=True) == (0, None)
    text = "\n".join(plain(line) for line in summary_lines(found, 100))
    assert "  10 trees acked, 0 failed; 2 tuples failed for good in bolts" in text
    summary = as_json(found, 1, reason)
    assert summary["trees"] == {"acked": 10, "failed": 0, "left": 0, "replayed": 0}
    assert (summary["failed_in_bolts"], summary["first_failure"]) == (2, "failed in b: poison")


def test_letters_of_spouts_count_as_their_trees_only() -> None:
    of_spout = [kept_letter(1, component="a").letter]
    found = structs.replace(ended("completed", FAILED), letters=[*of_spout, *given_up("poison")])
    _, reason = exit_status(found, allow_failures=False)
    assert reason == (
        "2 trees failed for good; the first: spout 'a', message id 4: failed in b[2]; 1 tuple failed for good in bolts; the "
        "first: failed in b: poison"
    )
    assert as_json(found, 1, reason)["failed_in_bolts"] == 1


def test_a_letter_that_an_earlier_run_has_left_fails_no_run_that_had_nothing_to_do() -> None:
    parts = {"a": replace(SPOUT, emitted=0, acked=0), "b": replace(BOLT, executed=0, acked=0)}
    status = TopologyStatus("t", "COMPLETED", parts, workers=0, error=None, epoch=EpochStatus(9, began=9))
    found = Ended("completed", status, 1.0, letters=given_up("poison"), folder="/state/t")
    assert exit_status(found, allow_failures=False) == (0, None)


def test_json_is_valid_whatever_a_gauge_returns() -> None:
    odd = replace(
        SPOUT, metrics={"nan": float("nan"), "object": object(), "list": [1, float("inf")], "ok": 2.5}
    )
    summary = json.loads(json.dumps(as_json(ended("completed", odd), 0, None)), parse_constant=pytest.fail)
    metrics = summary["components"]["a"]["metrics"]
    assert (metrics["nan"], metrics["list"], metrics["ok"]) == (None, [1, None], 2.5)
    assert metrics["object"].startswith("<object")
    assert summary["components"]["b"]["rate"] == 5.0


# Errors


def status_with(*reports: ErrorReport) -> TopologyStatus:
    return TopologyStatus("t", "ACTIVE", {"b": replace(BOLT, errors=57)}, workers=1, errors=reports)


def test_a_place_is_shown_once_whatever_its_messages_are() -> None:
    feed = ErrorFeed()
    assert feed.fresh(status_with(REPORT)) == [REPORT]
    again = replace(REPORT, text="ValueError: 5", task=3, time=2.0)
    assert feed.fresh(status_with(REPORT, again)) == []
    other = replace(REPORT, text="KeyError: 5", time=3.0)
    elsewhere = replace(REPORT, place="/home/me/words.py:13, in execute", time=4.0)
    assert feed.fresh(status_with(REPORT, again, other, elsewhere)) == [other, elsewhere]


def test_errors_are_counted_with_the_newest_one() -> None:
    (found,) = troubles(status_with(REPORT, replace(REPORT, text="ValueError: 9", time=2.0)))
    assert (found.count, found.line) == (57, "b, words.py:12: ValueError: 9")


def test_the_place_of_a_stack_outside_user_code_is_unknown() -> None:
    assert user_place(None) == ""


TWO_HANG = """
import threading
from types import SimpleNamespace
from squall_cli.local.local_run import begin_shutdown, hung_call

both = threading.Barrier(3)

def first():
    both.wait()
    threading.Event().wait()

def second():
    both.wait()
    threading.Event().wait()

begin_shutdown(SimpleNamespace(shutdown=first))
begin_shutdown(SimpleNamespace(shutdown=second))
both.wait()
print(hung_call())
"""


def test_of_several_calls_that_hang_the_one_in_the_oldest_thread_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "two_hang.py"
    file.write_text(TWO_HANG)
    shown = subprocess.check_output([sys.executable, file], env=environment(), text=True, timeout=CAP)
    assert f"it is at {file}:" in shown
    assert shown.endswith(", in first\n")


def test_a_component_that_could_not_be_opened_and_did_nothing_is_no_success() -> None:
    unopened = replace(REPORT, component="words", call="open")
    idle = replace(SPOUT, emitted=0, acked=0, failed=0, pending=0)
    stopped = ended("drained", idle)
    stopped = structs.replace(
        stopped, status=replace(stopped.status, errors=(unopened,), components={"words": idle})
    )
    assert exit_status(stopped, False) == (1, "words never started; its last error is above")
    started = replace(stopped.status, components={"words": replace(idle, emitted=3)})
    assert exit_status(structs.replace(stopped, status=started), False) == (0, None)
