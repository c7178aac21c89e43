"""Those who may write into a table's folder choose what its records say: no record leads Squall out of the table."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall.stores.files import FilesRefused
from squall.stores.java.hadoop import HadoopFiles
from squall.stores.local import LocalFiles
from squall.stores.paths import check_below, leaves_table
from squall.stores.webhdfs import WebHdfsFiles
from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest import state as table_state
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.manifest.entries import BatchEntry, DataFile, encode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord, canonical, digest_of, seal
from squall_io.spark.manifest.layout import RESULTS, STAGING, BatchName, safe
from squall_io.spark.manifest.state import checkpoint_if_due, read_state
from squall_io.spark.manifest.sweep import sweep
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.reading.summary import table_summary, verify
from squall_io.spark.results import versions
from squall_io.spark.results.versions import PUBLISH, SEAL, SWEEP, Attempt, Run, RunInput
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.commit_world import writer_id
from topology_api import SquallError

#: The names of JSON that code uses as names of files, folders or programs; others are tried with fewer values.
NAMES = {"path", "attempt", "batch", "run", "file_format", "partition_by"}
#: Names that lead out of the table, to its folder itself, or to nothing that has a name. OUTSIDE is an absolute path.
HOSTILE = [
    "../../../precious",
    "../../../../precious",
    "..",
    ".",
    "",
    "a/../../../../precious",
    "a//b",
    "OUTSIDE",
    "x\0y",
]
#: Records that differ from others of the same kind in nothing that matters here.
SAME = ("versions/1.json", "versions/2.json", "begun.json", ".1.2.json")
RUNS = [
    Run("reprocess", f"{name}.py", name, (RunInput("/in", "snapshot", 1),)) for name in ("a", "b", "c", "d")
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits for the disk, and checkpoints and dead attempts at once."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(table_state, "DUE", 1)
    monkeypatch.setattr(checkpoints, "PART", 1)
    monkeypatch.setattr(versions, "DEAD_AFTER", -1.0)


def commit(files: LocalFiles, epoch: int, number: int) -> None:
    """A batch with one file of rows, and what Spark left of it."""
    batch = BatchName(writer_id(), epoch, number)
    path = f"day=1/{batch.data_file(1, 0, '.parquet')}"
    files.put_if_absent(path, b"rows")
    files.put_if_absent(f"{batch.attempt(1)}/day=1/left.parquet", b"left")
    entry = BatchEntry(
        batch, "counts", "counts-1", "sink", (1, 0), 1, 4, (DataFile(path, 4, digest_of(b"rows")),), 1.0
    )
    files.put_if_absent(batch.commit, encode_entry(entry))


def stream(folder: Path) -> None:
    """A table of rows with every kind of record: table, schema, entries, claims, a fence, a checkpoint and its parts."""
    files = LocalFiles(str(folder))
    open_table(files, TableRecord(ROWS, "parquet", ("day",)))
    agree_on_schema(files, parse_schema("day int, word string"))
    take_over(files, writer_id(), (1, 0), "host:1", 1.0)
    for number in (1, 2):
        commit(files, 1, number)
    assert checkpoint_if_due(files)
    take_over(files, writer_id(), (2, 0), "host:2", 2.0)
    commit(files, 2, 1)


def begun(files: LocalFiles, run: Run) -> Attempt:
    """An attempt of a run, and its rows."""
    attempt = versions.begin(files, run)
    assert isinstance(attempt, Attempt)
    files.put_if_absent(f"{attempt.rows}/part-0.parquet", b"rows")
    return attempt


def results(folder: Path) -> None:
    """A table of results: three versions of which one is pruned, an attempt that was sealed, and one that is being swept."""
    files = LocalFiles(str(folder))
    *published, left = RUNS
    for run in published:
        versions.publish(files, begun(files, run), run, 4, "n int")
    attempt = begun(files, left)
    files.put_if_absent(f"{RESULTS}/{attempt.name}{SEAL}", sealed(files, attempt))
    files.put_if_absent(f"{RESULTS}/{'0' * 16}-{'1' * 16}/rows/part-0.parquet", b"rows")
    files.put_if_absent(f"{RESULTS}/{'0' * 16}-{'1' * 16}{SEAL}", seal(SWEEP, {}))


def sealed(files: LocalFiles, attempt: Attempt) -> bytes:
    """The seal of a run that was killed before it published its version."""
    newest = json.loads(files.read("_squall/versions/3.json"))
    fields = {key: value for key, value in newest.items() if key not in ("kind", "format", "digest")}
    file = {"path": f"{attempt.rows}/part-0.parquet", "size": 4, "digest": digest_of(b"rows")}
    return seal(PUBLISH, {**fields, "run": attempt.run, "attempt": attempt.name, "files": [file]})


def go_through(folder: Path) -> None:
    """Everything that reads, sweeps and publishes; only errors that users get may come of it."""
    files = LocalFiles(str(folder))
    for act in (
        lambda: versions.settle(files),
        lambda: versions.tidy(files, RUNS[2].id, keep=1),
        lambda: versions.begin(files, RUNS[0]),
        lambda: table_summary(files),
        lambda: verify(files),
        lambda: checkpoint_if_due(files),
        lambda: sweep(files, writer_id(), 2),
        lambda: sweep_ended(files, find_leftovers(files, 0.0), "host:3", 3.0),
        lambda: take_over(files, writer_id(), (3, 0), "host:3", 3.0),
    ):
        with suppress(SquallError):
            act()
    with suppress(SquallError):
        state = read_state(files)
        assert not [path for entry in state.entries for path in entry.paths if leaves_table(path)]


def values(inside: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in JSON, keys included."""
    for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
        if isinstance(value, (dict, list)):
            yield from values(value, (*place, key))
        elif isinstance(value, str) and key not in ("kind", "digest"):
            yield (*place, key)


