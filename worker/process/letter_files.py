"""Keeps the dead letters of a worker's spout tasks in files (`squall.dead_letters.folder`); hands out those to be sent again.

A task's own thread keeps letters. The heartbeat's thread looks for letters that are to be sent again; their values are decoded
later, in the task's thread, since the classes of values are the user's.
Must not know: when a tuple is given up, who asks for letters.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from squall.dead_letters.contents import KeptLetter, as_text_only, size_of, values_of, with_values
from squall.dead_letters.folder import RESEND, LetterFolder, folder_name, on_disk
from squall.dead_letters.letter import DeadLetter
from topology_api.errors import SquallError
from worker.loop.kinds import epoch_bolt, epochs_of
from worker.loop.worker import Worker
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task
from worker.tracking.dead_letters import GivenUp, NotKept

_log = logging.getLogger(__name__)

_MEGABYTE: Final = 1_000_000
#: A larger file has only one letter: who reads letters reads a whole file.
MOST_A_FILE: Final = 8 * _MEGABYTE
_DAY_SECS: Final = 86_400.0
#: No file system's clock is coarser.
_TICK_SECS: Final = 2.0


#: Why a letter of a bolt is not sent again.
NOT_AGAIN: Final = (
    "it failed in a bolt of a topology with topology.state.path, and this version has none: the bolts before it have counted "
    "it, so it can only be sent again to its bolt"
)


class LetterFiles:
    """Implements `LetterKeeper` for one spout task."""

    gathers = True

    def __init__(
        self,
        folder: LetterFolder,
        task: int,
        most: int,
        keep_secs: float | None,
        time_of: Callable[[float], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`most`: how many bytes the folder may take; `keep_secs`: how long a letter is kept (None: without end)."""
        self.folder, self.task, self.most, self.keep_secs = folder, task, most, keep_secs
        self.time_of, self.wall_clock = time_of, wall_clock
        self.why_not: NotKept | None = None
        #: Letters that dead-letter bolts have not answered yet: id -> the file; of each file, the ids that wait or are acked.
        self.files: dict[str, str] = {}
        self.waiting: dict[str, set[str]] = {}
        self.acked: dict[str, set[str]] = {}

    def keep(self, given_up: Sequence[GivenUp]) -> int:
        """See `LetterKeeper`."""
        self.why_not = None
        now = self.wall_clock()
        until = None if self.keep_secs is None else now + self.keep_secs
        done = 0
        letters = [
            self._within(kept_letter(replace(each.letter, expires_at=until), each.row)) for each in given_up
        ]
        try:
            fitting = self._fitting(letters)
            for part in parts_of(fitting):
                again = [each.letter.id for each in part if each.letter.resent]
                with (
                    self.folder.locked() if again else nullcontext()
                ):  # an operator may send one again at this moment
                    self._remember(self.folder.add(part, now), part)
                    done += len(part)
                    for id in again:
                        self.folder.remove_resend(self.task, id)
        except (OSError, SquallError) as error:
            self.why_not = cannot_write(self.folder.path, error)
            return done
        if done < len(letters):
            self.why_not = is_full(self.folder.path, self.most)
        return done

    def known(self, ids: Collection[str]) -> set[str]:
        """See `LetterKeeper`."""
        files = [self.folder.read(file.name)[0] for file in self.folder.files()]
        again = {id for _, id, _ in self.folder.resends()}
        return ({kept.letter.id for letters in files for kept in letters} | again) & {*ids}

    def _within(self, kept: KeptLetter) -> KeptLetter:
        """Return a letter that has room in an empty folder: for a larger one the spout would wait for ever."""
        size = size_of(kept)
        if kept.letter.resent or kept.letter.heir or on_disk(size) <= self.most:
            return kept
        most = f"all dead letters together may take {self.most:,} (topology.dead.letters.mb)"
        return as_text_only(kept.letter, f"the letter has {size:,} bytes with its values; {most}")

    def _fitting(self, letters: list[KeptLetter]) -> list[KeptLetter]:
        """Return the first letters, as many as there is room for; letters that a dead-letter bolt has acked make room. A letter
        that was sent again has its room already. Letters for another version are all kept: they were in memory until now, and
        soon leave again."""
        here = {id for task, id, _ in self.folder.resends() if task == self.task}
        sizes = [0 if each.letter.id in here or each.letter.heir else size_of(each) for each in letters]

        def lack() -> int:
            new = on_disk(sum(sizes))
            return self.folder.used() + new - self.most if new else 0

        if (missing := lack()) > 0:
            self.folder.remove_acked(missing)
            while lack() > 0:
                sizes.pop()
        return letters[: len(sizes)]

    def _remember(self, name: str, letters: list[KeptLetter]) -> None:
        ids = {each.letter.id for each in letters if not each.letter.resent}
        if ids:
            self.files.update(dict.fromkeys(ids, name))
            self.waiting[name], self.acked[name] = ids, set()

    def bolt_done(self, id: str, acked: bool) -> None:
        """See `LetterKeeper`."""
        name = self.files.pop(id, None)
        if name is None:
            return
        waiting, done = self.waiting[name], self.acked[name]
        waiting.discard(id)
        if acked:
            done.add(id)
        if waiting:
            return
        del self.waiting[name], self.acked[name]
        if done:
            try:
                self.folder.mark_acked(name, done)
            except (OSError, SquallError) as error:  # the letters stay, without the mark
                _log.warning("dead letters cannot be marked as acked: %s", error)

    def resent(self, id: str) -> None:
        """See `LetterKeeper`."""
        try:
            self.folder.remove_resend(self.task, id)
        except (OSError, SquallError) as error:  # the letter is sent once more
            _log.warning("dead letter %s was sent again, and cannot be removed: %s", id, error)

    def known_again(self, id: str) -> bool:
        """See `LetterKeeper`."""
        return self.folder.read_resend(self.task, id) is not None

    def pass_on(self, id: str, task: int) -> bool:
        """See `LetterKeeper`."""
        kept = self.folder.read_resend(self.task, id)
        if kept is None:
            return False
        try:
            with self.folder.locked():  # it has two files for a moment, of which the tasks take one
                self.folder.add_resend(task, kept)
                self.folder.remove_resend(self.task, id)
        except (OSError, SquallError) as error:
            _log.warning("dead letter %s cannot be passed on to task %d: %s", id, task, error)
            return False
        return True

    def withdraw(self, id: str, why: str, task: int = 0) -> None:
        """See `LetterKeeper`."""
        if not why:
            return  # the next process of this task sends it again
        kept = self.folder.read_resend(self.task, id)
        if kept is None:
            return
        try:
            with self.folder.locked():  # an operator may send it again at this moment
                back = replace(kept.letter, note=why, heir="", task=task or kept.letter.task)
                self.folder.add([structs.replace(kept, letter=back)], self.wall_clock())
                self.folder.remove_resend(self.task, id)
        except (OSError, SquallError) as error:
            _log.warning("dead letter %s cannot be put back: %s", id, error)


