"""The core leaks nothing: memory stays flat while tuples are acked, fail, and go wrong in every possible way.

400,000 tuples; `--soak 10` makes them 4 million.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from tests.faults.many_tuples import main; main()"
TUPLES, WAVES = 400_000, 16
#: Waves that fill the bounded stores: caches of keys, kept reports, free lists, histograms, tables of slots.
WARM_UP = 3
#: Allocations: a leak of one for each fifty tuples exceeds this; plain Python varies by up to 3,000.
MOST_BLOCKS = 5_000
#: Objects known to the garbage collector (frames, tracebacks, errors, dictionaries, tuples): each way of going wrong happens
#: 1,000 times after the warm-up; the normal variation is tens.
MOST_OBJECTS = 500
#: Sixteen bytes a tuple would be 4.8 MB; the allocator itself varies by less than two.
MOST_BYTES = 4 << 20
SECONDS = 900.0


def run(waves: int, tuples: int, soak: float) -> dict[str, Any]:
    """Have a process send waves of this many tuples; return what it reports of its memory."""
    done = subprocess.run(
        [sys.executable, "-c", MAIN, str(waves), str(tuples)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS * max(1.0, soak),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(0)  # the process has its own time limit
def test_memory_is_flat_while_tuples_are_acked_fail_and_go_wrong(soak: float) -> None:
    found = run(WAVES, int(TUPLES * soak) // WAVES, soak)
    for what, most in (("blocks", MOST_BLOCKS), ("objects", MOST_OBJECTS), ("memory", MOST_BYTES)):
        later = found[what][WARM_UP:]
        assert max(later) - later[0] <= most, f"{what} after each wave: {found[what]}"
    executed, acked, failed, errors = map(sum, zip(*found["counts"].values(), strict=True))
    tuples = TUPLES * soak
    assert executed > 2 * tuples and acked > tuples and failed > tuples / 100 and errors > tuples / 100
