"""What a connector must survive on its real server: the worlds that it is put into, and topologies that run in them.

A world is one connector with its server and a place of its own there: a topic, a table, a queue. `tests/connectors/` has a
module for each, and the promises: `source_promises.py`, `sink_promises.py`. The protocol of positions, tokens and staged rows
is the subject of another suite, `local_cluster.testing`: it is held without faults of servers.
Must not know: any connector, any promise.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from local_cluster import ComponentStatus, LocalCluster
from tests.connectors_in_memory import ROWS, TokenInMemory
from tests.rewinding_spout import FromPosition
from tests.zookeeper_servers import eventually
from topology_api import Bolt, FailTuple, Fields, Replay, Spout, TopologyBuilder, Tuple

#: The component that has the connector.
CONNECTOR = "connector"
#: Seconds within which a topology does what a test waits for, on a machine under load.
CAP = 40.0
#: The environment variable that has a wrong password; errors must not show it.
WRONG, WRONG_PASSWORD = "WRONG_PASSWORD", "hunter2"
#: After short pauses, so that a test of a failure takes no minute. A server that is away counts against no tuple.
SOON = Replay(first_delay=0.05, max_delay=0.5)

RunningT = TypeVar("RunningT", bound="Running")
_names = itertools.count(1)
#: By the name of a world: what its topologies have seen, and what they write. (Components are copied into a worker.)
_WORLDS: dict[str, World] = {}
_SEEN: defaultdict[str, list[int]] = defaultdict(list)
_UNREADABLE: defaultdict[str, list[Any]] = defaultdict(list)
_FAILED: defaultdict[str, set[int]] = defaultdict(set)
_SUPPLY: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)


class Server(Protocol):
    """A process that a test ends and freezes; `start` returns when it answers. `tests.killable.Killable` is most of one."""

    def start(self) -> None:
        """Start it again, with its data, at the same address."""

    def kill(self) -> None:
        """End it at once."""

    def freeze(self) -> None:
        """Suspend it; its connections stay."""

    def thaw(self) -> None:
        """Resume it."""


class World(ABC):
    """One connector and a fresh place on a server that other tests use too.

    A subclass names a fixture of pytest, by `name`, which makes it; the fixture is in the same module, a
    `tests/connectors/NAME_world.py`, and takes a server that lives as long as the session.
    """

    #: The name of the fixture, and of the row of the matrix: "kafka_source".
    name: ClassVar[str]
    #: The product's class: "squall_io.kafka.KafkaSpout".
    connector: ClassVar[str]
    #: Promises that mean nothing for this connector, each with the reason: "in order", or one kind of topology only,
    #: "in order, without epochs".
    not_applicable: ClassVar[Mapping[str, str]] = {}
    #: Promises that the usual run leaves out, because they are slow here; `--soak` has them. Named as above.
    slow: ClassVar[frozenset[str]] = frozenset()
    #: What the status or an error says while the server is away.
    away_words: ClassVar[str] = "waiting for"
    #: Whether the status or an error says so while the server is frozen; otherwise the status shows a call that lasts.
    shows_frozen: ClassVar[bool] = True
    #: What an error says about a missing topic, table or queue.
    missing_words: ClassVar[str] = ""
    #: Whether `open` or `prepare` raises without the topic, table or queue: a worker process tries it again, but a topology in
    #: the process of a test fails.
    needs_place: ClassVar[bool] = False
    #: None: it needs no server; promises about one are then not applicable.
    server: Server | None = None
    #: Options of the topology that this connector needs.
    conf: Mapping[str, object] = {}

    def __init__(self) -> None:
        self.id = f"{self.name}-{next(_names)}"
        _WORLDS[self.id] = self

    def remove(self) -> None:
        """Remove the topic, table or queue."""
        raise NotImplementedError

    def create(self) -> None:
        """Make the topic, table or queue again, empty."""
        raise NotImplementedError

    @contextlib.contextmanager
    def away(self, how: str) -> Iterator[None]:
        """The server is "killed" or "frozen", and is back at the end."""
        server = self.server
        assert server is not None
        (server.kill if how == "killed" else server.freeze)()
        try:
            yield
        finally:
            (server.start if how == "killed" else server.thaw)()


class SourceWorld(World):
    """A source, and the other side that puts messages into it. Numbers name messages."""

    #: Whether it is a RewindableSpout: then nothing comes twice in a topology with epochs.
    rewindable: ClassVar[bool]
    #: How many partitions `put` knows, each read by one task; 1: there are none.
    partitions: ClassVar[int] = 1
    #: How many tasks may read it; 1: it refuses more.
    most_tasks: ClassVar[int] = 3
    #: What the error about an unreadable message says.
    unreadable_words: ClassVar[str] = "UnreadableMessage"

    @abstractmethod
    def spout(self, **options: Any) -> Spout:
        """The connector at this place, with short timeouts and `replay=SOON` if it takes one."""

    @abstractmethod
    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        """Send messages in this order, and wait until the server has them."""

    @abstractmethod
    def number_of(self, values: Sequence[Any]) -> int:
        """The number that the values of a tuple name."""

    def put_unreadable(self) -> None:
        """Send a message that cannot be decoded."""
        raise NotImplementedError

    def put_large(self, number: int) -> str:
        """Send a message of the greatest size, padded. Returns "" if the source has to read it, and otherwise what the error
        says that replaces it."""
        raise NotImplementedError

    def wrong_login(self) -> tuple[Spout, str]:
        """A spout with the password env:WRONG_PASSWORD, and what its error says."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Whether the server has nothing left for a topology that has processed all. True if it does not know."""
        return True