def forged(data: bytes, place: tuple[Any, ...], text: str) -> bytes:
    """The same record with another text at a place, and a digest that fits."""
    inside = json.loads(data)
    within = inside
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = text
    if isinstance(inside, dict) and inside.pop("digest", None):
        inside["digest"] = digest_of(canonical(inside))
    return json.dumps(inside).encode()


def forge_part(path: Path, place: tuple[Any, ...], text: str) -> None:
    """Forge a part of a checkpoint, and the digest in each checkpoint that names it."""
    path.write_bytes(gzip.compress(forged(gzip.decompress(path.read_bytes()), place, text)))
    for index in path.parent.glob("*.json"):
        for number, part in enumerate(json.loads(index.read_bytes())["parts"]):
            if part["path"].endswith(path.name):
                index.write_bytes(
                    forged(index.read_bytes(), ("parts", number, "digest"), digest_of(path.read_bytes()))
                )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Site:
    """Tables in a folder with other folders around and above them, each of which has the name that hostile records know."""

    def __init__(self, tmp_path: Path) -> None:
        self.above = tmp_path / "above"
        self.table = self.above / "warehouse" / "table"
        for folder in (self.above, self.above / "warehouse", tmp_path):
            (folder / "precious").mkdir(parents=True, exist_ok=True)
            (folder / "precious" / "rows").write_bytes(b"precious")
        self.outside = self.above / "precious"
        self.before = contents(tmp_path)
        self.all = tmp_path
        self.template = tmp_path.parent / f"{tmp_path.name}-template"

    def again(self) -> None:
        """The table as it was made."""
        shutil.rmtree(self.table, ignore_errors=True)
        shutil.copytree(self.template, self.table)

    def check(self, what: object) -> None:
        """Nothing outside of the table has changed."""
        there = {
            path: data for path, data in contents(self.all).items() if not path.startswith(f"{self.table}/")
        }
        assert there == self.before, what


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("make", [stream, results])
def test_no_record_leads_out_of_its_table(site: Site, make: Any) -> None:
    make(site.template)
    records = sorted(path.relative_to(site.template) for path in (site.template / "_squall").rglob("*.json*"))
    records = [record for record in records if not str(record).endswith(SAME)]
    tried = 0
    for record in records:
        data = (site.template / record).read_bytes()
        text = gzip.decompress(data) if record.suffix == ".gz" else data
        for place in values(json.loads(text)):
            for hostile in HOSTILE if NAMES & set(place) else HOSTILE[:1]:
                site.again()
                name = hostile.replace("OUTSIDE", str(site.outside))
                if record.suffix == ".gz":
                    forge_part(site.table / record, place, name)
                else:
                    (site.table / record).write_bytes(forged(text, place, name))
                go_through(site.table)
                site.check((record, place, name))
                tried += 1
    assert tried > 50


