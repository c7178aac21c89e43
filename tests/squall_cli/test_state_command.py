"""`squall state` shows what a topology has committed: exactly, also of odd keys, and without the topology's classes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from local_cluster import LocalCluster
from squall_cli.main import squall
from tests.chained_snapshots import chained_snapshots
from tests.local_cluster.words_with_state import Finite, OneWord, Words, Writes, words
from tests.squall_cli.state_topologies import GONE, ODD_KEYS, TTL, conf_at, gone_module, written

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a topology that has counted odd keys, and has a parked tuple."""
    return written(tmp_path_factory.mktemp("state"), [*ODD_KEYS, "parked"])


def state(*arguments: object) -> Result:
    return CliRunner().invoke(squall, ["state", *map(str, arguments)], prog_name="squall")


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def values(found: list[dict[str, Any]], key: object) -> dict[str, Any]:
    return {row["state"]: row["value"] for row in found if row["key"] == key}


def test_list_shows_epochs_and_what_each_component_has(folder: Path) -> None:
    result = state("list", folder)
    assert (result.exit_code, result.stderr) == (0, "")
    text = re.sub(r"[\d.]+ (bytes|kB)", "SIZE", re.sub(MOMENT, "MOMENT", result.stdout))
    lines = [re.sub(" {2,}", "  ", line.strip()) for line in text.splitlines()]
    epoch = lines[1].split()[0]
    assert (lines[0], lines[1]) == ("EPOCH  COMMITTED  THEN", f"{epoch}  MOMENT")
    at = lines.index(f"epoch {epoch} of things:")
    assert lines[at + 1 :] == [
        "COMPONENT  KIND  TASKS  GROUPS  KEYS  TIMERS  PARKED  SIZE  POSITION",
        "count  bolt  2  1,024  7  7  0  SIZE",
        "parks  bolt  1  0  0  8  SIZE",
        'rates  spout  1  SIZE  {"row": 1}',
        'readings  spout  1  SIZE  {"row": 36}',
    ]


def test_list_as_json_and_of_an_earlier_epoch(folder: Path) -> None:
    shown = json.loads(state("list", f"file://{folder}", "--json").stdout)
    assert (shown["folder"], shown["damaged"]) == (str(folder), [])
    numbers = [each["epoch"] for each in shown["epochs"]]
    assert numbers == sorted(numbers, reverse=True) and shown["epoch"] == numbers[0]
    assert 0 < shown["epochs"][0]["committed"] < 1e11
    earlier = json.loads(state("list", folder, "--epoch", numbers[-1], "--json").stdout)
    assert earlier["epoch"] == numbers[-1]
    assert {each["component"] for each in earlier["components"]} == {"count", "parks", "rates", "readings"}
    result = state("list", folder, "--epoch", 999)
    assert (result.exit_code, "epoch 999 is not kept; these are: " in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("typed", "times"),
    [
        ("word", 1),
        ('"word"', 1),
        ("7", 2),
        ('"7"', 3),
        ('["a", 1]', 4),
        (json.dumps({"repr": repr(b"\x00")}), 5),
        ("null", 6),
        ("2.5", 7),
    ],
)
def test_get_finds_a_key_of_any_type(folder: Path, typed: str, times: int) -> None:
    result = state("get", folder, "count", typed, "--json")
    assert result.exit_code == 0, result.stderr
    found = {row["state"]: row["value"] for row in json.loads(result.stdout)["rows"]}
    assert found["times"] == found["fresh"] == times
    assert found["numbers"] == [times - 1] * times


def test_get_prints_a_table(folder: Path) -> None:
    result = state("get", folder, "count", "word")
    lines = [re.sub(" {2,}", "  ", line) for line in re.sub(MOMENT, "MOMENT", result.stdout).splitlines()]
    assert re.fullmatch('"word" in count, epoch [0-9]+ of things:', lines[0])
    assert lines[1] == "STATE  KIND  TASK  VALUE  WRITTEN  EXPIRES"
    [task] = {line.split("  ")[2] for line in lines[2:]}
    assert sorted(lines[2:]) == sorted(
        [
            f"times  ValueState  {task}  1",
            f"fresh  ValueState  {task}  1  MOMENT  MOMENT",
            f"numbers  ListState  {task}  [0]  MOMENT  MOMENT",
            f'by_number  MapState  {task}  {{"items": [[0, "n"]]}}',
            f'by_name  MapState  {task}  {{"x": 0.5}}  MOMENT  MOMENT',
            f'raw  ValueState  {task}  {{"repr": "b\'\\\\xff\'"}}',
            f'item  ValueState  {task}  {{"repr": "{{1, 2}}"}}',
            f"quiet  timer  {task}  due MOMENT",
        ]
    )


def test_without_times_there_are_no_columns_for_them(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(7), OneWord(), Writes(str(tmp_path / "written"))), conf_at(tmp_path))
        cluster.advance(5)
    result = state("get", tmp_path, "count", "w0")
    assert [re.sub(" {2,}", "  ", line) for line in result.stdout.splitlines()[1:2]] == [
        "STATE  KIND  TASK  VALUE"
    ]


