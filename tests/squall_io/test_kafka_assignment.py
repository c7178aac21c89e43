"""Where partitions begin, what is committed and what is paused: the decisions of a KafkaSpout, without Kafka."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.kafka import KafkaSpout
from squall_io.kafka.assignment import Gap, Start, TaskPartitions, gap_at, matching, merged
from squall_io.kafka.client import client_settings, loaded, settings_problems
from squall_io.kit.secrets import NoSecret
from topology_api import InvalidConfig, SquallError

THEN = datetime(2026, 1, 2, tzinfo=timezone.utc)


def assignment(
    *topics: str, index: int = 0, parallelism: int = 1, start: Start = "latest", **more: Any
) -> TaskPartitions:
    arguments: dict[str, Any] = {"max_gap": 4, "tracked": True, **more}
    return TaskPartitions(topics or ("a",), index, parallelism, start, **arguments)


def test_a_commit_goes_before_the_group_and_the_group_before_the_start() -> None:
    for start, begin in (
        ("latest", "latest"), ("earliest", "earliest"), (THEN, THEN), ({"a": {0: 7}}, 7), ({"a": {1: 7}}, "earliest"),
    ):  # fmt: skip
        each = assignment(start=start)
        assert each.begin(("a", 0), {}) == begin
        assert each.begin(("a", 0), {("a", 0): 5}) == 5
        each.rewind({"a": {0: 3}})
        assert each.begin(("a", 0), {("a", 0): 5}) == 3


def test_what_appears_later_begins_at_the_earliest() -> None:
    each = assignment("a", "^b")
    assert each.begin(("a", 0), {}) == "latest"
    each.begun(("a", 0), 5)
    each.looked(["a"])
    assert each.begin(("a", 1), {}) == "earliest"
    assert each.begin(("b1", 0), {}) == "earliest"
    later = assignment("a", "^b", "c")  # it was down meanwhile
    later.rewind(each.position())
    assert later.begin(("a", 1), {}) == "earliest"
    assert later.begin(("b1", 0), {}) == "earliest"
    assert later.begin(("c", 0), {}) == "latest"  # the user has added this topic
    by_group = assignment("a")
    assert by_group.begin(("a", 1), {("a", 0): 5}) == "earliest"


def test_a_missing_topic_that_was_looked_for_begins_at_the_earliest_after_a_restart() -> None:
    each = assignment("a")
    each.looked({"a": []})
    later = assignment("a")
    later.rewind(each.position())
    assert later.begin(("a", 0), {}) == "earliest"


@given(st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 9))), st.integers(1, 5), st.integers(1, 5))
def test_each_partition_is_read_by_one_task_and_keeps_its_place_when_their_number_changes(
    every: set[tuple[str, int]], before: int, after: int
) -> None:
    found: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for topic, number in every:
        found[topic].append(number)
    tasks = [assignment("a", "b", "c", index=n, parallelism=before) for n in range(before)]
    for task in tasks:
        for place in task.new(found):
            task.begun(place, 10 * place[1])
        task.looked(found)
        assert task.new(found) == []
    assert sorted(place for task in tasks for place in task.partitions) == sorted(every)
    position = merged([task.position() for task in tasks])
    others = [assignment("a", "b", "c", index=n, parallelism=after) for n in range(after)]
    begun = []
    for task in others:
        task.rewind(position)
        for place in task.new(found):
            assert task.begin(place, {}) == 10 * place[1]
            begun.append(place)
    assert sorted(begun) == sorted(every)
    # What is asked for before anything has begun is the same.
    assert merged([task.position() for task in others]) == position


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.randoms())
def test_nothing_unsettled_is_ever_committed_and_all_of_it_in_the_end(steps: list[int], draw: Any) -> None:
    each = assignment()
    each.begun(("a", 0), 0)
    progress, offset, under_way = each.partitions["a", 0], 0, []
    for step in steps:  # offsets have gaps
        progress.items.taken(offset, offset + 1)
        under_way.append(offset)
        offset += step
    last = under_way[-1]
    draw.shuffle(under_way)
    while under_way:
        assert each.settled() == {("a", 0): min(under_way)}
        each.settle(progress.place, [under_way.pop()])
    assert each.settled() == {("a", 0): last + 1}
    each.ended(progress, last + 3)  # marks of transactions
    assert each.settled() == {("a", 0): last + 3}


def test_a_partition_is_paused_at_the_gap_and_read_on_below_half_of_it() -> None:
    each = assignment()
    each.begun(("a", 0), 10)
    progress = each.partitions["a", 0]
    for offset in range(10, 14):
        assert not each.is_full(progress)
        progress.items.taken(offset, offset + 1)
    assert each.is_full(progress)
    progress.paused = True
    assert each.waits() == (
        "a-0 is paused: offset 10 is neither acked nor failed, and 4 messages from it on are emitted"
    )
    assert each.settle(progress.place, [12]) is None
    assert each.settle(progress.place, [10]) is None
    assert each.settle(progress.place, [11]) is progress
    assert each.waits() == ""


def test_acks_of_a_topic_that_was_created_again_do_not_settle_its_new_messages() -> None:
    each = assignment()
    each.begun(("a", 0), 5)
    old = each.partitions["a", 0]
    old.items.taken(5, 6)
    each.jumped(("a", 0), 9)  # retention: what is under way still counts
    assert each.settled() == {("a", 0): 5}
    each.settle(old.place, [5])
    assert each.settled() == {("a", 0): 9}
    old.items.taken(9, 10)
    each.jumped(("a", 0), 0)
    new = each.partitions["a", 0]
    for offset in range(10):
        new.items.taken(offset, offset + 1)
    each.settle(old.place, [9])
    for offset in range(9):
        each.settle(new.place, [offset])
    assert each.settled() == {("a", 0): 9}


def test_gaps_say_what_is_gone() -> None:
    assert gap_at(("a", 0), 5, 5, 9) is None
    assert gap_at(("a", 0), 9, 5, 9) is None
    gap = gap_at(("a", 0), 2, 5, 9)
    assert gap == Gap(("a", 0), 2, 5, 9)
    assert gap is not None
    assert gap.lost == 3
    assert "a-0 has lost 3 offset(s), 2 to 4" in str(gap)
    assert "created again" in str(gap_at(("a", 0), 10, 0, 9))


def test_partitions_of_a_commit_that_are_gone_are_found() -> None:
    each = assignment("a", "^b")
    each.rewind({"a": {0: 1, 1: 1}, "b1": {0: 0}, "unread": {0: 5}})
    assert each.gone({"a": [0, 1], "b1": [0]}) == []
    assert each.gone({"a": [0]}) == [("a", 1), ("b1", 0)]


def test_patterns_match_from_the_beginning_and_leave_out_topics_of_kafka_itself() -> None:
    topics = ["orders", "orders.eu", "my-orders", "__consumer_offsets"]
    assert matching(["^orders"], topics) == ["orders", "orders.eu"]
    assert matching(["^orders$", "^my"], topics) == ["my-orders", "orders"]
    assert matching(["^.*"], topics) == ["my-orders", "orders", "orders.eu"]
    assert matching(["^__consumer"], topics) == ["__consumer_offsets"]


GOOD: dict[str, Any] = {"topics": "orders", "servers": "kafka:9092"}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"topics": []}, "topics is []"),
        ({"topics": "no topic"}, "topics has 'no topic'"),
        ({"topics": "^("}, "which is none"),
        ({"servers": "kafka"}, "servers has 'kafka'"),
        ({"servers": ()}, "servers is ()"),
        ({"group": ""}, "group is ''"),
        ({"start": "begin"}, "start is 'begin'"),
        ({"start": datetime(2026, 1, 2)}, "without a time zone"),
        ({"start": {"orders": {"0": 1}}}, "start is {'orders'"),
        ({"decode": "xml"}, "decode is 'xml'"),
        ({"decode_key": 1}, "decode_key is 1"),
        ({"fields": ["value", "body"]}, "fields are ('value', 'body')"),
        ({"schema": "id nonsense"}, "nonsense"),
        ({"schema": "id int", "decode": "str"}, "a schema is for decode='json'"),
        ({"schema": "id int", "fields": "key"}, "in place of 'value'"),
        ({"schema": "key int", "fields": ("value", "key")}, "named like another field"),
        ({"max_gap": 0}, "max_gap is 0"),
        ({"look_interval": 0.5}, "look_interval is 0.5"),
        ({"replay": 3}, "replay is 3"),
        ({"settings": 3}, "settings is 3"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        KafkaSpout(**{**GOOD, **wrong})


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(InvalidConfig, match="3 problems"):
        KafkaSpout("orders", servers="kafka", group="", max_gap=0)


def test_settings_hold_no_secrets_and_nothing_that_is_decided() -> None:
    secret = "s3cret!"
    for name in ("sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"):
        problems = list(settings_problems({name: secret}, {}))
        assert len(problems) == 1
        assert name in problems[0]
        assert secret not in problems[0]
        assert list(settings_problems({name: "env:KAFKA_PASSWORD"}, {})) == []
    decided = ["group.id", "auto.offset.reset", "enable.auto.commit", "bootstrap.servers", "error_cb"]
    for name in decided:
        with pytest.raises(InvalidConfig, match=f"settings has '{name}', which is decided already: "):
            KafkaSpout(**GOOD, settings={name: "x"})
    assert list(settings_problems({"client.id": "squall", "fetch.wait.max.ms": 100, "a": True}, {})) == []
    assert list(settings_problems({"oauth_cb": print}, {})) == []
    assert len(list(settings_problems({"oauth_cb": 1, "fetch.wait.max.ms": None, 3: 4}, {}))) == 3


def test_secrets_are_looked_up_where_the_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hidden")
    given = {"sasl.password": "env:KAFKA_PASSWORD", "client.id": "squall"}
    assert client_settings(["a:1", " b:2"], given, {"client.id": "own", "fetch.wait.max.ms": 5}) == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "squall",
        "fetch.wait.max.ms": 5,
        "sasl.password": "hidden",
    }
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(NoSecret, match=r"settings of Kafka: .*KAFKA_PASSWORD"):
        client_settings("a:1", given, {})


def test_without_confluent_kafka_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Callable[..., Any]:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        SquallError, match=r"^KafkaSpout needs confluent-kafka: install Squall with its extra `kafka`$"
    ):
        loaded("KafkaSpout")
