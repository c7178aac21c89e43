"""When a submitted topology has come up, and when it is said that it will not: decided from its statuses alone."""

from __future__ import annotations

from typing import Any

import pytest

from squall.status import CANNOT_BUILD
from squall_cli.coming_up import ROLLBACK_SECS, TROUBLE_SECS, Arrival
from squall_cli.placed import LAG_SECS
from tests.squall_cli.fake_nimbus import component, topology, worker


def status(*workers: dict[str, Any], spout: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    components = {
        "words": component("spout", **(spout or {})),
        "count": component("bolt", executed=5 if spout else 0),
    }
    return topology("words", **{"workers": list(workers), "components": components, **values})


def arrival(**options: Any) -> Arrival:
    return Arrival("words", "words-1", **options)


def test_steps_are_told_once_each_in_their_order() -> None:
    coming = arrival()
    assert coming.look(status(), 0).now == "being scheduled"
    assert coming.look(status(), LAG_SECS + 1).now.startswith("waiting for free slots")
    assert coming.look(status(worker("w1", opened=False)), 1).stages == ("scheduled: 1 worker on 1 host",)
    seen = coming.look(status(worker("w1", opened=False)), 2)
    assert (seen.stages, seen.now) == ((), "starting: 0 of 1 worker up")
    assert coming.look(status(worker("w1")), 3).stages == ("1 worker up",)
    seen = coming.look(status(worker("w1"), spout={"emitted": 3, "pending": 3}), 4)
    assert (seen.now, seen.done) == ("waiting for the first ack: 3 emitted", False)
    seen = coming.look(status(worker("w1"), spout={"emitted": 3, "acked": 2}), 5)
    assert (seen.stages, seen.done, seen.failure) == (("first ack: 2 acked",), True, None)


def test_a_topology_that_completed_between_two_looks_has_come_up() -> None:
    seen = arrival().look(status(state="COMPLETED"), 0)
    assert (seen.done, seen.stages) == (True, ("completed",))


def test_one_without_message_ids_has_come_up_when_tuples_were_executed() -> None:
    coming = arrival()
    assert not coming.look(status(worker("w1", opened=False), spout={"emitted": 3}), 0).done
    seen = coming.look(status(worker("w1"), spout={"emitted": 3}), 1)
    assert (seen.done, seen.stages[-1]) == (True, "first tuples executed; none of them is tracked")


def test_an_inactive_one_has_come_up_when_it_is_scheduled() -> None:
    seen = arrival(active=False).look(status(worker("w1", opened=False), state="INACTIVE"), 0)
    assert (seen.done, seen.stages[-1]) == (True, "inactive: `squall activate words` lets it run")


def test_workers_on_their_way_out_are_not_waited_for() -> None:
    workers = [
        worker("w1"),
        worker("w0", opened=False, state="STOPPING"),
        worker("w2", opened=False, state="LOST"),
    ]
    assert "1 worker up" in arrival().look(status(*workers), 0).stages


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"state": "FAILED", "error": "boom"}, "topology 'words' failed: boom"),
        ({"state": "BAD", "error": "format 9"}, "cannot be read in the store: format 9"),
        ({"state": "KILLED"}, "is being killed"),
        ({"notes": [f"{CANNOT_BUILD}: pip ended with 1\nno such package"]}, "\n`squall logs words --file build`"),
        (
            {"spout": {"emitted": 2, "failed": 2, "first_failure": "count: boom"}},
            "2 trees of topology 'words' failed for good and none was acked; the first: count: boom",
        ),
    ],
)  # fmt: skip
def test_what_keeps_it_from_coming_up_is_told(values: dict[str, Any], reason: str) -> None:
    failure = arrival().look(status(worker("w1"), **values), 0).failure
    assert failure is not None
    assert reason in failure


def test_a_component_that_cannot_start_is_named_as_the_reason_that_no_tree_was_acked() -> None:
    spout = {"emitted": 20, "failed": 20, "failures": {"stopped": 20}}
    errors = [
        "count[2] of topology 'words': execute() raised KeyError: 'a'\n  at count.py:3, in execute",
        "store[3] of topology 'words': prepare() raised NotInstalled: no Java\n    Install Java 17.",
    ]
    assert arrival().look(status(worker("w1"), spout=spout, errors=errors), 0).failure == (
        "20 trees of topology 'words' were cut off when workers stopped and none was acked;"
        " the reason: store[3]: prepare() raised NotInstalled: no Java (it goes on: `squall errors words`)"
    )
    told = arrival().look(status(worker("w1"), spout=spout, errors=errors[:1]), 0).failure
    assert "; the reason: count[2]: execute() raised KeyError: 'a' (it goes on" in str(told)


