"""Sends the dead letters of a bolt task with epochs to the bolts that read them (`topology_api.letter_streams`).

A letter is an emission of the epoch in which its tuple was given up: so each reader gets it once, whatever is rewound. It is in
no tree, since the tuple's tree has ended when it was parked. Two kinds of letters go to no reader: those whose values cannot be
kept, which no snapshot could carry on their way, and tuples for which a cycle has no room, which may belong to another epoch.
Must not know: links, letters' files, why a tuple was given up.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from squall.dead_letters.letter import clean
from topology_api import Failure
from topology_api.letter_streams import letter_stream
from worker.epochs.parking import Parked
from worker.tasks.parked_tuples import id_of, mark_of

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask


def give_up(task: EpochBoltTask, parked: Parked, text: str) -> None:
    """Make a dead letter of a tuple or timer, and send it to its readers. Called in a run of the task, outside of the user's
    calls."""
    task.parking.give_up(parked, text)
    outputs, known = task.emitter.outputs, task.epochs.replays.spouts
    mark = mark_of(parked.item)
    spout = mark.spout or parked.item[0]
    # Of a tuple whose spout is not known, all spouts before this task may be the one.
    streams = [letter_stream(each) for each in ([spout] if spout in known else known)]
    ways = [outputs[stream] for stream in streams if stream in outputs]
    if not ways or mark.unkept:
        return
    failure = Failure(mark.reason or "failed", task.spec.id, task.id, clean(text), parked.attempts)
    row = (id_of(mark), pickle.loads(parked.item[3]), parked.item[2], failure)
    served: set[str] = set()
    for output in ways:
        for box in output.choose(row):
            reader = task.epochs.names[box.target].rpartition("/")[0]
            if reader not in served:
                served.add(reader)
                task.emitter.put(box, row, [])
