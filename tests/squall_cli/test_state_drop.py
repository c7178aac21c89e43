"""`squall state drop` deletes what nothing needs, everywhere, and what is left goes on."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from local_cluster import LocalCluster
from squall_cli.commands import state_drop
from squall_cli.commands.state_drop import Target, may_be_same
from squall_cli.main import squall
from squall_cli.options.state_path import StateFolder
from tests.local_cluster.test_replaced_state import Shows, TextCount, conf_at, with_more
from tests.local_cluster.words_with_state import WORDS, Count, Pass, Words, expected, words
from tests.squall_cli.fake_nimbus import fake_nimbus, status_of, supervisor, topology
from topology_api import Tuple, ValueState
from topology_api.errors import SquallError
from worker.epochs.log import PutAnswer
from worker.epochs.records import CommitRecord, LeadRecord, LogRecord
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles
from worker.loop.state_drop import StateDrop


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUALL_NIMBUS", "http://127.0.0.1:1")


def drop(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(
        squall, ["state", "drop", *map(str, arguments)], prog_name="squall", input=answer
    )


def counted(path: Path, count: Count | None = None) -> Path:
    """Count a hundred words; return the folder of the state."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 100), Pass(), count or Count()), conf_at(path))
        cluster.advance(5)
        if count is not None:
            assert cluster.last_status("words").state == "ACTIVE", cluster.last_status("words").errors
    return path / "words"


def states_of(folder: Path, component: str) -> dict[int, set[str]]:
    """The states of a component in each epoch that is kept."""
    committed = CommittedState(EpochFiles(str(folder.parent), folder.name))
    found: dict[int, set[str]] = {}
    for epoch in committed.epochs():
        content = committed.read(epoch.record.epoch)
        for task, _, snapshot in content.snapshots():
            if task.startswith(f"{component}/") and snapshot is not None:
                found.setdefault(epoch.record.epoch, set()).update(snapshot.state["states"])
        assert content.damaged == []
    return found


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_state_is_deleted_from_all_epochs_and_may_have_another_type_then(tmp_path: Path, seed: int) -> None:
    folder = counted(tmp_path)
    before = states_of(folder, "count")
    assert set(map(frozenset, before.values())) == {frozenset({"times", "total"})}
    result = drop(folder, "count.times", "--yes")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"deleted: count.times of words: {len(set(WORDS))} keys, ")
    assert states_of(folder, "count") == {epoch: {"total"} for epoch in before}
    counted(tmp_path, TextCount())  # it ran


@pytest.mark.usefixtures("maybe_chained")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_component_is_deleted_and_begins_with_nothing(tmp_path: Path, seed: int) -> None:
    folder = counted(tmp_path)
    result = drop(folder, "newest", "--yes", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["keys"] == len(set(WORDS)) and told["bytes"] > 0
    assert not [each for each in (folder / "snapshots").iterdir() if "-newest." in each.name]
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(200, 100), Pass(), Count()), conf_at(tmp_path))
        cluster.advance(10)
        assert cluster.state("words", "count", "w0")["times"] == expected(list(range(200)))["w0"][0]
        seen = cluster.state("words", "newest", "w0")["seen"]
        assert seen == expected(list(range(200)))["w0"][0] - expected(list(range(100)))["w0"][0]


def test_everything_is_deleted_after_a_question(tmp_path: Path) -> None:
    folder = counted(tmp_path)
    refused = drop(folder, answer="n\n")
    assert refused.exit_code == 1 and folder.exists()
    assert "no cluster answers" in refused.stderr and "if words runs, it ends with an error" in refused.stderr
    assert f"Delete all state of words ({2 * len(set(WORDS))} keys" in refused.stderr
    assert drop(folder, answer="y\n").exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("other", "no component 'other' has state in epoch"),
        ("count.other", "component 'count' has no state 'other' in epoch"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path, what: str, text: str) -> None:
    result = drop(counted(tmp_path), what, "--yes")
    assert result.exit_code == 1
    assert text in result.stderr


