"""The text of a report says everything once, and ends with the user's own line."""

from __future__ import annotations

from squall.error_reports import ErrorReport


def lines_of(frames: tuple[str, ...], place: str = "/home/me/app.py:19, in execute") -> list[str]:
    report = ErrorReport("t", "count", 2, "execute", "ValueError: no", place, frames, None, 0.0)
    return report.render().splitlines()[1:]


def test_the_place_is_there_once_with_its_code() -> None:
    outer = ('File "/home/me/app.py", line 7, in outer', "  return self.inner()")
    inner = ('File "/home/me/app.py", line 19, in execute', '  raise ValueError("no")')
    assert lines_of((*outer, *inner)) == [
        '  File "/home/me/app.py", line 7, in outer',
        "    return self.inner()",
        '    raise ValueError("no")',
        "  at /home/me/app.py:19, in execute",
    ]
    assert lines_of(inner[:1]) == ["  at /home/me/app.py:19, in execute"]


def test_a_frame_of_a_library_below_the_users_line_leaves_both() -> None:
    frames = (
        'File "/home/me/app.py", line 19, in execute',
        "  json.loads(text)",
        'File "/usr/lib/python3.11/json/decoder.py", line 3, in decode',
        "  raise JSONDecodeError",
    )
    assert lines_of(frames) == [*(f"  {line}" for line in frames), "  at /home/me/app.py:19, in execute"]


def test_without_frames_or_place_nothing_is_left_out() -> None:
    assert lines_of(()) == ["  at /home/me/app.py:19, in execute"]
    assert lines_of(("a hint",), place="") == ["  a hint"]


def test_below_a_cause_the_users_line_stands_with_its_place_since_it_would_seem_to_be_the_causes() -> None:
    place = "/a/count.py:7, in execute"
    frames = (
        "caused by KeyError: 'a' (/a/count.py:5, in execute)",
        'File "/a/count.py", line 7, in execute',
        "  raise X",
    )
    report = ErrorReport("t", "count", 2, "execute", "X: no", place, frames, None, 0.0)
    assert report.render().splitlines()[1:] == [*(f"  {line}" for line in frames), f"  at {place}"]
