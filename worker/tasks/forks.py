"""Ends children that user code forks: they have a copy of every task, and must not go on with its work.

A child that runs another program, or leaves by `os._exit`, is left alone; one that returns to Squall is ended.
Must not know: tasks, queues.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn


def end_fork(error: BaseException) -> NoReturn:
    """End a forked child that leaves its call by an error, such as sys.exit(), as Python would."""
    status = 1
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    else:
        traceback.print_exception(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


def end_returned_fork(process: int) -> None:
    """End a child of `process` whose forking call has returned; do nothing in the process itself."""
    if os.getpid() != process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
