"""How much memory a key takes in the state of a bolt, beside an item of a dict.

A task counts each of many different words once, in a process of its own: in a dict of its bolt, and in its state. The memory of
a key is what the process has grown by, divided by the number of keys. A snapshot is made of the state then, as at the end of an
epoch; the peak has it with the state and its bytes in memory at the same time.

    python -m benchmarks state_memory [--keys 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
from typing import Any

from benchmarks import state_access
from benchmarks.child import answer, ask, core, machine, peak_rss
from benchmarks.goals import Goal, print_goals
from topology_api import Bolt, Context, Tuple
from worker.epochs.snapshot_files import SnapshotData
from worker.state.saving import StateSaving

MOST = 2.0
KB = 1_024
"""`peak_rss` counts thousands of these."""


class CountsInDict(Bolt):
    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1


def main() -> None:
    """Run both in turn and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", choices=("dict", "state"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        answer(measure(options.once, options.keys))
        return
    print(f"{machine()}; core: {core()}; {options.keys:,} keys, {options.rounds} rounds in turn", flush=True)
    rounds = [
        {once: ask(__name__, "--keys", options.keys, "--once", once) for once in ("dict", "state")}
        for _ in range(options.rounds)
    ]
    of_dict, of_state, peak = (
        [each[once][what] for each in rounds]
        for once, what in (("dict", "key"), ("state", "key"), ("state", "peak"))
    )
    print_goals(
        [
            Goal("bytes a key, in a dict", of_dict, form=".0f"),
            Goal("bytes a key, in state", of_state, form=".0f"),
            Goal("bytes a key, in state, peak of a snapshot", peak, form=".0f"),
            Goal("state : dict", [a / b for a, b in zip(of_state, of_dict)], MOST),
            Goal("peak of a snapshot : dict", [a / b for a, b in zip(peak, of_dict)], MOST),
        ]
    )


def measure(once: str, keys: int) -> dict[str, Any]:
    """Return the bytes of a key, and for state those at the peak."""
    task, source = state_access.task_of(CountsInDict() if once == "dict" else state_access.CountsInState())
    frame = state_access.FRAME
    before = resident()
    for start in range(0, keys, frame):
        words = [f"word-{number}" for number in range(start, min(keys, start + frame))]
        task.execute_rows(state_access.batch_of(source, words), frame, 10 * frame)
    gc.collect()
    grown = resident() - before
    if once == "dict":
        return {"key": grown / keys}
    data = SnapshotData()
    handles = list(task.states.values())  # type: ignore[attr-defined]
    saving = StateSaving(handles, True, lambda moment: moment, data.add)
    while not saving.step():
        pass
    assert saving.cells == keys
    return {"key": grown / keys, "peak": (peak_rss() * KB * 1_000 - before) / keys}


def resident() -> float:
    """Return the memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
