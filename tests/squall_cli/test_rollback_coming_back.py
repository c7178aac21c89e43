"""When the previous version of a topology has returned, after an operator ended a trial: decided from its statuses alone."""

from __future__ import annotations

from typing import Any

import pytest

from squall.api.answers import TopologyAnswer
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall_cli.cluster.placed import LAG_SECS
from squall_cli.packing.coming_back import Return
from squall_cli.packing.coming_up import TROUBLE_SECS
from tests.squall_cli.fake_nimbus import happened, status_of, topology, worker

DIED = Event("died", topology="words", worker="w1", cause=Cause("signal", signal=9))
BACK = Event("rolled_back", version="words-2", successor="words-1", error="an operator rolled it back")


def status(*workers: dict[str, Any], **values: Any) -> TopologyAnswer:
    """The version that returns, with the counters of its earlier life."""
    return status_of(topology("words", **{"id": "words-1", "workers": list(workers), **values}))


def coming_back() -> Return:
    return Return("words", "words-1", "words-2")


def test_it_has_returned_when_its_workers_are_up_whatever_its_counters_were_before() -> None:
    coming = coming_back()
    for state in ("ACTIVE", "FAILED"):  # a standby Nimbus may lag behind
        seen = coming.update(status(id="words-2", state=state), 0)
        assert (seen.now, seen.stages) == ("waiting until the workers of words-2 have stopped", ())
    seen = coming.update(status(), 1)
    assert (seen.now, seen.stages) == ("being scheduled", ("words-1 has the name again",))
    assert coming.update(status(), 1 + LAG_SECS).now.startswith("waiting for free slots")
    seen = coming.update(status(worker("w1", opened=False)), 8)
    assert (seen.now, seen.stages) == ("starting: 0 of 1 worker up", ("scheduled: 1 worker on 1 host",))
    seen = coming.update(status(worker("w1"), worker("w0", opened=False, state="STOPPING")), 9)
    assert (seen.stages, seen.done, seen.failure) == (("1 worker up",), True, None)


@pytest.mark.parametrize(
    ("state", "last"),
    [("INACTIVE", "inactive: `squall activate words` lets it run"), ("COMPLETED", "completed")],
)
def test_a_version_that_does_not_run_has_returned_with_its_name(state: str, last: str) -> None:
    seen = coming_back().update(status(worker("w1", opened=False), state=state), 0)
    assert (seen.done, seen.stages[-1]) == (True, last)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"state": "FAILED", "error": "boom"}, "topology 'words' failed: boom"),
        ({"id": "words-2", "state": "KILLED"}, "is being killed"),
        ({"id": "words-3"}, "has another version by now, words-3 (`squall history words`)"),
    ],
)
def test_it_is_reported_if_it_does_not_return(values: dict[str, Any], reason: str) -> None:
    assert reason in str(coming_back().update(status(**values), 0).failure)
    assert "is gone" in str(coming_back().missing(0).failure)


def test_only_events_since_it_has_its_name_again_count_as_trouble() -> None:
    starting = worker("w1", opened=False)
    coming = coming_back()
    before = status(starting, **happened(DIED, BACK), errors=["an earlier error"])
    coming.update(before, 0)
    assert coming.update(before, 2 * TROUBLE_SECS).failure is None
    after = status(starting, **happened(BACK, DIED))
    failure = str(coming.update(after, 2 * TROUBLE_SECS).failure)
    assert failure == f"no progress for 30 s; the latest event: {sentence(DIED)}"
