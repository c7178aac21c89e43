"""The text of a report says everything once, in Python's order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.reports.error_reports import ErrorReport, folded, gist


def lines_of(frames: tuple[str, ...], place: str = "/home/me/app.py:19, in execute") -> list[str]:
    report = ErrorReport("t", "count", 2, "execute", "ValueError: no", place, frames, None, 0.0)
    return report.render().splitlines()[1:]


INNER = ('File "/home/me/app.py", line 19, in execute', '  raise ValueError("no")')


def test_each_place_occurs_once_with_its_code_below_it() -> None:
    outer = ('File "/home/me/app.py", line 7, in outer', "  return self.inner()")
    assert lines_of((*outer, *INNER)) == [f"  {line}" for line in (*outer, *INNER)]
    assert lines_of(INNER[:1]) == [f"  {INNER[0]}"]


def test_a_library_below_the_users_line_and_its_cause_follow() -> None:
    frames = (
        *INNER,
        'File "/usr/lib/python3.11/json/decoder.py", line 3, in decode',
        "  raise JSONDecodeError",
        "caused by KeyError: 'a' (/a/count.py:5, in execute)",
    )
    assert lines_of(frames) == [f"  {line}" for line in frames]


@pytest.mark.parametrize(
    "change", [{"task": "2"}, {"times": True}, {"frames": [1]}, {"more": 1}, {"time": None}]
)
def test_an_invalid_report_is_refused(change: dict[str, object]) -> None:
    values = ErrorReport("t", "count", 2, "execute", "ValueError: no", "", ("a",), None, 0.0).as_dict()
    assert ErrorReport.from_dict(values).frames == ("a",)
    with pytest.raises(ValueError, match="this is not an error report"):
        ErrorReport.from_dict({**values, **change})


def test_the_lines_of_a_message_stay_lines_above_the_frames() -> None:
    text = "TableMismatch: another table:\n- column a\nWrite elsewhere."
    report = ErrorReport("t", "store", 2, "prepare", text, "", INNER, None, 0.0, times=2)
    assert report.render().splitlines() == [
        "store[2] of topology 't': prepare() raised TableMismatch: another table:",
        "    - column a",
        "    Write elsewhere.",
        "  (2 times)",
        *(f"  {line}" for line in INNER),
    ]


def start(text: str, time: float = 0.0) -> ErrorReport:
    return ErrorReport("t", "store", 2, "prepare", text, "", (), None, time)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("hdfs://nn1:9000 is away", "hdfs://nn2:9000 is away", False),
        ("10.0.0.1:9000 refuses", "10.0.0.1:9001 refuses", False),
        ("table v1", "table v2", False),
        ("host 3 is away", "host 4 is away", False),
        ("/data/3 s/x", "/data/4 s/x", False),
        ("tried 2 times in 31.5 s", "tried 3 times in 62 s", True),
        ("pid 17 ended", "pid 18 ended", True),
        ("attempt 1 of 9", "attempt 2 of 9", True),
    ],
)
def test_numbers_are_ignored_only_where_they_are_no_part_of_a_name(one: str, other: str, same: bool) -> None:
    assert (gist(start(one)) == gist(start(other))) is same


def test_alternating_errors_are_folded_the_newest_last() -> None:
    reports = [start("ab"[number % 2], float(number)) for number in range(6)]
    assert folded(reports) == [replace(reports[4], times=3), replace(reports[5], times=3)]
