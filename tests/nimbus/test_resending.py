"""Which task sends a dead letter again, and what is said if none can."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert, structs, to_builtins
from msgspec.structs import replace as with_fields

from nimbus.placement.resending import (
    Recipient,
    SpoutTasks,
    of_bolt,
    problem_at_bolt,
    problem_with,
    recipient_of,
    spout_tasks,
)
from squall.api.letters import LetterEntry
from squall.cluster.records import Placement, TopologyRecord
from squall.values import Incarnation, TaskRow, TopologyState
from tests.letter_samples import kept_letter

LETTER: LetterEntry = convert(to_builtins(kept_letter(1).letter), LetterEntry)
SPOUT: dict[str, Any] = {
    "kind": "spout",
    "outputs": {"default": {"fields": ["f0", "f1"], "direct": False}},
}


def record(state: str = "ACTIVE", finished: tuple[int, ...] = ()) -> TopologyRecord:
    rows = (TaskRow(1, "lines", 0), TaskRow(2, "store", 0), TaskRow(3, "lines", 1))
    return TopologyRecord(
        "orders-2-0",
        "orders",
        getattr(TopologyState, state),
        None,
        {},
        {},
        rows,
        1,
        None,
        None,
        0.0,
        finished=finished,
    )


def placed(*places: tuple[str, tuple[int, ...]]) -> list[Placement]:
    return [
        Placement(f"w{number}", supervisor, 0, Incarnation(1, 0), tasks)
        for number, (supervisor, tasks) in enumerate(places)
    ]


def test_the_tasks_of_the_spout_are_found_by_host() -> None:
    found = spout_tasks(record(), "orders", "lines", placed(("s1", (1, 2)), ("s2", (3,))))
    assert found == SpoutTasks({"s1": [1], "s2": [3]})
    found = spout_tasks(record(finished=(1,)), "orders", "lines", placed(("s1", (1, 2)), ("s2", (3,))))
    assert found == SpoutTasks({"s2": [3]})


@pytest.mark.parametrize(
    ("there", "component", "why"),
    [
        (None, "lines", "there is no topology orders at the moment: submit it first"),
        (record("KILLED"), "lines", "orders is KILLED, so no task of it takes letters"),
        (record("COMPLETED"), "lines", "orders is COMPLETED"),
        (record(), "gone", "orders has no component gone any more"),
        (record(finished=(1, 3)), "lines", "the source of lines has ended: submit orders again first"),
        (record(), "lines", "no task of lines runs at the moment"),
    ],
)
def test_a_topology_that_cannot_send_says_why(there: TopologyRecord | None, component: str, why: str) -> None:
    assert why in spout_tasks(there, "orders", component, ()).why


@pytest.mark.parametrize(
    ("letter", "described", "why"),
    [
        (LETTER, None, "orders has no spout lines any more"),
        (LETTER, {**SPOUT, "kind": "bolt"}, "orders has no spout lines any more"),
        (LETTER, {**SPOUT, "outputs": {}}, "lines has no stream 'default' any more"),
        (
            LETTER,
            {**SPOUT, "outputs": {"default": {"fields": ["f0"], "direct": False}}},
            "the fields of stream 'default' of lines are (f0) now, and were (f0, f1)",
        ),
        (
            with_fields(LETTER, codec="", why_no_values="too large"),
            SPOUT,
            "its values were not kept: too large",
        ),
        (LETTER, SPOUT, ""),
    ],
)
def test_a_letter_that_does_not_fit_its_spout_any_more_says_why(
    letter: LetterEntry, described: dict[str, Any] | None, why: str
) -> None:
    assert problem_with(letter, described) == why


def test_tasks_on_the_host_of_the_letter_take_turns() -> None:
    tasks = SpoutTasks({"s1": [1, 3], "s2": [5]})
    chosen = [recipient_of(LETTER, number, "s1", tasks, {"s1", "s2"}) for number in range(3)]
    assert chosen == [Recipient("s1", 1), Recipient("s1", 3), Recipient("s1", 1)]
    waiting = with_fields(LETTER, sent_to=3)
    assert recipient_of(waiting, 0, "s1", tasks, {"s1"}) == Recipient("s1", 3)


def test_only_values_that_run_no_code_move_to_another_host() -> None:
    tasks = SpoutTasks({"s2": [5], "s3": [6]})
    assert recipient_of(LETTER, 0, "s1", tasks, {"s1", "s3"}) == Recipient("s3", 6)
    assert recipient_of(LETTER, 0, "s1", tasks, {"s1"}) == "lines runs on s2, s3, which is away"
    why = recipient_of(with_fields(LETTER, codec="pickle"), 0, "s1", tasks, {"s1", "s2"})
    assert isinstance(why, str) and "they do not leave supervisor s1, and lines runs on s2, s3 only" in why
    assert recipient_of(LETTER, 0, "s1", structs.replace(tasks, why="no"), {"s1"}) == "no"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (["f1", "f0"], ""),
        (["f1"], ""),
        (
            ["f1", "f2"],
            "the fields of stream 'default' of lines are (f1, f2) now, and were (f0, f1): the letter has no 'f2'",
        ),
    ],
)
def test_the_fields_of_a_letter_of_a_bolt_are_matched_by_name(now: list[str], why: str) -> None:
    bolt = {"kind": "bolt", "inputs": [{"source": "lines", "stream": "default"}]}
    described = {"count": bolt, "lines": {**SPOUT, "outputs": {"default": {"fields": now, "direct": False}}}}
    letter = with_fields(LETTER, component="count", source="lines")
    assert problem_at_bolt(letter, described) == why


@pytest.mark.parametrize(
    ("fields", "is_of_bolt"),
    [
        ({"source": "lines", "message_id": "7"}, True),
        ({"source": "lines", "message_id": ""}, True),
        ({"source": "", "message_id": ""}, True),
        # The component was a spout when it emitted this.
        ({"source": "", "message_id": "7"}, False),
    ],
)
def test_a_letter_is_of_a_bolt_by_its_source_or_if_no_message_id_stands_behind_it(
    fields: dict[str, str], is_of_bolt: bool
) -> None:
    letter = with_fields(LETTER, component="count", **fields)
    assert of_bolt(letter, {"count": {"kind": "bolt"}}) is is_of_bolt
    assert not of_bolt(letter, {"count": {"kind": "spout"}})
    assert not of_bolt(letter, {})
