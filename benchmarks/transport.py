"""The cost of a link between two workers on one host by its kind: over TCP or a Unix socket, each plain and with CURVE.

Two processes use the sockets of workers (`squall.transport.carriers.sockets`), without the layers above them. A round trip is
one message there and one back, one at a time, each side asleep until a message comes; its size is that of one small tuple.
Throughput is a flood in one direction: of such messages, and of messages as large as a full frame of words. Time ends with the
receiver's answer to the last one; CPU seconds are those of both processes, ZeroMQ's threads included. The kind of a link is
selected as workers select it; for TCP, the address names the host in another way, as behind a proxy. Run it on an idle machine:
a round trip wakes six threads, one after another.

    python -m benchmarks transport [--rounds 5] [--trips 5000] [--messages 200000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.child import answer, ask, machine, spread
from squall.transport.carrier import DATA, Parts
from squall.transport.carriers import same_host
from squall.transport.carriers.sockets import Sockets, make_keys
from squall.values import Address, Keys

KINDS = {"tcp": "TCP", "tcp-curve": "TCP, CURVE", "ipc": "Unix", "ipc-curve": "Unix, CURVE"}
TUPLE, FRAME = 100, 16_000
"""Bytes of a message: about those of one word as a tuple, and of a frame of 200 words."""
WARM = 200
"""Round trips before the clock starts."""
PATIENCE = 60
"""Seconds after which the other process is given up."""
NO_ROOM = 20e-6
"""Seconds until it is tried again to send what there was no room for."""


def take(sockets: Sockets) -> Parts:
    """Return the next message; the process sleeps until it comes."""
    deadline = time.monotonic() + PATIENCE
    while (parts := sockets.receive(DATA)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing has come for {PATIENCE} s")
        sockets.wait(1.0)
    return parts


def give(sockets: Sockets, parts: Parts) -> None:
    """Send a message, as soon as there is room."""
    deadline = time.monotonic() + PATIENCE
    while not sockets.send("peer", DATA, parts):
        if time.monotonic() > deadline:
            raise TimeoutError(f"there was no room for {PATIENCE} s")
        time.sleep(NO_ROOM)


def reached(kind: str, keys: Keys | None, address: Address) -> Address:
    """Return the address of the other process that selects this kind of link; the kind is checked."""
    data, control = address
    if kind.startswith("tcp"):
        data, control = (endpoint.replace("//127.0.0.1:", "//localhost:") for endpoint in address)
    way = same_host.nearest(keys, data)
    if way.partition("://")[0] != kind.partition("-")[0]:
        raise AssertionError(f"a link that was to go by {kind} goes by {way}")
    return data, control


def other(kind: str, keys: Keys | None, pipe: Connection) -> None:
    """The process at the other end: returns each message, or takes a number of them and answers once; reports its CPU."""
    sockets = Sockets(keys)
    pipe.send(sockets.address)
    sockets.connect("peer", reached(kind, keys, pipe.recv()))
    while (job := pipe.recv()) is not None:
        every, count = job
        began = time.process_time()
        for number in range(1, count + 1):
            parts = take(sockets)
            if every or number == count:
                give(sockets, parts)
        pipe.send(time.process_time() - began)
    sockets.close()


def measure(kind: str, trips: int, messages: int) -> dict[str, Any]:
    """Return all figures of one kind of link."""
    keys = make_keys() if kind.endswith("curve") else None
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=other, args=(kind, keys, theirs), daemon=True)
    process.start()
    sockets = Sockets(keys)
    sockets.connect("peer", reached(kind, keys, pipe.recv()))
    pipe.send(sockets.address)
    bounce(sockets, pipe, WARM)
    times = sorted(bounce(sockets, pipe, trips))
    found: dict[str, Any] = {"p50": times[len(times) // 2] * 1e6, "p99": times[len(times) * 99 // 100] * 1e6}
    for name, size, count in (("tuple", TUPLE, messages), ("frame", FRAME, messages // 4)):
        seconds, cpu = flood(sockets, pipe, size, count)
        found[name] = {"rate": count / seconds, "cpu": cpu / count * 1e6}
    pipe.send(None)
    sockets.close()
    process.join(PATIENCE)
    return found


def bounce(sockets: Sockets, pipe: Connection, count: int) -> list[float]:
    """Return the seconds of each of this many round trips."""
    message = [bytes(TUPLE)]
    pipe.send((True, count))
    times = []
    for _ in range(count):
        began = time.perf_counter()
        give(sockets, message)
        take(sockets)
        times.append(time.perf_counter() - began)
    pipe.recv()
    return times


def flood(sockets: Sockets, pipe: Connection, size: int, count: int) -> tuple[float, float]:
    """Return the seconds of this many messages of that size, and the CPU seconds of both processes."""
    message = [bytes(size)]
    pipe.send((False, count))
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        give(sockets, message)
    take(sockets)
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    return seconds, spent + pipe.recv()


def main() -> None:
    """Measure every kind of link in turn, round by round, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trips", type=int, default=5_000)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        answer(measure(options.kind, options.trips, options.messages))
        return
    print(machine())
    print(
        f"{options.trips:,} round trips and {options.messages:,} messages a run, {options.rounds} rounds in turn"
    )
    print("median (least to greatest); CPU of both processes\n")
    arguments = ("--trips", options.trips, "--messages", options.messages)
    rounds = [
        {kind: ask(__name__, *arguments, "--kind", kind) for kind in KINDS} for _ in range(options.rounds)
    ]
    print(f"round trip of {TUPLE} bytes")
    print(f"{'':<14}{'p50 us':>24}{'p99 us':>24}")
    for kind, name in KINDS.items():
        figures = (spread([each[kind][figure] for each in rounds]) for figure in ("p50", "p99"))
        print(f"{name:<14}{''.join(f'{figure:>24}' for figure in figures)}")
    for job, size in (("tuple", TUPLE), ("frame", FRAME)):
        print(f"\nmessages of {size:,} bytes, one way")
        print(f"{'':<14}{'thousands/s':>24}{'MB/s':>24}{'CPU us/message':>24}")
        for kind, name in KINDS.items():
            rates = [each[kind][job]["rate"] for each in rounds]
            columns = (
                spread([rate / 1e3 for rate in rates]),
                spread([rate * size / 1e6 for rate in rates]),
                spread([each[kind][job]["cpu"] for each in rounds], ".1f"),
            )
            print(f"{name:<14}{''.join(f'{column:>24}' for column in columns)}")