def test_a_key_without_state_names_some_that_have_it(folder: Path) -> None:
    result = state("get", folder, "count", "wrod")
    assert (result.exit_code, result.stdout) == (1, "")
    assert 'count has no state for the key "wrod" in epoch' in result.stderr
    assert "some keys that have: " in result.stderr
    result = state("get", folder, "parks", "word")
    assert (result.exit_code, "no key has any" in result.stderr) == (1, True)


def test_a_number_that_is_a_text_among_the_keys_is_named_first(tmp_path: Path) -> None:
    there = written(tmp_path, ["a", "b", "c", "d", "e", "f", "7"])
    result = state("get", there, "count", "7")
    assert (result.exit_code, 'some keys that have: "7", ' in result.stderr) == (1, True)


def test_a_snapshot_of_several_files_is_shown_as_a_whole_one(folder: Path, tmp_path: Path) -> None:
    def shown(place: Path, *arguments: object) -> list[dict[str, Any]]:
        found = rows(state("export", place, *arguments))
        for row in found:  # each run has its own clock
            for name in ("written", "expires", *(["value"] if row["kind"] == "timer" else [])):
                row[name] = None
        return sorted(found, key=json.dumps)

    with chained_snapshots(50):
        there = written(tmp_path, [*ODD_KEYS, "parked"], {"topology.epoch.secs": 0.03})
    listed = json.loads(state("list", there, "--json").stdout)
    newest = listed["epoch"]
    first = min(each["epoch"] for each in listed["epochs"])
    files = list((there / "snapshots").glob("*-count.0"))
    assert len(files) > 5
    assert shown(there) == shown(folder)
    assert len(shown(there, "--epoch", first)) < len(shown(there, "--epoch", newest))
    assert listed["components"][0]["bytes"] > sum(path.stat().st_size for path in files)
    gone = sorted(files)[len(files) // 2]
    gone.unlink()
    result = state("list", there)
    assert (result.exit_code, f"{gone} of task count/0 is missing" in result.stderr) == (1, True)


def test_export_has_every_state_once(folder: Path, tmp_path: Path) -> None:
    found = rows(state("export", folder))
    assert {row["component"] for row in found} == {"count"}
    assert {row["kind"] for row in found} == {
        "ValueState",
        "ListState",
        "MapState",
        "BroadcastState",
        "timer",
    }
    assert list(found[0]) == ["component", "task", "state", "kind", "key", "value", "written", "expires"]
    assert values(found, ["a", 1])["times"] == 4
    assert values(found, ["a", 1])["by_number"] == {"items": [[3, "n"]]}
    assert len(found) == len(ODD_KEYS) * 8 + 2
    assert [row["value"] for row in found if row["kind"] == "BroadcastState"] == [1.5, 1.5]
    for row in found:
        if row["state"] == "fresh":
            assert row["expires"] == row["written"] + TTL
        elif row["state"] == "numbers":
            assert len(row["value"]) == len(row["written"])
            assert row["expires"] == [time + TTL for time in row["written"]]
        elif row["state"] == "times":
            assert (row["written"], row["expires"]) == (None, None)
    due = {row["value"] for row in found if row["kind"] == "timer"}
    assert all(isinstance(time, float) for time in due)
    output = tmp_path / "out.jsonl"
    result = state("export", folder, "-o", output, "--component", "count")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{len(found)} rows of epoch " in result.stderr
    assert [json.loads(line) for line in output.read_text().splitlines()] == found
    assert state("export", folder, "-o", output).exit_code == 1
    assert rows(state("export", folder, "--component", "rates")) == []


def test_a_class_that_is_gone_costs_only_its_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        module = gone_module()
        patch.setitem(sys.modules, GONE, module)
        there = written(tmp_path, ["word", module.Item(3), ("pair", module.Item(4))])
    found = rows(state("export", there))
    why = {"repr": f"<cannot be read: {GONE}.Item: No module named '{GONE}'>"}
    assert values(found, "word") == {**values(found, "word"), "times": 1, "item": why}
    assert values(found, why)["times"] == 2
    assert values(found, ["pair", why])["times"] == 3
    listed = json.loads(state("list", there, "--json").stdout)
    assert [each["keys"] for each in listed["components"] if each["component"] == "count"] == [3]


def test_the_commands_work_while_the_topology_runs(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        conf = conf_at(tmp_path, **{"topology.epoch.keep": 2})
        cluster.submit(words(Words(500, 100), OneWord(), Writes(str(tmp_path / "written"))), conf)
        seen = []
        for _ in range(4):
            cluster.advance(1)
            shown = json.loads(state("list", tmp_path / "words", "--json").stdout)
            assert len(shown["epochs"]) <= 3
            [row] = [
                row
                for row in json.loads(state("get", tmp_path / "words", "count", "w0", "--json").stdout)[
                    "rows"
                ]
                if row["state"] == "times"
            ]
            seen.append(row["value"])
        assert seen == sorted(set(seen)) and seen[0] > 0


def test_the_end_of_a_topology_is_shown(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            words(Finite(50), OneWord(), Writes(str(tmp_path / "written")), 1), conf_at(tmp_path / "state")
        )
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
    result = state("list", tmp_path / "state")
    assert re.search(rf"^ *\d+  {MOMENT}  the topology was completed$", result.stdout, re.MULTILINE)
    [row] = [each for each in rows(state("export", tmp_path / "state")) if each["state"] == "times"]
    assert (row["key"], row["value"]) == ("w0", 50)
