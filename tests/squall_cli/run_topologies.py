"""Topologies that the tests of `squall run` run in processes of their own."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Iterator

from topology_api import (
    Bolt,
    Context,
    Fields,
    Replay,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)


class Numbers(Spout):
    """Emits 0, 1, ... up to `count` and ends; without a count it never does."""

    outputs = Fields("number")
    replay = Replay(max_attempts=2, first_delay=0.01)

    def __init__(self, count: int | None, pause: float | None = None) -> None:
        self.count = count
        self.pause = pause

    def open(self, context: Context) -> None:
        self.numbers: Iterator[int] = itertools.count() if self.count is None else iter(range(self.count))

    def next_tuple(self) -> float | None:
        number = next(self.numbers, None)
        if number is None:
            self.finish()
            return None
        self.emit((number,), message_id=number)
        return self.pause

    def close(self) -> None:
        print("the spout is closed", flush=True)


class Rests(Numbers):
    """Emits `count` numbers, then nothing more, for ever."""

    def next_tuple(self) -> float | None:
        number = next(self.numbers, None)
        if number is not None:
            self.emit((number,), message_id=number)
        return None


class Sink(Bolt):
    """Accepts everything; prints when it has begun, and when it is cleaned up."""

    def prepare(self, context: Context) -> None:
        self.log = context.log
        self.begun = False

    def execute(self, tup: Tuple) -> None:
        if not self.begun:
            self.begun = True
            self.log.info("it has begun")
            print("printed by a bolt", flush=True)

    def cleanup(self) -> None:
        print("the bolt is cleaned up", flush=True)


class Counts(StatefulBolt):
    key = "number"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1


class Refuses(Bolt):
    """Raises for every tenth number."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] % 10 == 7:
            raise ValueError(f"{tup['number']} is refused")


class Keeps(Bolt):
    """Neither acks nor fails; the signal to the test is on stdout."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        print("kept", flush=True)


class Hangs(Bolt):
    """A call that never returns."""

    def execute(self, tup: Tuple) -> None:
        print("hanging", flush=True)
        threading.Event().wait()


class Writes(Bolt):
    """Writes to stdout in every possible way."""

    def execute(self, tup: Tuple) -> None:
        print("by print", flush=True)
        sys.stdout.write("by write\n")
        os.write(1, b"by the file's number\n")
        os.system("echo by a child")


class Stops(Bolt):
    """Enters the debugger."""

    def execute(self, tup: Tuple) -> None:
        breakpoint()
        self.gone_on = True


class CannotEmit(Numbers):
    """Emits too many values."""

    def next_tuple(self) -> None:
        number = next(self.numbers, None)
        if number is None:
            return self.finish()
        self.emit((number, "more"), message_id=number)


class CannotOpen(Spout):
    outputs = Fields("number")

    def open(self, context: Context) -> None:
        raise ConnectionError("the source is down")

    def next_tuple(self) -> None:
        raise AssertionError("it was never opened")


class OpensLate(Numbers):
    """Fails to open the first time; each attempt adds a character to a file."""

    def __init__(self, count: int, path: str) -> None:
        super().__init__(count)
        self.path = path

    def open(self, context: Context) -> None:
        with open(self.path, "a+") as file:
            file.write(".")
            if file.tell() < 2:
                raise ConnectionError("the source is down")
        super().open(context)


def built(spout: Spout, bolt: Bolt, conf: dict[str, object] | None = None) -> Topology:
    builder = TopologyBuilder("numbers", conf)
    builder.set_spout("source", spout)
    builder.set_bolt("work", bolt, parallelism=2).shuffle_grouping("source")
    return builder.build()


def finite(count: str = "100") -> Topology:
    return built(Numbers(int(count)), Sink())


def counts() -> Topology:
    builder = TopologyBuilder("numbers")
    builder.set_spout("source", Numbers(100))
    builder.set_bolt("count", Counts(), parallelism=2).fields_grouping("source", "number")
    return builder.build()


def endless() -> Topology:
    return built(Numbers(None, pause=0.01), Sink())


def rests() -> Topology:
    return built(Rests(100), Sink())


def limited() -> Topology:
    return built(Numbers(None), Keeps(), {"topology.max.spout.pending": 3})


def refuses(count: str = "30") -> Topology:
    return built(Numbers(int(count)), Refuses())


def crashes() -> Topology:
    return built(Numbers(30), Refuses(), {"topology.on.error": "crash"})


def cannot_emit() -> Topology:
    return built(CannotEmit(3), Sink())


def cannot_open() -> Topology:
    return built(CannotOpen(), Sink())


def opens_late(path: str) -> Topology:
    return built(OpensLate(100, path), Sink())


def keeps(timeout: str) -> Topology:
    numbers = Numbers(5)
    numbers.replay = Replay(
        first_delay=60
    )  # on a stalled machine a second attempt would time out before the end
    return built(numbers, Keeps(), {"topology.message.timeout.secs": float(timeout)})


def hangs(timeout: str) -> Topology:
    return built(Numbers(1), Hangs(), {"topology.message.timeout.secs": float(timeout)})


def writes() -> Topology:
    return built(Numbers(1), Writes())


def stops() -> Topology:
    return built(Numbers(1), Stops())


def wide(bolts: str) -> Topology:
    builder = TopologyBuilder("wide")
    builder.set_spout("source", Rests(100))
    for number in range(int(bolts)):
        builder.set_bolt(f"bolt-{number}", Sink()).shuffle_grouping("source")
    return builder.build()