def test_workers_that_go_on_dying_are_given_up_when_nothing_gets_better() -> None:
    coming = arrival()
    note = "worker w2 died; its 3rd death in 4 s; it is started again in 2 s"
    dying = status(worker("w1"), worker("w2", opened=False), notes=[note])
    assert coming.look(dying, 0).failure is None
    now = coming.look(dying, TROUBLE_SECS - 1).now
    assert now == "starting: 1 of 2 workers up (worker w2: its 3rd death in 4 s; it is started again in 2 s)"
    assert "the last that was said: worker w2 died" in str(coming.look(dying, TROUBLE_SECS + 1).failure)


def test_deaths_for_one_reason_are_told_in_full_once_and_then_counted() -> None:
    coming = arrival()
    sentence = (
        "worker w1 (pid {}) of topology 'words' ended by itself: no file; {}it is started again at once"
    )

    def dying(pid: int, count: str) -> Any:
        note = sentence.format(pid, count) + "\n  | a line of its output"
        return coming.look(status(worker("w1", opened=False), notes=[note]), 0)

    first = dying(10, "")
    assert first.stages[-1] == sentence.format(10, "") + "\n  | a line of its output"
    assert first.now == "starting: 0 of 1 worker up"
    again = dying(11, "its 2nd death in 1 s; ")
    assert again.stages == ()
    said = "worker w1: its 2nd death in 1 s; it is started again at once"
    assert again.now == f"starting: 0 of 1 worker up ({said})"


def test_that_no_slot_becomes_free_is_said_once_and_it_is_waited_further() -> None:
    coming = arrival()
    coming.look(status(), 0)
    assert coming.look(status(), TROUBLE_SECS - 1).stages == ()
    seen = coming.look(status(), TROUBLE_SECS)
    assert seen.stages == (
        "no slot was free for 30 s; one is waited for further, and Ctrl-C leaves it submitted",
    )
    assert seen.now.startswith("waiting for free slots")
    late = coming.look(status(), 10 * TROUBLE_SECS)
    assert (late.stages, late.failure) == ((), None)
    assert coming.look(status(worker("w1")), 11 * TROUBLE_SECS).stages[0].startswith("scheduled: 1 worker")


def test_what_gets_better_is_waited_for_however_long_it_takes() -> None:
    coming = arrival()
    notes = ["w2 died once"]
    for number in range(5):
        seen = coming.look(
            status(worker("w1"), spout={"emitted": number, "pending": number + 1}, notes=notes),
            number * TROUBLE_SECS,
        )
        assert seen.failure is None
    quiet = arrival()
    for now in (0, 10 * TROUBLE_SECS):  # a source that has nothing yet, and no word of trouble
        assert quiet.look(status(worker("w1")), now).now == "waiting for the first tuple"


def test_one_that_is_not_listed_is_given_a_moment() -> None:
    coming = arrival()
    assert coming.missing(LAG_SECS - 1).failure is None
    assert "somebody has killed it" in str(coming.missing(LAG_SECS + 1).failure)
    coming = arrival()
    coming.look(status(), 0)
    assert "somebody has killed it" in str(coming.missing(1).failure)


def test_a_replacement_waits_for_the_drain_and_says_when_the_old_one_has_the_name_again() -> None:
    coming = arrival()
    assert coming.look(status(id="words-0"), 0).now == "waiting for Nimbus to begin"
    assert (
        coming.look(status(id="words-0", state="REPLACING"), 60).now
        == "waiting for the drain of the version before"
    )
    assert coming.look(status(worker("w1", opened=False)), 90).stages == ("scheduled: 1 worker on 1 host",)
    back = "the version words-1 was rolled back, and words-0 has the name again: it did not open"
    failure = coming.look(status(worker("w1"), id="words-0", notes=[back, "a worker waits"]), 91).failure
    assert (
        failure
        == "the new version of 'words' did not come up, the one before has the name again: it did not open"
    )