class SinkWorld(World):
    """A sink, and the other side that sees what it has written. Numbers name rows."""

    #: Whether each row is there once in a topology with epochs (TokenSink, StagedSink); otherwise at least once.
    once: ClassVar[bool]
    #: What the dead letter of a refused row says.
    refused_words: ClassVar[str] = ""
    #: The fields of tuples that it gets.
    fields: ClassVar[tuple[str, ...]] = ("number", "text")

    @abstractmethod
    def sink(self, **options: Any) -> Bolt:
        """The connector at this place, with short timeouts."""

    @abstractmethod
    def written(self) -> list[int]:
        """The numbers of all rows that a reader sees, in any order, each as often as it is there."""

    def values(self, number: int) -> tuple[Any, ...]:
        """A row."""
        return number, f"row {number}"

    def refused(self, number: int) -> tuple[Any, ...]:
        """A row that the server, or the sink, never takes."""
        raise NotImplementedError

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        """A row of the greatest size, or above it; and whether it is to be written (otherwise it is refused)."""
        raise NotImplementedError

    def wrong_login(self) -> tuple[Bolt, str]:
        """A sink with the password env:WRONG_PASSWORD, and what its error says."""
        raise NotImplementedError

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        """The next answer to a write does not arrive, after the server has done it. Yields: whether it was lost by now."""
        yield lambda: False
        raise NotImplementedError


class Numbered(Bolt):
    """Notes the number of each message, in order; passes on those that count."""

    outputs = Fields("number")

    def __init__(self, world: str, fail_first: bool) -> None:
        self.world, self.fail_first = world, fail_first

    def execute(self, tup: Tuple) -> None:
        if tup.stream != "default":
            _UNREADABLE[self.world].append(tup.values)
            return
        world = _WORLDS[self.world]
        assert isinstance(world, SourceWorld)
        number = world.number_of(tup.values)
        if self.fail_first and number % 3 == 1 and number not in _FAILED[self.world]:
            _FAILED[self.world].add(number)
            raise FailTuple("the first attempt fails")
        _SEEN[self.world].append(number)
        self.emit((number,))


class Supply(FromPosition):
    """Emits what a test has given so far."""

    replay = SOON

    def __init__(self, world: str, fields: Sequence[str]) -> None:
        self.world, self.outputs = world, Fields(*fields)

    def next_tuple(self) -> float | None:
        if self.at >= len(_SUPPLY[self.world]):
            return 0.02
        self.emit(_SUPPLY[self.world][self.at], message_id=self.at)
        self.at += 1
        return None


