"""For which assignment a report counts, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nimbus.leader.master import Nimbus
from nimbus.lifecycle.notes import NOTES, with_news
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.reports.events import Event, subject
from squall.values import Incarnation, TaskRow, TopologyState
from tests.flaky_store import AFTER, Death, FlakyStore
from tests.nimbus.transcripts import Play, a_topology
from topology_api.options import defaults

TASKS = (TaskRow(1, "lines", 0), TaskRow(2, "lines", 1), TaskRow(3, "count", 0))
RECORD = TopologyRecord("words-1-0", "words", TopologyState.ACTIVE, None, {}, {}, TASKS, 1, None, None, 0.0)


def report(finished: tuple[int, ...] = (), note: str | None = None) -> WorkerReport:
    return WorkerReport(
        "w1", Incarnation(1, 0), True, False, False, False, None, finished=finished, note=note
    )


def test_a_worker_that_had_ended_before_it_got_more_tasks_has_not_ended(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s2/0 (1,0): 2
        @ 1 report words w1 ended version=1
        = nothing changes
        @ 2 lose s2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 3 report words w1 ended version=1
        = nothing changes
        @ 4 report words w1 version=2
        = nothing changes
        @ 5 report words w1 ended version=2
        words COMPLETED
          leaving w1 s1/0 (1,0): 1 2
    """)


def test_a_worker_that_has_drained_without_its_newest_tasks_is_waited_for(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s2/0 (1,0): 2
        @ 2 lose s2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 3 kill words
        words KILLED until 33
          w1 s1/0 (1,0): 1 2
        @ 4 report words w1 drained version=1
        = nothing changes
        @ 5 report words w1 drained version=2
        words KILLED until 33
          leaving w1 s1/0 (1,0): 1 2
    """)


def test_a_drained_report_after_the_rebalance_does_not_count_for_the_next_one(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 rebalance words
        words REBALANCING until 31
          w1 s1/0 (1,0): 1
        @ 2 report words w1 drained
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 3 report words w1 opened drained
        = nothing changes
        @ 4 rebalance words
        words REBALANCING until 34
          w1 s1/0 (1,0): 1
        @ 5 report words w1 opened
        = nothing changes
        @ 6 report words w1 opened drained
        words ACTIVE
          w1 s1/0 (1,0): 1
    """)


def test_deaths_of_workers_are_in_the_record_the_latest_last(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 report words w1 note=SIGKILL incarnation=1,1
        words ACTIVE
          w1 s1/0 (1,0): 1
          note: SIGKILL
        @ 2 report words w1 opened note=SIGKILL incarnation=1,1
        = nothing changes
        @ 3 report words w1 note=SIGSEGV incarnation=1,2
        words ACTIVE
          w1 s1/0 (1,0): 1
          note: SIGKILL
          note: SIGSEGV
        @ 4 report words w1 note=SIGABRT incarnation=1,1
        ! refused
    """)


def key(note: str) -> Event:
    return subject(Event("text", error=note))


@example([str(number) for number in range(NOTES + 2)])
@given(st.lists(st.none() | st.text(max_size=3), max_size=20))
def test_only_the_latest_notes_are_kept(said: list[str | None]) -> None:
    record, last = RECORD, None
    expected: list[str] = []
    for note in said:
        now = report(note=note)
        if note is not None and (last is None or last.note != note):
            expected = [each for each in expected if key(each) != key(note)] + [note]
        record, last = with_news(record, now, last, 7.0), now
        expected = expected[-NOTES:]
    assert [note.text for note in record.notes] == expected


@given(st.lists(st.lists(st.integers(1, 5), max_size=4).map(tuple), max_size=6))
def test_a_finished_task_stays_finished_and_only_existing_tasks_finish(
    said: list[tuple[int, ...]],
) -> None:
    record = RECORD
    for finished in said:
        now = with_news(record, report(finished), None, 7.0)
        assert now.finished[: len(record.finished)] == record.finished
        record = now
    assert sorted(record.finished) == sorted({1, 2, 3} & {task for one in said for task in one})


def test_a_report_without_news_leaves_the_record_unchanged() -> None:
    assert with_news(RECORD, report(), None, 7.0) == RECORD


def test_finished_tasks_are_recorded_though_nimbus_died_over_the_report() -> None:
    store, clock = FlakyStore(InMemoryStore()), ManualClock()
    registry, nimbus = Registry(store), Nimbus(store, clock)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    topology_id = nimbus.submit(Submission(a_topology("words", 2), defaults(), {})).id
    store.error = Death
    store.fail_write(1, AFTER)
    with pytest.raises(Death):
        nimbus.report("words", "w1", report((2,)))
    nimbus.close()
    nimbus = Nimbus(store, clock)
    assert nimbus.report("words", "w1", report((2,)))
    assert nimbus.topology("words").finished == (2,)
    assert registry.report(topology_id, "w1") == report((2,))
