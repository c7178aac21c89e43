"""A fake worker: it reads its orders, writes heartbeats, and does what the topology's conf says under "fake".

    python fake_worker.py DIRECTORY

`fake` maps a worker's name (or "*") to a behaviour: `obey` (the default), `die 3` (exit status), `signal 9`, `fault` (dies in C
code), `deaf` (does not stop when asked), `faulty stop` (dies when it is asked to stop), `mute` (sends no heartbeat), `crash
TEXT`, `freeze` (one heartbeat, then none), `children` (starts a child in its session that outlives it), `end 75 TEXT` (with a
final report). If the behaviour begins with `once`, only the first process of a worker behaves so.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from squall import worker_files
from squall.worker_files import End, Orders, WorkerHeartbeat


class FakeWorker:
    """Reads its orders every 10 ms, or when it is signalled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told = False
        signal.signal(signal.SIGUSR1, self.on_signal)
        self.orders = self.read()
        stat = Path("/proc/self/stat").read_text()
        started = int(stat[stat.rindex(")") + 2 :].split()[19])
        port = 6000 + int(self.orders.worker[1:])
        self.heartbeat = WorkerHeartbeat(
            pid=os.getpid(), started=started, incarnation=self.orders.incarnation, number=0,
            orders=self.orders.number, asked=self.orders.asked, version=self.orders.version,
            address=(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 100}"),
        )  # fmt: skip

    def on_signal(self, number: int, frame: object) -> None:
        self.told = True

    def read(self) -> Orders:
        orders = worker_files.read_orders(self.directory)
        assert orders is not None, "a worker starts after its orders are written"
        return orders

    def behaviour(self) -> list[str]:
        behaviours = self.orders.conf.get("fake", {})
        words: list[str] = behaviours.get(self.orders.worker, behaviours.get("*", "obey")).split()
        if words[0] == "once":
            return words[1:] if self.orders.incarnation.restart == 0 else ["obey"]
        return words

    def say(self, **changes: object) -> None:
        self.next_heartbeat = time.monotonic() + 0.1
        number = self.heartbeat.number + 1
        self.heartbeat = replace(self.heartbeat, number=number, counters=number, **changes)
        worker_files.write(self.directory, worker_files.COUNTERS, {"number": number})
        worker_files.write(self.directory, worker_files.HEARTBEAT, self.heartbeat)

    def end(self, status: int, reason: str) -> None:
        worker_files.write(
            self.directory,
            worker_files.END,
            End(os.getpid(), self.orders.incarnation, status, reason),
        )
        os._exit(
            status
        )  # not sys.exit: a dying interpreter drops its handlers, and SIGUSR1 would count as the cause

    def obey(self) -> None:
        asked = self.orders.asked
        if asked == "stop" and self.behaviour()[0] != "deaf":
            if self.behaviour()[0] == "faulty":
                os.kill(os.getpid(), signal.SIGSEGV)
            self.say(orders=self.orders.number, asked=asked, stopped=True)
            self.end(0, "told to stop")
        self.say(
            orders=self.orders.number,
            asked=asked,
            version=self.orders.version,
            opened=self.heartbeat.opened or asked == "run",
            drained=asked == "drain",
        )

    def run(self) -> None:
        what, *rest = self.behaviour()
        if what == "mute":
            time.sleep(1000)
        if what == "children":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            (self.directory / "child").write_text(str(child.pid))
        self.obey()
        if what == "die":
            print("the last line of a worker", flush=True)
            os._exit(int(rest[0]))
        if what == "signal":
            os.kill(os.getpid(), int(rest[0]))
        if what == "fault":
            import faulthandler

            faulthandler.enable()
            ctypes.string_at(0)
        if what == "crash":
            self.say(crash=" ".join(rest))
        if what == "end":
            self.end(int(rest[0]), " ".join(rest[1:]))
        while True:
            time.sleep(0.01)
            if what == "freeze":
                continue
            if self.told:
                self.told = False
                self.orders = self.read()
                self.obey()
            elif time.monotonic() >= self.next_heartbeat:
                self.say()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it dumps no core where the tests run
    FakeWorker(Path(sys.argv[1])).run()
