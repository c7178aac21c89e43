"""Groupings by route: which tasks get a tuple, from every sender and in every process."""

from __future__ import annotations

import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from threading import get_ident
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worker.routing.router
from topology_api import EmitError, Grouping, GroupingError
from topology_api.declarer import KINDS
from topology_api.tuples import Source
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route
from worker.tasks.emitter import BoltEmitter, SpoutEmitter
from worker.tracking.tracker import Tracker

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("key", "other")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Place:
    country: str
    number: float


UTC = dt.timezone.utc
BERLIN = dt.timezone(dt.timedelta(hours=1))

#: Keys of every kind that the API lists; those in one row are equal and must go together.
EQUAL_KEYS: list[list[Any]] = [
    [None],
    [1, 1.0, True, Decimal(1), Decimal("1.00"), Level.ONE, 1 + 0j],
    [0, 0.0, -0.0, False, Decimal("-0")],
    [0.5, Decimal("0.5")],
    [float("nan"), -float("nan"), Decimal("NaN")],
    [float("inf"), Decimal("Infinity")],
    ["word"],
    [b"word"],
    [dt.date(2024, 2, 29)],
    [dt.time(12, 30)],
    [dt.datetime(2024, 2, 29, 12)],
    [dt.datetime(2024, 2, 29, 12, tzinfo=UTC), dt.datetime(2024, 2, 29, 13, tzinfo=BERLIN)],
    [dt.timedelta(days=1), dt.timedelta(hours=24)],
    [Colour.RED],
    [uuid.UUID(int=7)],
    [Place("de", 1), Place("de", 1.0), Place("de", True)],
    [("a", 1), ("a", 1.0), ("a", Decimal(1))],
    [["a", 1], ["a", True]],
    [frozenset(["a", 2]), frozenset([2.0, "a"])],
    [("a", ["b", frozenset([None])])],
]


def boxes_for(tasks: Sequence[int], source: Source) -> dict[int, Outbox]:
    """An outbox for each task."""
    return {task: Outbox(source, task) for task in tasks}


def output_with(
    kind: str,
    tasks: Sequence[int] = (11, 12, 13, 14, 15, 16),
    *,
    fields: Sequence[str] = ("key",),
    local: Sequence[int] = (),
    index: int = 0,
    grouping: Grouping | None = None,
) -> StreamOutput:
    """An output stream with one consumer."""
    output = StreamOutput(Source("words", 3 + index, "default", FIELDS), is_direct=kind == "direct")
    boxes = boxes_for(tasks, output.source)
    add_route(output, kind, Reader(fields, boxes, lambda task: task in local, index, grouping))
    return output


def sent(output: StreamOutput, key: Any, other: Any = None) -> list[int]:
    """The tasks that get a row."""
    return [box.target for box in output.choose((key, other))]


