"""A source, a bolt in whose call a worker dies, and a supervisor that starts the worker again; in simulated time.

Must not know: single tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from squall.running_calls import SIZE, begin_calls, calls_in
from squall.suspects import Suspects, after_death, for_next_process
from squall.worker_files import Death
from tests.worker.network_of_workers import InMemory, Net
from topology_api import BatchBolt, Bolt, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.call_marks import CallMarks
from worker.tasks.bolt import BoltTask
from worker.tracking.dead_letters import MemoryLetters

CONF = {"topology.on.outage": "wait", "topology.max.spout.pending": 30}
KILLER = 17
COUNT = 60
#: Ends the process in whose call it is called; set by a `Story`.
DIE: list[Callable[[], None]] = []


class Sixty(Spout):
    """60 numbers; each failure is replayed after a second."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=1.0, max_delay=1.0)
    sent = 0

    def next_tuple(self) -> float:
        self.emit((self.sent,), message_id=self.sent)
        self.sent += 1
        if self.sent == COUNT:
            self.finish()
        return 0.01


class EndsItsWorker(Sixty):
    """Its own call is fatal."""

    def next_tuple(self) -> float:
        if self.sent == KILLER and FATAL[0](KILLER):
            DIE[0]()
        return super().next_tuple()


#: For which numbers a call ends the process, or hangs until the process is ended.
FATAL: list[Callable[[int], bool]] = [lambda number: number == KILLER]


def check(tup: Tuple) -> None:
    if FATAL[0](tup[0]):
        DIE[0]()


class Dies(Bolt):
    def execute(self, tup: Tuple) -> None:
        check(tup)


class DiesInAThread(Dies):
    threaded = True


class DiesRich(Bolt):
    """Holds each tuple for a while: only the one in the call is at fault."""

    auto_ack = auto_anchor = False

    def __init__(self) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        check(tup)
        self.held.append(tup)

    def tick(self) -> None:
        for tup in self.held:
            self.ack(tup)
        self.held = []


class DiesLater(Bolt):
    """Many calls at a time; the fatal step comes after a pause."""

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.05)
        check(tup)
        await asyncio.sleep(0.05)


class DiesBetweenSteps(DiesLater):
    """The fatal step is in no coroutine, as in a thread that one of them awaits."""

    async def execute(self, tup: Tuple) -> None:
        asyncio.get_running_loop().call_soon(check, tup)
        await asyncio.sleep(0.05)


class DiesInABatch(BatchBolt):
    batch_size = 10
    batch_interval = 0.2

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            check(tup)


def sixty(bolt: Any, source: Spout | None = None) -> Topology:
    builder = TopologyBuilder("sixty")
    builder.set_spout("source", source or Sixty())
    builder.set_bolt("store", bolt).shuffle_grouping("source")
    return builder.build()


APART = {"a": ["source/0"], "b": ["store/0"]}
TOGETHER = {"b": ["source/0", "store/0"]}


class Story:
    """Source and bolt; the worker with the bolt dies, and is started again by its supervisor."""

    def __init__(
        self,
        bolt: Any,
        hosts: dict[str, list[str]] = APART,
        conf: dict[str, Any] = CONF,
        source: Spout | None = None,
    ) -> None:
        if isinstance(bolt, DiesRich):
            conf = {**conf, "topology.tick.tuple.freq.secs": 0.5}
        self.net = Net(sixty(bolt, source), hosts, InMemory(), conf=conf)
        self.buffer = bytearray(SIZE)
        self.deaths = 0
        #: What the supervisor keeps.
        self.suspects: Suspects | None = None
        #: For how long the task was down, and the error that it showed.
        self.said: list[tuple[float, str]] = []
        #: The dead letters of all processes, on disk.
        self.letters = MemoryLetters()
        #: What the process left behind at the moment of its death.
        self.left: bytes | None = None
        DIE[:] = [self.die]
        self.net.start()
        self.keep_letters()

    def keep_letters(self) -> None:
        for node in self.net.nodes.values():
            node.worker.environment.letters = lambda task: self.letters

    def die(self) -> None:
        if self.left is None:
            self.left = bytes(self.buffer)
            # Nothing of the step in which the process dies gets out.
            self.net.nodes["b"].carrier.send = lambda *_: True  # type: ignore[method-assign]

    def start_again(self, death: Death | None) -> None:
        net = self.net
        net.nodes["b"].worker.asyncio_driver.stop()  # as the process's end does
        net.kill("b")
        net.run(0.5)
        net.number_again("b")
        node = net.begin("b")
        self.left = None
        now = net.clock.now()
        if death is not None and not death.hung:
            self.suspects = after_death(self.suspects, death.calls, death.reason, now)
        suspects = None if self.suspects is None else for_next_process(self.suspects, now)
        if death is not None or suspects is not None:
            self.buffer = bytearray(SIZE)
            begin_calls(self.buffer, self.deaths)
            node.worker.environment.marks = CallMarks(death, self.buffer, now, suspects)
        self.keep_letters()
        net.tell()
        assert net.run(10.0, lambda: node.worker.started)
        if death is not None:
            marks = node.worker.environment.marks
            assert marks is not None
            marks.report(node.worker.ack_router, node.worker.tasks, node.worker.plan.component_of)
            node.worker.send_controls()

    def run(self, most_deaths: int = 20, hung: bool = False) -> None:
        """Let the bolt's worker die until nothing is left to do. `hung`: its calls hang, and it is ended for that."""
        while not self.net.run(100.0, lambda: self.left is not None or self.settled):
            pass
        while self.left is not None:
            assert self.deaths < most_deaths
            self.go_on(hung)
            self.after_start()
            self.run_until_death(200.0)

    def go_on(self, hung: bool = False) -> None:
        """Let the supervisor start the worker again after a death."""
        assert self.left is not None
        calls = calls_in(self.left, self.deaths) if self.deaths else []
        between_calls = not calls and self.net.nodes["b"].worker.environment.marks is not None
        self.deaths += 1
        if hung:
            self.net.run(8.0)
        why = "a call has not returned for 8 s" if hung else "died of SIGSEGV"
        self.start_again(Death(hung, why, tuple(calls), between_calls))

    def run_until_death(self, seconds: float) -> bool:
        """Let time pass until the worker dies, or nothing is left to do; return whether it died."""
        self.net.run(seconds, lambda: self.left is not None or self.settled)
        marks = self.net.nodes["b"].worker.environment.marks
        if marks is not None and self.net.clock.now() >= marks.until:  # as the process's loop does
            self.net.nodes["b"].worker.environment.marks = None
            marks.end(self.net.nodes["b"].worker.tasks.values())
        return self.left is not None

    def after_start(self) -> None:
        """Note what the new process says of its bolt task, once it is down."""
        [bolt] = self.net.nodes["b"].worker.bolts
        if self.net.run(
            3.0, lambda: self.left is not None or (isinstance(bolt, BoltTask) and bolt.probing is not None)
        ):
            assert isinstance(bolt, BoltTask)
            if bolt.probing is not None:
                self.said.append((self.net.clock.now() - bolt.failing_since, str(bolt.last_error)))

    @property
    def spout(self) -> Any:
        [found] = self.net.spouts
        return found

    @property
    def settled(self) -> bool:
        return bool(self.net.spouts and self.spout.finished and self.spout.opened and self.spout.exhausted)

    def reports(self) -> list[str]:
        """The errors that the bolt has reported, in its present process."""
        return [
            f"{report.text} with {report.tuple_text}"
            for node in self.net.nodes.values()
            for report in node.worker.errors["store"].kept
        ]
