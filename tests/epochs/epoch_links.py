"""The links between simulated tasks: what is sent comes late, twice, or never, and is sent again.

Must not know: what travels, what tasks do with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.epochs.epoch_cycles import take_closing
from tests.epochs.epoch_stores import Broken
from tests.epochs.epoch_tasks import SimulatedTask
from worker.epochs.delivery import ReceivingSide
from worker.epochs.messages import LinkItem, Rows
from worker.epochs.participant import FrameAdmission, PutInInbox

if TYPE_CHECKING:
    from tests.epochs.epoch_cluster import Cluster, Worker


class SimulatedLinks:
    """All links of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.line = cluster.line

    def send_frame(self, task: SimulatedTask, target: str, number: int, item: LinkItem) -> None:
        """Send a numbered item; it may come late, twice, or be lost, sent again, or gone for ever."""
        settings, draw = self.cluster.settings, self.line.draw
        rewind = task.participant.rewind
        chance = draw()
        if chance < settings.gone:
            self.line.after(0.01, task.worker, self.frame_gone, task, rewind)
            return
        if chance < settings.lose:
            self.line.after(0.01, task.worker, self.send_again, task, rewind, target, number, item)
            return
        placement = task.worker.placement
        assert placement is not None
        if target not in placement.places:
            return
        worker = placement.places[target][0]
        for _ in range(2 if draw() < settings.lose else 1):
            delay = draw() * (settings.long if draw() < settings.late else settings.net)
            self.line.after(
                delay, worker, self.frame_arrives, worker, task.name, target, rewind, number, item
            )

    def send_again(self, task: SimulatedTask, rewind: int, target: str, number: int, item: LinkItem) -> None:
        """The receiver has reported a gap."""
        if not task.closed and task.participant.rewind == rewind:
            for kept in task.side(target).unreceived():
                if kept[0] == number:
                    self.send_frame(task, target, number, item)

    def frame_gone(self, task: SimulatedTask, rewind: int) -> None:
        """A frame cannot be sent again: that is a rewind."""
        if not task.closed and task.participant.rewind == rewind:
            self.cluster.run_effects(task, task.participant.frame_lost(rewind))

    def frame_arrives(
        self, worker: Worker, source: str, target: str, rewind: int, number: int, item: LinkItem
    ) -> None:
        """Something came over a link."""
        task = worker.tasks.get(target)
        if task is None:
            return
        admission = task.participant.admit(rewind)
        if admission is FrameAdmission.WAIT:
            task.waiting.append((source, rewind, number, item))
        elif admission is FrameAdmission.NOW:
            self.accept(task, source, number, item)

    def accept(self, task: SimulatedTask, source: str, number: int, item: LinkItem) -> None:
        """In order, and each once."""
        side = task.receiving.get(source)
        if side is None:
            side = task.receiving[source] = ReceivingSide()
        for ready in side.arrive(number, item):
            entering = take_closing(task, source, ready)
            passes = isinstance(entering, Rows) and task.participant.alignment.passes(source)
            effects = task.participant.arrive(source, entering)
            if passes and effects != [PutInInbox(((source, entering),))]:
                raise Broken(f"{task.name}: rows of {source} do more than enter the inbox: {effects}")
            self.cluster.run_effects(task, effects)
            if not isinstance(ready, Rows):
                self.send_grant(task, source, side.upto, side.executed)

    def accept_waiting(self, task: SimulatedTask) -> None:
        """Frames that were ahead of a rewind."""
        waiting, task.waiting = task.waiting, []
        for source, rewind, number, item in waiting:
            self.line.after(
                0.0, task.worker, self.frame_arrives, task.worker, source, task.name, rewind, number, item
            )

    def send_grant(self, task: SimulatedTask, source: str, upto: int, executed: int) -> None:
        """Tell a sender what was received and executed."""
        placement = task.worker.placement
        assert placement is not None
        if source in placement.places:
            worker = placement.places[source][0]
            self.line.soon(
                0.002,
                worker,
                self.granted,
                worker,
                source,
                task.name,
                task.participant.rewind,
                upto,
                executed,
            )

    def granted(
        self, worker: Worker, source: str, target: str, rewind: int, upto: int, executed: int
    ) -> None:
        """A sender has credit again."""
        task = worker.tasks.get(source)
        if task is None or task.participant.rewind != rewind or target not in task.sending:
            return
        side = task.sending[target]
        side.received(upto)
        side.executed = max(side.executed, executed)
        task.wake()
