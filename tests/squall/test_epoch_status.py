"""What users see of the epochs of a topology, from the reports of its workers."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.epoch_status import EpochReport, EpochWait, LeadReport, SlowTask, status_of

LEAD = LeadReport(
    7, 19, committed=98.0, duration=0.2, longest=0.9, bytes=1_200, slowest=SlowTask("count", 5, 0.15), rewinds=2,
    rewound=60.0, rewind_reason="the process of worker w2 has ended",
)  # fmt: skip


def test_the_age_is_that_of_the_last_commit_and_never_negative() -> None:
    found = status_of(None, [EpochReport(LEAD), EpochReport()], 100.0)
    assert found is not None
    assert (found.number, found.age, found.duration, found.longest) == (19, 2.0, 0.2, 0.9)
    assert (found.rewinds, found.rewound, found.waits) == (2, 60.0, ())
    early = status_of(None, [EpochReport(LEAD)], 97.0)  # the clocks of two hosts differ
    assert early is not None and early.age == 0.0


def test_without_reports_there_are_no_epochs() -> None:
    assert status_of(None, [], 1.0) is None


def test_the_last_coordinator_is_remembered_until_the_next_one_reports() -> None:
    """While its worker is started again, number and age go on."""
    found = status_of(LEAD, [EpochReport()], 100.0)
    assert found is not None and (found.number, found.age) == (19, 2.0)
    new = status_of(LEAD, [EpochReport(LeadReport(9, 19, rewinds=3))], 100.0)
    assert new is not None and (new.rewinds, new.age) == (3, None)
    old = status_of(structs.replace(LEAD, rewind=12, number=21), [EpochReport(LEAD)], 100.0)
    assert old is not None and old.number == 21, "a coordinator that has not heard that another one leads"


def test_an_epoch_that_does_not_end_names_its_tasks_those_with_a_reason_first() -> None:
    lead = structs.replace(
        LEAD, step="alignment", since=90.0, waiting=(("newest", 7), ("count", 4), ("count", 5)), more=3
    )
    why = EpochWait("alignment", 91.0, "no barrier from words[1]", "count", 5)
    after = EpochWait("alignment", 91.0, "no barrier from count[5]", "newest", 7, follows=True)
    others = [
        EpochWait("alignment", 91.0, "it is there by now", "pass", 3),
        EpochWait("rewind", 1.0, "no", "count", 4),
    ]
    found = status_of(None, [EpochReport(lead), EpochReport(None, (after, why, *others))], 100.0)
    assert found is not None
    assert found.waits == (
        replace(why, since=90.0),
        replace(after, since=90.0),
        EpochWait("alignment", 90.0, "", "count", 4),
    )
    assert found.more_waits == 3
    due = status_of(None, [EpochReport(lead)], 95.0)
    assert due is not None and len(due.waits) == 3
    soon = status_of(None, [EpochReport(lead)], 94.9)
    assert soon is not None and soon.waits == (), "an end of a few seconds is no news"
    gone = status_of(lead, [EpochReport()], 100.0)
    assert gone is not None and gone.waits == (), "nobody waits any more: its process has ended"


def test_what_several_workers_wait_for_is_said_once_since_the_first() -> None:
    waits = [EpochWait("store", since, "no space left on device") for since in (50.0, 40.0)]
    spout = EpochWait("commit", 45.0, "10,000 tuples wait", "words", 1)
    reports = [EpochReport(LEAD, (waits[0],)), EpochReport(None, (waits[1], spout))]
    found = status_of(None, reports, 100.0)
    assert found is not None and found.waits == (waits[1], spout)


def test_reports_travel_unchanged_and_cost_nothing_without_epochs() -> None:
    report = EpochReport(structs.replace(LEAD, waiting=(("count", 4),)), (EpochWait("store", 1.0, "away"),))
    count = ComponentCounters(keys=0, parked=2)
    words = ComponentCounters(uncommitted=7)
    sent = WorkerCounters({"count": count, "words": words}, (), 3, epochs=report)
    assert WorkerCounters.from_bytes(sent.to_bytes()) == sent
    plain = WorkerCounters({"count": ComponentCounters(executed=1)}, (), 3).to_bytes()
    assert not any(each in plain for each in (b"epochs", b"keys", b"parked", b"uncommitted"))


def test_keys_are_added_over_workers_and_of_uncommitted_tuples_the_fullest_task_counts() -> None:
    total = ComponentCounters()
    for keys, parked, uncommitted in ((3, 1, None), (None, 0, 5), (4, 2, 2)):
        total.add_present(ComponentCounters(keys=keys, parked=parked, uncommitted=uncommitted))
    assert (total.keys, total.parked, total.uncommitted) == (7, 3, 5)
