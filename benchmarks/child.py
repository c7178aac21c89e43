"""A measurement in a process of its own, so that its CPU seconds and its peak memory are its own.

A benchmark runs itself again with a hidden option; the child prints one line of JSON, which also names its core. The caller can
select the core: the compiled one, or the same sources as plain Python. It must not know what is measured.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

__all__ = [
    "CORES",
    "answer",
    "ask",
    "command_of",
    "core",
    "cores_here",
    "environment",
    "machine",
    "peak_rss",
    "spread",
]

CORES = ("plain", "compiled")
"""The two cores, as `ask` takes them."""

ROOT = Path(__file__).resolve().parents[1]


def command_of(benchmark: str) -> list[str]:
    """Return the arguments with which Python runs a benchmark, by the name of its module."""
    return ["-m", "benchmarks", benchmark.rpartition(".")[2]]


def ask(benchmark: str, *arguments: object, timeout: float = 600, of: str | None = None) -> dict[str, Any]:
    """Run a benchmark in a fresh interpreter and return its answer. Its errors go to our stderr. `of`: the core of that process
    and its children (None: as this process's environment says).
    """
    command = [sys.executable, *command_of(benchmark), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(of), stdout=subprocess.PIPE, timeout=timeout, check=True
    )
    answered: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if of is not None and answered["core"] != of:
        raise AssertionError(
            f"{benchmark} was to run with the {of} core, not with the {answered['core']} one"
        )
    return answered


def answer(values: dict[str, Any]) -> None:
    """The child's part."""
    print(json.dumps({**values, "core": core()}))


def core() -> str:
    """Return the core of this process."""
    from topology_api.core_choice import CHOICE  # imported here: the counts by hand must not import Squall

    return CORES[CHOICE.compiled]


def cores_here() -> tuple[str, ...]:
    """Return the cores that can be compared here; prints a message if there is only one."""
    from topology_api.core_choice import CHOICE

    if CHOICE.compiled:
        return CORES
    print(f"only the plain core can be measured: {CHOICE}", flush=True)
    return CORES[:1]


def environment(of: str | None = None) -> dict[str, str]:
    """Return the environment of a child: this repository comes first on its path, and it selects the core."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = {} if of is None else {"SQUALL_PURE": "1" if of == "plain" else ""}
    return {**os.environ, "PYTHONPATH": path, **chosen}


def peak_rss() -> float:
    """Return the peak memory of this process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # macOS counts bytes, Linux kilobytes


def machine() -> str:
    """Return the place and time of a measurement."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"{date.today()}, {platform.python_implementation()} {platform.python_version()}, "
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, load average {load}"
    )


def spread(values: list[float], form: str = ",.0f") -> str:
    """Return the median, the least and the greatest of some values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return f"{median:{form}} ({ordered[0]:{form}} to {ordered[-1]:{form}})"
