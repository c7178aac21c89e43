"""A run of `squall` on a pseudo-terminal, read as a person would see it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.squall_cli.run_process import LIFE_SECS, environment

ESCAPE = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a run on it. `text` is the output so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.master = master
        self.text = ""

    def read(self) -> bool:
        """Read some more output; False at the end."""
        try:
            data = os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO  # on Linux: the other side is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def wait_for(self, text: str) -> None:
        """Read until the text appears."""
        while text not in self.plain:
            assert self.read(), f"it ended without {text!r}:\n{self.plain}"

    def end(self) -> int:
        """Read the rest; return the exit status."""
        while self.read():
            pass
        return self.process.wait()

    @property
    def plain(self) -> str:
        """The text without escape sequences."""
        return ESCAPE.sub("", self.text).replace("\r\n", "\n")

    @property
    def pictures(self) -> list[list[str]]:
        """The lines of each drawing of the table."""
        drawn = re.findall(r"\x1b\[\?7l(.*?)\x1b\[\?7h", self.text, re.DOTALL)
        return [ESCAPE.sub("", picture).replace("\r\n", "\n").split("\n") for picture in drawn]


@contextmanager
def on_terminal(columns: int, rows: int, *arguments: str, **extra: str) -> Iterator[Terminal]:
    """A run on a terminal of this size."""
    with squall_on_terminal(columns, rows, "run", *arguments, **extra) as terminal:
        yield terminal


@contextmanager
def squall_on_terminal(columns: int, rows: int, *arguments: str, **extra: str) -> Iterator[Terminal]:
    """Any command on a terminal of this size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "squall_cli", *arguments],
        env=environment(**{"TERM": "xterm-256color", **extra}),
        cwd="/",
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    guard = threading.Timer(LIFE_SECS, process.kill)
    guard.start()
    try:
        yield Terminal(process, master)
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        os.close(master)
