"""Answers the question what the running tasks of this worker have for a key (`squall state get`).

The heartbeat's thread takes a question from the worker's directory and writes the answer there. In between, each task of the
component reads its own state when no call of it runs: in the loop, or in the task's thread. After `PATIENCE` seconds the answer
says of each task that has not come to that which call keeps it. A call that holds Python's own lock (the GIL) stops both
threads; see `supervisor.silence`.
Must not know: who asks, how the answer is shown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from squall import worker_files
from squall.reports.live_state import StateQuestion, TaskState, WorkerState
from squall.worker_files import BadFile
from topology_api.stateful import key_fields
from topology_api.wording import shown
from worker.errors.reports import failure_text, short_line
from worker.loop.epoch_worker import EpochWorker
from worker.process.call_watch import CallWatch, task_name
from worker.process.long_calls import tuple_of_call
from worker.state.contents import has_state
from worker.state.live import LiveKey, keys_written_as
from worker.state.values import ValueHandle
from worker.tasks.stateful_bolt import StatefulBoltTask
from worker.tasks.task import Task

_log = logging.getLogger(__name__)

#: Seconds after which the tasks that have not answered are said to be busy.
PATIENCE: Final = 2.0


class AskedLoop(Protocol):
    """What the answers need of the worker's loop."""

    def on_new_orders(self) -> None:
        """Let the next round look at its orders, and call `ask_tasks`."""


class OpenQuestion:
    """A question that is being answered."""

    def __init__(self, question: StateQuestion, tasks: list[Task], keys: list[Any], since: float) -> None:
        self.question, self.tasks, self.keys, self.since = question, tasks, keys, since
        #: The tasks that were asked, and the answers, by task. The loop, and threads of tasks, change them.
        self.asked: set[int] = set()
        self.found: dict[int, TaskState] = {}

    @property
    def whole(self) -> bool:
        """Whether every task has answered."""
        return len(self.found) == len(self.tasks)


