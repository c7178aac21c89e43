"""Transcripts of random topologies (`tests/worker/random_stories`): each call, value, ack, failure, refusal and count, in
order.

Must not know: which seeds run, hashes.
"""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

from tests.frozen.transcript_facts import line_of
from tests.worker import random_stories
from topology_api import Failure, Tuple
from worker.tasks.async_bolt import Recorder

#: The facts of a report, by their place in a line of the journal: component, task, call, time, times. The rest is for people.
OF_REPORTS: Final = (0, 1, 2, 7, 8)


def transcript(seed: int) -> list[str]:
    """Everything that happens in the topology of a seed."""
    lines: list[str] = []

    def note(who: str, what: str, *details: object) -> None:
        lines.append(line_of(0.0, f"{who} {what}", *facts_of(who, what, details)))

    with (
        mock.patch.object(random_stories, "note", note),
        mock.patch.object(Recorder, "reset_timeout", late_reset),
    ):
        random_stories.tell(seed)
    return lines


def late_reset(recorder: Recorder, tup: Tuple) -> None:
    """Reset a timeout at the end of the call of an asynchronous bolt, as it was when the hashes were frozen; now it is reset at
    once (`tests/worker/test_reset_timeouts.py`)."""
    recorder.record("reset_timeout", tup)


def facts_of(who: str, what: str, details: tuple[Any, ...]) -> list[Any]:
    """The parts of a journal's line that are no sentences."""
    if what.endswith(" raised"):
        return []  # only the fact of the refusal counts
    if what.endswith(" ->"):
        return [details[0] is None]
    if (who, what) == ("story", "error"):
        return [fact_of(details[at]) for at in OF_REPORTS]
    return [fact_of(each) for each in details]


def fact_of(value: Any) -> Any:
    """A detail of a line."""
    if isinstance(value, Failure):
        return [value.reason, value.component, value.task, value.error is None, value.attempts]
    if isinstance(value, Tuple):
        return [value.component, value.task, value.stream, fact_of(value.values)]
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if isinstance(value, tuple) and any(isinstance(each, Failure) for each in value):
        return [fact_of(each) for each in value]
    return ascii(value)
