"""A spout that notes what is acked, and whether the log had its commit at that moment; and the check of these notes.

Must not know: processes, faults, what the topology does with the tuples.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from tests.local_cluster.words_with_state import Words
from topology_api import Context
from worker.epochs.records import CommitRecord
from worker.loop.epoch_store import EpochFiles


class NotedWords(Words):
    """Appends to a file: `began` with the position of its commit, and each call of `ack`: `acked` or `early`.

    Of one task, in the topology "words".
    """

    def __init__(self, count: int, a_second: int, state: Path, notes: Path) -> None:
        """`state`: the topology's state path."""
        super().__init__(count, a_second)
        self.state, self.notes = str(state), str(notes)

    def open(self, context: Context) -> None:
        super().open(context)
        self.life, self.begun, self.committed = uuid.uuid4().hex, False, 0
        self.file = os.open(self.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self.file)

    def note(self, what: str, number: int) -> None:
        os.write(self.file, f"{self.life} {what} {number}\n".encode())

    def rewind(self, position: int | None) -> None:
        super().rewind(position)
        if not self.begun:
            self.begun = True
            self.note("began", self.at)

    def ack(self, message_id: object) -> None:
        assert isinstance(message_id, int)
        if message_id >= self.committed:
            self.committed = committed_position(self.state, "words/0")
        self.note("acked" if message_id < self.committed else "early", message_id)


def committed_position(state: str, task: str) -> int:
    """Return the position of a spout's task in the newest commit of the log; 0 without one."""
    files = EpochFiles(f"file://{state}", "words")
    commits = [record for record in files.records_after(0) if isinstance(record, CommitRecord)]
    if not commits:
        return 0
    return msgspec.msgpack.decode(files.read_snapshot(commits[-1].files[task]).position, type=int)


def assert_acked_is_committed(notes: Path, total: int) -> None:
    """No number was acked before the commit of its epoch was in the log. Each life of the spout's task has acked every number
    from where it began, once and in order, up to the last commit that it has heard of: this is where the next life began, or
    before, if its process died between the commit and the acks. The last life has acked all that is left."""
    lives: dict[str, tuple[int, list[int]]] = {}
    for line in notes.read_text().splitlines():
        life, what, number = line.split()
        assert what != "early", f"{number} was acked before its commit"
        if what == "began":
            lives[life] = int(number), []
        else:
            lives[life][1].append(int(number))
    begins = [began for began, _ in lives.values()]
    for (began, acked), following in zip(lives.values(), [*begins[1:], total], strict=True):
        end = began + len(acked)
        assert acked == list(range(began, end)), "acks are missing, doubled, or in another order"
        assert end <= following, f"numbers up to {end} are acked, those up to {following} are committed"
    assert end == total
