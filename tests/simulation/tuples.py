"""Runs with tuples: virtual processes that run the real worker (`worker.process.daemon` over `Worker` and `Exchange`), joined
by a network in memory, and a ledger of everything emitted, seen, acked and failed.

The loop of the real worker is used here too; only its process is simulated: the heartbeat's thread, the sleep between rounds,
sockets. A spout continues where earlier lives of its task stopped, as one with a durable source does.
Must not know: the store, supervisors, which faults there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, NoReturn
from unittest import mock

from msgspec import structs

from squall.cluster.blobs import read_bundle
from squall.transport.carrier import Parts
from squall.transport.exchange import Exchange
from squall.transport.link import LocalWorker
from squall.transport.wire import Streams
from squall.values import Address
from squall.worker_files import Orders
from tests.carrier_in_memory import LoopbackCarrier, LoopbackNetwork
from tests.faults import ledger
from tests.faults.ledger import Entry, Life
from tests.simulation.machines import Ended, Flags, VirtualProcess
from tests.simulation.timeline import Timeline
from tests.worker.lossy_carrier import Faults, LossyCarrier
from topology_api import Bolt, Context, Failure, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.process.daemon import Daemon
from worker.process.heartbeat import Flags as WorkerFlags
from worker.process.startup import orders_topology, plan_of
from worker.tasks.simulated_async import SimulatedAsync

#: Rounds of a worker's loop in one event; one with more work continues in the next.
ROUNDS: Final = 200
#: Seconds between two such events.
TURN_SECS: Final = 0.002
#: Calls of next_tuple at the same instant: calls take no simulated time.
CALLS_AN_INSTANT: Final = 50
KEYS: Final = 7


# The topology, and its ledger


@dataclass
class Book:
    """The ledger of the tasks of all topologies of one name."""

    line: Timeline
    lives: list[Life] = field(default_factory=list)
    entries: list[list[Entry]] = field(default_factory=list)
    #: The running process.
    pid: int = 0
    #: Spouts emit nothing new any more, and finish when all is acked or failed.
    stopping: bool = False
    #: Processes whose tasks were given to others, and when.
    superseded: dict[int, int] = field(default_factory=dict)

    def begin(self, role: str, index: int) -> list[Entry]:
        """A task begins a life."""
        self.entries.append([])
        self.lives.append(Life(role, index, len(self.lives), self.pid, ()))
        return self.entries[-1]

    @property
    def moment(self) -> int:
        """Now, in nanoseconds."""
        return int(self.line.now * 1e9)

    def read(self) -> list[Life]:
        """All lives, the oldest first."""
        return [
            replace(life, entries=tuple(entries))
            for life, entries in zip(self.lives, self.entries, strict=True)
        ]


#: By the name of a run and of a topology. Components are pickled, and find their ledger here.
BOOKS: dict[str, Book] = {}


class Numbers(Spout):
    """Writes down each emission before it makes it, and each outcome when it is reported."""

    outputs = ("number", "key")
    replay = None

    def __init__(self, book: str, pause: float) -> None:
        self.book, self.pause = book, pause

    def open(self, context: Context) -> None:
        book = BOOKS[self.book]
        lives = ledger.lives_of(book.read(), ledger.SPOUT, context.index)
        emitted = {entry.number for life in lives for entry in life.of("E")}
        acked = {entry.number for life in lives for entry in life.of("A")}
        self.now = context.now
        self.next = max(emitted, default=context.index * ledger.STRIDE - 1) + 1
        self.again = deque(sorted(emitted - acked))
        self.attempts: dict[int, int] = {}
        self.unsettled = 0
        self.due = context.now()
        self.life = book.begin(ledger.SPOUT, context.index)

    def write(self, kind: str, *values: object) -> None:
        self.life.append(Entry(kind, BOOKS[self.book].moment, tuple(map(str, values))))

    def next_tuple(self) -> float | None:
        if self.again:
            self.send(self.again.popleft())
        elif BOOKS[self.book].stopping:
            if not self.unsettled:
                self.finish()
            return self.pause
        else:
            wait = self.due - self.now()
            if wait > 0:
                return wait
            self.due = self.now() + self.pause
            self.next += 1
            self.send(self.next - 1)
        return None

    def send(self, number: int) -> None:
        attempt = self.attempts.get(number, 0) + 1
        self.attempts[number] = attempt
        self.write("E", number, attempt)
        self.unsettled += 1
        self.emit((number, number % KEYS), message_id=(number, attempt))

    def ack(self, message_id: Any) -> None:
        self.write("A", *message_id)
        self.unsettled -= 1
        self.attempts.pop(message_id[0], None)

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.write("F", *message_id, failure.reason)
        self.unsettled -= 1
        self.again.append(message_id[0])


class Relay(Bolt):
    """Passes each tuple on."""

    outputs = ("number", "key")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Sink(Bolt):
    """Writes down each tuple before it is acked."""

    def __init__(self, book: str) -> None:
        self.book = book

    def prepare(self, context: Context) -> None:
        self.life = BOOKS[self.book].begin(ledger.SINK, context.index)

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        kind = "S" if tup["key"] == number % KEYS else "W"
        self.life.append(Entry(kind, BOOKS[self.book].moment, (str(number), repr(tup.values))))


def tuple_topology(book: str, name: str, spouts: int, bolts: int, pause: float) -> Topology:
    """Numbers, a relay (shuffle), a sink (fields)."""
    builder = TopologyBuilder(name)
    builder.set_spout("lines", Numbers(book, pause), parallelism=spouts)
    builder.set_bolt("count", Relay(), parallelism=max(1, bolts)).shuffle_grouping("lines")
    builder.set_bolt("sink", Sink(book), parallelism=max(1, bolts)).fields_grouping("count", "key")
    return builder.build()


# The network


class Network(LoopbackNetwork):
    """Messages in memory; a receiver is woken a moment later."""

    def __init__(self, latency: float) -> None:
        super().__init__()
        #: Seconds until a receiver reads its messages.
        self.latency = latency
        self.owners: dict[Address, TupleProgram] = {}

    def carry(self, address: Address, channel: int, parts: Parts) -> None:
        """See `LoopbackNetwork`."""
        super().carry(address, channel, parts)
        owner = self.owners.get(address)
        if owner is not None:
            owner.turn_in(self.latency)


class Air:
    """The network between machines: which of them are connected, and its faults."""

    def __init__(self, random: Random) -> None:
        self.network = Network(random.choice([0.002, 0.02, 0.2]))
        self.random = random
        self.cut: set[str] = set()
        #: Chances of a message to be lost, doubled, overtaken.
        self.chances = (0.0, 0.0, 0.0)
        self.faults: list[Faults] = []

    def carrier(self, program: TupleProgram) -> LossyCarrier:
        """The carrier of a process."""
        inner = LoopbackCarrier(self.network)
        self.network.owners[inner.address] = program
        faults = Faults(Random(self.random.random()), *self.chances)
        machine = program.process.machine.name

        def cut(address: Address, channel: int) -> bool:
            owner = self.network.owners.get(address)
            if owner is None:
                return False
            there = owner.process.machine.name
            return machine != there and (machine in self.cut or there in self.cut)

        faults.cut = cut
        self.faults.append(faults)
        return LossyCarrier(inner, faults)

    def be(self, chances: tuple[float, float, float]) -> None:
        """Use these faults from now on."""
        self.chances = chances
        for faults in self.faults:
            faults.chances = (*chances, 0.0)


# The process


class Beat:
    """Stands in for the heartbeat's thread: keeps the reports of the loop."""

    def __init__(self, flags: WorkerFlags) -> None:
        self.flags = flags

    def update(self, flags: WorkerFlags) -> None:
        """See `Heartbeat`."""
        self.flags = flags

    stop = update


