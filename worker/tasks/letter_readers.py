"""Sends the dead letters of a bolt task with epochs to the bolts that read them (`topology_api.letter_streams`).

A letter is an emission of the epoch in which its tuple was given up: so each reader gets it once, whatever is rewound. It is in
no tree, since the tuple's tree has ended when it was parked. What is given up outside of a run of the task, such as a tuple
that cannot be read on arrival, is sent in the next run, and is part of snapshots until then. Values that cannot be kept are
texts.
Must not know: links, letters' files, why a tuple was given up.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from squall.dead_letters.letter import clean, text_of
from topology_api import Failure
from topology_api.letter_streams import is_letter_stream, letter_stream
from worker.epochs.parking import Parked
from worker.tasks.parked_tuples import id_of, mark_of

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask


def give_up(task: EpochBoltTask, parked: Parked, text: str) -> None:
    """Make a dead letter of a tuple or timer, and send it to its readers. Called in a run of the task, outside of the user's
    calls."""
    task.parking.give_up(parked, text, read=True)
    send_letter(task, parked.item, clean(text), parked.attempts)


def send_unread(task: EpochBoltTask) -> None:
    """Send the letters that their readers have yet to get; those of a task that has ended go to none. Another thread may add
    some meanwhile."""
    unread = task.parking.unread
    while unread:
        letter = unread.pop(0)
        if not task.ended:
            send_letter(task, *letter)


def send_letter(task: EpochBoltTask, item: Any, text: str, attempts: int) -> None:
    """Send a letter to its readers."""
    outputs, known = task.emitter.outputs, task.epochs.replays.spouts
    mark = mark_of(item)
    if item[0] == task.spec.id and is_letter_stream(item[2]):
        return  # it was on its way to a reader, and cannot get there
    spout = mark.spout or item[0]
    # Of a tuple whose spout is not known, all spouts before this task may be the one.
    streams = [letter_stream(each) for each in ([spout] if spout in known else known)]
    ways = [outputs[stream] for stream in streams if stream in outputs]
    if not ways:
        return
    failure = Failure(mark.reason or "failed", task.spec.id, task.id, text, attempts)
    values = pickle.loads(item[3])
    if mark.unkept and not mark.texts:  # they can be kept, and cannot travel
        values = tuple(map(text_of, values))
    row = (id_of(mark), values, item[2], failure)
    served: set[str] = set()
    for output in ways:
        for box in output.choose(row):
            reader = task.epochs.names[box.target].rpartition("/")[0]
            if reader not in served:
                served.add(reader)
                task.emitter.put(box, row, [])
