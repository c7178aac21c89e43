"""What is said about a worker that died is one sentence that also says what happens next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.plan import Backoff, after_death
from supervisor.wording import death_note, not_started_note


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (None, "worker w2 died of SIGSEGV"),
        (Backoff(1, 100.0, 100.0), "worker w2 died of SIGSEGV; it is started again at once"),
        (Backoff(2, 90.0, 101.0), "worker w2 died of SIGSEGV; its 2nd death in 10 s; it is started again in 1 s"),
        (Backoff(3, 90.0, 102.0), "worker w2 died of SIGSEGV; its 3rd death in 10 s; it is started again in 2 s"),
        (Backoff(11, 0.0, 160.0), "worker w2 died of SIGSEGV; its 11th death in 100 s; it is started again in 60 s"),
        (Backoff(21, 0.0, 160.0), "worker w2 died of SIGSEGV; its 21st death in 100 s; it is started again in 60 s"),
    ],
)  # fmt: skip
def test_a_note_says_what_happened_how_often_and_what_comes_next(
    backoff: Backoff | None, expected: str
) -> None:
    assert death_note("worker w2", "died of SIGSEGV", backoff, 100.0) == expected


def test_what_could_not_be_started_has_not_died() -> None:
    backoff = Backoff(1, 90.0, 90.0)  # what was just in vain is not tried again at once
    notes = []
    for now in (90.0, 91.0, 93.0):
        backoff = after_death(backoff, now, now, unstarted=True)
        notes.append(not_started_note("worker w2", "its code is away\n  | 404", backoff, now))
    sentence = "worker w2 cannot be started: its code is away"
    assert notes == [
        f"{sentence}; it is tried again in 1 s\n  | 404",
        f"{sentence}; its 2nd failed preparation in 1 s; it is tried again in 2 s\n  | 404",
        f"{sentence}; its 3rd failed preparation in 3 s; it is tried again in 4 s\n  | 404",
    ]
    backoff = after_death(replace(backoff, deaths=3), 97.0, 98.0)
    assert death_note("worker w2", "ended", backoff, 98.0) == "worker w2 ended; it is started again in 4 s"


def test_lines_of_its_output_follow_the_sentence() -> None:
    note = death_note("worker w2", "ended\n  | one\n  | two", Backoff(1, 0.0, 0.0), 0.0)
    assert note == "worker w2 ended; it is started again at once\n  | one\n  | two"
