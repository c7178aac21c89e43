"""The word count by hand in two processes, without a framework: the yardstick for the speed of two Squall workers.

Both processes split half of the sentences and count half of the words, so that half of the words cross. In the layout "stages",
one splits everything and the other counts everything, so that all words cross. A careful programmer who needs to know when each
sentence is completely counted would write it like this: Tuple objects, a Split and Counts with `execute`, a random edge id per
tuple, and the XOR of each tree's edges in a table of at most 1,000 pending sentences. Columns cross over two ZeroMQ sockets per
process (one pushes, one pulls): the words pickled, roots and edges as raw 64-bit arrays; the XORs of a frame come back as two
raw arrays. `curve` encrypts. Nothing is slow on purpose, and nothing is over-optimised. It has no timeouts, replays, flow
control, lost frames, error handling or metrics. It must not import Squall.

    python -m benchmarks two_processes [--sentences 200000] [--rounds 3] [--seed 1]
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import getrandbits
from typing import Any
from zlib import crc32

import zmq

from benchmarks.child import answer, ask, machine, peak_rss, spread
from benchmarks.sentences import sentences

__all__ = ["LAYOUTS", "Job", "Link", "Run", "hear", "run"]

MAX_PENDING = 1_000
BATCH = 200
COUNTS = 2
PATIENCE = 120
"""Seconds after which a process that says nothing is given up."""
POLL = 1_000
"""Milliseconds of a wait for the other process."""

WORDS, XORS, END = b"words", b"xors", b"end"

LAYOUTS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "halves": ((0, 2), (1, 2)),
    "stages": ((0, 1), (0, 0)),
}
"""Of each layout and process: which of the sentences it splits: from which on, and each how many-th (0: none)."""


@dataclass(frozen=True)
class Job:
    """What to count, and how."""

    sentences: int
    seed: int = 1
    layout: str = "halves"
    curve: bool = False
    pending: int = MAX_PENDING

    def lines(self, process: int) -> list[str]:
        """Return the sentences that a process splits."""
        first, step = LAYOUTS[self.layout][process]
        return sentences(self.sentences, self.seed)[first::step] if step else []

    def owner(self, count: int) -> int:
        """Return the process of a Count."""
        return count if self.layout == "halves" else 1


@dataclass(frozen=True)
class Run:
    """The figures of a run, from when the first process began to when the last sentence was acked; CPU of both, peak memory of
    the larger, and the share of the words that crossed.
    """

    words: int
    seconds: float
    cpu_seconds: float
    acked: int
    peak_rss: float
    crossed: float


class Tuple:
    """Values by the names of their fields, their tree, and their edge in it."""

    __slots__ = ("edge", "fields", "root", "values")

    def __init__(self, values: tuple[str, ...], fields: dict[str, int], root: int, edge: int) -> None:
        self.values = values
        self.fields = fields
        self.root = root
        self.edge = edge

    def __getitem__(self, field: str) -> str:
        return self.values[self.fields[field]]


class Source:
    """Emits sentences with their numbers, and records their acks."""

    def __init__(self, lines: list[str]) -> None:
        self.numbered = iter(enumerate(lines))
        self.acked: set[int] = set()

    def next(self) -> tuple[int, str] | None:
        return next(self.numbered, None)

    def ack(self, message_id: int) -> None:
        self.acked.add(message_id)


class Split:
    """Emits the words of a sentence."""

    def __init__(self, emit: Callable[[tuple[str, ...]], None]) -> None:
        self.emit = emit

    def execute(self, tup: Tuple) -> None:
        for word in tup["sentence"].split():
            self.emit((word,))


class Count:
    """Counts words."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1


class Box:
    """Words that wait to be sent to one Count, as columns with their roots and edges. `inbox`: set if that Count is in this
    process.
    """

    __slots__ = ("edges", "inbox", "roots", "words")

    def __init__(self, here: bool) -> None:
        self.inbox: list[Tuple] | None = [] if here else None
        self.words: list[str] = []
        self.roots: list[int] = []
        self.edges: list[int] = []


