"""The numbers that options take: whole numbers and seconds, each within its limits, and what is said of all others.

Click's own ranges say `0<=x<=1000000000.0` in the help and take "nan", which is neither below a limit nor above one.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import click

#: More than thirty years: a longer wait is a mistake in typing.
LONGEST_SECS: Final = 1e9


class Whole(click.types.IntParamType):
    """A whole number from `least` to `most`."""

    name = "whole number"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number < self.least or (self.most is not None and number > self.most):
            until = "on" if self.most is None else f"to {self.most:,}"
            self.fail(f"{value!r}: give a whole number from {self.least} {until}", param, ctx)
        return number


class Seconds(click.types.FloatParamType):
    """A time in seconds from `least` to `most`, or above `least` when that itself is none."""

    name = "seconds"

    def __init__(self, least: float = 0, most: float = LONGEST_SECS, above: bool = False) -> None:
        self.least = least
        self.most = most
        self.above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        enough = seconds > self.least if self.above else seconds >= self.least
        if not (isfinite(seconds) and enough and seconds <= self.most):
            beginning = "above" if self.above else "from"
            limits = f"{beginning} {self.least:g} to {self.most:,.0f}"
            self.fail(f"{value!r}: give a number of seconds {limits}", param, ctx)
        return seconds
