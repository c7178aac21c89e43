"""Waits for what a worker answers to a question, both in files of its directory.

Must not know: what is asked, HTTP, processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from squall.worker_files import BadFile

#: Seconds between two looks.
PAUSE: Final = 0.05

A = TypeVar("A")


def wait_for_answer(
    read: Callable[[], A | None],
    fits: Callable[[A], bool],
    end: float,
    clock: Callable[[], float],
    pause: Callable[[float], object],
) -> A | None:
    """Return the answer that fits the question; None if there is none at `end`, in seconds of `clock`. `read` may raise BadFile
    and OSError: the worker's code may have written anything there."""
    while clock() < end:
        pause(PAUSE)
        try:
            answer = read()
        except (BadFile, OSError):
            continue
        if answer is not None and fits(answer):
            return answer
    return None