class Running:
    """A topology in a cluster of this process. folder: where its state is; None: it has no epochs."""

    def __init__(self, world: World, builder: TopologyBuilder, folder: Path | None) -> None:
        self.world, self.epochs = world, folder is not None
        self.name = world.name
        conf: dict[str, object] = {"topology.message.timeout.secs": CAP, **world.conf}
        if folder is not None:
            conf |= {"topology.state.path": f"file://{folder}/state-{world.id}", "topology.epoch.secs": 0.1}
        self.cluster = LocalCluster()
        try:
            self.cluster.submit(builder.build(), conf)
        except BaseException:
            self.cluster.shutdown()
            raise

    def __enter__(self: RunningT) -> RunningT:
        return self

    def __exit__(self, *raised: object) -> None:
        self.cluster.shutdown()

    def until(self, happens: Callable[[], object]) -> None:
        """Wait until something happens; if it does not, say what the topology does instead."""
        try:
            eventually(happens, CAP, every=0.05)
        except AssertionError:
            raise AssertionError(f"not within {CAP:g} s; {self.told()}") from None

    def told(self) -> str:
        """What the topology says about itself."""
        status = self.cluster.status(self.name)
        idle = {name: each.idle for name, each in status.components.items() if each.idle}
        seen = sorted(_SEEN[self.world.id])
        given_up, errors = " | ".join(self.refused()), " | ".join(self.errors())
        return f"state {status.state}, idle {idle}, seen {seen}, errors: {errors}, given up: {given_up}"

    def errors(self) -> list[str]:
        """The error reports so far."""
        status = self.cluster.status(self.name)
        return [*(each.render() for each in status.errors), *filter(None, [status.error])]

    def reports(self, words: str) -> None:
        """Wait for an error that has these words."""
        self.until(lambda: any(words in error for error in self.errors()))

    def refuses_to_begin(self) -> None:
        """Wait until the topology has failed."""
        self.until(lambda: self.cluster.status(self.name).state == "FAILED")

    def shown(self) -> str:
        """What the status shows about the connector."""
        return self._connector().idle

    def _connector(self) -> ComponentStatus:
        return self.cluster.status(self.name).components[CONNECTOR]

    def waits(self, how: str = "killed") -> None:
        """Wait until the status or an error says that the server is away."""
        words = self.world.away_words
        if how == "frozen" and not self.world.shows_frozen:
            self.until(lambda: any(load.call_since for load in self._connector().loads))
            return
        self.until(lambda: words in self.shown() or any(words in error for error in self.errors()))

    def goes_on(self) -> None:
        """Wait until the status says no more that it waits."""
        self.until(lambda: self.world.away_words not in self.shown())

    def refused(self) -> list[str]:
        """The reasons of tuples that were given up."""
        return [letter.failure.error or "" for letter in self.cluster.dead_letters(self.name)]


class Reading(Running):
    """A topology that reads a source: what has arrived, and with epochs what counts."""

    def __init__(
        self,
        world: SourceWorld,
        folder: Path | None = None,
        *,
        spout: Spout | None = None,
        tasks: int = 1,
        fail_first: bool = False,
    ) -> None:
        builder = TopologyBuilder(world.name)
        spout = world.spout() if spout is None else spout
        builder.set_spout(CONNECTOR, spout, tasks)
        number = builder.set_bolt("number", Numbered(world.id, fail_first))
        number.shuffle_grouping(CONNECTOR)
        if isinstance(spout.outputs, Mapping) and "unreadable" in spout.outputs:
            number.shuffle_grouping(CONNECTOR, stream="unreadable")
        if folder is not None:
            builder.set_bolt("count", TokenInMemory(world.id)).shuffle_grouping("number")
        super().__init__(world, builder, folder)
        self.once = folder is not None and world.rewindable

    def sees(self, numbers: Iterable[int]) -> None:
        """Wait until these messages have arrived; with epochs, until they count, each once if the source can rewind."""
        wanted = sorted(numbers)
        found = counted if self.epochs else seen
        self.until(lambda: set(wanted) <= set(found(self.world)))
        if self.once:
            assert sorted(counted(self.world)) == wanted
        else:
            assert set(found(self.world)) == set(wanted)


class Writing(Running):
    """A topology that writes what a test supplies."""

    def __init__(
        self, world: SinkWorld, folder: Path | None = None, *, sink: Bolt | None = None, tasks: int = 1
    ) -> None:
        builder = TopologyBuilder(world.name)
        builder.set_spout("supply", Supply(world.id, world.fields))
        bolt = world.sink() if sink is None else sink
        builder.set_bolt(CONNECTOR, bolt, tasks).shuffle_grouping("supply")
        super().__init__(world, builder, folder)
        self.sinks = world
        self.once = folder is not None and world.once

    def supply(self, *rows: tuple[Any, ...]) -> None:
        """Have the spout emit these rows."""
        _SUPPLY[self.world.id].extend(rows)

    def give(self, numbers: Iterable[int]) -> None:
        """Have the spout emit the rows with these numbers."""
        self.supply(*map(self.sinks.values, numbers))

    def shows(self, numbers: Iterable[int]) -> None:
        """Wait until these rows are there, each once if the sink promises that."""
        wanted = sorted(numbers)
        self.until(lambda: set(wanted) <= set(self.sinks.written()))
        found = self.sinks.written()
        assert (sorted(found) if self.once else sorted(set(found))) == wanted


def seen(world: World) -> list[int]:
    """The numbers that have arrived, in order, also those that were taken back later."""
    return list(_SEEN[world.id])


def counted(world: World) -> list[int]:
    """The numbers that count in a topology with epochs."""
    return [number for (number,) in ROWS[world.id]]


def unreadable(world: World) -> list[Any]:
    """What came on the stream of unreadable messages."""
    return list(_UNREADABLE[world.id])
