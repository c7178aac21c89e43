"""Steps at which a process of its own accord dies by SIGKILL: each step once, in whichever process of a run comes to it first.

`arm` is called in each worker process, by a component's `prepare`; `die_at` is the step.
Must not know: what is being done at the steps.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from squall.stores.local import LocalFiles

#: The calls of the state store, each before and after it.
CALLS = ("put_if_absent log", "put_if_absent snapshots", "read log", "read snapshots", "delete snapshots")
STORE_STEPS = [f"{when} {call}" for call in CALLS for when in ("before", "after")]

#: How often this process has come to a step.
_COUNTS: Counter[str] = Counter()


def plan(folder: Path, steps: dict[str, int]) -> None:
    """Let a process die at each step, when it comes there for the how-manieth time."""
    folder.mkdir()
    for step, number in steps.items():
        (folder / step).write_text(str(number))


def left(folder: Path) -> list[str]:
    """The steps at which no process has died yet."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".done"))


def die_at(folder: str, step: str) -> None:
    """A step: end this process here if that is planned, and no other process has done so."""
    planned = Path(folder, step)
    _COUNTS[step] += 1
    try:
        if _COUNTS[step] >= int(planned.read_text()):
            planned.rename(planned.with_name(f"{step}.done"))
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        pass


def arm(folder: str) -> None:
    """Make steps of the calls of this process's store."""
    if "_unarmed" in vars(LocalFiles):
        return
    LocalFiles._unarmed = True  # type: ignore[attr-defined]
    for name in {call.partition(" ")[0] for call in CALLS}:
        setattr(LocalFiles, name, _with_steps(folder, name, getattr(LocalFiles, name)))


def _with_steps(folder: str, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A method with a step before and one after it."""

    def method(self: LocalFiles, path: str, *more: Any) -> Any:
        call = f"{name} {path.partition('/')[0]}"
        die_at(folder, f"before {call}")
        answer = real(self, path, *more)
        die_at(folder, f"after {call}")
        return answer

    return method
