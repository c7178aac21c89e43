"""Where the time of a word goes: each step of its way alone, on the core's own objects, in nanoseconds.

Each figure is the least of many short runs, so that a busy machine disturbs it little. The parts do not add up exactly to the
whole: there they share caches, and the garbage collector runs.

    python -m benchmarks parts [--rounds 200]
"""

from __future__ import annotations

import argparse
import atexit
import random
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from benchmarks.child import machine
from benchmarks.sentences import sentences
from benchmarks.topology import Count, Split
from squall.reports.histogram import LatencyHistogram
from squall.transport import wire
from squall.transport.carrier import DATA, Parts
from squall.transport.carriers.sockets import Sockets, make_keys
from squall.transport.columns import pack_rows, unpack_rows
from squall.transport.control import pack_control, unpack_control
from squall.transport.frames import Batch, Control
from squall.transport.wire import Header
from squall.values import Incarnation
from topology_api.tuples import Source
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route
from worker.tasks.bolt import BoltTask, make_tuple, run_basic
from worker.tasks.emitter import BoltEmitter, SpoutEmitter
from worker.tracking.ack_batch import AckBatch
from worker.tracking.ids import EDGE_BLOCK, words_of
from worker.tracking.tracker import Tracker

WORDS = 1_000
"""Words a run."""
FRAMES = 4
"""The frames that they travel in, about as many words each as a worker puts into one."""
ON_THE_WAY = 0.003
"""Seconds that frames are given to arrive."""
A_SENTENCE = 9
"""Words a sentence, on average; trees and spouts cost per sentence."""
LINES = Source("sentences", 1, "default", ("sentence",))
WORDS_OF_LINES = Source("split", 2, "default", ("word",))


