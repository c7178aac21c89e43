"""`squall table --versions N` shows what `read_committed(version=...)` can read."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.delta.following import catch_up, enable
from tests.spark.batches import SinkTask


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["table", "counts", *arguments], prog_name="squall")


def test_the_last_versions_are_shown_the_newest_first(files: OpenStore) -> None:
    task = SinkTask(files, "word string")
    enable(files, lambda: 1_700_000_000.0)
    for number in (1, 2, 3):
        task.put({"a.parquet": b"rows"}, rows=number, committed=1_700_000_000.0 + number)
        catch_up(files, lambda at=number: 1_700_000_000.0 + at)  # type: ignore[misc]
    shown = run("--versions", "2")
    lines = [line.split() for line in shown.output.splitlines() if " write " in line]
    assert [(line[0], line[-1]) for line in lines] == [("3", "6"), ("2", "3")]
    found = json.loads(run("--versions", "10", "--json").output)["versions"]
    assert [(each["version"], each["rows"], each["batches"], each["files"]) for each in found] == [
        (3, 6, 1, 3),
        (2, 3, 1, 2),
        (1, 1, 1, 1),
        (0, 0, 0, 0),
    ]
    assert found[1]["written"] == 1_700_000_002.0


def test_a_table_without_a_log_says_so(files: OpenStore) -> None:
    SinkTask(files, "word string").put({"a.parquet": b"rows"})
    refused = run("--versions", "2")
    assert refused.exit_code == 1 and "has no Delta log, so it has no versions" in refused.stderr
    assert run("--versions", "0").exit_code == 2
