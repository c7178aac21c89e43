"""How often a spout that follows its input looks for more, and how many lines it emits at once.

Must not know: file systems, spouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topology_api.wording import typed

#: The least seconds between two looks: each look lists files.
LEAST_SECONDS: Final = 0.2
#: The most emissions of a call of `next_tuple`. A call of a threaded spout costs as much as three emissions.
AT_ONCE: Final = 64
#: The most, a day.
MOST_SECONDS: Final = 86_400.0


def poll_problems(poll_interval: object) -> Iterator[str]:
    """Yield what is wrong with this argument of a spout; None: the default."""
    if poll_interval is None:
        return
    number = type(poll_interval) in (int, float)
    if not number or not LEAST_SECONDS <= poll_interval <= MOST_SECONDS:  # type: ignore[operator]
        text = f"give the seconds between two looks for more, {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
        yield f"poll_interval is {typed(poll_interval)}: {text}"
