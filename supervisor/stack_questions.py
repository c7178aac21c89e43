"""Asks a worker where its threads are, through the files of its directory.

Several requests may ask at the same time: an answer serves each question that is not younger. Must not know: HTTP, processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from squall import worker_files
from squall.reports.stacks import WorkerStacks
from supervisor.worker_answers import wait_for_answer

#: Seconds to wait for an answer: workers look for questions twice a second.
PATIENCE: Final = 3.0


def ask_stacks(
    directory: Path,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> WorkerStacks | None:
    """Return a worker's answer; None if the worker does not answer in time, or with a damaged file. Raises `OSError` if the
    question cannot be written."""
    number = time.time_ns()
    worker_files.write(directory, worker_files.QUESTION, {"number": number}, 0o600)
    return wait_for_answer(
        lambda: worker_files.read_stacks(directory),
        lambda answer: answer.number >= number,
        clock() + PATIENCE,
        clock,
        pause,
    )