class StateAnswers:
    """Answers one question after the other; a newer one replaces one that is not answered yet."""

    def __init__(
        self,
        directory: str,
        calls: CallWatch,
        loop: AskedLoop,
        time_of: Callable[[float], float],
        done: Callable[[], object],
    ) -> None:
        """`time_of`: turns times of the worker's clock into those of the wall clock. `done`: is called, by any thread, when
        every task has answered; it lets `check` be called soon."""
        self.directory, self.calls, self.loop, self.time_of, self.done = directory, calls, loop, time_of, done
        self.worker = calls.worker
        self.mark: object = None
        self.open: OpenQuestion | None = None

    # In the heartbeat's thread.

    def check(self, now: float) -> None:
        """Take a new question; write an answer that is whole, or has taken too long."""
        mark = worker_files.mark_of(self.directory, worker_files.STATE_QUESTION)
        if mark != self.mark:
            self.mark = mark
            try:
                question = worker_files.read_state_question(self.directory)
                if question is not None:
                    self.begin(question, now)
            except (BadFile, OSError) as error:
                _log.warning("a question about the state of this worker cannot be read: %s", error)
        if (asked := self.open) is None:
            return
        if asked.whole or now - asked.since >= PATIENCE:
            self.open = None
            left = [task for task in asked.tasks if task.id not in asked.found]
            busy = [self.answer_of(task, why=self.why_busy(task, now)) for task in left]
            states = asked.tasks[0].states if isinstance(asked.tasks[0], StatefulBoltTask) else ()
            self.write(WorkerState(asked.question.number, (*asked.found.values(), *busy), tuple(states)))
        else:
            self.loop.on_new_orders()

    def begin(self, question: StateQuestion, now: float) -> None:
        """Begin to answer a question."""
        tasks = [task for task in dict(self.worker.tasks).values() if task.spec.id == question.component]
        refusal, keys = "", list[Any]()
        try:
            form = json.loads(question.key)
            keys = keys_written_as(form)
            refusal = self.problem_with(question, tasks, form, keys)
        except (ValueError, RecursionError) as error:
            refusal = f"the key is no JSON: {error}"
        if refusal:
            self.open = None
            self.write(WorkerState(question.number, refusal=refusal))
        else:
            self.open = OpenQuestion(question, tasks, keys, now)

    def problem_with(self, question: StateQuestion, tasks: list[Task], form: Any, keys: list[Any]) -> str:
        """Return why no task of the component can answer; "" if they can."""
        name = question.component
        if not tasks:
            return f"no task of {shown(name)} runs in worker {self.worker.plan.worker} any more"
        first = tasks[0]
        fields = key_fields(first.instance) if isinstance(first, StatefulBoltTask) else ()
        if not isinstance(first, StatefulBoltTask) or not fields:
            return f"{name} has no state of a key: it is no StatefulBolt with a key"
        if only := question.state:
            handle = first.states.get(only)
            if isinstance(handle, ValueHandle) and not handle.keyed:
                return f"{name}.{only} is a BroadcastState, which belongs to no key: `squall state export` writes it"
        if len(fields) > 1 and not (isinstance(form, list) and len(form) == len(fields)):
            return (
                f"a key of {name} has {len(fields)} fields ({', '.join(fields)}), and {question.key} has not: give each a KEY, "
                "or one JSON array"
            )
        if not keys:
            return (
                f"{question.key} stands for no key that a running task can look up: it has an object that JSON has not; a "
                "kept epoch can be searched for it (--epoch)"
            )
        return ""

    def why_busy(self, task: Task, now: float) -> str:
        """Return why a task has not answered in time."""
        for call in self.calls.watch(now):
            if call.task is task:
                text = tuple_of_call(call, self.calls.frames())
                what = f", for {text}" if text else ""
                return short_line(
                    f"{task_name(task)} is in a call that has run for {call.seconds:.1f} s{what}, and answers between two "
                    f"calls: `squall stack {task.context.topology} --task {task.id}` shows where it is"
                )
        if not self.runs(task):
            return f"{task_name(task)} does not run now: it is starting, or returns to the last commit; ask again soon"
        running = self.worker.running
        where = (
            ""
            if running is None
            else f" behind a call of {task_name(running)}, in whose worker loop it runs,"
        )
        return f"{task_name(task)} waits{where} and has not answered within {PATIENCE:g} s; ask again"

    def write(self, answer: WorkerState) -> None:
        """Write an answer."""
        try:
            worker_files.write(self.directory, worker_files.LIVE_STATE, answer, 0o600)
        except (OSError, ValueError) as error:
            _log.warning("the state that was asked for could not be written: %s", error)

    # In the loop.

    def ask_tasks(self) -> None:
        """Let each task that has not answered do so now, or when its running call has returned."""
        asked = self.open
        if asked is None:
            return
        for task in asked.tasks:
            if task.id in asked.found or task.id in asked.asked or not self.runs(task):
                continue
            if not task.jobs or task.threaded:
                asked.asked.add(task.id)
                self.worker.execute(task, partial(self.ask, asked, task))

    def runs(self, task: Task) -> bool:
        """Return whether a task has the state of its key now."""
        worker = self.worker
        if worker.tasks.get(task.id) is not task or not task.opened or task.closed:
            return False
        return not isinstance(worker, EpochWorker) or worker.epochs.running

    # In the task's thread.

    def ask(self, asked: OpenQuestion, task: Task) -> None:
        """Read what a task has for the key, unless a call of it is in the middle."""
        assert isinstance(task, StatefulBoltTask)
        if task.yielded:
            asked.asked.discard(task.id)  # it is asked again at the next check
            return
        try:
            found = self.read(asked, task)
        except Exception as error:  # of a user's class
            found = self.answer_of(task, why=f"{task_name(task)} cannot show the key: {failure_text(error)}")
        asked.found[task.id] = found
        if asked.whole:
            self.done()

    def read(self, asked: OpenQuestion, task: StatefulBoltTask) -> TaskState:
        """Return what a task has for the key."""
        for key in asked.keys:
            if has_state(task.states, key) or key in task.timers.times:
                rows = LiveKey(key, self.time_of).rows(task.states, task.timers, asked.question.state)
                if rows:
                    return self.answer_of(task, rows=tuple(rows))
        return self.answer_of(task)

    def answer_of(self, task: Task, **more: Any) -> TaskState:
        """Return the answer of a task."""
        worker = self.worker
        epoch = None
        if isinstance(worker, EpochWorker) and task.id in worker.epochs.participants:
            epoch = worker.epochs.participants[task.id].epoch
        return TaskState(task.id, task.context.index, epoch, **more)
