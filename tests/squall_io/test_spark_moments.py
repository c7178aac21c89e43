"""A span of commits is given by unambiguous moments."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from squall_io.spark.reading.moments import Span, WrongMoment, seconds_of

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=-5))),
        "2026-03-01T12:00:00Z",
        " 2026-03-01T12:00:00+00:00 ",
        "2026-03-01 13:00+01:00",
        NOON.timestamp(),
        int(NOON.timestamp()),
        str(NOON.timestamp()),
    ],
    ids=str,
)
def test_a_moment_is_the_same_however_it_is_written(moment: Any) -> None:
    assert seconds_of(moment, "since") == NOON.timestamp()


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (datetime(2026, 3, 1, 12), "has no time zone"),
        ("2026-03-01T12:00:00", "has no time zone"),
        ("2026-03-01", "has no time zone: give one, as in '2026-03-01T00:00:00+00:00'"),
        ("yesterday", "'yesterday', which is not a moment: write it as"),
        ("", "which is not a moment"),
        ("nan", "is nan: give a datetime"),
        (float("inf"), "is inf: give a datetime"),
        (True, "is True: give a datetime"),
        (b"1", "is b'1': give a datetime"),
    ],
    ids=repr,
)
def test_an_invalid_moment_or_one_without_a_zone_is_refused_by_the_arguments_name(
    moment: Any, said: str
) -> None:
    with pytest.raises(WrongMoment, match=r"^until is ") as told:
        Span.of(None, moment)
    assert said in str(told.value)


def test_a_span_includes_since_and_excludes_until() -> None:
    span = Span.of(100, 200)
    assert [span.holds(moment) for moment in (99.9, 100.0, 199.9, 200.0)] == [False, True, True, False]
    assert [span.is_after(moment) for moment in (99.9, 100.0, 300.0)] == [True, False, False]
    assert Span.of(None, 200).holds(-1e9) and not Span.of(None, 200).is_after(-1e9)
    assert Span.of(100, None).holds(1e12)


def test_a_span_without_limits_counts_as_none() -> None:
    assert not Span.of(None, None)
    assert Span.of(0, None) and Span.of(None, 0)
    assert not Span.of(5, 5).holds(5)


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(WrongMoment, match=r"since \(200\) is later than until \('100'\)"):
        Span.of(200, "100")