class Chosen(Grouping):
    """A custom grouping that returns its argument, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def choose(self, values: tuple[object, ...]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


# Shuffle and the like.


@pytest.mark.parametrize("kind", ["shuffle", "none", "local_or_shuffle"])
@given(tuples=st.integers(0, 40), tasks=st.integers(1, 7), index=st.integers(0, 20))
@settings(max_examples=30)
def test_shuffle_counts_of_one_sender_differ_by_at_most_1(
    kind: str, tuples: int, tasks: int, index: int
) -> None:
    output = output_with(kind, range(1, tasks + 1), index=index)
    counts = Counter(task for number in range(tuples) for task in sent(output, number))
    every = [counts[task] for task in range(1, tasks + 1)]
    assert sum(every) == tuples
    assert max(every) - min(every) <= 1


def test_senders_of_single_tuples_do_not_all_begin_with_the_same_task() -> None:
    first = [sent(output_with("shuffle", index=index), "a") for index in range(6)]
    assert sorted(first) == [[task] for task in range(11, 17)]


def test_local_or_shuffle_stays_in_the_worker_where_possible() -> None:
    output = output_with("local_or_shuffle", local=(12, 15))
    assert [sent(output, "a") for _ in range(4)] == [[12], [15], [12], [15]]


def test_local_or_shuffle_with_one_local_task_goes_there_alone() -> None:
    output = output_with("local_or_shuffle", local=(14,))
    assert [sent(output, "a") for _ in range(3)] == [[14]] * 3


def test_all_goes_to_each_task_once() -> None:
    assert sorted(sent(output_with("all"), "a")) == [11, 12, 13, 14, 15, 16]


def test_global_goes_to_the_lowest_task() -> None:
    assert sent(output_with("global", [9, 4, 7]), "a") == [4]


def test_every_grouping_of_the_builder_has_a_route() -> None:
    for kind in KINDS:
        output = output_with(kind, grouping=Chosen([11]))
        assert output.fixed or output.picked or output.many or output.direct, kind
    with pytest.raises(GroupingError, match="no grouping is called 'nearest'"):
        output_with("nearest")


def test_two_consumers_each_get_their_own_choice() -> None:
    output = output_with("all", [1, 2])
    add_route(output, "global", Reader((), boxes_for([8, 9], output.source), lambda task: False, 0))
    add_route(output, "shuffle", Reader((), boxes_for([5, 6], output.source), lambda task: False, 0))
    assert [sent(output, "a") for _ in range(2)] == [[1, 2, 8, 5], [1, 2, 8, 6]]


# Fields.


@pytest.mark.parametrize(
    "keys",
    EQUAL_KEYS,
    ids=lambda keys: (
        f"{type(keys[0]).__name__} {str(keys[0])[:20] if not isinstance(keys[0], frozenset) else len(keys[0])}"
    ),
)
@pytest.mark.parametrize("kind", ["fields", "partial_key"])
def test_equal_keys_of_every_kind_go_together_from_every_sender(kind: str, keys: list[Any]) -> None:
    reached = set()
    for index in range(4):
        for order in (keys, keys[::-1]):
            output = output_with(kind, range(100, 197), index=index)
            for key in order * 2:
                sent(output, key)
            reached |= {task for key in order * 2 for task in sent(output, key)}
    assert len(reached) == (1 if kind == "fields" else 2)


def test_earlier_tuples_do_not_change_the_choice() -> None:
    keys = [key for row in EQUAL_KEYS for key in row]
    alone = [sent(output_with("fields"), key) for key in keys]
    together = output_with("fields")
    assert [sent(together, key) for key in keys] == alone
    assert [sent(together, key) for key in reversed(keys)] == alone[::-1]


def test_a_key_of_several_fields_counts_as_a_whole() -> None:
    output = output_with("fields", range(1, 100), fields=FIELDS)
    assert sent(output, "a", 1) == sent(output, "a", 1.0) == sent(output, "a", True)
    assert len({sent(output, "a", number)[0] for number in range(30)}) > 10
    assert len({sent(output, key, 0)[0] for key in "abcdefghijklmnop"}) > 5


def test_keys_spread_over_all_tasks() -> None:
    output = output_with("fields")
    counts = Counter(sent(output, f"word-{number}")[0] for number in range(6000))
    assert len(counts) == 6 and all(800 < count < 1200 for count in counts.values())


SCRIPT = """
import sys
from worker.routing.key_hash import key_hash
sys.path.insert(0, sys.argv[1])
import test_router
keys = [key for row in test_router.EQUAL_KEYS for key in row]
print([test_router.sent(test_router.output_with("fields", range(97)), key) for key in keys])
print([test_router.output_with("partial_key", range(97)).picked[0].candidates((key, 0)) for key in keys])
"""


def test_every_process_chooses_the_same_tasks_whatever_its_hash_seed() -> None:
    answers = set()
    for seed in ("0", "1", "4711", "random"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        answers.add(done.stdout)
    keys = [key for row in EQUAL_KEYS for key in row]
    here = [sent(output_with("fields", range(97)), key) for key in keys]
    [answer] = answers
    assert answer.splitlines()[0] == str(here)


@pytest.mark.parametrize("kind", ["fields", "partial_key"])
@pytest.mark.parametrize("key", [{"a": 1}, {1, 2}, object(), ("a", [object()]), lambda: None])
def test_any_other_key_is_an_error_that_names_component_stream_and_field(kind: str, key: Any) -> None:
    output = output_with(kind, fields=FIELDS)
    with pytest.raises(GroupingError) as caught:
        sent(output, "fine", key)
    for name in ("'other'", "'default'", "'words'"):
        assert name in str(caught.value)
    assert sent(output, "fine", 1) is not None


def test_the_cache_of_a_route_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.routing.router, "CACHED_KEYS", 50)
    for kind in ("fields", "partial_key"):
        output = output_with(kind)
        [route] = output.picked
        first = [route.pick((number, 0)).target for number in range(1000)]
        assert len(route.cache) <= 50  # type: ignore[attr-defined]
        if kind == "fields":
            assert [route.pick((number, 0)).target for number in range(1000)] == first


# Partial key.


def test_partial_key_uses_two_tasks_per_key_and_balances_between_them() -> None:
    output = output_with("partial_key")
    for key in ("a", "b", "the"):
        reached = Counter(sent(output, key)[0] for _ in range(100))
        assert len(reached) == 2, key


def test_partial_key_balances_one_hot_key_over_its_two_tasks() -> None:
    output = output_with("partial_key")
    reached = Counter(task for _ in range(101) for task in sent(output, "hot"))
    assert sorted(reached.values()) == [50, 51]


def test_partial_key_balances_better_than_fields_under_skew() -> None:
    keys = [f"k{number % 7}" if number % 2 else "hot" for number in range(2000)]
    spread = {}
    for kind in ("fields", "partial_key"):
        output = output_with(kind)
        counts = Counter(task for key in keys for task in sent(output, key))
        spread[kind] = max(counts.values())
    assert spread["partial_key"] <= 0.6 * spread["fields"]


def test_partial_key_with_one_task_goes_there() -> None:
    assert sent(output_with("partial_key", [5]), "a") == [5]


# Custom.


def test_a_custom_grouping_chooses_any_number_of_tasks() -> None:
    for answer in ([12], (16, 11), [], range(13, 15), {14: "a dict's keys"}):
        assert sent(output_with("custom", grouping=Chosen(answer)), "a") == list(answer)


def test_a_task_chosen_twice_gets_the_tuple_once() -> None:
    assert sent(output_with("custom", grouping=Chosen([12, 13, 12])), "a") == [12, 13]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (99, "not 99"),
        (None, "not None"),
        ("12", "not '12'"),
        (b"12", "not b'12'"),
        ([12, 99], r"task 99, which is not one of its target tasks \[11, 12, 13, 14, 15, 16\]"),
        ([None], "task None"),
        ([[12]], r"task \[12\]"),
        (ValueError("no idea"), "ValueError: no idea"),
    ],
)
def test_a_mistake_of_a_custom_grouping_is_an_error_that_names_it(answer: Any, says: str) -> None:
    output = output_with("custom", grouping=Chosen(answer))
    with pytest.raises(GroupingError, match=says) as caught:
        sent(output, "a")
    for name in ("Chosen", "'default'", "'words'"):
        assert name in str(caught.value)


# emit() is all or nothing.


def mixed_outputs() -> dict[str, StreamOutput]:
    """A stream that is read globally, by shuffle, and by both of its fields as keys."""
    output = output_with("global", [1])
    for kind, fields, tasks in [
        ("shuffle", (), [2, 3]),
        ("fields", ("key",), [4, 5]),
        ("fields", ("other",), [6]),
    ]:
        add_route(output, kind, Reader(fields, boxes_for(tasks, output.source), lambda task: False, 0))
    return {"default": output}


@pytest.mark.parametrize("bad", [({}, "fine"), ("fine", {})])
def test_a_refused_emission_reaches_no_task(bad: tuple[Any, ...]) -> None:
    bolt = BoltEmitter("words", 3, mixed_outputs(), Random(1))
    spout = SpoutEmitter("words", 3, mixed_outputs(), Random(1), Tracker(3, None, 0.0))
    calls: list[tuple[BoltEmitter | SpoutEmitter, dict[str, Any]]] = [
        (bolt, {}),
        (spout, {}),
        (spout, {"message_id": 1}),
    ]
    for emitter, options in calls:
        emitter.open_for(get_ident())
        with pytest.raises(EmitError):
            emitter.emit(bad, **options)
        assert [len(box) for box in emitter.boxes()] == [0] * 6
        assert emitter.emitted == 0
    assert spout.tracker.pending == 0
