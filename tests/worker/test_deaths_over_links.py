"""A tuple that kills its worker is given up after two deaths in its call; a kill from outside costs no tuple an attempt."""

from __future__ import annotations

from typing import Any

import pytest

from squall.running_calls import SIZE, CallMark, begin_calls, calls_in
from squall.suspects import MARK_SECS, Suspect, Suspects
from squall.worker_files import Death
from tests.worker.deadly_story import (
    APART,
    CONF,
    COUNT,
    DIE,
    FATAL,
    KILLER,
    TOGETHER,
    Dies,
    DiesBetweenSteps,
    DiesInABatch,
    DiesInAThread,
    DiesLater,
    DiesRich,
    EndsItsWorker,
    Sixty,
    Story,
)
from topology_api import Replay, Tuple
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.tuple_keys import key_of_values


@pytest.mark.parametrize(
    ("kind", "deaths"), [(Dies, 3), (DiesInAThread, 3), (DiesRich, 3), (DiesLater, 3), (DiesInABatch, 4)]
)
def test_a_tuple_that_kills_its_worker_is_given_up_and_costs_no_other(kind: Any, deaths: int) -> None:
    story = Story(kind())
    story.run()
    story.net.nodes["b"].worker.asyncio_driver.stop()
    spout = story.spout
    assert story.settled and spout.acked == COUNT - 1 and spout.given_up == {"lost": 1}
    assert f"message id {KILLER}: " in spout.first_failure[1] and "died of SIGSEGV" in spout.first_failure[1]
    assert story.deaths == deaths, "the first is needed to look, a batch needs one more, and two count"


@pytest.mark.parametrize(
    ("kind", "deaths"), [(Dies, 3), (DiesInAThread, 3), (DiesRich, 3), (DiesLater, 3), (DiesInABatch, 4)]
)
def test_a_tuple_that_kills_the_worker_of_its_own_spout_is_given_up_too(kind: Any, deaths: int) -> None:
    """The tracker dies with the worker, and the source emits all tuples again."""
    story = Story(kind(), TOGETHER)
    story.run()
    story.net.stop_coroutines()
    spout = story.spout
    assert story.settled and spout.acked == COUNT - 1 and spout.given_up == {"lost": 1}
    assert f"message id {KILLER}: " in spout.first_failure[1] and "died of SIGSEGV" in spout.first_failure[1]
    assert story.deaths == deaths
    [report] = story.reports()
    assert "has not executed a tuple, which is given up: 2 processes" in report and "number=17" in report
    [letter] = story.letters.letters.values()
    assert letter.values == (KILLER,) and letter.failure.reason == "lost"


def test_a_tuple_that_kills_while_its_coroutine_waits_is_found_when_calls_run_one_by_one() -> None:
    story = Story(DiesBetweenSteps(), TOGETHER)
    story.run()
    story.net.stop_coroutines()
    assert story.settled and story.spout.acked == COUNT - 1 and story.spout.given_up == {"lost": 1}
    assert story.deaths == 5, "of the deaths that count, each is preceded by one between the calls of several"


def test_a_tracker_elsewhere_that_has_forgotten_hears_that_the_tuple_is_given_up() -> None:
    """The worker of the spout is killed from outside after each death."""
    story = Story(Dies(), APART)
    while not story.settled:
        if story.run_until_death(100.0):
            story.go_on()
            story.net.kill("a")
            story.net.restart("a")
            story.keep_letters()
        assert story.deaths < 10
    assert story.deaths == 3 and story.spout.acked == COUNT - 1 and story.spout.given_up == {"lost": 1}


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("kind", [Dies, DiesInAThread, DiesRich, DiesLater, DiesInABatch])
def test_a_suspect_is_executed_alone_also_by_batch_bolts_until_two_deaths_count(
    kind: Any, before: int
) -> None:
    key = key_of_values("store", "source", "default", (KILLER,)).hex()
    story = Story(kind(), TOGETHER)
    now = story.net.clock.now()
    story.suspects = Suspects(now, MARK_SECS, (Suspect(key, before, "ended with status 3", now),))
    story.deaths = 1
    story.start_again(None)
    story.run()
    story.net.stop_coroutines()
    assert story.settled and story.deaths - 1 == 2 - before
    assert story.spout.acked == COUNT - 1 and story.spout.given_up == {"lost": 1}


def test_where_every_failure_counts_it_is_given_up_too() -> None:
    story = Story(Dies(), TOGETHER, {**CONF, "topology.on.outage": "give-up"})
    story.run()
    assert story.settled and story.deaths == 3 and story.spout.given_up == {"lost": 1}