class Bench:
    """The objects of the word count, not connected."""

    def __init__(self) -> None:
        self.all_lines = sentences(20_000)
        self.at = 0
        self.turn()
        self.random = random.Random(1)
        self.boxes = {task: Outbox(Source("split", 2, "default", ("word",)), task) for task in (3, 4)}
        self.word_output = output("split", "word", "fields", self.boxes)
        self.bolt = BoltEmitter("split", 2, {"default": self.word_output}, self.random)
        self.bolt.open_for(get_ident())
        self.line_box = {2: Outbox(Source("sentences", 1, "default", ("sentence",)), 2)}
        self.tracker = Tracker(1, 30.0, 0.0)
        outputs = {"default": output("sentences", "sentence", "shuffle", self.line_box)}
        self.spout = SpoutEmitter("sentences", 1, outputs, self.random, self.tracker)
        self.spout.open_for(get_ident())

    def turn(self) -> None:
        """Switch to other words, newly split: a word's hash is not known yet, and dictionaries are not in the cache."""
        chosen = [self.all_lines[(self.at + place) % len(self.all_lines)] for place in range(WORDS // 8)]
        self.at += len(chosen)
        self.words = [(word,) for line in chosen for word in line.split()][:WORDS]
        self.lines = [(line,) for line in chosen][: WORDS // A_SENTENCE]

    def batch(self, rows: list[Any], source: Source) -> Batch:
        """Return a batch of tracked rows, `A_SENTENCE` neighbours in one tree."""
        roots = [1 + place // A_SENTENCE for place in range(len(rows))]
        return Batch(source, 3, rows, roots, words_of(self.random)[: len(rows)])

    def clear(self) -> None:
        """Remove the emitted tuples."""
        for box in [*self.boxes.values(), *self.line_box.values()]:
            box.dequeue(1 << 30)
        self.bolt.dirty, self.spout.dirty = [], []


def output(component: str, field: str, kind: str, boxes: dict[int, Outbox]) -> StreamOutput:
    """Return an output with one reader."""
    made = StreamOutput(Source(component, 1, "default", (field,)), False)
    add_route(made, kind, Reader([field], boxes, lambda task: True, 0))
    made.shorten()
    return made


#: A step to time: name, how many words it covers, the preparation, and the code to time.
Part = tuple[str, int, Callable[[], Any], Callable[[], Any]]


def user_parts(bench: Bench) -> list[Part]:
    """Return the user's own methods."""
    split, count = Split(), Count()
    sink: list[Any] = []
    vars(split)["emit"] = sink.append
    count.counts = {}
    tuples: list[Any] = []

    def make(of_lines: bool) -> None:
        bench.turn()
        sink.clear()
        rows = bench.lines if of_lines else bench.words
        batch = bench.batch(rows, LINES if of_lines else WORDS_OF_LINES)
        tuples[:] = [make_tuple(batch, place) for place in range(len(rows))]

    def execute_all(bolt: Split | Count) -> None:
        execute = bolt.execute
        for tup in tuples:
            execute(tup)

    return [
        ("user: Split.execute, (word,) made", WORDS, lambda: make(True), lambda: execute_all(split)),
        ("user: Count.execute, tup['word']", WORDS, lambda: make(False), lambda: execute_all(count)),
    ]


def bolt_parts(bench: Bench) -> list[Part]:
    """Return a bolt task's work for a tuple."""
    bench.bolt.anchor = make_tuple(bench.batch(bench.words, WORDS_OF_LINES), 0)
    task = BoltTask.__new__(BoltTask)
    task.execute, task.emitter, task.xors = lambda tup: None, bench.bolt, AckBatch()
    fresh: list[Batch] = []

    def fresh_words() -> None:
        bench.clear()
        bench.turn()

    def fresh_batch() -> None:
        fresh_words()
        fresh.append(bench.batch(bench.words, WORDS_OF_LINES))

    def emit_all() -> None:
        emit = bench.bolt.emit
        for row in bench.words:
            emit(row)

    def ask_thread() -> None:
        emitter = bench.bolt
        for _ in bench.words:
            if get_ident() != emitter.owner:
                raise AssertionError("the benchmark emits from another thread than it opened the emitter for")

    return [
        ("emit: all of it, an edge's draw too", WORDS, fresh_words, emit_all),
        ("  of that: the calling thread", WORDS, bench.clear, ask_thread),
        ("  of that, plain core: an edge's draw", EDGE_BLOCK, bench.clear, lambda: words_of(bench.random)),
        ("outboxes emptied into batches, per word", WORDS, emit_all, bench.clear),
        (
            "executor: a Tuple, a call, its XOR",
            WORDS,
            fresh_batch,
            lambda: run_basic(task, fresh.pop(), WORDS, WORDS),
        ),
    ]


def spout_parts(bench: Bench) -> list[Part]:
    """Return a spout task's work for a tree."""
    trees: list[tuple[list[int], list[int]]] = []

    def close_trees() -> None:
        bench.clear()
        for slot, root in enumerate(bench.tracker.roots):
            if root > 0:
                bench.tracker.close(slot)

    def emit_lines() -> None:
        emit = bench.spout.emit
        for row in bench.lines:
            emit(row, message_id=1)

    def prepare_trees() -> None:
        bench.tracker.completed.clear()
        close_trees()
        emit_lines()
        box = bench.line_box[2]
        trees[:] = [([*box.roots] * 3, [*[1] * (2 * len(box.roots)), *box.edges])]

    return [
        ("spout: emit, a tree opened, per word", WORDS, close_trees, emit_lines),
        ("tracker: XORs, completion, per word", WORDS, prepare_trees, lambda: bench.tracker.merge(*trees[0])),
        ("latency: Histogram.add, per word", WORDS, bench.clear, lambda: add_latencies(len(bench.lines))),
    ]


class Frames:
    """The traffic to another worker and back: `WORDS` in a few batches, and their XORs, one per sentence."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.header = Header(wire.BATCH, "w1", Incarnation(1, 1), Incarnation(1, 1), 1, 7)
        self.batches: list[Batch] = []
        self.values: list[Parts] = []
        self.messages: list[Parts] = []
        self.control = Control("w2")
        self.answer: Parts = []

    def fresh(self) -> None:
        """Switch to other words."""
        self.bench.turn()
        size = WORDS // FRAMES
        pieces = [self.bench.words[size * at : size * (at + 1)] for at in range(FRAMES)]
        self.batches = [self.bench.batch(piece, WORDS_OF_LINES) for piece in pieces]
        roots = list(range(1 << 40, (1 << 40) + WORDS // A_SENTENCE))
        self.control.xors = {1: (roots, words_of(self.bench.random)[: len(roots)])}

    def pack_values(self) -> None:
        self.values = [pack_rows("pickle", ("word",), batch.rows) for batch in self.batches]

    def unpack_values(self) -> None:
        for parts in self.values:
            unpack_rows("pickle", parts, WORDS // FRAMES, 1)

    def pack(self) -> None:
        self.messages = []
        for batch in self.batches:
            body, further = wire.pack_batch(batch, "pickle", {("split", "default"): 0})
            self.messages.append([wire.seal(self.header, body), *further])

    def unpack(self) -> None:
        for parts in self.messages:
            found, body = wire.open_header(parts)
            wire.unpack_batch(found, body, parts[1:], "pickle", lambda task, stream: WORDS_OF_LINES)

    def pack_xors(self) -> None:
        self.answer = [wire.seal(self.header, pack_control(self.control, 0))]

    def unpack_xors(self) -> None:
        found, body = wire.open_header(self.answer)
        unpack_control(found.sender, body)


def wire_parts(bench: Bench) -> list[Part]:
    """Return the cost of words that are sent to another worker."""
    frames = Frames(bench)

    def after(*jobs: Callable[[], None]) -> Callable[[], None]:
        def prepare() -> None:
            for job in (frames.fresh, *jobs):
                job()

        return prepare

    return [
        ("wire: batches packed", WORDS, after(), frames.pack),
        ("  of that: values", WORDS, after(), frames.pack_values),
        ("wire: batches unpacked", WORDS, after(frames.pack), frames.unpack),
        ("  of that: values", WORDS, after(frames.pack_values), frames.unpack_values),
        ("wire: XORs packed, per word", WORDS, after(), frames.pack_xors),
        ("wire: XORs unpacked, per word", WORDS, after(frames.pack_xors), frames.unpack_xors),
        *socket_parts(frames),
    ]


def socket_parts(frames: Frames) -> list[Part]:
    """Return the cost of ZeroMQ's calls to the thread that makes them; another thread encrypts and copies to the
    kernel meanwhile."""
    keys = make_keys()
    here, there = Sockets(keys), Sockets(keys)
    atexit.register(there.close)
    atexit.register(here.close)
    here.connect("there", there.address)

    def send() -> None:
        for parts in frames.messages:
            if not here.send("there", DATA, parts):
                raise AssertionError("the messages have no room")

    def receive() -> None:
        for _ in frames.messages:
            if there.receive(DATA) is None:
                raise AssertionError("a message has not come")

    def arrived() -> None:
        frames.fresh()
        frames.pack()
        send()
        time.sleep(ON_THE_WAY)

    def all_gone() -> None:
        while there.receive(DATA) is not None:
            pass
        frames.fresh()
        frames.pack()

    deadline = time.monotonic() + 10
    while not here.send("there", DATA, [b"hello"]):
        if time.monotonic() > deadline:
            raise AssertionError("two sockets do not find each other")
        time.sleep(0.01)
    there.wait(10)
    return [
        ("ZeroMQ: frames sent, CURVE", WORDS, all_gone, send),
        ("ZeroMQ: frames received", WORDS, arrived, receive),
    ]


def add_latencies(count: int) -> None:
    """A value for each sentence."""
    histogram = LatencyHistogram()
    for _ in range(count):
        histogram.add(0.0123)


def main() -> None:
    """Print each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    print(machine())
    bench = Bench()
    print(f"nanoseconds a word, the least of {options.rounds} runs of {WORDS:,} words")
    for name, words, prepare, job in [
        *user_parts(bench),
        *bolt_parts(bench),
        *spout_parts(bench),
        *wire_parts(bench),
    ]:
        least = float("inf")
        for _ in range(options.rounds):
            prepare()
            started = time.perf_counter()
            job()
            least = min(least, time.perf_counter() - started)
        print(f"{name:<42}{least / words * 1e9:>6.0f}")