def test_what_the_running_version_needs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = counted(tmp_path)
    running = Target(StateFolder(str(folder.parent), folder.name), frozenset({"words", "pass", "count"}))
    monkeypatch.setattr(state_drop, "known", lambda cluster, name: running)
    for what, text in (((), "`squall kill words` first"), (("count",), "is part of the running version")):
        result = drop("words", *what, "--yes")
        assert result.exit_code == 1 and text in result.stderr
    result = drop("words", "newest", "--yes")  # the running version does not have it
    assert result.exit_code == 0, result.stderr
    records = EpochFiles(str(tmp_path), "words").records_after(0)
    assert sum(isinstance(record, LeadRecord) for record in records) == 1  # and it leads on


def test_what_the_version_on_standby_needs_is_refused_with_this_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StateFolder(str(counted(tmp_path).parent), "words")
    running = frozenset({"words", "pass", "count"})
    for of_standby, known in ((running | {"newest"}, "is"), (None, "may be")):
        target = Target(place, running, "words-1-0", of_standby)
        monkeypatch.setattr(state_drop, "known", lambda cluster, name, found=target: found)
        result = drop("words", "newest", "--yes")
        assert result.exit_code == 1
        assert (
            f"component 'newest' {known} part of version words-1-0 of 'words', which runs again"
            in result.stderr
        )
    target = Target(place, running, "words-1-0", running)
    monkeypatch.setattr(state_drop, "known", lambda cluster, name: target)
    assert drop("words", "newest", "--yes").exit_code == 0


def test_what_the_cluster_says_of_versions_is_what_may_be_dropped() -> None:
    conf = SimpleNamespace(conf={"topology.state.path": "/s"})

    def known(**values: Any) -> Target | None:
        status = status_of(topology("words", **values))
        client = SimpleNamespace(topology_or_none=lambda _: status, read=lambda *_: conf)
        cluster: Any = SimpleNamespace(asked=lambda _: nullcontext(client))
        return state_drop.known(cluster, "words")

    standby = {"id": "words-0", "secs": 9.0, "suspended": False, "components": ["words", "newest"]}
    target = known(stands_by=standby)
    assert target is not None
    assert (target.standby, target.of_standby) == ("words-0", frozenset({"words", "newest"}))
    with pytest.raises(SquallError, match="is being replaced: try again when the new version runs"):
        known(state="REPLACING")


def test_a_topology_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_drop, "known", lambda cluster, name: None)
    with fake_nimbus() as nimbus:
        monkeypatch.setenv("SQUALL_NIMBUS", nimbus.url)
        result = drop("words", "--yes")
        assert result.exit_code == 1
        assert result.stderr.endswith("give its folder, as in /folder/words\n")


def test_a_topology_that_was_killed_is_found_where_a_supervisor_of_this_host_keeps_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = counted(tmp_path / "kept")
    with fake_nimbus() as nimbus:
        monkeypatch.setenv("SQUALL_NIMBUS", nimbus.url)
        nimbus.supervisors = [
            supervisor("host-1", state_folder="/of/another/host"),
            supervisor("host-2", state_folder=str(folder.parent)),
        ]
        for action in ("list", "export"):
            read = CliRunner().invoke(squall, ["state", action, "words"])
            assert read.exit_code == 0 and "count" in read.stdout, read.stderr
        assert "/of/another/host of host host-1" in drop("others", "--yes").stderr
        nimbus.supervisors.append(supervisor("host-2", state_folder=f"{folder.parent}/../kept"))
        assert "give one of" in drop("words", "--yes").stderr
        nimbus.supervisors.pop()
        assert "deleted: everything of words" in drop("words", "--yes").stdout
    assert not folder.exists()


@pytest.mark.parametrize(("typed", "asked"), [((), "conf:1"), (("--webhdfs", "typed:2"), "typed:2")])
def test_the_address_that_is_typed_is_the_one_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], asked: str
) -> None:
    there = Target(StateFolder("hdfs://a:9000/s", "words", "conf:1"))

    def folder_at(path: str, webhdfs: str | None = None) -> StateFolder:
        raise SquallError(f"{path} by {webhdfs}")

    monkeypatch.setattr(state_drop, "known", lambda cluster, name: there)
    monkeypatch.setattr(state_drop, "topology_folder", folder_at)
    assert f"hdfs://a:9000/s/words by {asked}" in drop("words", "--yes", *typed).stderr


