"""The check of the ledger finds every kind of problem, and none in a ledger that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import Writer, account, owner_changes, read, unsettled

Lines = list[str]


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path


def write(directory: Path, role: str, index: int, began: int, lines: Lines) -> None:
    """A life whose lines are one nanosecond apart, from `began` on, unless they have a time."""
    text = ""
    for offset, line in enumerate(lines):
        kind, _, rest = line.partition(" ")
        at, _, values = rest.partition("@")[::-1] if "@" in rest else ("", "", rest)
        text += f"{kind} {at.strip() or began + offset} {values.strip()}\n"
    Path(directory, f"{role}-{index}-{began:020d}-7.log").write_text(text)


def problems(directory: Path) -> list[str]:
    return account(read(directory)).problems


def test_a_right_ledger_has_no_problem_and_its_totals_are_right(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "E 2 1", "A 1 1", "F 2 1 lost", "E 2 2", "A 2 2"])
    write(books, "sink", 0, 90, ["S 1", "S 2", "S 2"])
    whole = account(read(books))
    assert whole.problems == []
    assert (whole.emitted, whole.acked, dict(whole.failed)) == (3, 2, {"lost": 1})
    assert (whole.seen, whole.duplicates, whole.orphaned) == (3, 1, 0)


def test_a_writers_lines_are_read_back(books: Path) -> None:
    spout = Writer(books, "spout", 3)
    spout.write("E", 5, 1)
    spout.write("F", 5, 1, "timeout")
    spout.close()
    (life,) = read(books)
    assert (life.role, life.index) == ("spout", 3)
    assert [(entry.kind, entry.values) for entry in life.entries] == [
        ("E", ("5", "1")),
        ("F", ("5", "1", "timeout")),
    ]
    assert life.began <= life.entries[0].at <= life.entries[1].at
    assert life.after(life.entries[0].at, "E", "F") == [life.entries[1]]


def test_a_line_cut_off_by_death_is_not_counted(books: Path) -> None:
    write(books, "sink", 0, 90, ["S 1"])
    path = next(books.glob("sink*"))
    path.write_text(path.read_text() + "S 91 12")
    assert [entry.number for life in read(books) for entry in life.of("S")] == [1]


@pytest.mark.parametrize(
    ("spout", "sink", "problem"),
    [
        (["E 1 1", "A 1 1"], [], "acked but never seen by a sink: 1"),
        (["E 1 1", "A 1 1"], ["S 1", "S 2"], "seen by a sink but never emitted: 2"),
        (["E 1 1", "A 1 1"], ["S 1", "W 1 ('x',)"], "seen with values that are not its own: 1"),
        (["E 1 1", "A 1 1", "E 2 1"], ["S 1"], "no final call: (2, 1)"),
        (["E 1 1", "F 1 1 lost", "A 1 1"], ["S 1"], "more than one final call: (1, 1)"),
        (["E 1 1", "A 1 1", "A 1 1"], ["S 1"], "more than one final call: (1, 1)"),
        (["E 1 1", "A 1 1", "A 1 2"], ["S 1"], "a final call of what it did not emit: (1, 2)"),
        (["A 1 1", "E 1 1"], ["S 1"], "a final call before the emission: (1, 1)"),
        (["E 1 1", "E 1 1", "A 1 1"], ["S 1"], "the test's own fault, emitted twice under one id: (1, 1)"),
    ],
)
def test_each_problem_of_a_ledger_is_found(books: Path, spout: Lines, sink: Lines, problem: str) -> None:
    write(books, "spout", 0, 100, spout)
    write(books, "sink", 0, 200, sink)
    found = problems(books)
    assert len(found) == 1
    assert problem in found[0]


def test_a_dead_life_may_leave_emissions_that_the_next_one_emits_again(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "E 2 1", "A 1 1"])
    write(books, "spout", 0, 200, ["E 2 1", "A 2 1"])
    write(books, "sink", 0, 100, ["S 1", "S 2", "S 2"])
    whole = account(read(books))
    assert whole.problems == []
    assert (whole.orphaned, whole.spout_lives, whole.duplicates) == (1, 2, 1)


def test_an_emission_of_a_dead_life_that_is_never_emitted_again_is_found(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "E 2 1", "A 1 1"])
    write(books, "spout", 0, 200, ["E 3 1", "A 3 1"])
    write(books, "sink", 0, 100, ["S 1", "S 3"])
    assert problems(books) == ["spout 0, process 7: left open and not emitted again: 2"]


def test_two_lives_of_a_spout_task_that_emit_at_the_same_time_are_found(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "A 1 1", "E 2 1 @ 300", "A 2 1 @ 301"])
    write(books, "spout", 0, 200, ["E 4 1", "A 4 1"])
    write(books, "sink", 0, 100, ["S 1", "S 2", "S 4"])
    assert problems(books) == [
        "spout 0, process 7: emitted after spout 0, process 7 had begun to: (2, 1)",
    ]


def test_emissions_of_a_thawed_process_need_no_outcome_and_must_get_none(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "A 1 1", "E 2 1 @ 300"])
    write(books, "spout", 0, 200, ["E 4 1", "A 4 1"])
    write(books, "sink", 0, 100, ["S 1", "S 4"])
    assert len(problems(books)) == 2
    assert account(read(books), {7: 250}).problems == []
    write(books, "spout", 0, 100, ["E 1 1", "A 1 1", "E 2 1 @ 300", "F 2 1 lost @ 301"])
    assert account(read(books), {7: 250}).problems == [
        "spout 0, process 7: a final call of what it emitted when its tasks were another's: (2, 1)",
    ]


def test_many_examples_are_cut_short(books: Path) -> None:
    write(books, "spout", 0, 100, [f"{kind} {n} 1" for n in range(1, 8) for kind in "EA"])
    assert problems(books) == ["acked but never seen by a sink: 1, 2, 3, 4, 5 and 2 more"]


def test_unsettled_are_the_emissions_without_an_outcome(books: Path) -> None:
    write(books, "spout", 0, 100, ["E 1 1", "E 2 1", "F 1 1 lost", "E 1 2"])
    assert unsettled(read(books)[0]) == {(2, 1), (1, 2)}


def test_moves_of_a_key_are_counted_in_the_order_of_time(books: Path) -> None:
    write(books, "sink", 0, 100, ["S 1", "S 11", "S 2", "S 21 @ 300"])
    write(books, "sink", 1, 200, ["S 31", "S 3"])
    assert owner_changes(read(books), 10) == {1: 2}
