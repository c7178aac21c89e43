"""The output and logs of worker processes, read while they grow and formatted for the terminal.

The terminal shows what user code prints and logs, output that bypasses Python (from child processes and C code), and warnings
and errors of the workers themselves. An opened file is read to its end even if its directory is removed meanwhile.
Must not know: clusters; where the lines are shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from squall.guarded_files import DamagedFile, open_guarded
from squall.reports.log_lines import CONTINUED
from squall.worker_files import LOG, OUTPUT
from squall_cli.terminal.formats import whole

#: How many bytes of a file are shown if more than MOST_BEHIND bytes are unread: the last ones.
AT_ONCE = 64 * 1024
#: If more bytes of a file are unread, the oldest of them are left out.
MOST_BEHIND = 1024 * 1024
#: A line of a worker's log: `2026-03-01 12:00:00,123 INFO count[4] text`.
LINE = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d{3} ([A-Z]+) (\S+) (.*)")
OF_A_TASK = re.compile(r".+\[\d+\]")


@dataclass(eq=False)
class Followed:
    """One growing file, which may be renamed and replaced by a new file (rotation)."""

    path: Path
    file: FileIO | None = None
    rest: bytes = b""

    def lines(self, last: bool) -> list[str]:
        """Return the lines since the last call; with `last`, include an unfinished line."""
        found = self.read()
        if self.renamed():
            found += self.read()  # bytes written between the read and the renaming
            self.close()
            found += self.read()
        *lines, self.rest = (self.rest + found).split(b"\n")
        if last and self.rest:
            lines.append(self.rest)
            self.rest = b""
        return [line.decode("utf-8", "backslashreplace") for line in lines]

    def read(self) -> bytes:
        """Return the unread bytes, or only the last of them if there are too many to be useful."""
        if self.file is None:
            try:
                descriptor = open_guarded(self.path)
            except (OSError, DamagedFile):
                return b""
            if descriptor is None:
                return b""
            self.file = FileIO(descriptor)
        behind = os.fstat(self.file.fileno()).st_size - self.file.tell()
        if behind < 0:  # the file was truncated
            self.file.seek(0)
        elif behind > MOST_BEHIND:
            self.file.seek(behind - AT_ONCE, os.SEEK_CUR)
            where = f"{self.path.parent.name}/{self.path.name}"
            left_out = f"\n... {whole(behind - AT_ONCE)} bytes of {where} are not shown ...\n".encode()
            return left_out + self.file.read(AT_ONCE)
        return self.file.read(MOST_BEHIND)

    def renamed(self) -> bool:
        """Return whether a different file now has this path."""
        if self.file is None:
            return False
        try:
            there = os.lstat(self.path)
        except OSError:
            return False
        mine = os.fstat(self.file.fileno())
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


@dataclass(eq=False)
class WorkerLogs:
    """The logs of all workers that have run for a topology."""

    workers: dict[Path, tuple[str, Followed, Followed]] = field(default_factory=dict)
    #: By directory: whether the last entry of the log was shown. If it was, its continuation lines are shown, too.
    shown: dict[Path, bool] = field(default_factory=dict)

    def follow(self, workers: Iterable[tuple[str, Path]]) -> None:
        """Add workers, given as names and directories."""
        for name, directory in workers:
            if directory not in self.workers:
                self.workers[directory] = name, Followed(directory / LOG), Followed(directory / OUTPUT)

    def read(self, last: bool = False) -> str:
        """Return the new lines, formatted for the terminal."""
        lines: list[str] = []
        for directory, (name, log, output) in self.workers.items():
            for line in log.lines(last):
                shown = readable(line)
                if shown is None:
                    if self.shown.get(directory):
                        lines.append(f"  {line.removeprefix(CONTINUED)}")
                    continue
                self.shown[directory] = bool(shown)
                if shown:
                    lines.append(shown)
            lines += [f"{name}: {line}" for line in output.lines(last)]
        return "".join(f"{line}\n" for line in lines)

    def close(self) -> None:
        for _, log, output in self.workers.values():
            log.close()
            output.close()


def readable(line: str) -> str | None:
    """Return a line of a worker's log as displayed; "" means that it is hidden, None that it continues the previous line."""
    found = LINE.fullmatch(line)
    if found is None:
        return None
    when, level, place, text = found.groups()
    if level == "REPORT":  # an error in user code: the status display shows it already
        return ""
    if level in ("DEBUG", "INFO"):
        return f"{when} {place}: {text}" if OF_A_TASK.fullmatch(place) else ""
    return f"{when} {level} {place}: {text}"