class Endless(Sixty):
    replay = Replay(max_attempts=None, first_delay=1.0, max_delay=1.0)


@pytest.mark.parametrize("hosts", [TOGETHER, APART], ids=["together", "apart"])
def test_a_tuple_that_is_never_given_up_is_executed_again(hosts: dict[str, list[str]]) -> None:
    story = Story(Dies(), hosts, source=Endless())
    FATAL[0] = lambda number: number == KILLER and story.deaths < 6
    try:
        story.run()
    finally:
        FATAL[0] = lambda number: number == KILLER
    assert story.settled and story.deaths == 6 and story.spout.acked == COUNT and not story.reports()


class Works(Dies):
    def execute(self, tup: Tuple) -> None:
        pass


def test_a_spout_that_ends_its_worker_has_no_tuple_and_costs_none() -> None:
    story = Story(Works(), TOGETHER, source=EndsItsWorker())
    FATAL[0] = lambda number: story.deaths < 5
    try:
        story.run()
    finally:
        FATAL[0] = lambda number: number == KILLER
    assert story.settled and story.deaths == 5 and story.spout.acked == COUNT
    assert story.suspects is not None and not story.suspects.known and not story.suspects.batches


class ReadsFor40Minutes(Sixty):
    """The source of a long file, which is read from the beginning by each process."""

    def next_tuple(self) -> float:
        super().next_tuple()
        return 2400.0 if self.sent == KILLER else 0.01


def test_a_source_that_comes_back_to_the_tuple_after_the_marks_have_ended_is_waited_for() -> None:
    story = Story(Dies(), TOGETHER, source=ReadsFor40Minutes())
    while not story.settled:
        if story.run_until_death(500.0):
            story.go_on()
        assert story.deaths < 10
    assert story.deaths == 4, (
        "the second death in a day has its process followed by one that marks for longer"
    )
    assert story.spout.acked == COUNT - 1 and story.spout.given_up == {"lost": 1}


@pytest.mark.parametrize("kind", [Dies, DiesInABatch])
def test_what_is_known_of_a_tuple_outlives_a_kill_from_outside(kind: Any) -> None:
    story = Story(kind(), TOGETHER)
    while not story.settled:
        if story.run_until_death(100.0):
            story.go_on()
            story.net.run(0.05)
            if story.left is None:
                story.start_again(None)
        assert story.deaths < 10
    assert story.deaths == (3 if kind is Dies else 4)
    assert story.spout.acked == COUNT - 1 and story.spout.given_up == {"lost": 1}


@pytest.mark.parametrize("kind", [Dies, DiesInAThread, DiesRich, DiesLater, DiesInABatch])
def test_a_store_that_hangs_for_every_tuple_costs_none_and_says_since_when(kind: Any) -> None:
    story = Story(kind())
    FATAL[0] = lambda _: story.deaths < 8
    try:
        story.run(hung=True)
    finally:
        FATAL[0] = lambda number: number == KILLER
        story.net.nodes["b"].worker.asyncio_driver.stop()
    assert story.settled and story.spout.acked == COUNT and not story.spout.given_up
    secs, error = story.said[-1]
    assert 20.0 < secs < story.net.clock.now() and "has not returned" in error


def test_a_worker_that_is_killed_from_outside_again_and_again_costs_no_tuple_an_attempt() -> None:
    story = Story(Dies())
    DIE[:] = [lambda: None]
    for _ in range(20):
        story.net.run(0.7)
        story.start_again(None)
    assert story.net.run(60.0, lambda: story.settled)
    assert story.spout.acked == COUNT and not story.spout.given_up


def test_calls_are_marked_no_longer_than_needed() -> None:
    story = Story(DiesInABatch())
    task = next(iter(story.net.nodes["b"].worker.environment.plan.tasks_here))
    call = calls_in_a_batch(task)
    story.start_again(Death(False, "died of SIGSEGV", (call,)))
    worker = story.net.nodes["b"].worker
    [bolt] = worker.bolts
    assert isinstance(bolt, BatchBoltTask) and bolt.mark is not None and bolt.batch_size == 1
    marks = worker.environment.marks
    assert marks is not None and marks.until == pytest.approx(story.net.clock.now() + MARK_SECS, abs=20)
    marks.end(worker.tasks.values())
    assert bolt.mark is None and bolt.batch_size == 10


def calls_in_a_batch(task: int) -> Any:
    buffer = bytearray(SIZE)
    begin_calls(buffer, 1)
    CallMark(buffer, 0, task).enter(10, [5])
    [call] = calls_in(bytes(buffer), 1)
    return call
