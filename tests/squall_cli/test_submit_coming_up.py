"""When a submitted topology has come up, and when it is reported that it will not: decided from its statuses alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from squall.api.answers import TopologyAnswer
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall_cli.cluster.placed import LAG_SECS
from squall_cli.packing.coming_up import HAND_OVER_SECS, ROLLBACK_SECS, TROUBLE_SECS, Arrival
from tests.squall_cli.fake_nimbus import component, happened, outline, status_of, topology, worker


def status(
    *workers: dict[str, Any], spout: dict[str, Any] | None = None, idle: str = "", **values: Any
) -> TopologyAnswer:
    components = {
        "words": component("spout", **(spout or {})),
        "count": component("bolt", executed=5 if spout else 0, idle=idle),
    }
    return status_of(topology("words", **{"workers": list(workers), "components": components, **values}))


NO_BUILD = Event(
    "not_started",
    topology="words",
    worker="w2",
    part="environment",
    error="pip ended with 1\nno such package",
)
DIED = Event(
    "died", topology="words", worker="w2", pid=10, cause=Cause("reported", "no file", 77, output=("output",))
)
DIED_THRICE = msgspec.structs.replace(DIED, attempt=3, within_secs=4.0, retry_in_secs=2.0)


def rolled_back(version: str, why: str) -> Event:
    return Event("rolled_back", version=version, successor="words-0", error=why)


def arrival(**options: Any) -> Arrival:
    return Arrival("words", "words-1", **options)


def test_stages_are_reported_once_each_in_order() -> None:
    coming = arrival()
    assert coming.update(status(), 0).now == "being scheduled"
    assert coming.update(status(), LAG_SECS + 1).now.startswith("waiting for free slots")
    assert coming.update(status(worker("w1", opened=False)), 1).stages == ("scheduled: 1 worker on 1 host",)
    seen = coming.update(status(worker("w1", opened=False)), 2)
    assert (seen.stages, seen.now) == ((), "starting: 0 of 1 worker up")
    assert coming.update(status(worker("w1")), 3).stages == ("1 worker up",)
    seen = coming.update(status(worker("w1"), spout={"emitted": 3, "pending": 3}), 4)
    assert (seen.now, seen.done) == ("waiting for the first ack: 3 emitted", False)
    seen = coming.update(status(worker("w1"), spout={"emitted": 3, "acked": 2}), 5)
    assert (seen.stages, seen.done, seen.failure) == (("first ack: 2 acked",), True, None)


def test_what_bolts_wait_for_is_said_until_the_first_ack() -> None:
    coming = arrival()
    seen = coming.update(status(worker("w1", opened=False), idle="Spark starts"), 1)
    assert seen.now == "starting: 0 of 1 worker up; count: Spark starts"
    seen = coming.update(status(worker("w1"), idle="the table is opened"), 2)
    assert seen.now == "waiting for the first tuple; count: the table is opened"
    seen = coming.update(status(worker("w1"), spout={"emitted": 3, "pending": 3}, idle="no DataNode"), 3)
    assert seen.now == "waiting for the first ack: 3 emitted; count: no DataNode"


def test_a_topology_that_completed_between_two_queries_has_come_up() -> None:
    seen = arrival().update(status(state="COMPLETED"), 0)
    assert (seen.done, seen.stages) == (True, ("completed",))


def test_a_topology_whose_input_had_been_read_before_is_completed_and_says_so() -> None:
    seen = arrival().update(status(state="COMPLETED", epoch={"number": 7, "began": 7}), 0)
    assert seen.done and seen.stages[-1] == (
        "completed: there was nothing to do: its input had been read to its end by epoch 7; to read it again, drop the state "
        "(`squall state drop words`) and submit the topology again"
    )
    seen = arrival().update(
        status(state="COMPLETED", spout={"emitted": 3}, epoch={"number": 7, "began": 7}), 0
    )
    assert seen.stages[-1] == "completed"


def test_a_topology_that_goes_on_at_the_end_of_its_input_has_come_up_although_nothing_is_acked() -> None:
    coming = arrival()
    epoch = {"number": 7, "began": 7, "quiet": False}
    assert not coming.update(status(worker("w1"), epoch=epoch), 1).done
    seen = coming.update(status(worker("w1"), epoch={**epoch, "number": 8, "quiet": True}), 2)
    assert (seen.done, seen.stages[-1]) == (
        True,
        "goes on from epoch 7; its spouts have nothing new to emit",
    )
    fresh = {"number": 1, "began": 0, "quiet": True}
    assert not arrival().update(status(worker("w1"), epoch=fresh), 2).done, (
        "a source that has never emitted anything is waited for"
    )


def test_a_topology_that_is_to_begin_with_an_epoch_is_watched_until_it_has_found_it() -> None:
    coming = arrival(begins=True)
    assert not coming.update(status(worker("w1"), epoch={"number": 0}), 1).done
    seen = coming.update(status(worker("w1"), epoch={"number": 17, "began": 17}), 2)
    assert (seen.done, seen.stages) == (True, ("begins with epoch 17",))
    failed = arrival(begins=True).update(status(state="FAILED", error="does not keep this epoch"), 1)
    assert failed.failure == "topology 'words' failed: does not keep this epoch"


def test_a_topology_that_completed_without_an_ack_has_failed() -> None:
    spout = {"emitted": 6, "failed": 6, "first_failure": "count: KeyError: 'wrod'"}
    seen = arrival().update(status(state="COMPLETED", spout=spout), 0)
    assert not seen.done
    assert str(seen.failure).startswith("6 trees of topology 'words' failed for good and none was acked")
    assert "(the topology is completed; `squall errors words` shows its errors)" in str(seen.failure)


def test_a_topology_without_message_ids_has_come_up_when_tuples_were_executed() -> None:
    coming = arrival()
    assert not coming.update(status(worker("w1", opened=False), spout={"emitted": 3}), 0).done
    seen = coming.update(status(worker("w1"), spout={"emitted": 3}), 1)
    assert (seen.done, seen.stages[-1]) == (True, "first tuples executed; none of them is tracked")


def test_an_inactive_topology_has_come_up_when_it_is_scheduled() -> None:
    seen = arrival(active=False).update(status(worker("w1", opened=False), state="INACTIVE"), 0)
    assert (seen.done, seen.stages[-1]) == (True, "inactive: `squall activate words` lets it run")


def test_leaving_workers_are_not_waited_for() -> None:
    workers = [
        worker("w1"),
        worker("w0", opened=False, state="STOPPING"),
        worker("w2", opened=False, state="LOST"),
    ]
    assert "1 worker up" in arrival().update(status(*workers), 0).stages


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"state": "FAILED", "error": "boom"}, "topology 'words' failed: boom"),
        ({"state": "BAD", "error": "format 9"}, "cannot be read in the store: format 9"),
        ({"state": "KILLED"}, "is being killed"),
        (happened(NO_BUILD), "\n`squall logs words --file build`"),
        (
            {"spout": {"emitted": 2, "failed": 2, "first_failure": "count: boom"}},
            "2 trees of topology 'words' failed for good and none was acked; the first: count: boom",
        ),
    ],
)  # fmt: skip
def test_the_reason_why_it_does_not_come_up_is_reported(values: dict[str, Any], reason: str) -> None:
    failure = arrival().update(status(worker("w1"), **values), 0).failure
    assert failure is not None
    assert reason in failure


def test_a_component_that_cannot_start_is_named_as_the_reason_that_no_tree_was_acked() -> None:
    spout = {"emitted": 20, "failed": 20, "failures": {"stopped": 20}}
    errors = [
        outline("count", 2, "execute", "KeyError: 'a'"),
        outline("store", 3, "prepare", "NotInstalled: no Java\nInstall Java 17."),
    ]
    assert arrival().update(status(worker("w1"), spout=spout, error_reports=errors), 0).failure == (
        "20 trees of topology 'words' were cut off when workers stopped and none was acked;"
        " the reason: store[3]: prepare() raised NotInstalled: no Java"
        " (the topology continues; `squall errors words` shows its errors)"
    )
    told = arrival().update(status(worker("w1"), spout=spout, error_reports=errors[:1]), 0).failure
    assert "; the reason: count[2]: execute() raised KeyError: 'a' (the topology continues" in str(told)


def test_workers_that_keep_dying_are_given_up_without_progress() -> None:
    coming = arrival()
    dying = status(worker("w1"), worker("w2", opened=False), **happened(DIED_THRICE))
    assert coming.update(dying, 0).failure is None
    now = coming.update(dying, TROUBLE_SECS - 1).now
    assert now == "starting: 1 of 2 workers up (worker w2: its 3rd death in 4 s; it is started again in 2 s)"
    assert f"the latest event: {sentence(DIED_THRICE)}" in str(coming.update(dying, TROUBLE_SECS + 1).failure)


def test_a_bolt_that_is_down_ends_the_wait_after_half_a_minute_without_an_ack() -> None:
    coming = arrival()
    error = "ConnectionError: no store there"

    def answer(emitted: int, *down: int) -> TopologyAnswer:
        tasks = [{"task": task, "since": 0.0, "error": error} for task in down]
        components = {
            "words": component("spout", emitted=emitted, pending=emitted),
            "count": component("bolt", tasks=2, down=tasks),
        }
        return status_of(topology("words", workers=[worker("w1")], components=components))

    one = coming.update(answer(1, 3), 0)
    assert one.failure is None and one.stages[-1] == f"task 3 of count has been down: {error}"
    assert one.now == "waiting for the first ack: 1 emitted"
    seen = coming.update(answer(2, 3), 2 * TROUBLE_SECS)
    assert (seen.failure, seen.stages) == (None, ()), "one of its tasks works"
    seen = coming.update(answer(3, 3, 4), 2 * TROUBLE_SECS + 1)
    assert (seen.failure, seen.stages) == (None, (f"count has been down: {error}",)), "at once"
    assert seen.now == "waiting for the first ack: 3 emitted (count is down)"
    assert coming.update(answer(4, 3, 4), 3 * TROUBLE_SECS).failure is None
    failure = str(coming.update(answer(5, 3, 4), 3 * TROUBLE_SECS + 1).failure)
    assert failure.startswith(f"count has been down: {error}, and no tree was acked")
    assert "`squall errors words`" in failure


def test_repeated_deaths_are_shown_in_full_once_and_then_counted() -> None:
    coming = arrival()
    first = coming.update(status(worker("w2", opened=False), **happened(DIED)), 0)
    assert first.stages[-1] == sentence(DIED) and sentence(DIED).endswith("no file\n  | output")
    assert first.now == "starting: 0 of 1 worker up"
    death = msgspec.structs.replace(DIED, pid=11, attempt=2, within_secs=1.0, retry_in_secs=0.0)
    again = coming.update(status(worker("w2", opened=False), **happened(death)), 0)
    assert again.stages == ()
    said = "worker w2: its 2nd death in 1 s; it is started again at once"
    assert again.now == f"starting: 0 of 1 worker up ({said})"


def test_a_lack_of_slots_is_reported_once_and_waiting_goes_on() -> None:
    coming = arrival()
    coming.update(status(), 0)
    assert coming.update(status(), TROUBLE_SECS - 1).stages == ()
    seen = coming.update(status(), TROUBLE_SECS)
    assert seen.stages == (
        "no slot was free for 30 s; still waiting (Ctrl-C ends only the wait: the topology stays submitted)",
    )
    assert seen.now.startswith("waiting for free slots")
    late = coming.update(status(), 10 * TROUBLE_SECS)
    assert (late.stages, late.failure) == ((), None)
    assert coming.update(status(worker("w1")), 11 * TROUBLE_SECS).stages[0].startswith("scheduled: 1 worker")


def test_progress_is_waited_for_however_long_it_takes() -> None:
    coming = arrival()
    notes = ["w2 died once"]
    for number in range(5):
        seen = coming.update(
            status(worker("w1"), spout={"emitted": number, "pending": number + 1}, notes=notes),
            number * TROUBLE_SECS,
        )
        assert seen.failure is None
    quiet = arrival()
    for now in (0, 10 * TROUBLE_SECS):  # a source without data yet, and no sign of trouble
        assert quiet.update(status(worker("w1")), now).now == "waiting for the first tuple"


def test_a_topology_that_is_not_listed_yet_is_given_a_moment() -> None:
    coming = arrival()
    assert coming.missing(LAG_SECS - 1).failure is None
    assert "it was killed" in str(coming.missing(LAG_SECS + 1).failure)
    coming = arrival()
    coming.update(status(), 0)
    assert "it was killed" in str(coming.missing(1).failure)


def test_a_replacement_waits_for_the_drain_and_reports_when_the_old_one_has_the_name_again() -> None:
    coming = arrival()
    assert coming.update(status(id="words-0"), 0).now == "waiting for Nimbus to begin"
    assert (
        coming.update(status(id="words-0", state="REPLACING"), 60).now
        == "waiting for the drain of the previous version"
    )
    assert coming.update(status(worker("w1", opened=False)), 90).stages == ("scheduled: 1 worker on 1 host",)
    events = happened(rolled_back("words-1", "it did not open"), DIED)
    failure = coming.update(status(worker("w1"), id="words-0", **events), 91).failure
    assert (
        failure
        == "the new version of 'words' was rolled back, the previous version has the name again: it did not open"
    )


def on_trial(secs: float, *workers: dict[str, Any], **values: Any) -> TopologyAnswer:
    return status(*workers, stands_by={"id": "words-0", "secs": secs}, **values)


STANDS_BY = (
    "the previous version (words-0) runs again unless this one starts within 40.0 s and processes its tuples"
)


def test_a_failed_build_that_has_succeeded_since_is_no_failure() -> None:
    over = msgspec.structs.replace(NO_BUILD, retry_in_secs=1.0, over=True)
    assert arrival().update(status(worker("w1"), **happened(over)), 0).failure is None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            happened(NO_BUILD),
            (sentence(NO_BUILD), "`squall logs words --file build` shows the whole output", STANDS_BY),
        ),
        (happened(DIED), (sentence(DIED), STANDS_BY)),
        ({"spout": {"emitted": 2, "failed": 2}}, (STANDS_BY,)),
        ({"errors": ["ValueError: 5"]}, (STANDS_BY,)),
    ],
    ids=["build", "death", "failed trees", "error"],
)  # fmt: skip
def test_errors_on_trial_are_reported_once_and_the_outcome_is_waited_for(
    values: dict[str, Any], told: tuple[str, ...]
) -> None:
    coming = arrival(replaces=True)
    workers = worker("w1"), worker("w2", opened=False)
    assert coming.update(on_trial(60.0, *workers), 0).stages == ("scheduled: 2 workers on 1 host",)
    assert coming.update(on_trial(40.0, *workers, **values), 20).stages == told
    seen = coming.update(on_trial(0.5, *workers, **values), 10 * TROUBLE_SECS)
    assert (seen.stages, seen.done, seen.failure) == ((), False, None)
    seen = coming.update(
        status(worker("w1"), id="words-0", **happened(rolled_back("words-1", "w2 was not up"))), 301
    )
    assert str(seen.failure).endswith("the previous version has the name again: w2 was not up")


def test_acked_trees_are_no_success_while_the_previous_version_may_come_back() -> None:
    coming = arrival(replaces=True)
    acked = {"emitted": 3, "acked": 2}
    seen = coming.update(on_trial(50.0, worker("w1"), worker("w2", opened=False), spout=acked), 0)
    assert (seen.done, seen.now) == (False, "starting: 1 of 2 workers up")
    assert seen.stages == ("scheduled: 2 workers on 1 host", "first ack: 2 acked")
    up = worker("w1"), worker("w2")
    assert coming.update(on_trial(48.0, *up, spout=acked), 2).now == "on trial: 2 acked, 0 failed"
    more = {"emitted": 900, "acked": 412, "failed": 1, "replayed": 3}
    seen = coming.update(on_trial(46.0, *up, spout=more), 4)
    assert seen.now == "on trial: 412 acked, 1 failed, 3 tried again"
    assert seen.stages == ("the previous version (words-0) runs again if the tuples of this one fail",)
    seen = coming.update(status(*up, spout={"emitted": 900, "acked": 514}), 12)
    assert (seen.stages, seen.done) == (("trial passed: 514 acked",), True)


def test_a_trial_without_an_ack_is_passed_as_well() -> None:
    quiet = arrival(replaces=True)
    assert quiet.update(on_trial(1.0, worker("w1")), 0).now == "waiting for the first tuple"
    assert not quiet.update(status(worker("w1", opened=False)), 1).done
    seen = quiet.update(status(worker("w1")), 2)
    assert (seen.stages, seen.done) == (("trial passed: its workers are up, and nothing failed",), True)
    untracked = arrival(replaces=True)
    seen = untracked.update(on_trial(9.0, worker("w1"), spout={"emitted": 7}), 0)
    assert seen.now == "on trial: tuples are executed; none of them is tracked"
    seen = untracked.update(status(worker("w1"), spout={"emitted": 7}), 1)
    assert (seen.stages, seen.done) == (("trial passed: tuples executed; none of them is tracked",), True)


def test_the_trial_of_an_inactive_version_begins_later() -> None:
    later: dict[str, Any] = {
        "stands_by": {"id": "words-0", "secs": 0.0, "suspended": True},
        "state": "INACTIVE",
    }
    seen = arrival(replaces=True, active=False).update(status(worker("w1", opened=False), **later), 0)
    begins = "on trial, which begins at `squall activate words`; the previous version (words-0) is on standby"
    assert (seen.done, seen.stages[-1]) == (True, f"inactive: {begins}")
    coming = arrival(replaces=True)  # it was deactivated during its trial
    acked = {"emitted": 3, "acked": 2}
    coming.update(on_trial(50.0, worker("w1"), spout=acked), 0)
    seen = coming.update(status(worker("w1"), spout=acked, **later), 1)
    assert (seen.done, seen.now) == (False, "waiting for the trial to begin: `squall activate words`")


def test_a_replacement_that_is_up_is_judged_as_any_other_from_then_on() -> None:
    coming = arrival(replaces=True)
    notes = ["w1 died"]
    coming.update(on_trial(1.0, worker("w1", opened=False), notes=notes), 0)
    coming.update(on_trial(1.0, worker("w1", opened=False), notes=notes), 100)
    proved = status(worker("w1", opened=False), notes=notes)
    assert coming.update(proved, 100 + TROUBLE_SECS - 1).failure is None
    assert "no progress for 30 s" in str(coming.update(proved, 100 + TROUBLE_SECS + 1).failure)


def test_the_cause_of_an_earlier_rollback_is_not_that_of_this_one() -> None:
    coming = arrival(replaces=True)
    coming.update(status(), 0)
    earlier = happened(rolled_back("words-9", "no such table"))
    failure = coming.update(status(id="words-0", **earlier), 1).failure
    assert failure == "the new version of 'words' was rolled back, the previous version has the name again"


def test_a_replacement_that_failed_is_waited_for_until_the_previous_version_is_there_again() -> None:
    coming = arrival(replaces=True)
    failed = status(state="FAILED", error="no such table")
    assert coming.update(failed, 1.0).failure is None
    back = happened(rolled_back("words-1", "no such table"))
    seen = coming.update(status(id="words-0", **back), 3.0)
    assert "the previous version has the name again: no such table" in str(seen.failure)
    late = arrival(replaces=True)
    late.update(failed, 1.0)
    assert "no such table" in str(late.update(failed, 1.0 + ROLLBACK_SECS).failure)


def test_the_wait_for_a_rollback_ends_when_the_pending_tuples_were_handed_over_or_kept() -> None:
    back = msgspec.structs.replace(rolled_back("words-1", "its tuples fail"), count=5)
    facts: dict[str, Any] = {
        "topology": "words",
        "version": "words-1",
        "successor": "words-0",
        "component": "lines",
    }
    handed = Event("handed_over", count=3, **facts)
    kept = Event("handed_over", count=2, error="words has no spout lines any more", **facts)
    coming = arrival(replaces=True)
    coming.update(status(), 0)
    for now, events in ((1, [back]), (2, [back, handed])):
        seen = coming.update(status(id="words-0", **happened(*events)), now)
        assert (seen.failure, "being handed to" in seen.now) == (None, True)
    first, *lines = str(coming.update(status(id="words-0", **happened(back, handed, kept)), 3).failure).split(
        "\n"
    )
    assert first.endswith("the previous version has the name again: its tuples fail")
    assert lines == [
        "3 tuples of lines that were pending in words-1 were handed to words-0",
        "2 tuples of lines that were pending in words-1 are kept as dead letters: words has no spout lines any more"
        " (`squall dead-letters words list`)",
    ]
    late = arrival(replaces=True)
    late.update(status(), 0)
    late.update(status(id="words-0", **happened(back)), 1)
    assert late.update(status(id="words-0", **happened(back)), 1 + HAND_OVER_SECS).failure is not None


def test_a_replacement_that_never_had_the_name_is_reported_as_well() -> None:
    coming = arrival()
    coming.update(status(id="words-0", state="REPLACING"), 0)
    assert coming.update(status(id="words-0"), 1).failure is None
    assert "was rolled back" in str(coming.update(status(id="words-0"), LAG_SECS + 1).failure)
