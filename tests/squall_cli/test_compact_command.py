"""`squall compact` says what it does, what it has done, and why it does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.stores.local import LocalFiles
from squall_cli.main import squall
from squall_io.spark.manifest.holders import Holder
from squall_io.spark.manifest.rewriting import Rewriter
from squall_io.spark.manifest.tables import RESULTS, TableRecord, open_table
from squall_io.spark.processes import name_of_this_process
from tests.spark.batches import SinkTask
from tests.squall_io.compacted_tables import DDL, data_files, put, rows_by_batch


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    found = LocalFiles(str(tmp_path / "counts"))
    task = SinkTask(found, DDL, partition_by=["day"])
    for number in range(4):
        put(task, float(number))
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["compact", *arguments], prog_name="squall")


def said(result: Result) -> list[str]:
    text = re.sub(r"[\d.]+ (kB|MB|bytes)", "SIZE", re.sub(r"\([\d.]+ m?s\)", "(TIME)", result.stdout))
    return [re.sub(" +", " ", line) for line in text.splitlines()]


def test_it_shows_what_it_would_do_does_it_and_then_has_nothing_to_do(
    files: LocalFiles, tmp_path: Path
) -> None:
    before = rows_by_batch(files)
    dry = run(files.root, "--dry-run")
    assert said(dry) == [
        "PARTITION FILES FILES NOW SIZE SIZE NOW",
        "day=a 4 1 SIZE",
        "day=b 4 1 SIZE",
        "",
        "would merge 8 files, SIZE of 4 batches into 2 files",
    ]
    assert len(data_files(tmp_path / "counts")) == 8
    done = run(files.root)
    assert (done.exit_code, said(done)[1:]) == (
        0,
        [
            "day=a 4 1 SIZE SIZE",
            "day=b 4 1 SIZE SIZE",
            "",
            "merged 8 files, SIZE of 4 batches into 2 files, SIZE (TIME)",
            "The old files stay until `squall vacuum` deletes them.",
        ],
    )
    assert rows_by_batch(files) == before
    assert said(run(files.root)) == [
        "Nothing to compact: there are no small files that could be put together."
    ]


def test_json_has_all_partitions(files: LocalFiles) -> None:
    found = json.loads(run(files.root, "--json", "--partition", "day=b").stdout)
    assert {key: found[key] for key in ("files_before", "files_after", "replaced", "made", "rows", "dry_run")} == {
        "files_before": 4, "files_after": 1, "replaced": 4, "made": 1, "rows": 24, "dry_run": False
    }  # fmt: skip
    assert [each["partition"] for each in found["partitions"]] == ["day=b"]
    assert found["partitions"][0]["bytes_after"] == found["bytes_after"] > 0


def test_another_compaction_is_not_disturbed_unless_it_is_taken_over(files: LocalFiles) -> None:
    Rewriter(files, "squall compact on host-a, process 7", lambda: 0.0).begin()
    refused = run(files.root)
    assert refused.exit_code == 1
    assert "another compaction is at work" in refused.stderr and "host-a, process 7" in refused.stderr
    assert "--take-over goes on" in refused.stderr
    assert run(files.root, "--take-over").exit_code == 0


def test_a_compaction_whose_process_was_killed_is_not_waited_for(files: LocalFiles) -> None:
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine, pid = name_of_this_process().rsplit("/", 2)[0], killed.pid
    began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    Rewriter(files, "another command", lambda: 0.0, holder=Holder(f"{mine}/{pid}/{began}")).begin()
    refused = run(files.root)
    assert refused.exit_code == 1 and "that of another command" in refused.stderr
    killed.kill()
    killed.communicate()
    assert run(files.root).exit_code == 0


def test_wrong_usage_is_named(files: LocalFiles, tmp_path: Path) -> None:
    wrong = run(files.root, "--partition", "hour=7")
    assert wrong.exit_code == 2 and "it is partitioned as day=..." in wrong.stderr
    assert run(files.root, "--target-size", "0").exit_code == 2
    assert "there is no Squall table" in run(str(tmp_path / "nothing")).stderr
    results = LocalFiles(str(tmp_path / "results"))
    open_table(results, TableRecord(RESULTS, "parquet", ()))
    refused = run(results.root)
    assert refused.exit_code == 1 and "each run writes all files anew" in refused.stderr