def kept_letter(letter: DeadLetter, row: tuple[Any, ...]) -> KeptLetter:
    """Return a letter with its values, unless it says why it cannot have them."""
    return KeptLetter(letter) if letter.why_no_values else with_values(letter, row)


def parts_of(letters: Sequence[KeptLetter]) -> Iterator[list[KeptLetter]]:
    """Yield the letters in parts that have at most `MOST_A_FILE` bytes, or one letter."""
    part: list[KeptLetter] = []
    size = 0
    for each in letters:
        size += size_of(each)
        if part and size > MOST_A_FILE:
            yield part
            part, size = [], size_of(each)
        part.append(each)
    if part:
        yield part


def cannot_write(folder: Path, error: Exception) -> NotKept:
    """Return why letters are not kept when the folder cannot be written."""
    text = getattr(error, "strerror", None) or str(error)
    return NotKept(
        "dead letters cannot be written",
        f"dead letters cannot be written into {folder}: {text}",
    )


def is_full(folder: Path, most: int) -> NotKept:
    """Return why letters are not kept when their space is used up."""
    return NotKept(
        "no room for dead letters",
        f"the dead letters of this topology take all of their {most // _MEGABYTE} MB on this host (topology.dead.letters.mb, in"
        f" {folder}): send them again or drop them (squall dead-letters). What is given up stays pending until then",
    )


