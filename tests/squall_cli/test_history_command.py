"""`squall history`: the versions of a topology as a table and as JSON."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins

from squall.api.versions import HistoryAnswer, HowVersion, VersionEntry
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall


def version(number: int, how: HowVersion, **values: Any) -> VersionEntry:
    usual: dict[str, Any] = {
        "state": None, "error": None, "submitted": 1_700_000_000.0, "ended": None, "by": "operator at 10.0.0.3",
        "options": {}, "code": "ab" * 32,
    }  # fmt: skip
    return VersionEntry(f"word_count-{number}-17", how, **{**usual, **values})


def answer(nimbus: FakeNimbus, *versions: VersionEntry) -> Any:
    found = to_builtins(HistoryAnswer("word_count", list(versions)))
    nimbus.answers["topologies/word_count/history"] = found
    return found


def test_the_table_says_how_each_version_stands_or_ended(nimbus: FakeNimbus, run: Squall) -> None:
    options = {"topology.workers": 4, "count:tasks": 8}
    answer(
        nimbus,
        version(4, "waiting"),
        version(3, "on trial", state="ACTIVE", options=options),
        version(2, "rolled back", error="its tuples fail\x1b[2J", by="", code=None),
        version(1, "replaced", submitted=1e300),
    )
    result = run("history word_count")
    assert result.exit_code == 0, result.output
    head, waits, trial, back, first = result.stdout.splitlines()
    assert head.split() == ["VERSION", "SUBMITTED", "BY", "CODE", "STATE", "OPTIONS"]
    assert waits.split()[0] == "word_count-4-17" and " waiting " in waits
    assert "ACTIVE, on trial" in trial and trial.endswith("topology.workers=4 count:tasks=8")
    assert "rolled back: its tuples fail\\x1b[2J" in back and "\x1b" not in result.output
    assert first.split()[1] == "-" and "replaced" in first and " abababababab " in first


def test_a_long_reason_is_cut_in_the_table_and_whole_in_json(nimbus: FakeNimbus, run: Squall) -> None:
    reason = "it failed 3 times in a row at its start: " + "no such table, " * 20 + "make it first"
    answer(nimbus, version(2, "rolled back", error=reason), version(1, "running", state="ACTIVE"))
    _, back, _ = run("history word_count").stdout.splitlines()
    assert "rolled back: it failed 3 times" in back and "…" in back and "make it first" in back
    assert len(back) < 200
    assert json.loads(run("history word_count --json").stdout)["versions"][0]["error"] == reason


def test_json_is_the_answer_of_the_api(nimbus: FakeNimbus, run: Squall) -> None:
    found = answer(nimbus, version(1, "running", state="ACTIVE"))
    assert json.loads(run("history word_count --json").stdout) == found


def test_an_unknown_name_gets_the_nearest_one(nimbus: FakeNimbus, run: Squall) -> None:
    result = run("history word_cuont")
    assert result.exit_code == 1 and "did you mean 'word_count'?" in result.stderr
