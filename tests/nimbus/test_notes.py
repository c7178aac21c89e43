"""Which notes of a topology are kept, how they are updated, and which one is shown as the reason of a rollback."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nimbus.counters.counting import Counters
from nimbus.http.views import Views
from nimbus.lifecycle.notes import NOTES, with_events, with_news
from squall.cluster.records import TopologyRecord, WorkerReport
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall.values import Incarnation, TopologyState
from tests.nimbus.transcripts import Scenario

RECORD = TopologyRecord("words-1-0", "words", TopologyState.ACTIVE, None, {}, {}, (), 1, None, None, 0.0)
WAITS = Event("waits", topology="words", worker="w1", part="environment")
KILLED = Cause("signal", signal=9)


def report(worker: str = "w1", restart: int = 0, **fields: Any) -> WorkerReport:
    said = {"opened": False, "ended": False, "drained": False, "stopped": False, "crash": None, **fields}
    return WorkerReport(worker, Incarnation(1, restart), **said)


def death(number: int, cause: Cause = KILLED, worker: str = "w1") -> Event:
    """The event of the death of that number."""
    return Event(
        "died", topology="words", worker=worker, pid=100 + number, cause=cause, attempt=number, within_secs=10.0,
        retry_in_secs=2.0 ** (number - 1),
    )  # fmt: skip


def kept(record: TopologyRecord) -> list[Event]:
    assert all(note.text == sentence(note.fact) for note in record.notes), "older daemons read this"
    return [note.fact for note in record.notes]


def at(time: float, event: Event) -> Event:
    return replace(event, time=time)


def after(*reports: WorkerReport, record: TopologyRecord = RECORD) -> TopologyRecord:
    """The record after workers have reported these, one second apart."""
    last: dict[str, WorkerReport] = {}
    for time, each in enumerate(reports, 1):
        record = with_news(record, each, last.get(each.worker), float(time))
        last[each.worker] = each
    return record


def test_of_deaths_with_the_same_reason_the_last_is_kept_with_its_time() -> None:
    record = after(*(report(restart=number, event=death(number)) for number in (1, 2, 3, 4, 5)))
    assert kept(record) == [at(5.0, death(5))]


def test_other_reasons_and_other_workers_are_kept_in_a_bounded_number() -> None:
    record = after(
        report(event=death(1)),
        report(restart=1, event=death(2, Cause("status", status=3))),
        report("w2", event=death(1, worker="w2")),
    )
    assert [(note.worker, note.time) for note in record.notes] == [("w1", 1.0), ("w1", 2.0), ("w2", 3.0)]
    record = after(
        *(report(f"w{number}", event=death(1, worker=f"w{number}")) for number in range(NOTES + 2))
    )
    assert [note.worker for note in record.notes] == [f"w{number}" for number in range(2, NOTES + 2)]


def test_the_wait_of_a_worker_is_forgotten_when_it_is_started() -> None:
    waits = report(event=WAITS, waits=True)
    assert kept(after(waits)) == [at(1.0, WAITS)]
    assert after(waits, report()).notes == ()
    assert after(waits, report("w2")).notes == after(waits).notes
    died = report(restart=1, event=death(1))
    assert kept(after(waits, died)) == [at(2.0, death(1))]


def test_a_running_worker_has_no_event_that_promises_its_start() -> None:
    failed = Event(
        "not_started",
        topology="words",
        worker="w1",
        error="the disk is full",
        attempt=2,
        within_secs=10.0,
        retry_in_secs=2.0,
    )
    assert "tried again in" in sentence(failed) and "started again in" in sentence(death(3))
    record = after(report(event=failed), report(event=death(3)))
    up = after(report(restart=1, opened=True, event=death(3)), record=record)
    assert [sentence(event).partition("; its ")[2] for event in kept(up)] == [
        "2nd failed preparation in 10 s; it was started later",
        "3rd death in 10 s; it was started again",
    ]
    assert after(report("w2", opened=True), record=record).notes == record.notes, (
        "another worker's start changes none"
    )


def test_lines_of_output_are_kept_unchanged() -> None:
    event = death(1, Cause("status", status=3, output=("and it is started again in 4 s",)))
    (up,) = kept(after(report(event=event), report(restart=1, opened=True, event=event)))
    first, output = sentence(up).split("\n")
    assert first.endswith("; it was started again")
    assert output == "  | and it is started again in 4 s"


def test_another_death_replaces_a_past_one() -> None:
    record = after(
        report(restart=1, event=death(1)),
        report(restart=1, opened=True, event=death(1)),
        report(restart=2, event=death(2)),
    )
    assert kept(record) == [at(3.0, death(2))]


def test_events_of_the_topology_itself_are_kept_beside_its_workers_events() -> None:
    one, two = (Event("replacement_gone", version=version) for version in ("one", "two"))
    record = with_events(after(report(event=death(1))), [one, two, one], 9.0)
    assert kept(record)[1:] == [at(9.0, two), at(9.0, one)]


def test_notes_of_an_earlier_release_are_kept_as_texts() -> None:
    record = after(
        report(note="it died"), report(note="it died"), report(restart=1, opened=True, note="it died")
    )
    assert kept(record) == [Event("text", 1.0, worker="w1", error="it died")]


def test_a_worker_that_is_gone_waits_for_nothing(scenario: Scenario) -> None:
    views = Views(scenario.store, Counters(), scenario.clock.now)
    scenario.say("@ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2")
    scenario.say("@ 1 report words w2 waits note=builds")
    assert views.topology("words").notes == ["builds"]
    scenario.say("@ 2 lose s2")
    told = views.topology("words")
    assert [each.worker for each in told.workers] == ["w1"]
    assert (told.notes, told.note_times) == ([], [])


def fails_on_trial(scenario: Scenario, *said: str) -> str:
    """The reason why a version of two workers failed, after these reports."""
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=1; report words w1 opened")
    scenario.say("@ 1 submit words tasks=2 workers=2 replace wait=0; report words w1 stopped")
    for each in said:
        scenario.say(f"@ 2 report words {each}")
    scenario.say("@ 100 tick")
    record = scenario.nimbus.topology("words")
    assert record.state == "FAILED" and record.error is not None
    return record.error


def test_a_version_is_rolled_back_for_the_reports_of_workers_that_are_not_up(scenario: Scenario) -> None:
    error = fails_on_trial(scenario, "w1 note=first", "w2 note=second", "w2 note=second opened")
    assert error.endswith("; its workers w1 had not opened their tasks; first")


def test_of_several_workers_that_are_not_up_one_with_a_reason_is_named(scenario: Scenario) -> None:
    error = fails_on_trial(scenario, "w2 note=boom")
    assert error.endswith("; its workers w1, w2 had not opened their tasks; boom")