class Words:
    """Stands in for `ProcessExit`."""

    def end(self, status: int, reason: str, details: str = "", orderly: bool = False) -> NoReturn:
        """See `ProcessExit`."""
        raise Ended(status, reason)


class NoWaiter:
    """Nothing sleeps here."""

    def wait(self, seconds: float | None) -> None:
        """See `Waiter`."""

    def wake(self) -> None:
        """See `Waiter`."""


class TupleProgram:
    """A real worker in a virtual process."""

    def __init__(self, process: VirtualProcess, orders: Orders, air: Air, book: Book) -> None:
        assert process.lease is not None
        self.process = process
        self.book = book
        self.carrier = air.carrier(self)
        self.turn_at: float | None = None
        topology = orders_topology(read_bundle(orders.bundle), orders)
        directory = str(process.directory)
        plan = simulated_plan_of(orders, topology, directory)
        lease, waiter = process.lease, NoWaiter()
        worker = Worker(
            plan,
            lease,
            lambda peer, frame: exchange.send(peer, frame),
            SimulatedAsync(lease.now),
            waiter.wake,
            inline=True,
        )
        streams = Streams(plan.topology, plan.component_of)
        codec = str(plan.conf["topology.transport.codec"])
        local = LocalWorker(
            plan.worker,
            plan.incarnation,
            self.carrier.address,
            codec,
            streams,
            worker.window_of,
            worker.links.waits_for,
        )
        exchange = Exchange(local, self.carrier, lease, worker.peers, int(plan.conf["topology.cycle.buffer"]))
        process_exit: Any = Words()
        self.daemon = Daemon(
            directory, orders, topology, worker, exchange, waiter, lease, process_exit, lambda held: None
        )
        beat: Any = Beat(WorkerFlags(orders.number, "pause", orders.version))
        self.daemon.heartbeat = beat

    @property
    def address(self) -> Address:
        """See `Program`."""
        return self.carrier.address

    def take_orders(self, orders: Orders) -> None:
        """See `Program`."""
        self.book.pid = self.process.pid
        self.daemon.follow(orders)
        self.turn_in(0.0)

    def look(self) -> None:
        """See `Program`."""
        self.turn_in(0.0)

    def turn_in(self, seconds: float) -> None:
        """Let the loop continue then at the latest."""
        moment = self.process.line.now + seconds
        if self.process.alive and (self.turn_at is None or moment < self.turn_at):
            self.turn_at = moment
            self.process.line.at(moment, self.process, self._turn)

    def _turn(self) -> None:
        if self.turn_at is not None and self.process.line.now < self.turn_at:
            return  # another one will come
        self.turn_at = None
        self.process.guarded(self._rounds)

    def _rounds(self) -> None:
        self.book.pid = self.process.pid
        for _ in range(ROUNDS):
            if not (self.daemon.round() or self.daemon.publish_flags()):
                break
        else:
            self.turn_in(TURN_SECS)
            return
        self.turn_in(max(TURN_SECS, self.daemon.seconds_to_wait()))

    def flags(self) -> Flags:
        """See `Program`."""
        said = self.daemon.heartbeat.flags
        return Flags(
            said.asked,
            said.version,
            said.opened,
            said.ended,
            said.drained,
            said.stopped,
            said.crash,
            said.finished,
            self.address,
        )

    def next_time(self) -> float | None:
        """See `Program`. It has rounds of its own."""
        return None

    def die(self) -> None:
        """See `Program`."""
        self.carrier.close()


