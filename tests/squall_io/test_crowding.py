"""A look for directories with too many small files reads what is new alone, and misses nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from squall.stores.files import Files
from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.crowding import Crowding
from squall_io.spark.manifest.entries import BatchEntry, encode_entry
from squall_io.spark.manifest.state import read_state
from tests.squall_io.memory_files import MemoryFiles, Step
from tests.squall_io.test_rewriting import entry, merged

T = TypeVar("T")
SMALL, LIMIT = 50, 3


def put(files: Files, one: BatchEntry) -> BatchEntry:
    files.put_if_absent(one.batch.commit, encode_entry(one))
    return one


def checkpoint(files: Files) -> None:
    state = read_state(files)
    assert write_next(files, state.checkpoint, state.uncovered)


def truly_crowded(files: Files) -> bool:
    return bool(Crowding(SMALL, LIMIT).begin(read_state(files)))


def test_a_look_at_a_table_without_changes_costs_two_listings_and_new_entries_a_read_each() -> None:
    files, calls = MemoryFiles(), Counter[str]()

    def count(step: Step, effect: Callable[[], T]) -> T:
        calls[step.call.partition(":")[0]] += "second" not in step.call
        return effect()

    watched = MemoryFiles(files.store, count)
    for number in (1, 2):
        put(files, entry(number, 10))
    checkpoint(files)
    crowding = Crowding(SMALL, LIMIT)
    assert crowding.may_be_crowded(watched)  # it knows nothing yet
    assert not crowding.begin(read_state(files))
    calls.clear()
    assert not crowding.may_be_crowded(watched) and calls == {"list": 2}
    put(files, entry(3, 10, 90))
    calls.clear()
    assert not crowding.may_be_crowded(watched) and calls == {"list": 2, "read": 1}
    checkpoint(files)
    calls.clear()
    assert not crowding.may_be_crowded(watched) and calls == {
        "list": 2,
        "read": 2,
    }  # the checkpoint and its new part
    put(files, entry(4, 10))
    assert crowding.may_be_crowded(watched)
    assert crowding.begin(read_state(files)) == {"data/day=a"}


def test_after_a_rest_it_waits_for_something_new() -> None:
    files = MemoryFiles()
    for number in range(1, 6):
        put(files, entry(number, 10))
    crowding = Crowding(SMALL, LIMIT)
    assert crowding.begin(read_state(files))
    assert crowding.may_be_crowded(files)
    crowding.rest()
    assert not crowding.may_be_crowded(files)
    put(files, entry(6, 10, days="b"))
    assert crowding.may_be_crowded(files)


def test_an_entry_that_cannot_be_read_is_left_to_the_reader_of_all() -> None:
    files = MemoryFiles()
    crowding = Crowding(SMALL, LIMIT)
    crowding.begin(read_state(files))
    files.replace(entry(1).batch.commit, b"{")
    assert crowding.may_be_crowded(files)


@pytest.mark.parametrize("seed", range(40))
def test_it_never_misses_a_crowded_directory_and_counts_right_without_replacements(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PART", 3)
    chance, files, crowding = random.Random(seed), MemoryFiles(), Crowding(SMALL, LIMIT)
    number, replaced = 0, False
    crowding.begin(read_state(files))
    for _ in range(60):
        what = chance.random()
        if what < 0.4:
            number += 1
            put(
                files,
                entry(
                    number,
                    *(chance.choice((10, 60)) for _ in range(2)),
                    days=chance.choice(("ab", "bc", "cd")),
                ),
            )
        elif what < 0.6:
            checkpoint(files)
        elif what < 0.7 and len(read_state(files).entries) > 2:
            number += 1
            put(files, merged(number, 40, *read_state(files).entries[:2]))
            replaced = True
        elif crowding.may_be_crowded(files):
            assert replaced or truly_crowded(files)
            crowding.begin(read_state(files))
            replaced = False
        else:
            assert not truly_crowded(files)