class Process:
    """One of the two: it reads and splits its sentences, counts its own words, and acks."""

    sentence_fields = {"sentence": 0}
    word_fields = {"word": 0}

    def __init__(self, job: Job, index: int, link: Link) -> None:
        self.link = link
        self.room = job.pending
        self.source = Source(job.lines(index))
        self.ended = False  # the source has ended
        self.done = False  # and all its sentences were acked
        self.other_done = False
        self.finished = 0.0
        self.split = Split(self.emit)
        self.counts = [Count() for _ in range(COUNTS)]
        self.boxes = [Box(job.owner(number) == index) for number in range(COUNTS)]
        self.choices: dict[str, Box] = {}  # word -> the box of the Count that its hash selects
        self.pending: dict[int, int] = {}  # root (the message id) -> XOR of the edges that are not acked
        self.root = 0  # the tree of the sentence that is being split
        self.edges = 0  # XOR of the edges emitted for it
        self.crossed = 0

    def run(self) -> None:
        """Run until both sources have ended and nothing is pending."""
        while not (self.done and self.other_done):
            heard = self.receive()
            batch = self.read()
            if batch:
                self.split_all(batch)
                self.flush()
            elif self.ended and not self.pending and not self.done:
                self.done, self.finished = True, time.perf_counter()
                self.link.send([END])
            elif not heard:
                self.link.wait()

    def read(self) -> list[Tuple]:
        """Read the next sentences, once a whole batch may be pending: partial batches would cost a frame each."""
        batch: list[Tuple] = []
        pending = self.pending
        batch_size = min(BATCH, self.room)
        if self.ended or len(pending) > self.room - batch_size:
            return batch
        for _ in range(batch_size):
            numbered = self.source.next()
            if numbered is None:
                self.ended = True
                break
            message_id, sentence = numbered
            edge = getrandbits(64) or 1
            pending[message_id] = edge
            batch.append(Tuple((sentence,), self.sentence_fields, message_id, edge))
        return batch

    def split_all(self, batch: list[Tuple]) -> None:
        execute = self.split.execute
        pending = self.pending
        for tup in batch:
            self.root = tup.root
            self.edges = tup.edge
            execute(tup)
            pending[tup.root] ^= self.edges

    def emit(self, values: tuple[str, ...]) -> None:
        """Send a word to the Count that its hash selects, anchored to the sentence that is being split."""
        word = values[0]
        box = self.choices.get(word)
        if box is None:
            box = self.choices[word] = self.boxes[crc32(word.encode()) % COUNTS]
        edge = getrandbits(64) or 1
        self.edges ^= edge
        if box.inbox is None:
            box.words.append(word)
            box.roots.append(self.root)
            box.edges.append(edge)
        else:
            box.inbox.append(Tuple(values, self.word_fields, self.root, edge))

    def flush(self) -> None:
        """Send the words that are counted there, then count those that are counted here."""
        for number, box in enumerate(self.boxes):
            if box.words:
                roots, edges = array("Q", box.roots).tobytes(), array("Q", box.edges).tobytes()
                self.link.send([WORDS, bytes([number]), pickle.dumps(box.words, 5), roots, edges])
                self.crossed += len(box.words)
                box.words, box.roots, box.edges = [], [], []
        for count, box in zip(self.counts, self.boxes):
            if box.inbox:
                self.count_here(count, box.inbox)
                box.inbox.clear()

    def count_here(self, count: Count, inbox: list[Tuple]) -> None:
        execute, settle = count.execute, self.settle
        for tup in inbox:
            execute(tup)
            settle(tup.root, tup.edge)

    def settle(self, root: int, edges: int) -> None:
        """Remove edges from their trees; a tree without edges is done."""
        left = self.pending[root] ^ edges
        if left:
            self.pending[root] = left
        else:
            del self.pending[root]
            self.source.ack(root)

    def receive(self) -> bool:
        """Read everything that has come; return whether there was anything."""
        heard = False
        while (parts := self.link.receive()) is not None:
            heard = True
            if parts[0] == WORDS:
                self.count_there(*parts[1:])
            elif parts[0] == XORS:
                roots, edges = array("Q", parts[1]), array("Q", parts[2])
                for root, edge in zip(roots, edges):
                    self.settle(root, edge)
            else:
                self.other_done = True
        return heard

    def count_there(self, number: bytes, packed: bytes, packed_roots: bytes, packed_edges: bytes) -> None:
        """Count the words that the other process has split, and send it their XORs."""
        execute, fields = self.counts[number[0]].execute, self.word_fields
        xors: dict[int, int] = {}
        get = xors.get
        for word, root, edge in zip(pickle.loads(packed), array("Q", packed_roots), array("Q", packed_edges)):
            tup = Tuple((word,), fields, root, edge)
            execute(tup)
            xors[root] = get(root, 0) ^ tup.edge
        self.link.send([XORS, array("Q", xors.keys()).tobytes(), array("Q", xors.values()).tobytes()])


class Link:
    """Two sockets: one receives from the other process, one sends to it."""

    def __init__(self, curve: bool, room: int = 1_000) -> None:
        """`room`: how many messages each socket may hold."""
        self.context = zmq.Context()
        self.pull = self.context.socket(zmq.PULL)
        self.push = self.context.socket(zmq.PUSH)
        self.pull.rcvhwm = self.push.sndhwm = room
        self.public: bytes | None = None
        if curve:
            self.public, secret = zmq.curve_keypair()
            self.pull.curve_server = True
            for socket in (self.pull, self.push):
                socket.curve_publickey, socket.curve_secretkey = self.public, secret
        self.pull.bind("tcp://127.0.0.1:*")
        self.endpoint = self.pull.getsockopt_string(zmq.LAST_ENDPOINT)
        self.send = self.push.send_multipart

    def connect(self, endpoint: str, public: bytes | None) -> None:
        """Connect to the other process; return when both have heard from each other."""
        if public is not None:
            self.push.curve_serverkey = public
        self.push.connect(endpoint)
        self.send([b"hello"])
        if not self.pull.poll(PATIENCE * 1_000):
            raise TimeoutError("the other process does not say hello")
        self.pull.recv()

    def receive(self) -> list[bytes] | None:
        try:
            parts: list[bytes] = self.pull.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return parts

    def wait(self) -> None:
        """Wait until a message comes, for a limited time."""
        self.pull.poll(POLL)

    def close(self) -> None:
        self.push.close(linger=1_000)
        self.pull.close(linger=0)
        self.context.term()


