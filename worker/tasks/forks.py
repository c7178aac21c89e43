"""Children that a user's code forks: they have a copy of every task, and must not go on with all their work.

A child that runs another program, or leaves by `os._exit`, is the user's own affair; one that comes back to us ends.
Must not know: tasks, queues.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn


def end_fork(error: BaseException) -> NoReturn:
    """A child that the user's code forked leaves its call by an error, such as sys.exit(): end it as Python would. It has a
    copy of every task, and would go on with all their work beside its parent."""
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
    """In a child of `process` whose forking call has returned: end it. In the process itself: nothing."""
    if os.getpid() != process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
