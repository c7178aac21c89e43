"""The event of a worker that died or could not be started has its number in a row, and the time of the next start."""

from __future__ import annotations

import pytest
from msgspec import structs

from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from supervisor.managed_worker import died, not_started
from supervisor.plan import Backoff, after_death

WORKER = Event("text", topology="words", worker="w2")
SEGV = Cause("reported", "it hung", 72)
ENDED = "worker w2 of topology 'words' ended by itself with status 72: it hung"


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (None, ""),
        (Backoff(1, 100.0, 100.0), "; it is started again at once"),
        (Backoff(2, 90.0, 101.0), "; its 2nd death in 10 s; it is started again in 1 s"),
        (Backoff(3, 90.0, 102.0), "; its 3rd death in 10 s; it is started again in 2 s"),
        (Backoff(11, 0.0, 160.0), "; its 11th death in 100 s; it is started again in 60 s"),
        (Backoff(21, 0.0, 160.0), "; its 21st death in 100 s; it is started again in 60 s"),
    ],
)
def test_a_death_has_its_cause_its_number_and_the_next_step(backoff: Backoff | None, expected: str) -> None:
    assert sentence(died(WORKER, SEGV, backoff, 100.0)) == ENDED + expected


def test_a_failed_start_is_no_death() -> None:
    backoff = Backoff(1, 90.0, 90.0)  # a failed preparation is not tried again at once
    sentences = []
    for now in (90.0, 91.0, 93.0):
        backoff = after_death(backoff, now, now, unstarted=True)
        sentences.append(sentence(not_started(WORKER, "code", "Nimbus is away\n  | 404", backoff, now)))
    first = "worker w2 of topology 'words' cannot be started: its code cannot be fetched: Nimbus is away"
    assert sentences == [
        f"{first}; it is tried again in 1 s\n  | 404",
        f"{first}; its 2nd failed preparation in 1 s; it is tried again in 2 s\n  | 404",
        f"{first}; its 3rd failed preparation in 3 s; it is tried again in 4 s\n  | 404",
    ]
    backoff = after_death(structs.replace(backoff, deaths=3), 97.0, 98.0)
    assert sentence(died(WORKER, SEGV, backoff, 98.0)) == f"{ENDED}; it is started again in 4 s"
