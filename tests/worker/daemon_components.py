"""Spouts and bolts with everything that user code may do to a worker process. Imported by name in the worker.

Must not know: single tests.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from topology_api import Bolt, Context, Failure, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.worker import Worker


def note(path: Path, text: object) -> None:
    """Append a line that survives whatever happens next."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)


def lines(path: Path) -> list[str]:
    """The lines noted so far."""
    return path.read_text().splitlines() if path.exists() else []


class Numbers(Spout):
    """Emits 1, 2, ... up to `count` (None: for ever), and notes every ack and failure."""

    outputs = Fields("number")
    replay: Replay | None = None

    def __init__(self, folder: Path, count: int | None) -> None:
        self.folder = folder
        self.count = count

    def open(self, context: Context) -> None:
        self.number = 0
        note(self.folder / "opened", os.getpid())

    def next_tuple(self) -> None:
        if self.number == self.count:
            self.finish()
            return
        self.number += 1
        note(self.folder / "emitted", self.number)
        self.emit((self.number,), message_id=self.number)

    def ack(self, message_id: object) -> None:
        note(self.folder / "acked", message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        note(self.folder / "failed", f"{message_id} {failure.reason}")


class WhileSeen(Numbers):
    """Emits each number when the previous one has been seen, and may still be executing."""

    def next_tuple(self) -> None:
        if str(self.number) in ["0", *lines(self.folder / "seen")]:
            super().next_tuple()


class SaysItsEnd(Numbers):
    """Notes when its source has ended; a failed tuple waits for its replay longer than any test."""

    replay = Replay(max_attempts=2, first_delay=1000.0, max_delay=1000.0)

    def next_tuple(self) -> None:
        super().next_tuple()
        if self.number == self.count:
            self.finish()
            note(self.folder / "ended", os.getpid())


class SaysItsEndInThread(SaysItsEnd):
    threaded = True


class WaitsForLeave(SaysItsEndInThread):
    """Its `ack` of a number returns when the file "leave" exists."""

    def ack(self, message_id: object) -> None:
        super().ack(message_id)
        while not (self.folder / "leave").exists():
            time.sleep(0.01)


class Unhurried(Numbers):
    """Spends 2 ms on each number."""

    def next_tuple(self) -> None:
        time.sleep(0.002)
        super().next_tuple()


class Notes(Bolt):
    """Notes every tuple, spending `seconds` on each."""

    def __init__(self, folder: Path, seconds: float = 0.0) -> None:
        self.folder = folder
        self.seconds = seconds

    def execute(self, tup: Tuple) -> None:
        note(self.folder / "seen", tup["number"])
        if self.seconds:
            time.sleep(self.seconds)

    def cleanup(self) -> None:
        note(self.folder / "cleaned", os.getpid())


class Hangs(Bolt):
    """Never returns from the call that gets `at`."""

    def __init__(self, folder: Path, at: int = 3) -> None:
        self.folder = folder
        self.at = at

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == self.at:
            self.wait_for_ever()

    def wait_for_ever(self) -> None:
        note(self.folder / "hangs", os.getpid())
        while True:
            time.sleep(0.1)


class SaysThatItGoesOn(Notes):
    """The call that gets 3 takes 2.5 s, and reports progress every 50 ms."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 3:
            for _ in range(50):
                time.sleep(0.05)
                self.context.progress()
        super().execute(tup)


class SaysSoInThread(SaysThatItGoesOn):
    threaded = True


class HangsInThread(Hangs):
    threaded = True


class HangsAwaiting(Bolt):
    """An asynchronous call that never ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def execute(self, tup: Tuple) -> None:
        await asyncio.Event().wait()


class HangsPreparing(Hangs):
    def prepare(self, context: Context) -> None:
        self.wait_for_ever()


class HangingSpout(Spout):
    outputs = Fields("number")

    def next_tuple(self) -> None:
        while True:
            time.sleep(0.1)


class Exits(Bolt):
    """Ends the process immediately."""

    def execute(self, tup: Tuple) -> None:
        os._exit(3)


class Aborts(Bolt):
    """Accesses invalid memory."""

    def execute(self, tup: Tuple) -> None:
        ctypes.string_at(0)


class LogsValues(Bolt):
    """Logs a value that came from a stranger."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        self.context.log.info("got %s", "a\n2026-03-01 12:00:00,123 ERROR other[9] forged\x1b[2J")


class Speaks(Bolt):
    """Produces output in every possible way."""

    def prepare(self, context: Context) -> None:
        self.context = context
        print("prepared")

    def execute(self, tup: Tuple) -> None:
        print("by print")
        print("two\nlines")
        sys.stderr.write("by stderr\n")
        sys.stdout.buffer.write(b"by bytes\n")
        logging.getLogger("mine").warning("by a logger")
        self.context.log.info("by the task's logger")
        thread = threading.Thread(target=lambda: self.context.log.info("by a thread of the user's"))
        thread.start()
        thread.join()
        os.write(1, b"by C code\n")
        subprocess.run(["echo", "by a child"], check=True)
        subprocess.run(["echo", "by a child given stdout"], stdout=sys.stdout, check=True)

    def cleanup(self) -> None:
        print("without an end", end="")


class SpeaksInThread(Bolt):
    threaded = True

    def execute(self, tup: Tuple) -> None:
        print("in a thread")


class SpeaksAwaiting(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        print("in a coroutine")


class Floods(Bolt):
    """Prints a megabyte for each tuple."""

    def execute(self, tup: Tuple) -> None:
        for number in range(100):
            print(f"{tup['number']}.{number} " + "x" * 10_000)


class Forks(Bolt):
    """Forks children that behave in several ways, and notes how each ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def execute(self, tup: Tuple) -> None:
        kinds = {"leaves": self.leaves, "returns": self.returns, "waits": self.waits}
        for kind, behave in kinds.items():
            pid = os.fork()
            if pid == 0:
                behave()
                return
            if kind == "waits":
                while not (self.folder / "child-waits").exists():
                    time.sleep(0.01)
                os.kill(pid, signal.SIGTERM)
            _, status = os.waitpid(pid, 0)
            note(self.folder / "children", f"{kind} {os.waitstatus_to_exitcode(status)}")

    def leaves(self) -> None:
        print("a child that leaves")
        sys.exit(5)

    def returns(self) -> None:
        print("a child that returns")

    def waits(self) -> None:
        note(self.folder / "child-waits", os.getpid())
        while True:
            time.sleep(0.1)


class StartsPrograms(Bolt):
    """Leaves programs running, one with a child of its own; then does `then`."""

    def __init__(self, folder: Path, then: str = "") -> None:
        self.folder = folder
        self.then = then

    def execute(self, tup: Tuple) -> None:
        if tup["number"] > 1:
            return
        script = "sleep 1000 & echo $!; trap '' TERM; wait"
        process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        note(self.folder / "programs", process.pid)
        note(self.folder / "programs", grandchild)
        if self.then == "hang":
            while True:
                time.sleep(0.1)


class Raises(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError(f"bad number {tup['number']}")


class RaisesAtFirst(Notes):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 1:
            raise ValueError("not the first one")


class RaisesPreparing(Bolt):
    def prepare(self, context: Context) -> None:
        raise RuntimeError("no database there")

    def execute(self, tup: Tuple) -> None:
        pass


class Sabotages(Bolt):
    """Breaks the worker that it runs in."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def execute(self, tup: Tuple) -> None:
        def broken(worker: object) -> bool:
            raise self.error("sabotaged")

        Worker.step = broken  # type: ignore[method-assign, assignment]


class RegistersForTheExit(Bolt):
    """Registers an exit function, as libraries do that have something to flush."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        atexit.register(note, self.folder / "exit", "handed over")

    def execute(self, tup: Tuple) -> None:
        pass


class UsesScratch(Bolt):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        (context.directory / "file").write_text("x")
        note(self.folder / "scratch", context.directory)

    def execute(self, tup: Tuple) -> None:
        pass


def one_bolt(
    bolt: Bolt,
    folder: Path,
    count: int | None = 10,
    parallelism: int = 1,
    kind: type[Numbers] = Numbers,
) -> Topology:
    """Numbers into one bolt."""
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", kind(folder, count))
    builder.set_bolt("bolt", bolt, parallelism=parallelism).shuffle_grouping("numbers")
    return builder.build()


def lone_spout(spout: Spout) -> Topology:
    """A spout without readers."""
    builder = TopologyBuilder("t")
    builder.set_spout("spout", spout)
    return builder.build()
