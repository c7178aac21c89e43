"""Counts the instructions that a Python command executes, by the file of their code, with valgrind's callgrind.

The command runs with a small environment of its own and a fixed hash seed, so that runs are alike. It must not know what the
command does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

__all__ = ["available", "count", "read", "run"]

KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "LANG")
"""What a command gets of our environment."""


def available() -> bool:
    """Return whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def environment(root: Path) -> dict[str, str]:
    """Return the environment of a command: Squall's sources, and nothing that makes runs differ."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"}


def run(root: Path, arguments: list[str]) -> str:
    """Run Python with these arguments without valgrind; return its output."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(root), stdout=subprocess.PIPE, check=True, timeout=600
    )
    return done.stdout.decode()


def count(root: Path, arguments: list[str]) -> list[Counter[str]]:
    """Instructions of Python with these arguments, by the file of the code (an executable or a library).

    One for each process, in the order in which they ended: children that it forks come first, and those of a child include what
    came before its fork.
    """
    with tempfile.TemporaryDirectory(prefix="squall-callgrind-") as folder:
        options = [f"--callgrind-out-file={folder}/out.%p", "--compress-strings=no", "--compress-pos=no"]
        command = ["valgrind", "-q", "--tool=callgrind", *options, sys.executable, *arguments]
        done = subprocess.run(
            command,
            env=environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=1200,
        )
        outs = sorted(Path(folder).glob("out.*"), key=lambda out: out.stat().st_mtime_ns)
        if done.returncode or not outs:
            raise RuntimeError(
                f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}"
            )
        return [read(out) for out in outs]


def read(out: Path) -> Counter[str]:
    """Parse callgrind's output, which must add up to its own total. The line after "calls=" belongs to the called code, which
    has lines of its own.
    """
    counted: Counter[str] = Counter()
    file, called, total = "", False, -1
    with out.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("ob="):
                file = line[3:].strip()
            elif line.startswith("calls="):
                called = True
            elif line.startswith("totals:"):
                total = int(line.split()[1])
            elif line[:1].isdigit():
                if not called:
                    counted[file] += int(line.split()[1])
                called = False
    if sum(counted.values()) != total:
        raise ValueError(f"{out}: the lines add up to {sum(counted.values()):,}, callgrind says {total:,}")
    return counted
