"""`squall state` names what it cannot read, shows the rest, and changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall
from tests.squall_cli.state_topologies import written
from worker.epochs.records import CommitRecord, LeadRecord
from worker.epochs.snapshot_files import TaskSnapshot, encode_snapshot
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles
from worker.state.readable import json_form, value_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("state"), ["word", "other"])


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of the state that a test may damage."""
    shutil.copytree(made, tmp_path / "things")
    (tmp_path / "things").chmod(0o700)
    return tmp_path / "things"


def state(*arguments: object) -> Result:
    return CliRunner().invoke(squall, ["state", *map(str, arguments)], prog_name="squall")


def newest_snapshot(folder: Path, task: str) -> Path:
    content = CommittedState(EpochFiles(str(folder.parent), folder.name)).read()
    return folder / "snapshots" / content.files[task][0].name


def test_a_damaged_snapshot_is_named_and_the_rest_is_shown(folder: Path) -> None:
    whole = state("export", folder).stdout.splitlines()
    path = newest_snapshot(folder, "count/1")
    path.write_bytes(path.read_bytes()[:-1])
    for arguments in (("list",), ("list", "--json"), ("export",), ("get", "count", "word")):
        result = state(arguments[0], folder, *arguments[1:])
        assert (result.exit_code, f"snapshot {path.name} is damaged" in result.stderr) == (1, True), arguments
    left = state("export", folder).stdout.splitlines()
    assert left == [line for line in whole if json.loads(line)["task"] == 0]
    assert state("get", folder, "rates", "word").exit_code == 1  # no state, and nothing of it is damaged
    assert "damaged" not in state("get", folder, "rates", "word").stderr


def test_a_missing_snapshot_is_named(folder: Path) -> None:
    path = newest_snapshot(folder, "count/0")
    path.unlink()
    result = state("list", folder)
    assert (result.exit_code, f"{path} of task count/0 is missing" in result.stderr) == (1, True)
    assert "readings" in result.stdout


def test_a_damaged_record_is_named(folder: Path) -> None:
    last = max((folder / "log").iterdir())
    last.write_bytes(b"?")
    result = state("list", folder)
    assert result.exit_code == 1
    assert (
        f"squall state: {folder}: record {int(last.name)} of the log of epochs cannot be read"
        in result.stderr
    )


def test_what_is_swept_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = EpochFiles(str(tmp_path), "words")
    files.put_record(1, LeadRecord("a:1", "a", 1))

    def commit(epoch: int) -> None:
        file, data = encode_snapshot(TaskSnapshot("count/0", epoch, 1, 0, {"states": {}}))
        files.write_snapshot(file, data)
        files.put_record(epoch + 1, CommitRecord(f"a:{epoch + 1}", epoch, 1, {"count/0": file}))

    commit(1)
    reader = CommittedState(EpochFiles(str(tmp_path), "words"))
    read, epochs = reader.bytes_of, 1

    def swept(file: Any) -> bytes | None:
        nonlocal epochs
        if epochs < 3:
            epochs += 1
            commit(epochs)
            (tmp_path / "words" / "snapshots" / file.name).unlink()
        return read(file)

    monkeypatch.setattr(reader, "bytes_of", swept)
    content = reader.read()
    assert (content.epoch.record.epoch, [each.record.epoch for each in content.kept]) == (3, [3])
    assert [snapshot is not None for _, _, snapshot in content.snapshots()] == [True]


def test_paths_without_state_are_refused_and_nothing_is_created(tmp_path: Path, folder: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for path, why in (
        (tmp_path / "nothing", f"there is no folder {tmp_path / 'nothing'}"),
        (folder / "log", "has no state of a topology"),
        (folder / "log" / "000000000001", "there is no folder"),
    ):
        result = state("list", path)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    assert sorted(tmp_path.rglob("*")) == before
    result = state("list", "s3://bucket/state")
    assert (result.exit_code, "give a folder of this host" in result.stderr) == (2, True)
    for url in ("hdfs://", "hdfs://h", "hdfs://h:b/x"):
        result = state("list", url)
        assert (result.exit_code, f"path '{url}'" in result.stderr) == (2, True), result.stderr


def test_the_folder_of_several_topologies_names_them(folder: Path) -> None:
    assert state("list", folder.parent).exit_code == 0
    shutil.copytree(folder, folder.parent / "more")
    result = state("list", folder.parent)
    assert (result.exit_code, "several topologies ('more', 'things')" in result.stderr) == (1, True)


def test_a_folder_that_others_may_write_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    result = state("export", folder)
    assert (result.exit_code, f"other users have access to {folder}" in result.stderr) == (1, True)
    assert result.stdout == ""


def test_a_folder_without_a_commit_says_so(tmp_path: Path) -> None:
    EpochFiles(str(tmp_path), "words").put_record(1, LeadRecord("a:1", "a", 1))
    result = state("list", tmp_path)
    assert (result.exit_code, "nothing has been committed yet" in result.stderr) == (1, True)


def test_an_unknown_component_names_those_that_there_are(folder: Path) -> None:
    for result in (state("get", folder, "cuont", "word"), state("export", folder, "--component", "cuont")):
        assert result.exit_code == 1
        assert "has no component 'cuont' (it has: 'count', 'parks', 'rates', 'readings')" in result.stderr


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (float("nan"), {"repr": "nan"}),
        ([1 << 20_000], [{"repr": "<int whose repr raises ValueError>"}]),
        ({1, 2}, {"repr": "{1, 2}"}),
        ({"a": (1, b"")}, {"a": [1, {"repr": "b''"}]}),
        ({1: "n", None: 2}, {"items": [[1, "n"], [None, 2]]}),
    ],
)
def test_what_json_does_not_have_becomes_a_text(value: object, form: object) -> None:
    assert json_form(value) == form
    json.dumps(form)


def test_a_list_in_itself_has_a_form() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "[[...]]" in json.dumps(json_form(endless))


def test_a_pickle_that_cannot_be_opened_is_a_value_that_cannot_be_read() -> None:
    assert json_form(value_of(b"\x80\x05.")) == {
        "repr": "<cannot be read: UnpicklingError: unpickling stack underflow>"
    }
