"""Types of arguments and options: files, which the shell can complete; whole numbers and seconds within limits; pairs.

Click's own ranges show `0<=x<=1000000000.0` in the help and accept "nan", which is neither below nor above a limit.
Must not know: the purpose of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: The longest time that is accepted, more than thirty years: a longer time is presumably a typo.
LONGEST_SECS: Final = 1e9


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete with files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete with folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


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
    """A time in seconds from `least` to `most`; with `above`, `least` itself is too short."""

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


class Age(click.types.FloatParamType):
    """A time in seconds, minutes, hours or days: `3600`, `90m`, `12h`, `30d`. The value is in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        unit = _UNITS.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * unit if unit else float(text)
        except ValueError:
            seconds = float("nan")
        if not 0 <= seconds <= LONGEST_SECS:
            self.fail(
                f"{value!r}: give a number of seconds, or one with a unit, such as 90m, 12h or 30d",
                param,
                ctx,
            )
        return seconds


#: The units of an age, in seconds.
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def pairs(
    given: Sequence[str], form: str, split: Callable[[str, str], tuple[str, str, str]] = str.partition
) -> dict[str, str]:
    """Parse NAME=VALUE pairs with different names. Errors show `form` as the expected form."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = split(text, "=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r}: write {form}")
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice")
        found[name] = value
    return found


def task_counts(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, int]:
    """Return the number of tasks by component, from COMPONENT=N. A callback of click."""
    found = pairs(given, "COMPONENT=N", str.rpartition)  # a name may have a "="
    for name, number in found.items():
        # Nimbus checks the upper limit; Python cannot read thousands of digits.
        if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0):
            raise click.BadParameter(f"{name}={number:.80}: N must be a whole number, 1 or more")
    return {name: int(number) for name, number in found.items()}
