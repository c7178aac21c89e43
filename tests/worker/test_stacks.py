"""`squall stack`: a worker says where its threads and its running calls are, once for each question."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from squall import worker_files
from squall.reports.stacks import WorkerStacks
from squall.transport.frames import Batch
from squall.worker_files import QUESTION, STACKS
from tests.worker.daemon_stand_ins import Stack, a_task, a_worker
from topology_api.tuples import Source, Tuple
from worker.process.call_watch import CallWatch, UserCall
from worker.process.stacks import (
    IDLE_FRAMES,
    MOST_ASYNC,
    StackAnswers,
    frames_of,
    idle_threads,
    siblings,
    stack_of_call,
    worker_stacks,
)
from worker.tasks.async_bolt import AsyncBoltTask, AsyncCall
from worker.tasks.bolt import make_tuple


def a_tuple() -> Tuple:
    return make_tuple(Batch(Source("words", 1, "default", ("word",)), 4, [("a",)], [0], [0]), 0)


def execute(bolt: object, tup: object) -> FrameType:
    return sys._getframe()


def test_a_call_is_shown_from_the_users_first_line_with_its_tuple() -> None:
    frame = Stack().serve(partial(execute, None, a_tuple()))
    found = stack_of_call(UserCall(a_task(4), 100.0, frame, 5.0, 105.0), {threading.get_ident(): frame})
    assert (found.component, found.task, found.seconds) == ("count", 4, 5.0)
    assert found.tuple_text == "<Tuple words[1] default: word='a'>"
    (line,) = found.frames
    assert (line.file, line.function, line.code) == (__file__, "execute", "return sys._getframe()")


def test_the_oldest_calls_of_an_asynchronous_task_are_shown_where_they_wait() -> None:
    async def look_up(key: int) -> None:
        await asyncio.sleep(60 + key)

    task: Any = AsyncBoltTask.__new__(AsyncBoltTask)
    task.id, task.spec, task.in_flight = 4, SimpleNamespace(id="lookup", kind="bolt"), {}
    for number in range(2 * MOST_ASYNC, 0, -1):
        call = AsyncCall(
            a_tuple(), float(number), Batch(Source("words", 1, "default", ("word",)), 4, [], [], [])
        )
        call.coroutine = look_up(number)
        task.in_flight[number] = call
    oldest = task.in_flight[1]
    found = list(siblings(UserCall(task, 1.0, oldest, 99.0, 100.0), 100.0))
    assert [call.since for call in found] == [float(number) for number in range(1, MOST_ASYNC + 1)]
    shown = stack_of_call(found[0], {})
    assert (shown.component, shown.task, shown.seconds) == ("lookup", 4, 99.0)
    assert [frame.function for frame in shown.frames] == ["look_up"]
    for call in task.in_flight.values():
        call.coroutine.close()


def test_threads_in_no_call_come_last_and_briefly() -> None:
    go, there = threading.Event(), threading.Event()

    def deep(levels: int) -> None:
        if levels:
            return deep(levels - 1)
        there.set()
        go.wait()

    thread = threading.Thread(target=deep, args=(9,), name="of-a-library", daemon=True)
    thread.start()
    there.wait()
    try:
        found = worker_stacks(CallWatch(a_worker()), 7, 100.0)
    finally:
        go.set()
        thread.join()
    (stack,) = [each for each in found.stacks if each.thread == "of-a-library"]
    assert (stack.component, stack.task, len(stack.frames)) == ("", None, IDLE_FRAMES)
    assert stack.frames[-1].function == "wait"
    assert threading.current_thread().name not in [each.thread for each in found.stacks]
    assert found.number == 7


def test_threads_of_squalls_own_are_not_shown() -> None:
    frames = {1: sys._getframe(), 2: sys._getframe()}
    names = {1: "squall-zap-authenticator", 2: "squall-words-w1-task-4"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("worker.process.stacks.name_of", names.__getitem__)
        assert [each.thread for each in idle_threads(frames, set())] == [names[2]]


def test_each_question_is_answered_once(tmp_path: Path) -> None:
    answers = StackAnswers(str(tmp_path), CallWatch(a_worker()))
    answers.answer(1.0)
    assert worker_files.read_stacks(tmp_path) is None
    for number in (5, 6):
        worker_files.write(tmp_path, QUESTION, {"number": number})
        answers.answer(2.0)
        found = worker_files.read_stacks(tmp_path)
        assert isinstance(found, WorkerStacks) and found.number == number
        (tmp_path / STACKS).unlink()
        answers.answer(3.0)
        assert worker_files.read_stacks(tmp_path) is None


def test_a_damaged_question_is_logged_and_harms_nothing(tmp_path: Path, caplog: Any) -> None:
    answers = StackAnswers(str(tmp_path), CallWatch(a_worker()))
    for text in ("{", '{"format": 1, "number": []}'):
        (tmp_path / QUESTION).write_text(text)
        answers.answer(1.0)
        assert "could not be written" in caplog.text
        caplog.clear()
    assert worker_files.read_stacks(tmp_path) is None


def test_a_source_file_that_is_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bolts.py")
    made: dict[str, Any] = {}
    exec(
        compile("import sys\ndef execute():\n    return sys._getframe()\n", tmp_path / "bolts.py", "exec"),
        made,
    )
    (line,) = frames_of([made["execute"]()], 1)
    assert (line.file, line.line, line.code) == (str(tmp_path / "bolts.py"), 3, "")