class Letters:
    """The dead letters of one worker process."""

    def __init__(
        self, root: Path, worker: Worker, time_of: Callable[[float], float], wake: Callable[[], object]
    ) -> None:
        """`root`: the folder with the letters of all topologies of this host. `time_of`: turns times of the worker's clock into
        wall-clock time. `wake`: wakes the worker's loop."""
        topology = worker.plan.topology
        self.worker = worker
        self.folder = LetterFolder(root / folder_name(topology.name))
        conf = worker.plan.conf
        days = conf["topology.dead.letters.days"]
        self.most = int(conf["topology.dead.letters.mb"]) * _MEGABYTE
        self.keep_secs = None if days is None else float(days) * _DAY_SECS
        self.time_of, self.wake = time_of, wake
        self.mark: object = None
        #: The tasks at the last look. A task may come to a running worker, and the letters of its folder with it.
        self.tasks: dict[int, Task] = {}
        #: The letters that were handed to a task and still have their file: task, id, stamp of the file.
        self.handed: set[tuple[int, str, tuple[int, int]]] = set()

    def keeper_of(self, task: int) -> LetterFiles:
        """Return what keeps the letters of a spout task."""
        return LetterFiles(self.folder, task, self.most, self.keep_secs, self.time_of)

    def find_resends(self) -> None:
        """Hand letters that are to be sent again to their tasks. For the heartbeat's thread."""
        try:
            stat = os.stat(self.folder.path / RESEND)
        except OSError:  # none was ever sent again, or all have been
            self.mark, self.tasks, self.handed = None, {}, set()
            return
        mark = stat.st_ino, stat.st_mtime_ns
        every = dict(self.worker.tasks)
        tasks: dict[int, Task] = {
            id: task
            for id, task in every.items()
            if isinstance(task, SpoutTask) or epoch_bolt(self.worker, task) is not None
        }
        if mark == self.mark and tasks == self.tasks:
            return
        if not all(task.opened for task in tasks.values()):
            return  # the mark stays old, so that this is looked at again
        # Two changes within a tick of the file system's clock have the same mark.
        settled = abs(time.time() - stat.st_mtime) > _TICK_SECS
        before, self.mark, self.tasks = self.tasks, mark if settled else None, tasks
        there = {(task, id, file.stamp) for task, id, file in self.folder.resends() if task in tasks}
        new = there - {each for each in self.handed if tasks.get(each[0]) is before.get(each[0])}
        self.handed = there
        for task, id, _ in self.folder.resends():
            if task in every and task not in tasks:
                self.keeper_of(task).withdraw(id, NOT_AGAIN)
        for task, id, _ in sorted(new):
            kept, sender = self.folder.read_resend(task, id), tasks[task]
            if kept is None:
                continue
            if isinstance(sender, SpoutTask):
                sender.letters.to_resend.append((kept.letter, partial(row_of, kept)))
            else:
                again = epochs_of(self.worker)
                assert again is not None
                again.again.send_again(task, kept.letter, partial(row_of, kept))
        if new:
            self.wake()


def row_of(kept: KeptLetter) -> tuple[Any, ...]:
    """Return the values of a letter, decoded. Raises whatever the classes of the values raise."""
    if not kept.letter.codec:
        raise SquallError(f"its values were not kept: {kept.letter.why_no_values}")
    return values_of(kept)
