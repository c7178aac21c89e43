"""The compiled core and plain Python do the same: both run random topologies, and all events are equal.

The test compares every call, value, ack, failure, count, refusal and report of `tests/worker/random_stories.py`, in order.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from topology_api.core_choice import choose

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from tests.worker.random_stories import main; main()"
#: The number of stories with `--soak`, and how many one pair of processes runs.
STORIES, AT_ONCE = 100, 25
#: The first one: in CI the same in every run.
FIRST = 0 if os.environ.get("CI") == "true" else SystemRandom().randrange(10**9)
#: Events that must occur, or the comparison says little.
EVERYTHING = (
    " -> ", "emit raised 'EmitError'", "emit raised 'GroupingError'", "emit_direct raised", "emit in cleanup raised",
    "one value too many raised", "a text raised", "a dict raised", "no such stream raised", "no stream at all raised",
    "emit_direct to nobody raised", "another thread ->", "anchor 5 raised", "anchors [5] raised", "ack twice raised",
    "a settled anchor raised", "ack of a text raised", "fail of what is settled raised", "reset_timeout of what is settled",
    "cannot be the key", "choose() returned", "choose() raised", "FailTuple",
    "reason='failed'", "reason='timeout'", "attempts=3", "letters execute", "batch ", "tick ", "end_of_input ",
    "hook of ", "spout_acked", "story error", "caused by KeyError", "story ends 'COMPLETED'", "story ends 'FAILED'",
    *(f"kind='{kind}'" for kind in (
        "shuffle", "fields", "partial_key", "all", "global", "none", "direct", "local_or_shuffle", "custom")),
    *(f"'{kind}' " for kind in ("basic", "rich", "unanchored", "batch", "async", "replaying", "own")),
)  # fmt: skip


def start(pure: str, first: int, count: int) -> subprocess.Popen[str]:
    """Have a core run stories."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SQUALL_PURE": pure, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", MAIN, str(first), str(count)],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="ascii",
    )


def journal_of(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """The core that ran, and its journal."""
    out, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors[-5000:]
    core, *lines = out.splitlines()
    return core, lines


def first_difference(plain: list[str], compiled: list[str]) -> str:
    """The first difference of two journals: the story, the lines before, and the two lines."""
    seed = ""
    for at in range(max(len(plain), len(compiled))):
        one, other = (lines[at] if at < len(lines) else "(the end)" for lines in (plain, compiled))
        if one != other:
            before = "\n".join(line[:300] for line in plain[max(0, at - 5) : at])
            return f"{seed}, line {at}, after\n{before}\nplain:    {one}\ncompiled: {other}"
        if one.startswith("seed "):
            seed = one
    return ""


@pytest.fixture(scope="module")
def compiled_core() -> None:
    """Require a compiled core; its absence is a failure where it is expected."""
    chosen = choose(str(ROOT))
    if not chosen.compiled:
        assert os.environ.get("SQUALL_EXPECT_CORE") != "compiled", str(chosen)
        pytest.skip(f"the core is {chosen}")


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(AT_ONCE, STORIES, AT_ONCE))]
)
def test_both_cores_give_the_same_stories(compiled_core: None, number: int) -> None:
    processes = [start(pure, FIRST + number, AT_ONCE) for pure in ("1", "")]
    (plain_core, plain), (other_core, compiled) = (journal_of(process) for process in processes)
    assert (plain_core, other_core) == ("core plain", "core compiled")
    assert not first_difference(plain, compiled), first_difference(plain, compiled)
    assert len(plain) > 100 * AT_ONCE


def test_the_stories_contain_every_kind_of_event() -> None:
    _, lines = journal_of(start("", 0, 2 * AT_ONCE))
    text = "\n".join(lines)
    missing = [what for what in EVERYTHING if what not in text]
    assert not missing


def test_a_difference_would_be_found() -> None:
    assert first_difference(["seed 1", "a", "b"], ["seed 1", "a", "c"]).startswith("seed 1, line 2")
    assert "(the end)" in first_difference(["seed 1", "a"], ["seed 1"])
    assert not first_difference(["seed 1", "a"], ["seed 1", "a"])
