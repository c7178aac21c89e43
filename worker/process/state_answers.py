"""Answers the question what the running tasks of this worker have for a key (`squall state get`).

The heartbeat's thread takes a question from the worker's directory and writes the answer there. In between, each task of the
component reads its own state when no call of it runs: in the loop, or in the task's thread. If a key is written in a way that
does not say what it is, the task compares its keys, a slice between two calls. After `PATIENCE` seconds the answer says of each
task that has not come to an end which call keeps it. A call that holds Python's own lock (the GIL) stops both
threads; see `supervisor.silence`.
Must not know: who asks, how the answer is shown.
"""

from __future__ import annotations

import json
import logging
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from squall import worker_files
from squall.reports.live_state import LiveRow, StateCopy, StateQuestion, TaskState, WorkerState
from squall.worker_files import BadFile
from topology_api.packing import dumps_by_value
from topology_api.stateful import StatefulBolt, key_fields
from topology_api.wording import shown
from worker.errors.reports import failure_text, short_line
from worker.loop.kinds import epochs_of
from worker.process.call_watch import CallWatch, task_name
from worker.process.long_calls import tuple_of_call
from worker.state import contents
from worker.state.contents import has_state
from worker.state.key_search import KeySearch
from worker.state.keys import canonical, original
from worker.state.live import MOST_BYTES, LiveKey, WrittenKeys, key_in, keys_written_as
from worker.state.readable import json_form
from worker.state.values import ValueHandle
from worker.tasks.stateful_bolt import StatefulBoltTask
from worker.tasks.task import Task

_log = logging.getLogger(__name__)

#: Seconds after which the tasks that have not answered are said to be busy.
PATIENCE: Final = 2.0
#: The most characters of the copies of a task, so that they fit into the file of the answer.
MOST_COPIED: Final = 12_000_000
TOO_LARGE: Final = (
    "a state for the key of {:,} characters as a pickle in base64; at most {:,} can be copied out of a running process: read "
    "it from a commit (squall state export)"
)


class AskedLoop(Protocol):
    """What the answers need of the worker's loop."""

    def on_new_orders(self) -> None:
        """Let the next round look at its orders, and call `ask_tasks`."""


