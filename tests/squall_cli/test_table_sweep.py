"""`squall table --sweep` deletes the remains of ended topologies and lists them; committed and live files stay."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.manifest.claims import Superseded, read_claim
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import RESULTS, TableRecord, open_table
from squall_io.spark.sink import sink_table as sink_life
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.squall_io.sink_world import MadeUpWriter, SinkWorld

SCHEMA = "word string, day string"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["table", "counts", *arguments], prog_name="squall")


def task(files: OpenStore, topology: str) -> SinkTask:
    return SinkTask(files, SCHEMA, partition_by=["day"], topology=topology)


def killed(files: OpenStore, topology: str) -> tuple[SinkTask, BatchName]:
    """A topology that was killed while a batch was moved into place: one of its files is there, one is not."""
    ended = task(files, topology)
    ended.put({"day=1/a.txt": b"counts"})
    batch = ended.next_name()
    files.put_if_absent(f"{batch.attempt(1)}/day=1/a.txt", b"x" * 1500)
    files.put_if_absent(f"{batch.attempt(1)}/day=2/a.txt", b"x" * 500)
    files.move_if_absent(f"{batch.attempt(1)}/day=1/a.txt", f"day=1/{batch.data_file(1, 0, '.txt')}")
    return ended, batch


def make_old(tmp_path: Path, seconds: float = 2 * 86_400) -> None:
    """Make all existing files this old."""
    then = time.time() - seconds
    for path in (tmp_path / "counts").rglob("*"):
        os.utime(path, (then, then))


def everything(tmp_path: Path) -> dict[str, bytes]:
    root = tmp_path / "counts"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_remains_of_a_killed_topology_are_deleted_and_the_rest_stays(
    files: OpenStore, tmp_path: Path
) -> None:
    ended, batch = killed(files, "words")
    make_old(tmp_path)
    alive, _ = killed(files, "letters")
    before = everything(tmp_path)
    dry = run("--sweep", "--dry-run")
    assert (dry.exit_code, everything(tmp_path)) == (0, before)
    done = run("--sweep", "--verify")
    assert (done.exit_code, done.stderr) == (0, "")
    for result, first in (
        (dry, "would be deleted: 2 files of 1 batch, 2.0 kB (--dry-run)"),
        (done, "deleted:"),
    ):
        told = re.sub(MOMENT, "MOMENT", result.stdout)
        assert (
            "\nLEFT BY  BATCHES  FILES    SIZE  LAST SIGN OF LIFE\nwords-1        1      2  2.0 kB  MOMENT\n\n"
            in told
        )
        assert f"\n{first}" in told
        assert (
            "\nleft alone: 1 batch of letters-1, with a sign of life less than 1d00h ago (MOMENT)\n" in told
        )
    assert "all as committed" in done.stdout and "no committed batch" not in done.stdout
    assert before.keys() - everything(tmp_path).keys() == {
        f"{batch.attempt(1)}/day=2/a.txt",
        f"day=1/{batch.data_file(1, 0, '.txt')}",
    }
    assert not files.exists(batch.staging)
    assert len(read_state(files).entries) == 2
    alive.put({"day=1/a.txt": b"goes on"})
    with pytest.raises(Superseded, match="squall table --sweep on "):
        ended.put({"day=1/a.txt": b"a zombie's"})
    assert "left alone: 1 batch of words-1" in run("--sweep").stdout  # it has just staged something
    assert (
        run("--sweep", "--older-than", "0")
        .stdout.splitlines()[-1]
        .startswith("deleted: 3 files of 2 batches")
    )


class LocalWriter(MadeUpWriter):
    """Spark as a sink sees it, on this machine's files."""

    def write(self, rows: Any, folder: str) -> None:
        """Write one file."""
        place = Path(folder.removeprefix("file://"))
        place.mkdir(parents=True)
        (place / "part-0.txt").write_bytes(rows.text)


@pytest.mark.parametrize("step", ["list", "move", "publish", "look"])
def test_a_sink_that_lives_during_the_sweep_goes_on_and_has_each_batch_once(
    files: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world = SinkWorld(monkeypatch)
    monkeypatch.setattr(sink_life, "open_files", lambda path, **_: open_files(str(tmp_path / "counts")))
    monkeypatch.setattr(sink_life, "TableWriter", lambda session, *_: LocalWriter(world, session))
    life = world.life()
    life.open()
    swept: list[str] = []

    def at(now: str) -> None:
        if now == step and not swept:
            swept.append(run("--sweep", "--older-than", "0").stdout)

    world.at = at
    for text in ("one", "two"):
        life.tidy(life.commit(world.rows(1, text)))
    life.close()
    assert "\ndeleted: " in swept[0]
    found = [file.path for entry in read_state(files).entries for file in entry.files]
    assert [(tmp_path / "counts" / path).read_text() for path in found] == ["one", "two"]
    assert run("--sweep", "--older-than", "0").stdout.splitlines()[-1] == "nothing to sweep"
    assert sorted(f"data/{path.name}" for path in (tmp_path / "counts" / "data").iterdir()) == sorted(found)


def test_with_an_age_younger_files_are_swept_too_and_json_has_all(files: OpenStore, tmp_path: Path) -> None:
    _, batch = killed(files, "words")
    make_old(tmp_path, 3600)
    assert run("--sweep").stdout.splitlines()[-2] == "nothing to sweep"
    swept = json.loads(run("--sweep", "--older-than", "1800", "--json").stdout)["swept"]
    [submission] = swept.pop("submissions")
    assert swept == {"dry_run": False, "older_than": 1800.0, "left_alone": [], "temporary_files": 0}
    assert submission["topology_id"] == "words-1" and time.time() - submission["last_sign"] > 3000
    assert submission["batches"] == [{"batch": str(batch), "files": 2, "bytes": 2000, "committed": False}]
    assert read_claim(files, batch.writer_id, 2).retired
    assert json.loads(run("--sweep", "--older-than", "0", "--json").stdout)["swept"]["submissions"] == []
    assert "swept" not in json.loads(run("--json").stdout)


def test_nothing_is_swept_while_a_record_is_unreadable(files: OpenStore, tmp_path: Path) -> None:
    killed(files, "words")
    [record] = (tmp_path / "counts" / "_squall" / "commits").iterdir()
    record.write_bytes(record.read_bytes()[:40])
    before = everything(tmp_path)
    result = run("--sweep", "--older-than", "0")
    assert (result.exit_code, everything(tmp_path)) == (1, before)
    assert f"_squall/commits/{record.name} is truncated or damaged" in result.stderr
    assert result.stderr.endswith(
        "Nothing is swept: an unreadable record may say that a batch is committed.\n"
    )


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--dry-run"], 2, "--older-than and --dry-run work only with --sweep"),
        (["--older-than", "0"], 2, "--older-than and --dry-run work only with --sweep"),
        (["--sweep", "--older-than", "1d"], 2, "'1d': give a number of seconds"),
        (["--sweep"], 1, "--sweep is for tables that sinks write"),
    ],
)
def test_files_that_cannot_be_swept_are_reported(
    files: OpenStore, options: list[str], status: int, said: str
) -> None:
    open_table(files, TableRecord(RESULTS, "parquet", ()))
    result = run(*options)
    assert result.exit_code == status
    assert said in " ".join(result.stderr.split())


def test_no_object_store_is_swept_where_nothing_is_written() -> None:
    result = CliRunner().invoke(squall, ["table", "abfs://bucket/t", "--sweep"], prog_name="squall")
    assert result.exit_code == 2
    assert "squall.unsafe.store=true" in " ".join(result.stderr.split())
