"""Dead letters of bolts on their way back: each enters the task in which it was parked, and counts once.

The letter becomes a parked tuple, or a timer that is due, of the task that owns its key now; its id is part of that task's
snapshot from then on. Its file goes only when a commit has both. So after a failure before the commit the file is still there,
and after one behind it the id says that the letter has counted.
Must not know: files, who sends letters again, how a parked tuple is tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from squall.dead_letters.letter import DeadLetter
from squall.field_names import missing_fields, of_which_no, positions_by_name
from worker.errors.reports import failure_text
from worker.loop.rescale import Rescale, key_at
from worker.routing.key_groups import task_of
from worker.state.keys import canonical
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.parked_tuples import TIMER, TIMER_FIELDS, item_again
from worker.tasks.stateful_bolt import FIRST_PAUSE

if TYPE_CHECKING:
    from worker.loop.epoch_worker import EpochWorker

#: Seconds for which the id of a letter is kept after the letter has expired: clocks of hosts differ.
LATE_SECS: Final = 86_400.0


class LetterAgain(msgspec.Struct, frozen=True):
    """A letter that is sent again, and what decodes its values."""

    letter: DeadLetter
    load: Callable[[], tuple[Any, ...]]


class LettersAgain:
    """The letters of one worker's bolts that are sent again."""

    def __init__(self, worker: EpochWorker) -> None:
        self.worker = worker
        #: (task, letter); other threads add to them.
        self.found: deque[tuple[int, LetterAgain]] = deque()
        #: Those that are not part of a commit yet.
        self.waiting: dict[tuple[int, str], LetterAgain] = {}
        #: Those whose task is about to take them.
        self.asked: set[tuple[int, str]] = set()
        #: Returns whether a task runs on this host, whose files its worker sees.
        self.is_here: Callable[[int], bool] = lambda task: True

    def send_again(self, task: int, letter: DeadLetter, load: Callable[[], tuple[Any, ...]]) -> None:
        """Add a letter that is to be sent again to a task, and what decodes its values. May be called from any thread."""
        self.found.append((task, LetterAgain(letter, load)))

    def step(self) -> bool:
        """Do what is due; return whether anything was done. To be called while the tasks run."""
        busy = False
        while self.found:
            task, again = self.found.popleft()
            self.waiting[task, again.letter.id] = again
        for place, again in list(self.waiting.items()):
            task_object = self.worker.epochs.tasks.get(place[0])
            if isinstance(task_object, EpochBoltTask):
                busy |= self.follow(task_object, place, again)
            else:
                del self.waiting[place]  # the task is elsewhere, and so is who finds the letter
        return busy

    def follow(self, task: EpochBoltTask, place: tuple[int, str], again: LetterAgain) -> bool:
        """Let a task take a letter, or remove the file of one that counts; return whether anything was done."""
        id, parking = again.letter.id, task.parking
        if id in parking.taken:
            if not parking.counts(id, self.worker.epochs.participants[task.id].epoch):
                return False
            self.worker.environment.letters(task.id).resent(id)
            self.waiting.pop(place, None)
            return True
        if place in self.asked or parking.full or task.reached or not task.opened:
            return False
        self.asked.add(place)
        self.worker.execute(task, partial(self.ask, task, place, again))
        return True

    # In the task's thread.

    def ask(self, task: EpochBoltTask, place: tuple[int, str], again: LetterAgain) -> None:
        """Let a task take a letter, unless a call is in the middle, or its snapshot is being collected."""
        try:
            if task.yielded or task.reached:
                return
            keeper, id = self.worker.environment.letters(task.id), again.letter.id
            if not keeper.known_again(id):  # it was dropped meanwhile
                self.waiting.pop(place, None)
                return
            try:
                why = self.enter(task, again)
            except Exception as error:
                why = f"its values cannot be used: {failure_text(error)}"
            if why:
                keeper.withdraw(id, why)
                self.waiting.pop(place, None)
        finally:
            self.asked.discard(place)

    def enter(self, task: EpochBoltTask, again: LetterAgain) -> str:
        """Take a letter, or pass it on to its owner; return why it cannot be sent again, or ""."""
        letter = again.letter
        wall = task.epochs.to_wall(task.now())
        task.parking.forget_taken(wall - LATE_SECS)
        if letter.component != task.spec.id:
            return f"task {task.id} belongs to {task.spec.id} now, and not to {letter.component}"
        if letter.expires_at is not None and letter.expires_at <= wall:
            return "it has expired"
        if task.end_called or task.ended:
            return f"the input of {letter.component} has ended: submit {letter.topology} again first"
        is_timer = letter.stream == TIMER and letter.fields == TIMER_FIELDS
        source = TIMER if is_timer else source_of(task, letter)
        fields = TIMER_FIELDS if is_timer else task.fields_of.get((source, letter.stream))
        if fields is None:
            where = f" of {source}" if source else ""
            return f"{letter.component} reads no stream {letter.stream!r}{where} any more"
        if missing := missing_fields(letter.fields, fields):
            return (
                f"the fields of stream {letter.stream!r} of {source} are now ({', '.join(fields)}), of which the letter has no "
                f"{of_which_no(missing)}"
            )
        values = again.load()
        row = tuple(values[at] for at in positions_by_name(letter.fields, fields))
        owner = self.owner(task, source, letter.stream, row)
        if owner != task.id:
            return self.pass_on(task, again, owner)
        if is_timer:
            return self.take_timer(task, letter, row)
        source_task = self.worker.plan.tasks_of[source][0]  # the task that emitted it may be gone
        item = item_again(letter, source, source_task, row)
        task.parking.take_again(letter.id, letter.expires_at, item, task.now())
        return ""

    def take_timer(self, task: EpochBoltTask, letter: DeadLetter, row: tuple[Any, ...]) -> str:
        """Let a timer be due; return why it cannot be, or ""."""
        key, name, time = canonical(row[0]), str(row[1]), float(row[2])
        if name in task.timers.times.get(key, ()):
            return f"the timer {name!r} of the key was set again meanwhile"
        now = task.now()
        task.timers.put(key, name, now)
        task.retried[key, name] = (now, task.epochs.from_wall(time), FIRST_PAUSE)
        task.parking.take_again(letter.id, letter.expires_at, None, now)
        return ""

    def owner(self, task: EpochBoltTask, source: str, stream: str, row: tuple[Any, ...]) -> int:
        """Return the task that owns the key of a tuple or timer now; the task itself if it has no key."""
        plan = self.worker.plan
        if source == TIMER:
            key = row[0]
        else:
            positions = Rescale(plan, {}).input_keys(task.spec.id).get((source, stream))
            if positions is None:
                return task.id
            key = key_at(row, positions)
        tasks = plan.tasks_of[task.spec.id]
        return tasks[task_of(key, len(tasks), plan.groups_of(task.spec.id))]

    def pass_on(self, task: EpochBoltTask, again: LetterAgain, owner: int) -> str:
        """Give a letter to the task that owns its key; return why that is impossible, or ""."""
        keeper, id = self.worker.environment.letters(task.id), again.letter.id
        if not self.is_here(owner):
            why = f"its key belongs to task {owner} now, which runs on another host: send it again, then it goes there"
            keeper.withdraw(id, why, owner)
        elif keeper.pass_on(id, owner):
            self.found.append((owner, again))
        self.waiting.pop((task.id, id), None)
        return ""


def source_of(task: EpochBoltTask, letter: DeadLetter) -> str:
    """Return the component that emitted the tuple of a letter. Letters of earlier releases do not name it."""
    known = [source for source, stream in task.fields_of if stream == letter.stream]
    return letter.source or (known[0] if len(known) == 1 else "")
