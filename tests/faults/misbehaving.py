"""Relays that do what no bolt should do: once, until a file appears, or always.

They write down each of their lives as a file `lives-<name>-...`, so that a test can count how often a worker was started.
Must not know: processes, clusters.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.faults.ledger_topology import Relay
from topology_api import Context, Tuple

LIVES = "lives"


def lives(directory: Path) -> list[float]:
    """When each life of a misbehaving relay began, in seconds of `time.monotonic`."""
    return sorted(int(path.name.rpartition("-")[2]) / 1e9 for path in directory.glob(f"{LIVES}-*"))


class Misbehaving(Relay):
    """Does `misbehave` at its first tuple, unless a file called `calm` is there."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: Context) -> None:
        Path(self.directory, f"{LIVES}-{context.task}-{os.getpid()}-{time.monotonic_ns()}").touch()

    def execute(self, tup: Tuple) -> None:
        if not os.path.exists(os.path.join(self.directory, "calm")):
            self.misbehave()
        self.emit(tup.values)

    def misbehave(self) -> None:
        """Misbehaves; subclasses say how."""
        raise NotImplementedError


class Hanging(Misbehaving):
    """Hangs for ever in its first life; later lives are calm."""

    def misbehave(self) -> None:
        Path(self.directory, "calm").touch()
        self.hang_for_ever()

    def hang_for_ever(self) -> None:
        while True:
            time.sleep(1000.0)


class Spinning(Hanging):
    """Hangs without ever releasing the processor."""

    def hang_for_ever(self) -> None:
        while True:
            pass


class Exiting(Misbehaving):
    """Ends its process without a message."""

    def misbehave(self) -> None:
        os._exit(1)


class Segfaulting(Misbehaving):
    """Writes to invalid memory."""

    def misbehave(self) -> None:
        import ctypes

        ctypes.string_at(0)


class Aborting(Misbehaving):
    """Aborts the process."""

    def misbehave(self) -> None:
        os.abort()


class Leaving(Misbehaving):
    """`sys.exit` in the middle of a call."""

    def misbehave(self) -> None:
        raise SystemExit(3)


class Unprepared(Misbehaving):
    """Fails in prepare."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        if not os.path.exists(os.path.join(self.directory, "calm")):
            raise RuntimeError("the pump is dry")


class Forking(Misbehaving):
    """Leaves a grandchild behind that would sleep for an hour."""

    def misbehave(self) -> None:
        import subprocess

        subprocess.Popen(["sleep", "3600"])
        Path(self.directory, "calm").touch()
