"""`squall table` tells how far a Delta log is, gives a table one, and makes a damaged one hold what is committed."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.delta.following import newest_version
from tests.spark.batches import SinkTask


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["table", "counts", *arguments], prog_name="squall")


def test_a_table_gets_a_log_and_the_command_adds_what_it_lacks(files: OpenStore) -> None:
    task = SinkTask(files, "word string")
    task.put({"a.parquet": b"rows"}, committed=1.0)
    assert "Delta" not in run().output
    made = run("--enable-delta")
    assert made.exit_code == 0 and "the table has a Delta log now, with 1 file" in made.output
    assert "its Delta log has all batches, in version 1" in made.output
    task.put({"a.parquet": b"rows"}, committed=2.0)
    found = run("--json")
    assert json.loads(found.output)["delta"] == {"version": 1, "lacks": 1, "since": 2.0, "problem": ""}
    assert "its Delta log, at version 1, lacks 1 batch, the oldest from" in run().output
    again = run("--enable-delta")
    assert "added to the Delta log: 1 file" in again.output and newest_version(files) == 2


def test_a_damaged_log_is_named_and_rebuilt_by_its_option_only(files: OpenStore) -> None:
    SinkTask(files, "word string").put({"a.parquet": b"rows"})
    run("--enable-delta")
    files.replace("_delta_log/00000000000000000001.json", b"{")
    shown = run()
    assert shown.exit_code == 0 and "its Delta log does not follow the table:" in shown.output
    refused = run("--enable-delta")
    assert refused.exit_code == 1 and "Traceback" not in refused.output
    assert "00000000000000000001.json is damaged" in refused.stderr and "--rebuild-delta" in refused.stderr
    assert "continues with version 2" in run("--rebuild-delta").output
    assert "its Delta log has all batches, in version 2" in run().output


def test_a_table_of_csv_cannot_have_a_log_and_says_why(files: OpenStore) -> None:
    SinkTask(files, "word string", file_format="csv")
    refused = run("--enable-delta")
    assert refused.exit_code == 1 and "its files are csv" in refused.stderr