def test_a_commit_that_is_written_meanwhile_does_not_bring_back_what_was_deleted(tmp_path: Path) -> None:
    folder = counted(tmp_path)
    files = EpochFiles(str(tmp_path), "words")
    job = StateDrop(files)
    job.find("newest", None)
    last = job.newest()
    late = CommitRecord("late", job.view.next_epoch, job.view.rewind, last.files)
    job.drop_component("newest")
    number = len(files.records_after(0)) + 1
    assert files.put_record(number, late) is PutAnswer.STORED  # of a coordinator that had not read the record
    kept = CommittedState(files).epochs()
    assert kept[0].record.epoch == late.epoch and kept[0].whole
    again = StateDrop(files)
    with pytest.raises(SquallError, match="no component 'newest'"):
        again.find("newest", None)
    assert states_of(folder, "newest") == {}


def test_a_coordinator_that_runs_reads_the_record_and_goes_on(tmp_path: Path) -> None:
    conf: dict[str, Any] = conf_at(tmp_path)
    counted(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_more(400, None), conf)  # it has no `newest`
        cluster.advance(3)
        job = StateDrop(EpochFiles(str(tmp_path), "words"))
        assert job.find("newest", None).keys == len(set(WORDS))
        job.drop_component("newest")
        cluster.advance(20)
        assert cluster.state("words", "count", "w0")["times"] == expected(list(range(400)))["w0"][0]
    assert states_of(tmp_path / "words", "newest") == {}
    assert states_of(tmp_path / "words", "count")


class MoreShows(Shows):
    other = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.other.value += 1


def test_a_coordinator_that_runs_sweeps_nothing_that_a_drop_has_rewritten(tmp_path: Path) -> None:
    """It commits, and rewinds, between the writing of the snapshots and that of the record."""
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_more(100, MoreShows()), conf)
        cluster.advance(7)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_more(400, None), conf)
        cluster.advance(3)
        job = StateDrop(EpochFiles(str(tmp_path), "words"))
        job.find("shows", "other")
        numbers: list[int] = []

        def late(number: int, record: LogRecord) -> PutAnswer:
            numbers.append(number)
            if len(numbers) < 3:
                cluster.advance(2)
                cluster.rebalance("words", 3 - len(numbers))
                cluster.advance(2)
            return EpochFiles.put_record(job.files, number, record)

        job.files.put_record = late  # type: ignore[method-assign]
        job.drop_state("shows", "other")
        assert len(numbers) == 3
        cluster.advance(5)
    assert set(map(frozenset, states_of(tmp_path / "words", "shows").values())) == {frozenset({"seen"})}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_more(400, MoreShows()), conf)
        cluster.advance(3)
        assert cluster.last_status("words").state == "ACTIVE", cluster.last_status("words").errors


@pytest.mark.parametrize("what", [(), ("count",)])
@pytest.mark.parametrize("gone", [False, True])
def test_what_cannot_be_read_can_be_deleted(tmp_path: Path, what: tuple[str, ...], gone: bool) -> None:
    folder = counted(tmp_path)
    for file in (folder / "snapshots").glob("*-count.0"):
        if gone:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1])
    result = drop(folder, *what, "--yes")
    assert result.exit_code == 0, result.stderr
    counted(tmp_path, Count())  # it ran


def test_another_name_of_the_folder_of_a_topology_that_runs_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = counted(tmp_path / "state")
    (tmp_path / "link").symlink_to(tmp_path / "state")
    running = Target(StateFolder(str(folder.parent), folder.name), frozenset({"words", "pass", "count"}))
    monkeypatch.setattr(state_drop, "known", lambda cluster, name: running)
    result = drop(tmp_path / "link" / "words", "--yes")
    assert result.exit_code == 1 and "`squall kill words` first" in result.stderr
    assert may_be_same("hdfs://a:9000/s/words", "hdfs://cluster/s/words")
    assert not may_be_same("hdfs://a:9000/s/words", "hdfs://a:9000/t/words")
    assert not may_be_same("hdfs://a:9000/s/words", "/s/words")