def on_trial(secs: float, *workers: dict[str, Any], **values: Any) -> dict[str, Any]:
    return status(*workers, stands_by={"id": "words-0", "secs": secs}, **values)


ROLLED = "the version words-1 was rolled back, and words-0 has the name again: "
STANDS_BY = "the version before (words-0) stands by: it runs again unless the workers of this one are up within 40.0 s"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"notes": [f"{CANNOT_BUILD}: no pip"]},
            (f"{CANNOT_BUILD}: no pip", "`squall logs words --file build` shows all of it", STANDS_BY),
        ),
        ({"notes": ["w2 died"]}, ("w2 died", STANDS_BY)),
        ({"spout": {"emitted": 2, "failed": 2}}, (STANDS_BY,)),
        ({"errors": ["ValueError: 5"]}, (STANDS_BY,)),
    ],
    ids=["build", "death", "failed trees", "error"],
)  # fmt: skip
def test_while_the_version_before_stands_by_trouble_is_told_once_and_the_outcome_is_waited_for(
    values: dict[str, Any], told: tuple[str, ...]
) -> None:
    coming = arrival(replaces=True)
    workers = worker("w1"), worker("w2", opened=False)
    assert coming.look(on_trial(60.0, *workers), 0).stages == ("scheduled: 2 workers on 1 host",)
    assert coming.look(on_trial(40.0, *workers, **values), 20).stages == told
    seen = coming.look(on_trial(0.5, *workers, **values), 10 * TROUBLE_SECS)
    assert (seen.stages, seen.done, seen.failure) == ((), False, None)
    seen = coming.look(status(worker("w1"), id="words-0", notes=[ROLLED + "w2 was not up"]), 301)
    assert str(seen.failure).endswith("the one before has the name again: w2 was not up")


def test_acked_trees_are_no_arrival_while_the_version_before_may_come_back() -> None:
    coming = arrival(replaces=True)
    acked = {"emitted": 3, "acked": 2}
    seen = coming.look(on_trial(50.0, worker("w1"), worker("w2", opened=False), spout=acked), 0)
    assert (seen.done, seen.now) == (False, "starting: 1 of 2 workers up")
    assert coming.look(status(worker("w1"), worker("w2"), spout=acked), 5).done


def test_a_replacement_that_is_up_is_judged_as_any_other_from_then_on() -> None:
    coming = arrival(replaces=True)
    notes = ["w1 died"]
    coming.look(on_trial(1.0, worker("w1", opened=False), notes=notes), 0)
    coming.look(on_trial(1.0, worker("w1", opened=False), notes=notes), 100)
    proved = status(worker("w1", opened=False), notes=notes)
    assert coming.look(proved, 100 + TROUBLE_SECS - 1).failure is None
    assert "nothing got any further for 30 s" in str(coming.look(proved, 100 + TROUBLE_SECS + 1).failure)


def test_the_cause_of_an_earlier_roll_back_is_not_told_as_that_of_this_one() -> None:
    coming = arrival(replaces=True)
    coming.look(status(), 0)
    earlier = "the version words-9 was rolled back, and words-0 has the name again: no such table"
    failure = coming.look(status(id="words-0", notes=[earlier]), 1).failure
    assert failure == "the new version of 'words' did not come up, the one before has the name again"


def test_a_replacement_that_failed_is_waited_for_until_the_version_before_is_there_again() -> None:
    coming = arrival(replaces=True)
    failed = status(state="FAILED", error="no such table")
    assert coming.look(failed, 1.0).failure is None
    back = "the version words-1 was rolled back, and words-0 has the name again: no such table"
    seen = coming.look(status(id="words-0", notes=[back]), 3.0)
    assert "the one before has the name again: no such table" in str(seen.failure)
    late = arrival(replaces=True)
    late.look(failed, 1.0)
    assert "no such table" in str(late.look(failed, 1.0 + ROLLBACK_SECS).failure)


def test_a_replacement_that_never_had_the_name_is_told_as_well() -> None:
    coming = arrival()
    coming.look(status(id="words-0", state="REPLACING"), 0)
    assert coming.look(status(id="words-0"), 1).failure is None
    assert "did not come up" in str(coming.look(status(id="words-0"), LAG_SECS + 1).failure)
