"""Events are on one line, with file names as the user typed them; a Nimbus of another release is understood."""

from __future__ import annotations

import pytest

from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall_cli.cluster.events import events_of, on_one_line, own_paths
from tests.squall_cli.fake_nimbus import happened

SHA = "5f4d6d18a2feed5565868b66b7cd049b9818d4ba9b2433648c048643ecd56a8e"
DIED = Event("died", 7.0, "t", "w1", 10, Cause("status", status=3, output=("one", "two")))


def test_shipped_files_are_named_relative_to_the_topology() -> None:
    home = f"/var/lib/squall/supervisor/code/{SHA}"
    assert own_paths(f"boom ({home}/app.py:19, in prepare)") == "boom (app.py:19, in prepare)"
    assert own_paths(f'File "{home}/my/bolts.py", line 3') == 'File "my/bolts.py", line 3'
    assert own_paths(f"{home}/a.py:1 and {home}/b.py:2") == "a.py:1 and b.py:2"
    for kept in ("/usr/lib/python3.11/json/decoder.py:3", f"/tmp/{SHA}/x", "/home/me/code/app.py:4"):
        assert own_paths(kept) == kept


def test_output_follows_the_sentence_on_one_line_and_the_topology_is_not_named() -> None:
    line = on_one_line(DIED)
    assert line.startswith("worker w1 (pid 10) ended with status 3 ") and line.endswith(" | one | two")
    assert on_one_line(Event("text", error="one\n  | two")) == "one | two"
    assert on_one_line(Event("text")) == ""


@pytest.mark.parametrize("change", [{}, {"events": []}, {"events": [{"kind": "of a newer release"}]}])
def test_unreadable_events_are_shown_as_the_texts_of_nimbus(
    change: dict[str, object],
) -> None:
    status = happened(DIED)
    assert events_of({**status, **change}) == (
        [Event("text", 7.0, error=sentence(DIED))] if change else [DIED]
    )
    assert events_of({"notes": ["a Nimbus without times"]}) == [Event("text", error="a Nimbus without times")]
