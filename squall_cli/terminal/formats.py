"""Short texts of counts, rates, sizes and times, and of commands to type.

Must not know: the things that are counted.
"""

from __future__ import annotations

import time
from shlex import quote
from typing import Final
from unicodedata import east_asian_width

_YEAR_2001: Final = 1e9
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def whole(number: int) -> str:
    """Return a count in full: `1,234,567`."""
    return f"{number:,}"


def short(number: float) -> str:
    """Return a count in at most six characters: `99,999`, `123k`, `1.23M`."""
    if number < 100_000:
        return f"{round(number):,}"
    size, unit = next(each for each in _UNITS if number >= each[0] * 0.9995)  # 999,999 is 1.00M, not 1000k
    return _three_digits(number / size) + unit


def rate(number: float | None) -> str:
    """Return a rate per second: `0`, `3.4`, `1,234`, `123k`; a dash for None."""
    if number is None:
        return "-"
    if 0 < number < 9.95:
        return f"{number:.1f}"
    return short(number)


def latency(seconds: float | None) -> str:
    """Return a short time in at most six characters: `0.35ms`, `43.3ms`, `4.33s`; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return _three_digits(seconds * 1000) + "ms"
    if seconds < 999.5:
        return _three_digits(seconds) + "s"
    if seconds < 359_999:
        return f"{seconds / 60:.0f}m" if seconds < 59_970 else f"{seconds / 3600:.0f}h"
    return f"{seconds / 86_400:.0f}d"


def duration(seconds: float) -> str:
    """Return a duration: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 03 min`."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def moment(seconds: float) -> str:
    """Return a time in seconds since 1970 as local time: `2026-03-01 12:00:00`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def clock(seconds: float, now: float) -> str:
    """Return a time as `12:00`; with its date if that was more than half a day before `now`: `03-01 12:00`."""
    return time.strftime("%H:%M" if now - seconds < 43_200 else "%m-%d %H:%M", time.localtime(seconds))


def known_moment(seconds: float | None) -> str:
    """Return a time as `moment` does; a dash if it is not known, or no time that a calendar has."""
    try:
        return "-" if seconds is None else moment(seconds)
    except (OverflowError, ValueError, OSError):
        return "-"


def since(seconds: float) -> str:
    """Return ` since 2026-11-28 13:00:00`; "" for a time of a clock that does not tell the time of day, as that of a local
    cluster in one process."""
    return f" since {moment(seconds)}" if tells_day(seconds) else ""


def tells_day(seconds: float) -> bool:
    """Return whether a time is one of a calendar; other clocks count from a start of their own."""
    return seconds >= _YEAR_2001


def span(seconds: float) -> str:
    """Return the time since something began, in at most six characters: `12s`, `3m05s`, `2h03m`, `4d07h`."""
    seconds = max(0, int(seconds))
    if seconds >= 100 * 86_400:
        return f"{seconds // 86_400}d"
    for size, smaller, unit, below in ((86_400, 3600, "d", "h"), (3600, 60, "h", "m"), (60, 1, "m", "s")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // smaller:02}{below}"
    return f"{seconds}s"


def in_bytes(size: int) -> str:
    """Return a size: `812 bytes`, `12.3 kB`, `4.5 MB`, `1.2 GB`."""
    if size < 1000:
        return plural(size, "byte")
    for unit, name in ((1e3, "kB"), (1e6, "MB"), (1e9, "GB")):
        if size < unit * 999.95:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e12:.1f} TB"


def plural(number: int, word: str, words: str | None = None) -> str:
    """Return a count with its noun: `1 tree`, `2,000 trees`; `words` is an irregular plural."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def columns_of(text: str) -> int:
    """Return the number of columns that a text takes on a terminal: a wide character takes two."""
    return len(text) if text.isascii() else len(text) + sum(east_asian_width(each) in "WF" for each in text)


def cropped(text: str, width: int) -> str:
    """Return the text as one line of at most `width` columns, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    return line if columns_of(line) <= width else f"{_beginning(line, width - 1)}…"


def cropped_inside(text: str, width: int) -> str:
    """Return the text as one line of at most `width` columns, cut in the middle, because the end of an error says what to do
    next."""
    line = " ".join(text.split())
    if columns_of(line) <= width:
        return line
    end = max(0, width - 1) // 2
    return f"{_beginning(line, width - 1 - end)}…{_beginning(line[::-1], end)[::-1]}"


def _beginning(text: str, width: int) -> str:
    """Return the longest beginning of a text that takes at most `width` columns."""
    text = text[: max(0, width)]
    while columns_of(text) > max(0, width):
        text = text[:-1]
    return text


def _three_digits(number: float) -> str:
    if number < 9.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def to_type(command: str, name: str, *options: str) -> str:
    """Return a command to type next, in backquotes: `squall logs word-count --file build`. Arguments are quoted for the
    shell; a name that looks like an option follows `--`."""
    words = (*options, "--", name) if name.startswith("-") else (name, *options)
    return f"`squall {' '.join(map(quote, (command, *words)))}`"