class OpenQuestion:
    """A question that is being answered."""

    def __init__(
        self, question: StateQuestion, tasks: list[Task], form: Any, written: WrittenKeys, since: float
    ) -> None:
        """`form`: the key as JSON has it."""
        self.question, self.tasks, self.form, self.written, self.since = question, tasks, form, written, since
        #: The tasks that were asked, their searches, copies and answers, by task. The loop, and threads of tasks, change them.
        self.asked: set[int] = set()
        self.searches: dict[int, KeySearch] = {}
        self.copies: dict[int, StateCopy] = {}
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
            busy = [self.answer_of(task, why=self.why_late(asked, task, now)) for task in left]
            states = asked.tasks[0].states if isinstance(asked.tasks[0], StatefulBoltTask) else ()
            answers, copies = (*asked.found.values(), *busy), list(asked.copies.values())
            owners = [copy for copy in copies if copy.owns]
            shown_copies = tuple(owners or copies[:1])  # those of the others are the defaults
            self.write(WorkerState(asked.question.number, answers, tuple(states), copies=shown_copies))
        else:
            self.loop.on_new_orders()

    def begin(self, question: StateQuestion, now: float) -> None:
        """Begin to answer a question."""
        tasks = [task for task in dict(self.worker.tasks).values() if task.spec.id == question.component]
        refusal, form, written = "", None, WrittenKeys([], True)
        try:
            if question.exact:
                written = WrittenKeys([canonical(pickle.loads(b64decode(question.exact)))], True)
            else:
                form = json.loads(question.key)
                written = keys_written_as(form)
            refusal = self.problem_with(question, tasks, form)
        except (ValueError, RecursionError) as error:
            refusal = f"the key is no JSON: {error}"
        except Exception as error:  # of the key's class
            refusal = (
                f"the key cannot be unpickled in worker {self.worker.plan.worker}: {failure_text(error)}"
            )
        if refusal:
            self.open = None
            self.write(WorkerState(question.number, refusal=refusal))
        else:
            self.open = OpenQuestion(question, tasks, form, written, now)

    def problem_with(self, question: StateQuestion, tasks: list[Task], form: Any) -> str:
        """Return why no task of the component can answer; "" if they can."""
        name = question.component
        if not tasks:
            return f"no task of {shown(name)} runs in worker {self.worker.plan.worker} any more"
        first = tasks[0]
        # With epochs, the tasks of all bolts are of this kind.
        if not isinstance(first, StatefulBoltTask) or not isinstance(first.instance, StatefulBolt):
            return f"{name} is no StatefulBolt: it has no state"
        if question.exact:
            return ""
        fields = key_fields(first.instance)
        if only := question.state:
            handle = first.states.get(only)
            if isinstance(handle, ValueHandle) and not handle.keyed:
                return f"{name}.{only} is a BroadcastState, which belongs to no key: `squall state export` writes it"
        if len(fields) > 1 and not (isinstance(form, list) and len(form) == len(fields)):
            return (
                f"a key of {name} has {len(fields)} fields ({', '.join(fields)}), and {question.key} has not: give each a KEY, "
                "or one JSON array"
            )
        return ""

    def why_late(self, asked: OpenQuestion, task: Task, now: float) -> str:
        """Return why a task has not answered in time."""
        search = asked.searches.get(task.id)
        if search is None:
            return self.why_busy(task, now)
        return (
            f"{task_name(task)} has compared {search.compared:,} of {search.total:,} keys within {PATIENCE:g} s, and has not "
            "found it: a kept epoch can be searched for as long as that takes (--epoch)"
        )

    def why_busy(self, task: Task, now: float) -> str:
        """Return why a task has not come to the question in time."""
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
        return (epochs := epochs_of(worker)) is None or epochs.epochs.running

    # In the task's thread.

    def ask(self, asked: OpenQuestion, task: Task) -> None:
        """Read what a task has for the key, unless a call of it is in the middle."""
        assert isinstance(task, StatefulBoltTask)
        if task.yielded:
            asked.asked.discard(task.id)  # it is asked again at the next check
            return
        try:
            found = self.copy(asked, task) if asked.question.exact else self.read(asked, task)
        except Exception as error:  # of a user's class
            found = self.answer_of(task, why=f"{task_name(task)} cannot show the key: {failure_text(error)}")
        if found is None:  # the next slice of keys is compared in the next round
            asked.asked.discard(task.id)
            self.loop.on_new_orders()
            return
        asked.found[task.id] = found
        if asked.whole:
            self.done()

    def read(self, asked: OpenQuestion, task: StatefulBoltTask) -> TaskState | None:
        """Return what a task has for the key; None: it has not compared all its keys."""
        rows = self.rows_of(asked, task, asked.written.keys)
        if rows or asked.written.all_of_them:
            return self.answer_of(task, rows=rows)
        search = asked.searches.get(task.id)
        if search is None:
            search = asked.searches[task.id] = KeySearch(asked.form, task.states, task.timers)
        if not search.step():
            return None
        return self.answer_of(task, rows=self.rows_of(asked, task, search.found))

    def rows_of(
        self, asked: OpenQuestion, task: StatefulBoltTask, keys: Iterable[Any]
    ) -> tuple[LiveRow, ...]:
        """Return the rows of those keys that have any, and that rows write as the one that was asked for: Decimal(7) is written
        "7", and finds 7, which is not."""
        rows: list[LiveRow] = []
        room = MOST_BYTES
        for key in keys:
            if not has_state(task.states, key) and key not in task.timers.times:
                continue
            if json_form(original(key_in(task.states, task.timers, key))) == asked.form:
                live = LiveKey(key, self.time_of, room)
                rows += live.rows(task.states, task.timers, asked.question.state)
                room = live.room
        return tuple(rows)

    def copy(self, asked: OpenQuestion, task: StatefulBoltTask) -> TaskState:
        """Keep copies of the values that a task has for the key."""
        [key] = asked.written.keys
        packed = b64encode(dumps_by_value(contents.read(task.states, original(key)), pickle.HIGHEST_PROTOCOL))
        if len(packed) > MOST_COPIED:
            return self.answer_of(
                task, why=f"{task_name(task)} has {TOO_LARGE.format(len(packed), MOST_COPIED)}"
            )
        asked.copies[task.id] = StateCopy(task.id, has_state(task.states, key), packed.decode())
        return self.answer_of(task)

    def answer_of(self, task: Task, **more: Any) -> TaskState:
        """Return the answer of a task."""
        epoch, worker = None, epochs_of(self.worker)
        if worker is not None and task.id in worker.epochs.participants:
            epoch = worker.epochs.participants[task.id].epoch
        return TaskState(task.id, task.context.index, epoch, **more)
