"""Answers the question where the threads of this worker are, and which calls run there (`squall stack`).

The heartbeat's thread answers, so it works while the loop is inside a call. A call that holds Python's own lock (the GIL) stops
this thread too; see `supervisor.silence`.
Must not know: who asks, how the answer is shown.
"""

from __future__ import annotations

import linecache
import logging
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from heapq import nsmallest
from types import FrameType
from typing import Final

from squall import worker_files
from squall.reports.stacks import MOST_FRAMES, MOST_STACKS, CallStack, StackFrame, WorkerStacks
from squall.worker_files import BadFile
from worker.errors.reports import short_line
from worker.process.call_watch import CallWatch, UserCall, user_frame
from worker.process.long_calls import stack_of, tuple_of_call
from worker.tasks.async_bolt import AsyncBoltTask, AsyncCall

_log = logging.getLogger(__name__)

#: The most calls of one asynchronous task that are shown: the oldest.
MOST_ASYNC: Final = 10
#: The most frames of a thread that runs no call of a component.
IDLE_FRAMES: Final = 3
#: How the names of Squall's own threads begin.
OWN_THREADS: Final = ("squall-zap-", "squall-heartbeat", "squall-jvm-", "squall-spark-")


class StackAnswers:
    """Answers each question once. Used by the heartbeat's thread alone."""

    def __init__(self, directory: str, calls: CallWatch) -> None:
        self.directory, self.calls = directory, calls
        self.asked: object = None

    def answer(self, now: float) -> None:
        """Answer if the supervisor has asked since the last call of this method."""
        mark = worker_files.mark_of(self.directory, worker_files.QUESTION)
        if mark == self.asked:
            return
        self.asked = mark
        try:
            question = worker_files.read(self.directory, worker_files.QUESTION) or {}
            number = int(question.get("number", 0))
            answer = worker_stacks(self.calls, number, now)
            worker_files.write(self.directory, worker_files.STACKS, answer, 0o600)
        except (BadFile, OSError, ValueError, TypeError) as error:
            _log.warning("the stacks of this worker could not be written: %s", error)


def worker_stacks(calls: CallWatch, number: int, now: float) -> WorkerStacks:
    """Return the stacks of all running calls, the longest first, and of all threads in no call but the present one."""
    running = calls.watch(now)
    frames = calls.frames()
    known = [each for call in running for each in siblings(call, now)]
    stacks = [stack_of_call(call, frames) for call in known]
    busy = {call.thread for call in running if not isinstance(call.mark, AsyncCall)}
    stacks += idle_threads(frames, busy | {threading.get_ident()})
    return WorkerStacks(number, os.getpid(), tuple(stacks[:MOST_STACKS]), max(0, len(stacks) - MOST_STACKS))


def siblings(call: UserCall, now: float) -> Iterator[UserCall]:
    """Yield a call; for a call of an asynchronous task, all of the task's calls, the oldest first."""
    if not (isinstance(call.mark, AsyncCall) and isinstance(call.task, AsyncBoltTask)):
        yield call
        return
    calls = list(call.task.in_flight.values())
    for each in nsmallest(MOST_ASYNC, calls, key=lambda each: each.started):
        yield UserCall(call.task, each.started, each, now - each.started, now)


def stack_of_call(call: UserCall, frames: Mapping[int, FrameType]) -> CallStack:
    """Return the stack of a call."""
    spec = call.task.spec
    thread = "asyncio" if isinstance(call.mark, AsyncCall) else name_of(call.thread)
    shown = frames_of(own_part(list(stack_of(call, frames))), MOST_FRAMES)
    return CallStack(
        thread, spec.id, call.task.id, round(call.seconds, 3), tuple_of_call(call, frames), shown
    )


def idle_threads(frames: Mapping[int, FrameType], known: set[int]) -> Iterator[CallStack]:
    """Yield the stacks of the other threads, without Squall's own."""
    for ident, frame in frames.items():
        if ident not in known and not name_of(ident).startswith(OWN_THREADS):
            stack = [each for each, _ in traceback.walk_stack(frame)]
            yield CallStack(name_of(ident), "", None, None, "", frames_of(stack, IDLE_FRAMES))


def name_of(ident: int) -> str:
    """Return the name of a thread; its number if it was not started by Python."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return short_line(names.get(ident, str(ident)))


def own_part(stack: list[FrameType]) -> list[FrameType]:
    """Return the frames from the innermost to the call of user code by Squall; all if there is none."""
    called = user_frame(stack[0]) if stack else None
    return stack if called is None else stack[: stack.index(called) + 1]


def frames_of(stack: list[FrameType], most: int) -> tuple[StackFrame, ...]:
    """Return the innermost frames, the outermost first. `stack`: the innermost first."""
    found = []
    for frame in reversed(stack[:most]):
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        code = (
            linecache.getline(file, line).strip() if os.path.isfile(file) else ""
        )  # reading a pipe would wait
        found.append(StackFrame(short_line(file), line, frame.f_code.co_name, short_line(code)))
    return tuple(found)
