"""A stream sees new batches soon, and a table that does not change costs it few calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from squall_io.spark.manifest.layout import COMMITS
from squall_io.spark.source.watching import LOOK_SECONDS, TableWatch
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import Step

T = TypeVar("T")


def test_a_stream_looks_five_times_a_second_and_reads_only_what_has_changed() -> None:
    world, calls, now = World(), Counter[str](), 0.0

    def count(step: Step, effect: Callable[[], T]) -> T:
        calls[f"{step.call.partition(':')[0]} {step.path}"] += 1
        return effect()

    watch, watched, files = TableWatch(lambda: now), world.files(count), world.files()
    entry = world.commit(files, 0, 1, 1)
    assert watch.state_of(watched).entries == (entry,)
    later = world.commit(files, 0, 1, 2)
    calls.clear()
    assert watch.state_of(watched).entries == (entry,) and not calls
    now += LOOK_SECONDS
    assert watch.state_of(watched).entries == (entry, later)
    calls.clear()
    now += LOOK_SECONDS
    assert len(watch.state_of(watched).entries) == 2
    assert {name.split()[0] for name in calls} == {"list"} and calls[f"list {COMMITS}"] >= 1
