"""Asks a worker what its tasks have for a key, through the files of its directory.

A worker answers one question after the other, so one request at a time asks it; further ones wait for a moment. Must not know:
HTTP, processes, what states are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from squall import worker_files
from squall.reports.live_state import StateQuestion, WorkerState
from supervisor.worker_answers import PAUSE, wait_for_answer
from topology_api.errors import SquallError

#: Seconds to wait for an answer: the worker looks for questions twice a second, and gives its tasks two seconds.
PATIENCE: Final = 3.5
#: One of them is held while a worker is asked.
_LOCKS: Final = tuple(Lock() for _ in range(64))


class QuestionsWait(SquallError):
    """Other questions to the worker have taken all the time."""


def ask_state(
    directory: Path,
    component: str,
    key: str,
    state: str = "",
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
    exact: str = "",
) -> WorkerState | None:
    """Return a worker's answer; None if the worker does not answer in time, or with a damaged file. `key`: JSON. `exact`: see
    `StateQuestion`. Raises `OSError` if the question cannot be written, and `QuestionsWait`."""
    end = clock() + PATIENCE
    lock = _LOCKS[hash(directory) % len(_LOCKS)]
    while not lock.acquire(blocking=False):
        if clock() >= end:
            raise QuestionsWait("the worker answers other questions about its state at the moment: ask again")
        pause(PAUSE)
    try:
        return _asked(
            directory, StateQuestion(time.time_ns(), component, key, state, exact), end, clock, pause
        )
    finally:
        lock.release()


def _asked(
    directory: Path,
    question: StateQuestion,
    end: float,
    clock: Callable[[], float],
    pause: Callable[[float], object],
) -> WorkerState | None:
    worker_files.write(directory, worker_files.STATE_QUESTION, question, 0o600)
    return wait_for_answer(
        lambda: worker_files.read_live_state(directory),
        lambda answer: answer.number == question.number,
        end,
        clock,
        pause,
    )
