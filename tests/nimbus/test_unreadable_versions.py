"""An unreadable version that waits for a name or had it before: it stays until it is readable or killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nimbus.counters.counting import Counters
from nimbus.files.housekeeping import Housekeeping
from nimbus.files.stored_files import FileStore
from nimbus.lifecycle.replacing import UnreadableVersion
from nimbus.submission.submission import Submission
from squall.cluster import paths
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.records import NimbusRecord
from squall.http.client import Client
from squall.values import Incarnation
from tests.nimbus.transcripts import Scenario, a_topology
from topology_api.errors import NoSuchTopology
from topology_api.options import defaults

NEWER = b'{"kind":"TopologyRecord","format":99}'
WAITING, BEFORE = paths.replacement("words"), paths.replaced("words")


@pytest.fixture
def words(scenario: Scenario) -> Scenario:
    """A topology that runs."""
    scenario.say("@ 0 supervisor s1 slots=2")
    scenario.say("@ 0 submit words tasks=1")
    scenario.say("@ 0 report words w1 opened")
    return scenario


@pytest.fixture
def waits(words: Scenario) -> Scenario:
    """A second version waits for the drain of the first."""
    words.say("@ 1 submit words tasks=2 replace wait=60")
    return words


@pytest.fixture
def on_trial(words: Scenario) -> Scenario:
    """A second version has the name and is on trial."""
    words.say("@ 1 submit words tasks=2 replace wait=0")
    words.say("@ 1 report words w1 stopped")
    assert words.nimbus.topology("words").replaces == "words-1-0"
    return words


def damage(scenario: Scenario, path: str, data: bytes = NEWER) -> Callable[[], None]:
    """Replace the value at a path; return a function that restores it."""
    found = scenario.store.get(path)
    assert found is not None
    scenario.store.put(path, data)
    scenario.nimbus.tick()

    def repair() -> None:
        scenario.store.put(path, found[0])
        scenario.nimbus.tick()

    return repair


def stored(scenario: Scenario, path: str) -> bytes:
    found = scenario.store.get(path)
    return b"" if found is None else found[0]


@pytest.mark.parametrize("data", [NEWER, b"nonsense"])
def test_the_running_version_goes_on_while_the_waiting_one_is_unreadable(
    waits: Scenario, data: bytes
) -> None:
    repair = damage(waits, WAITING, data)
    waits.say("@ 100 ticks")
    record = waits.nimbus.topology("words")
    assert (record.id, record.state) == ("words-1-0", "ACTIVE")
    assert stored(waits, WAITING) == data and "words-2-1" in waits.registry.known_ids()
    repair()
    assert waits.nimbus.topology("words").state == "REPLACING"
    waits.say("@ 101 report words w1 drained")
    waits.say("@ 101 report words w1 stopped")
    assert waits.nimbus.topology("words").id == "words-2-1"


def test_the_status_names_the_unreadable_version_once_with_advice(
    waits: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    damage(waits, WAITING)
    waits.say("@ 50 ticks")
    waits.say("@ 51 another nimbus")
    notes = [each.text for each in waits.nimbus.topology("words").notes if "cannot be read" in each.text]
    assert len(notes) == 1 and WAITING in notes[0] and "repair or remove that value" in notes[0]
    assert len([each for each in caplog.records if each.getMessage() == f"words: {notes[0]}"]) == 1


@pytest.mark.parametrize("path", [WAITING, BEFORE])
def test_nothing_is_written_over_an_unreadable_version(words: Scenario, path: str) -> None:
    words.store.put(path, NEWER)
    words.say("@ 1 tick")
    with pytest.raises(
        UnreadableVersion, match=f"cannot replace topology 'words': .*{path}.*: repair or remove"
    ):
        words.nimbus.submit(Submission(a_topology("words", 1), defaults(), {}, replace=True))
    words.say("@ 100 ticks")
    assert stored(words, path) == NEWER and words.nimbus.topology("words").state == "ACTIVE"


def test_a_waiting_version_does_not_start_while_the_previous_one_is_unreadable(waits: Scenario) -> None:
    waits.say("@ 2 tick")
    repair = damage(waits, WAITING)  # the topology runs on, and then the previous version is damaged too
    waits.store.put(BEFORE, NEWER)
    repair()
    waits.say("@ 100 ticks")
    assert waits.nimbus.topology("words").state == "ACTIVE" and stored(waits, BEFORE) == NEWER
    waits.store.delete(BEFORE)
    waits.say("@ 101 tick")
    assert waits.nimbus.topology("words").state == "REPLACING"


def test_a_version_that_failed_on_trial_waits_until_the_previous_one_is_readable(on_trial: Scenario) -> None:
    repair = damage(on_trial, BEFORE)
    on_trial.say("@ 2 report words w1 crash=boom")
    on_trial.say("@ 3 report words w1 stopped")
    on_trial.say("@ 500 ticks")
    record = on_trial.nimbus.topology("words")
    assert (record.id, record.state) == ("words-2-1", "FAILED") and stored(on_trial, BEFORE) == NEWER
    repair()
    record = on_trial.nimbus.topology("words")
    assert (record.id, record.state) == ("words-1-0", "ACTIVE")


def test_a_version_that_proves_itself_does_not_wait_for_that(on_trial: Scenario) -> None:
    repair = damage(on_trial, BEFORE)
    on_trial.say("@ 2 report words w1 opened; tick")
    on_trial.say("@ 61 tick")
    assert on_trial.nimbus.topology("words").replaces is None and stored(on_trial, BEFORE) == NEWER
    on_trial.say("@ 110 ticks")
    assert "words-1-0" in on_trial.registry.known_ids(), "its records are no orphans"
    repair()
    assert stored(on_trial, BEFORE) == b"", "no rollback can need it"


@pytest.mark.parametrize("path", [WAITING, BEFORE])
def test_kill_removes_it_with_the_topology(words: Scenario, path: str) -> None:
    words.store.put(path, NEWER)
    words.store.put(paths.description("words-9-0"), b"of that version")
    words.say("@ 1 kill words wait=0")
    words.say("@ 1 report words w1 stopped")
    words.say("@ 2 tick")
    assert words.store.children("/") == ["cluster", "counters", "ended", "supervisors"]


@pytest.mark.parametrize("path", [WAITING, BEFORE])
def test_an_unreadable_version_without_a_topology_stays_until_it_is_killed(
    scenario: Scenario, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenario.store.put(path, NEWER)
    scenario.store.put(paths.description("words-9-0"), b"of that version")
    scenario.say("@ 1 another nimbus")
    scenario.say("@ 200 ticks")
    assert stored(scenario, path) == NEWER and scenario.registry.known_ids() == {"words-9-0"}
    assert caplog.text.count("words: no topology has this name") == 1
    scenario.nimbus.kill("words")
    scenario.say("@ 201 tick")
    assert scenario.store.children("/") == ["cluster"]
    with pytest.raises(NoSuchTopology):
        scenario.nimbus.kill("words")


def test_kill_of_an_unreadable_topology_removes_its_versions_too(scenario: Scenario) -> None:
    for path in (paths.topology("words"), WAITING, BEFORE):
        scenario.store.put(path, NEWER)
    scenario.nimbus.kill("words")
    assert scenario.store.children("/") == ["cluster"]


def test_its_counters_are_kept(on_trial: Scenario, tmp_path: Path) -> None:
    counters = Counters()
    counters.count(
        "words-1-0", "w1", Incarnation(1, 0), WorkerCounters({"lines": ComponentCounters(emitted=7)})
    )
    damage(on_trial, BEFORE)
    files = FileStore(tmp_path / "files", 100, 100)
    me = NimbusRecord("n1", "http://n1", "n1")

    def asked_in_vain(other: NimbusRecord) -> Client:
        raise AssertionError("there is no other")

    house = Housekeeping(on_trial.store, files, counters, tmp_path, me, asked_in_vain, on_trial.clock)
    for _ in range(2):
        house._collect()
    assert [worker for worker, _, _ in counters.of_workers("words-1-0")] == ["w1"]
