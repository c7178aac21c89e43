"""Detects that a cycle of bolts is quiet: counts the tuples sent and executed on its inner edges, and asks twice.

End marks cannot start on the inner edges of a cycle: each task would wait for another task of the cycle. So once every input
from outside has ended, the cycle's coordinator (the worker of the cycle's lowest task) asks all workers that host the cycle's
tasks. If two rounds in a row give the same numbers, with all workers idle and as many tuples executed as sent, then no tuple is
in flight and the cycle is quiet (Mattern's four-counter method, "Algorithms for distributed termination detection", 1987). When
the cycle is quiet for the first time, its tasks call `end_of_input`; the second time, they send their end marks to the outside.
Must not know: links, user code, clocks (the worker says when a round is due).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from squall.transport.frames import CycleMessage, CyclePhase, CycleProbe, CycleReply

#: Seconds between two rounds of probes.
ROUND_SECONDS = 0.005
#: In phase 1 the tasks of a cycle call `end_of_input`; in phase 2, the last phase, they send end marks to the outside.
LAST_PHASE = 2


@dataclass
class Cycle:
    """One worker's view of one cycle."""

    workers: tuple[str, ...]
    coordinator: str
    #: The number of tuples sent to each worker. When a process has ended, its counts in `sent` and `executed` are dropped.
    sent: Counter[str] = field(default_factory=Counter)
    #: The number of tuples from each worker that were executed here.
    executed: Counter[str] = field(default_factory=Counter)
    phase: int = 0
    round: int = 0
    replies: dict[str, CycleReply] = field(default_factory=dict)
    #: Totals of the last round in which all workers were idle.
    before: tuple[int, int] | None = None


class CycleWatch:
    """The cycles of a topology, seen from one worker."""

    def __init__(self, worker: str, cycles: list[Cycle]) -> None:
        self.worker = worker
        self.cycles = cycles
        #: Messages to send: (worker, message).
        self.outgoing: list[tuple[str, CycleMessage]] = []
        #: Set by the worker. Returns whether all of the worker's tasks of a cycle are idle and their inputs from outside have
        #: ended.
        self.is_idle: Callable[[int], bool] = lambda cycle: False

    def sent(self, cycle: int, worker: str, tuples: int) -> None:
        """Count tuples that were sent on inner edges."""
        self.cycles[cycle].sent[worker] += tuples

    def executed(self, cycle: int, worker: str, tuples: int) -> None:
        """Count executed tuples that came over inner edges."""
        self.cycles[cycle].executed[worker] += tuples

    def unsent(self, cycle: int, worker: str, tuples: int) -> None:
        """Subtract tuples that were sent but never arrived."""
        if worker in self.cycles[cycle].sent:
            self.cycles[cycle].sent[worker] -= tuples

    def forget(self, worker: str) -> None:
        """Drop the counts of a worker's process that has ended."""
        for cycle in self.cycles:
            cycle.sent.pop(worker, None)
            cycle.executed.pop(worker, None)
            cycle.replies.clear()
            cycle.before = None

    def greet(self, worker: str) -> None:
        """Send a new process of a worker the phases of the cycles that this worker coordinates."""
        for index, cycle in enumerate(self.cycles):
            if cycle.phase and cycle.coordinator == self.worker and worker in cycle.workers:
                self.send(worker, CyclePhase(index, cycle.phase))

    def renew(self, cycles: list[Cycle]) -> None:
        """Follow a new assignment, in which different workers may host the cycles' tasks."""
        for old, new in zip(self.cycles, cycles):
            new.sent, new.executed, new.phase, new.round = old.sent, old.executed, old.phase, old.round
        self.cycles = cycles

    def restart(self) -> None:
        """All tasks are new objects, here and in the other workers: count from the beginning."""
        self.cycles = [Cycle(cycle.workers, cycle.coordinator) for cycle in self.cycles]
        self.outgoing.clear()

    def wants_round(self) -> bool:
        """Return whether this worker coordinates a cycle that may be quiet."""
        return any(self.may_ask(index) for index in range(len(self.cycles)))

    def may_ask(self, index: int) -> bool:
        """Return whether this worker should start a round for a cycle."""
        cycle = self.cycles[index]
        return cycle.coordinator == self.worker and cycle.phase < LAST_PHASE and self.is_idle(index)

    def ask(self) -> None:
        """Start a round for each cycle that may be quiet."""
        for index, cycle in enumerate(self.cycles):
            if self.may_ask(index):
                cycle.round += 1
                cycle.replies.clear()
                for worker in cycle.workers:
                    self.send(worker, CycleProbe(index, cycle.round))

    def send(self, worker: str, message: CycleMessage) -> None:
        """Send a message; if it is for this worker, process it at once."""
        if worker == self.worker:
            self.receive(message)
        else:
            self.outgoing.append((worker, message))

    def receive(self, message: CycleMessage) -> None:
        """Process a message from the coordinator, or a reply to the coordinator."""
        cycle = self.cycles[message.cycle]
        if isinstance(message, CycleProbe):
            reply = CycleReply(
                message.cycle,
                message.round,
                self.worker,
                self.is_idle(message.cycle),
                sum(cycle.sent.values()),
                sum(cycle.executed.values()),
                cycle.phase,
            )
            self.send(cycle.coordinator, reply)
        elif isinstance(message, CycleReply):
            self.receive_reply(message, cycle)
        else:
            cycle.phase = max(cycle.phase, message.phase)

    def receive_reply(self, reply: CycleReply, cycle: Cycle) -> None:
        """Evaluate the round once all workers have replied."""
        if reply.phase > cycle.phase:  # the phase was reached before this process started
            for worker in cycle.workers:
                self.send(worker, CyclePhase(reply.cycle, reply.phase))
        if reply.round != cycle.round:
            return
        cycle.replies[reply.worker] = reply
        if len(cycle.replies) < len(cycle.workers):
            return
        replies = cycle.replies.values()
        totals = (sum(reply.sent for reply in replies), sum(reply.executed for reply in replies))
        if not all(reply.idle for reply in replies) or totals[0] != totals[1]:
            cycle.before = None
        elif cycle.before != totals:
            cycle.before = totals
        else:
            cycle.before = None
            # The message is made before the loop, since sending it to this worker changes `cycle.phase`.
            quiet = CyclePhase(reply.cycle, cycle.phase + 1)
            for worker in cycle.workers:
                self.send(worker, quiet)