@pytest.mark.parametrize("name", [f"..{SEAL}", SEAL, f".{SEAL}", f"...{SEAL}", f"x{SEAL}"])
@pytest.mark.parametrize("fate", [SWEEP, PUBLISH])
def test_the_name_of_a_seal_deletes_no_folder_of_the_manifest(site: Site, name: str, fate: str) -> None:
    results(site.template)
    site.again()
    [real] = [path for path in (site.table / RESULTS).glob(f"*{SEAL}") if b'"attempt"' in path.read_bytes()]
    (site.table / RESULTS / name).write_bytes(seal(SWEEP, {}) if fate == SWEEP else real.read_bytes())
    versions.settle(LocalFiles(str(site.table)))
    assert len(versions.kept_versions(LocalFiles(str(site.table)))) == 4, "three, and the sealed one"
    site.check(name)


def test_the_attempt_of_a_version_is_checked_when_it_is_read(site: Site) -> None:
    results(site.template)
    site.again()
    record = site.table / "_squall" / "versions" / "3.json"
    record.write_bytes(forged(record.read_bytes(), ("attempt",), "../../../precious"))
    files = LocalFiles(str(site.table))
    with pytest.raises(
        UnreadableRecord, match=r"versions/3.json is forged: '../../../precious' is not the name"
    ):
        versions.tidy(files, RUNS[2].id, keep=1)
    record.write_bytes(
        forged((site.template / "_squall/versions/3.json").read_bytes(), ("files", 0, "path"), "day=1/x")
    )
    with pytest.raises(UnreadableRecord, match=r"it names 'day=1/x', which is not below _squall/results/"):
        versions.read_version(files, 3)


@pytest.mark.parametrize("path", HOSTILE)
def test_the_store_refuses_paths_out_of_the_table(site: Site, path: str) -> None:
    path = path.replace("OUTSIDE", str(site.outside))
    if path == "":
        return  # the table itself
    site.table.mkdir(parents=True)
    files = LocalFiles(str(site.table))
    for act in (
        lambda: files.list(path), lambda: files.walk(path), lambda: files.exists(path), lambda: files.read(path),
        lambda: files.digest(path), lambda: files.put_if_absent(path, b"x"), lambda: files.replace(path, b"x"),
        lambda: files.move_if_absent(path, "here"), lambda: files.move_if_absent("here", path), lambda: files.delete(path),
        lambda: check_below(path),
    ):  # fmt: skip
        with pytest.raises(FilesRefused, match="is not a path below a table"):
            act()
    site.check(path)
    assert list(site.table.rglob("*")) == []


@pytest.mark.parametrize(
    "path", [path for path in HOSTILE if path and path != "OUTSIDE"] + ["/etc", "\ud800"]
)
def test_stores_on_hdfs_refuse_them_before_they_ask_anything(path: str) -> None:
    over_http = WebHdfsFiles("hdfs://host/table", "http://127.0.0.1:1")
    by_java = cast(HadoopFiles, SimpleNamespace(root="hdfs://host/table", _path=pytest.fail))
    for act in (
        lambda: over_http.delete(path),
        lambda: over_http.move_if_absent("here", path),
        lambda: over_http.list(path),
        lambda: HadoopFiles._at(by_java, path),
    ):
        with pytest.raises(FilesRefused, match="is not a path below a table"):
            act()


def test_ordinary_names_are_below_a_table() -> None:
    for path in (
        "",
        "a",
        "day=1/squall-x.parquet",
        "..a/b..",
        "city=São\u00a0Paulo/f",
        "a b/-",
        STAGING,
        safe("../x"),
    ):
        assert check_below(path) == path
