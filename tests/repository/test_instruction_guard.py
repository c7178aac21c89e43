"""The compiled core takes no more instructions per word than recorded, and the guard that checks this can fail."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import callgrind, instructions
from benchmarks.child import command_of, environment
from benchmarks.instructions import STATE, STATELESS
from benchmarks.topology import Job
from topology_api.core_choice import CHOICE

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 10


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES)
def test_a_word_takes_no_more_instructions_than_the_record_allows() -> None:
    if not CHOICE.compiled:
        pytest.skip(f"only the compiled core's instructions are counted; here it is {CHOICE}")
    if not callgrind.available():
        pytest.skip("valgrind is missing, in CI too: it is nothing that a CI machine must have")

    done = subprocess.run(
        [sys.executable, *command_of(instructions.__name__)],
        cwd=ROOT,
        env=environment(),
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode == instructions.NO_RECORD:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr


def recorded(own: float, others: float, build: str = "") -> dict[str, object]:
    """A record, by default of this very Python."""
    return {"build": build or instructions.build(), "parts": parts(own, others)}


def parts(own: float, others: float) -> dict[str, float]:
    """Instructions in one of Squall's extensions, and in the interpreter."""
    return {"worker.tasks.emitter": own, instructions.INTERPRETER: others}


@pytest.mark.parametrize(
    ("now", "kind", "good"),
    [
        (parts(100, 1_000), STATELESS, True),
        (parts(101, 1_010), STATELESS, True),
        (parts(103, 1_000), STATELESS, False),  # the core's own, though it is 0.3 % of all
        (parts(100, 1_023), STATELESS, False),  # work of the interpreter for the core
        (parts(50, 1_100), STATELESS, False),
        (parts(109, 1_090), STATE, True),
        (parts(111, 1_000), STATE, False),
        (parts(100, 1_111), STATE, False),
    ],
)
def test_more_than_the_record_allows_is_too_many(now: dict[str, float], kind: str, good: bool) -> None:
    assert instructions.compare(now, recorded(100, 1_000), kind)[0] is good


@pytest.mark.parametrize("kind", instructions.KINDS)
def test_another_build_of_python_is_compared_by_the_core_alone(kind: str) -> None:
    other = recorded(100, 1_000, build="3.11.99 another compiler")
    assert instructions.compare(parts(105, 3_000), other, kind)[0]
    good, text = instructions.compare(parts(111, 500), other, kind)
    assert not good
    assert "another compiler" in text


@pytest.mark.parametrize("kind", instructions.KINDS)
def test_both_kinds_count_the_words_of_all_sentences(kind: str) -> None:
    job = Job(20, instructions.DIFFERENT)
    assert instructions.words_of(20, kind) == 2 * sum(len(line.split()) for line in job.lines[:20])


def test_the_difference_of_two_runs_is_divided_by_its_words() -> None:
    core, python = next(iter(instructions.EXTENSIONS)), "/usr/lib/libpython3.11.so.1.0"
    few, many = Counter({core: 900, python: 5_000}), Counter({core: 1_500, python: 9_000, "/libz.so.1": 50})
    found = instructions.a_word(few, many, 10)
    expected = {instructions.EXTENSIONS[core]: 60, instructions.INTERPRETER: 400, "library libz": 5}
    assert found == expected


def test_called_code_counts_in_its_own_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(
        "events: Ir\n\nob=/core.so\nfn=emit\n0 30\n7 5\ncfn=append\ncob=/libc.so.6\ncalls=2 0 \n9 400\n\n"
        "ob=/libc.so.6\nfn=append\n0 400\n\ntotals: 435\n"
    )
    assert callgrind.read(out) == {"/core.so": 35, "/libc.so.6": 400}


def test_instructions_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("events: Ir\n\nob=/core.so\nfn=emit\n0 30\n\ntotals: 31\n")
    with pytest.raises(ValueError, match="add up to 30"):
        callgrind.read(out)
