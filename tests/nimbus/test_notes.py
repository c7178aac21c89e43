"""Which notes of a topology are kept, what becomes of them, and which one is told as the reason of a rollback."""

from __future__ import annotations

from typing import Any

from nimbus.counting import Counters
from nimbus.notes import NOTES, with_news, with_notes
from nimbus.views import Views
from squall.cluster.records import Note, TopologyRecord, WorkerReport
from supervisor.plan import Backoff
from supervisor.wording import death_note, not_started_note, waiting_note
from tests.nimbus.transcripts import Scenario

RECORD = TopologyRecord("words-1-0", "words", "ACTIVE", None, {}, {}, (), 1, None, None, 0.0)
WAITS = waiting_note("worker w1 of topology 'words'", "its environment is being built")


def report(worker: str = "w1", restart: int = 0, **fields: Any) -> WorkerReport:
    said = {"opened": False, "ended": False, "drained": False, "stopped": False, "crash": None, **fields}
    return WorkerReport(worker, (1, restart), **said)


def death(number: int, cause: str = "was killed by SIGKILL", tail: str = "") -> str:
    """What is said of the death of that number."""
    backoff = Backoff(deaths=number, since=0.0, not_before=10.0 + 2.0 ** (number - 1))
    return death_note(f"worker w1 (pid {100 + number}) of topology 'words'", cause + tail, backoff, 10.0)


def after(*reports: WorkerReport, record: TopologyRecord = RECORD) -> TopologyRecord:
    """The record when workers have said this, a second after the other."""
    last: dict[str, WorkerReport] = {}
    for time, each in enumerate(reports, 1):
        record = with_news(record, each, last.get(each.worker), float(time))
        last[each.worker] = each
    return record


def test_of_deaths_for_one_reason_the_last_is_kept_with_its_moment() -> None:
    record = after(*(report(restart=number, note=death(number)) for number in (1, 2, 3, 4, 5)))
    assert record.notes == (Note(death(5), 5.0, "w1"),)


def test_other_reasons_and_other_workers_stay_in_a_bounded_number() -> None:
    record = after(
        report(note=death(1)),
        report(restart=1, note=death(2, "ended with status 3")),
        report("w2", note=death(1)),
    )
    assert [(note.worker, note.time) for note in record.notes] == [("w1", 1.0), ("w1", 2.0), ("w2", 3.0)]
    record = after(*(report(f"w{number}", note=death(1)) for number in range(NOTES + 2)))
    assert [note.worker for note in record.notes] == [f"w{number}" for number in range(2, NOTES + 2)]


def test_what_a_worker_waits_for_is_forgotten_when_it_is_started() -> None:
    waits = report(note=WAITS, waits=True)
    assert after(waits).notes == (Note(WAITS, 1.0, "w1", True),)
    assert after(waits, report()).notes == ()
    assert after(waits, report("w2")).notes == after(waits).notes
    died = report(restart=1, note=death(1))
    assert [note.text for note in after(waits, died).notes] == [death(1)]


def test_a_worker_that_runs_has_no_note_that_promises_its_start() -> None:
    failed = not_started_note(
        "worker w1 of topology 'words'", "the disk is full", Backoff(2, 0.0, 12.0, 2), 10.0
    )
    assert "tried again" in failed and "started again in" in death(3)
    record = after(report(note=failed), report(note=death(3)))
    up = after(report(restart=1, opened=True, note=death(3)), record=record)
    ends = [note.text.partition("; its ")[2] for note in up.notes]
    assert ends == [
        "2nd failed preparation in 10 s; it was started later",
        "3rd death in 10 s; it was started again",
    ]
    assert after(report("w2", opened=True), record=record).notes == record.notes, (
        "another worker's start changes none"
    )


def test_lines_of_output_stay_as_they_were_written() -> None:
    note = death(1, tail="\n  | and it is started again in 4 s")
    (kept,) = after(report(note=note), report(restart=1, opened=True, note=note)).notes
    first, output = kept.text.split("\n")
    assert first.endswith("; it was started again")
    assert output == note.split("\n")[1]


def test_one_that_dies_again_replaces_what_was_over() -> None:
    record = after(
        report(restart=1, note=death(1)),
        report(restart=1, opened=True, note=death(1)),
        report(restart=2, note=death(2)),
    )
    assert record.notes == (Note(death(2), 3.0, "w1"),)


def test_what_is_said_of_the_topology_itself_stands_beside_its_workers_notes() -> None:
    record = with_notes(after(report(note=death(1))), ["one", "two", "one"], 9.0)
    assert [(note.text, note.worker) for note in record.notes[1:]] == [("two", ""), ("one", "")]


def test_a_worker_that_is_gone_waits_for_nothing(scenario: Scenario) -> None:
    views = Views(scenario.store, Counters(), scenario.clock.now)
    scenario.say("@ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2")
    scenario.say("@ 1 report words w2 waits note=builds")
    assert views.topology("words")["notes"] == ["builds"]
    scenario.say("@ 2 lose s2")
    told = views.topology("words")
    assert [each["worker"] for each in told["workers"]] == ["w1"]
    assert (told["notes"], told["note_times"]) == ([], [])


def fails_on_trial(scenario: Scenario, *said: str) -> str:
    """Why a version of two workers failed of which these were its reports."""
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=1; report words w1 opened")
    scenario.say("@ 1 submit words tasks=2 workers=2 replace wait=0; report words w1 stopped")
    for each in said:
        scenario.say(f"@ 2 report words {each}")
    scenario.say("@ 100 tick")
    record = scenario.nimbus.topology("words")
    assert record.state == "FAILED" and record.error is not None
    return record.error


def test_a_version_is_rolled_back_for_what_was_said_of_workers_that_are_not_up(scenario: Scenario) -> None:
    error = fails_on_trial(scenario, "w1 note=first", "w2 note=second", "w2 note=second opened")
    assert error.endswith("; its workers w1 had not opened their tasks; first")


def test_of_several_that_are_not_up_one_that_said_why_is_told(scenario: Scenario) -> None:
    error = fails_on_trial(scenario, "w2 note=boom")
    assert error.endswith("; its workers w1, w2 had not opened their tasks; boom")
