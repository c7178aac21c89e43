"""Links and topologies that run from seeds behave as before: the first seeds of each kind, event by event.

`SQUALL_PURE=1 python -m tests.frozen.transcript_hashes --jobs 2` compares all 6,000 frozen seeds.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen.frozen_data import load
from tests.frozen.transcript_hashes import BLOCK, KINDS, NAME, hash_of

FROZEN: dict[str, Any] = load(NAME)
#: Seeds of each kind that run here: all with `--soak`, and how many without it; and those of one test.
SEEDS, USUAL, AT_ONCE = 40, 20, 10


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(at, marks=pytest.mark.slow) for at in range(AT_ONCE, USUAL, AT_ONCE)),
        *(pytest.param(at, marks=pytest.mark.soak) for at in range(USUAL, SEEDS, AT_ONCE)),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_are_as_before(kind: str, first: int) -> None:
    seeds = range(first, first + AT_ONCE)
    others = [seed for seed in seeds if hash_of(kind, seed) != FROZEN[kind]["first"][seed]]
    assert not others, (
        f"seeds {others} of {kind} go another way: lay `python -m tests.frozen.transcript_hashes --kinds {kind} --tell"
        f" {others[0]}` beside that of commit 6407a8e"
    )


def test_six_thousand_seeds_are_frozen_and_the_first_of_each_kind_individually() -> None:
    assert FROZEN.keys() == KINDS.keys()
    assert sum(each["seeds"] for each in FROZEN.values()) == 6_000
    for kind in KINDS:
        assert FROZEN[kind]["seeds"] == BLOCK * len(FROZEN[kind]["blocks"])
        assert len(FROZEN[kind]["first"]) == BLOCK
