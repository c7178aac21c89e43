"""The text of a report says everything once, in the order that Python has it in."""

from __future__ import annotations

from squall.error_reports import ErrorReport


def lines_of(frames: tuple[str, ...], place: str = "/home/me/app.py:19, in execute") -> list[str]:
    report = ErrorReport("t", "count", 2, "execute", "ValueError: no", place, frames, None, 0.0)
    return report.render().splitlines()[1:]


INNER = ('File "/home/me/app.py", line 19, in execute', '  raise ValueError("no")')


def test_each_place_is_there_once_with_its_code_below_it() -> None:
    outer = ('File "/home/me/app.py", line 7, in outer', "  return self.inner()")
    assert lines_of((*outer, *INNER)) == [f"  {line}" for line in (*outer, *INNER)]
    assert lines_of(INNER[:1]) == [f"  {INNER[0]}"]


def test_a_library_below_the_users_line_and_what_caused_it_follow() -> None:
    frames = (
        *INNER,
        'File "/usr/lib/python3.11/json/decoder.py", line 3, in decode',
        "  raise JSONDecodeError",
        "caused by KeyError: 'a' (/a/count.py:5, in execute)",
    )
    assert lines_of(frames) == [f"  {line}" for line in frames]


def test_a_place_that_is_none_of_the_frames_stands_above_them() -> None:
    place = "at /home/me/app.py:19, in execute"
    frames = ('File "/usr/lib/python3.11/json/decoder.py", line 3, in decode', "  raise JSONDecodeError")
    assert lines_of(("a hint", *frames)) == [f"  {line}" for line in ("a hint", place, *frames)]
    assert lines_of(()) == [f"  {place}"]
    assert lines_of(("a hint",), place="") == ["  a hint"]