def simulated_plan_of(orders: Orders, topology: Topology, directory: str) -> WorkerPlan:
    """The plan of a worker for which calls take no time."""
    return structs.replace(plan_of(orders, topology, directory), calls_an_instant=CALLS_AN_INSTANT)


@contextmanager
def real_workers() -> Iterator[None]:
    """Workers are real in this block."""
    with (
        mock.patch("worker.process.daemon.plan_of", simulated_plan_of),
        mock.patch("worker.process.daemon.gc", mock.Mock()),
    ):
        yield


# The check of the ledger


def problems_of_book(book: Book, complete: bool, tasks: set[int]) -> list[str]:
    """The problems. `complete`: the topology is, so every emission of the spouts with these indexes has an outcome."""
    result = ledger.Account()
    lives = book.read()
    spouts, sinks = ledger.lives_of(lives, ledger.SPOUT), ledger.lives_of(lives, ledger.SINK)
    seen = {entry.number for life in sinks for entry in life.of("S")}
    emitted = {entry.number for life in spouts for entry in life.of("E")}
    acked = {entry.number for life in spouts for entry in life.of("A")}
    result.note("acked but never seen by a sink", acked - seen)
    result.note("seen by a sink but never emitted", seen - emitted)
    result.note("seen with values that are not its own", [e for life in sinks for e in life.of("W")])
    for life in spouts:
        ledger.judge(life, result)
    if complete:
        # The actions of a process that has lost its tasks concern only itself.
        counted = [until(life, book.superseded.get(life.pid)) for life in spouts]
        for index in sorted(tasks):
            ledger.succession(ledger.lives_of(counted, ledger.SPOUT, index), acked, result)
    return result.problems


def until(life: Life, moment: int | None) -> Life:
    """A life up to a moment."""
    if moment is None:
        return life
    return replace(life, entries=tuple(entry for entry in life.entries if entry.at <= moment))