def one_process(job: Job, index: int, parent: Connection) -> None:
    """All that one of the two processes does."""
    link = Link(job.curve)
    process = Process(job, index, link)
    parent.send((link.endpoint, link.public))
    link.connect(*parent.recv())
    parent.send("ready")
    parent.recv()
    started, cpu = time.perf_counter(), time.process_time()
    process.run()
    cpu = time.process_time() - cpu
    parent.send(
        {
            "started": started,
            "finished": process.finished,
            "cpu_seconds": cpu,
            "counts": [count.counts for count in process.counts],
            "acked": process.source.acked,
            "crossed": process.crossed,
            "peak_rss": peak_rss(),
        }
    )
    link.close()


def run(job: Job) -> Run:
    """Start both processes, have them count, and check what they did."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    children = [
        context.Process(target=one_process, args=(job, index, child), daemon=True)
        for index, (_, child) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    parents = [parent for parent, _ in pipes]
    try:
        addresses = [hear(parent) for parent in parents]
        for parent, other in zip(parents, reversed(addresses)):
            parent.send(other)
        for parent in parents:
            hear(parent)
        for parent in parents:
            parent.send("go")
        ends: list[dict[str, Any]] = [hear(parent) for parent in parents]
    finally:
        for child in children:
            child.join(1.0)
            child.kill()
    return checked(job, ends)


def hear(parent: Connection) -> Any:
    """Return a child's output."""
    if not parent.poll(PATIENCE):
        raise TimeoutError(f"a process has said nothing for {PATIENCE} s")
    return parent.recv()


def checked(job: Job, ends: list[dict[str, Any]]) -> Run:
    """Check that the counts are those of a plain loop, and that every sentence was acked."""
    expected: dict[str, int] = {}
    for line in sentences(job.sentences, job.seed):
        for word in line.split():
            expected[word] = expected.get(word, 0) + 1
    counted: dict[str, int] = {}
    for part in (part for end in ends for part in end["counts"]):
        if counted.keys() & part.keys():
            raise AssertionError("a word was counted in two places")
        counted.update(part)
    if counted != expected:
        raise AssertionError("two processes counted something else than a plain loop")
    for index, end in enumerate(ends):
        if end["acked"] != set(range(len(job.lines(index)))):
            raise AssertionError(f"process {index}: {len(end['acked'])} sentences were acked")
    words = sum(counted.values())
    return Run(
        words,
        max(end["finished"] for end in ends) - min(end["started"] for end in ends),
        sum(end["cpu_seconds"] for end in ends),
        sum(len(end["acked"]) for end in ends),
        max(end["peak_rss"] for end in ends),
        sum(end["crossed"] for end in ends) / words,
    )


def main() -> None:
    """Print words/s, CPU and memory of each layout, plain and with CURVE."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=LAYOUTS, help=argparse.SUPPRESS)
    parser.add_argument("--curve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.layout:
        answer(vars(run(Job(options.sentences, options.seed, options.layout, options.curve))))
        return
    print(machine())
    print(f"{options.sentences:,} sentences (seed {options.seed}), {options.rounds} rounds in turn")
    print("median (least to greatest); memory is the peak RSS of the larger process\n", flush=True)
    variants = [(layout, flags) for layout in LAYOUTS for flags in ((), ("--curve",))]
    arguments = ("--sentences", options.sentences, "--seed", options.seed)
    rounds = [
        [ask(__name__, *arguments, "--layout", layout, *flags) for layout, flags in variants]
        for _ in range(options.rounds)
    ]
    print(f"{'':<16}{'words/s':>36}{'CPU s':>22}{'MB':>18}{'crossed':>10}")
    for place, (layout, flags) in enumerate(variants):
        runs = [each[place] for each in rounds]
        rates = spread([each["words"] / each["seconds"] for each in runs])
        cpu, memory = (
            spread([each["cpu_seconds"] for each in runs], ".2f"),
            spread([each["peak_rss"] for each in runs]),
        )
        name = f"{layout}, {'CURVE' if flags else 'plain'}"
        print(f"{name:<16}{rates:>36}{cpu:>22}{memory:>18}{runs[0]['crossed']:>10.0%}")
