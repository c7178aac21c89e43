"""Which shards a task of the Kinesis spout reads, in which order, and where each goes on."""

from __future__ import annotations

from typing import Any

import pytest

from squall_io.aws.kinesis_shards import (
    BEGIN,
    END,
    SEEN,
    LostRecords,
    Shard,
    TaskShards,
    iterator_arguments,
    task_of_shard,
    united_places,
)

QUARTERS = [Shard(f"s{n}", n * 2**126) for n in range(4)]
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("tasks", "owners"), [(1, [0, 0, 0, 0]), (2, [0, 0, 1, 1]), (3, [0, 0, 1, 2]), (4, [0, 1, 2, 3])]
)
def test_tasks_divide_the_range_of_hash_keys(tasks: int, owners: list[int]) -> None:
    assert [task_of_shard(shard, tasks) for shard in QUARTERS] == owners
    found = []
    for index in range(tasks):
        own = TaskShards(index, tasks, 0)
        own.found(QUARTERS, 0, HOUR)
        found += own.readable()
    assert sorted(found) == ["s0", "s1", "s2", "s3"]


def test_children_are_read_after_their_parents() -> None:
    own = TaskShards(0, 1, 0)
    left, right = Shard("left", 0, ("old",)), Shard("right", 2**127, ("old",))
    merged = Shard("merged", 0, ("left", "right"))
    own.found([Shard("old", 0), left, right, merged], 0, HOUR)
    assert own.readable() == ["old"]
    own.finished("old")
    assert sorted(own.readable()) == ["left", "right"]
    own.finished("left")
    assert own.readable() == ["right"]
    own.finished("right")
    assert own.readable() == ["merged"]


def test_a_child_of_a_parent_that_is_gone_is_read() -> None:
    own = TaskShards(0, 1, 0)
    own.found([Shard("child", 0, ("gone",))], 0, HOUR)
    assert own.readable() == ["child"]


def test_a_position_says_where_each_shard_goes_on() -> None:
    own = TaskShards(0, 1, 7000)
    own.found([Shard("a", 0), Shard("b", 1)], 0, HOUR)
    own.read("a", "12", 0)
    own.finished("b")
    own.found([Shard("a", 0), Shard("b", 1), Shard("new", 2)], 0, HOUR)
    position = own.position()
    assert position == {"a": ["12", 7000, 0], "b": [END, 7000, 0], "new": [BEGIN, 0, 0], SEEN: [END, 7000, 0]}
    again = TaskShards(0, 1, 9000)
    again.rewind(position)
    again.found([Shard("a", 0), Shard("new", 2), Shard("newer", 3)], 0, HOUR)  # b has expired
    assert again.places == {"a": ("12", 7000, 0), "new": (BEGIN, 0, 0), "newer": (BEGIN, 0, 0)}
    again.rewind(None)
    again.found([Shard("a", 0)], 0, HOUR)
    assert again.places == {"a": (BEGIN, 9000, 0)}


def test_a_commit_before_the_shards_were_seen_keeps_the_start_and_places() -> None:
    one = TaskShards(0, 1, 7000)
    one.rewind(None)
    again = TaskShards(0, 1, 9000)
    again.rewind(one.position())
    again.found([Shard("a", 0)], 0, HOUR)
    assert again.places == {"a": (BEGIN, 7000, 0)}
    again.read("a", "12", 5)
    position = again.position()
    one.rewind(position)  # the service is away now
    assert one.position() == position


def test_a_shard_that_appeared_after_a_commit_is_read_from_its_first_record() -> None:
    idle = TaskShards(1, 2, 7000)
    idle.found([Shard("a", 0)], 0, HOUR)  # it belongs to the other task
    again = TaskShards(1, 2, 9000)
    again.rewind(idle.position())
    child = Shard("child", 2**127, ("a",))
    again.found([Shard("a", 0), child], 0, HOUR)
    assert again.places == {"child": (BEGIN, 0, 0)}
    # One of several tasks had not seen the shards: what descends of known ones is new, and other shards begin at the start.
    late = TaskShards(1, 2, 7000)
    late.rewind(None)
    united = TaskShards(0, 1, 9000)
    united.rewind(united_places([{"a": [END, 0, 0], SEEN: [END, 7000, 0]}, late.position()]))
    united.found([child, Shard("grandchild", 2**127, ("child",)), Shard("b", 2**126)], 0, HOUR)
    assert united.places == {"child": (BEGIN, 0, 0), "grandchild": (BEGIN, 0, 0), "b": (BEGIN, 7000, 0)}


def test_a_shard_begins_where_its_place_says() -> None:
    assert iterator_arguments(("12", 7000, 0)) == {
        "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": "12",
    }  # fmt: skip
    assert iterator_arguments((BEGIN, 7000, 0)) == {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 7.0}
    assert iterator_arguments((BEGIN, 0, 0)) == {"ShardIteratorType": "TRIM_HORIZON"}


def test_the_positions_of_all_tasks_are_one() -> None:
    positions: list[dict[str, Any]] = [{"a": ("1", 0, 0)}, {"b": ["2", 0, 0]}]
    united = united_places(positions)
    assert united == {"a": ["1", 0, 0], "b": ["2", 0, 0]}
    one = TaskShards(0, 1, 0)
    one.rewind(united)
    one.found([Shard("a", 0), Shard("b", 1)], 0, HOUR)
    assert one.places == {"a": ("1", 0, 0), "b": ("2", 0, 0)}
    assert united_places([{"a": ["9", 0, 0]}, {"a": ["10", 0, 0]}, {"a": [BEGIN, 0, 0]}]) == {
        "a": ["10", 0, 0]
    }


def test_a_shard_that_expired_before_it_was_read_is_an_error() -> None:
    own = TaskShards(0, 1, 0)
    own.rewind({"a": ["1", 0, 0], "b": [END, 0, 0]})
    with pytest.raises(LostRecords, match=r"1 shard\(s\) .* do not exist any more \(a\)"):
        own.found([Shard("c", 0)], 0, HOUR)


def test_a_position_that_is_older_than_the_retention_is_reported() -> None:
    own = TaskShards(0, 1, 0)
    own.rewind({"a": ["1", 0, 1000], "b": ["1", 0, 2 * HOUR], "c": ["1", 0, 0]})
    [doubt] = own.found([Shard("a", 0), Shard("b", 1), Shard("c", 2)], 3 * HOUR, 2 * HOUR)
    assert doubt.startswith("a is read up to 10799 s ago, and the stream keeps records for 7200 s")


def test_a_shard_that_is_read_to_a_time_says_so() -> None:
    own = TaskShards(0, 1, 0)
    own.found([Shard("a", 0)], 0, HOUR)
    own.read("a", "5", 50)
    assert own.places == {"a": ("5", 0, 50)}
    own.read_until("a", 60)
    own.read("a", "6", 55)
    assert own.places == {"a": ("6", 0, 60)}


def test_a_task_that_never_was_at_the_end_of_a_shard_misses_what_expired() -> None:
    own = TaskShards(0, 1, 0)
    own.found([Shard("a", 0)], 0, HOUR)
    own.read("a", "5", 1000)
    again = TaskShards(0, 1, 0)
    again.rewind(own.position())
    [doubt] = again.found([Shard("a", 0)], 2 * HOUR, HOUR)
    assert "what came between may be lost" in doubt
