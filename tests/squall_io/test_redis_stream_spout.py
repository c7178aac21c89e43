"""RedisStreamSpout on a real server: each entry, where it begins, what is gone, what the group stores, what it waits for."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from squall_io.redis import RedisStreamSpout
from squall_io.redis.progress import LostEntries
from tests.redis_servers import RedisServer
from tests.squall_io.kafka_tasks import KafkaSpoutTask as SpoutTask
from topology_api import InvalidConfig


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are shorter, so that a test does not wait for them."""
    monkeypatch.setattr("squall_io.redis.task.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("squall_io.redis.task.SAVE_SECONDS", 0.02)
    monkeypatch.setattr("squall_io.redis.task.RETRY_SECONDS", 0.05)


def task_of(redis: RedisServer, streams: Any, *place: int, **more: Any) -> SpoutTask:
    known = {name: more.pop(name) for name in ("state", "position") if name in more}
    return SpoutTask(RedisStreamSpout(streams, **{"url": redis.url, **more}), *place, **known)


def group_of(redis: RedisServer, stream: str, name: str = "shop") -> dict[str, Any]:
    found: list[dict[str, Any]] = redis.client.xinfo_groups(stream)
    return {each["name"]: each for each in found}.get(name, {})


def test_an_entry_is_a_dict_of_text(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.client.xadd(stream, {"word": "a", "count": 5}, id="1-1")
    with task_of(redis_server, stream, fields=["id", "value", "stream"]) as task:
        task.read(1)
        assert task.emitted[0][1] == ("1-1", {"word": "a", "count": "5"}, stream)


def test_with_a_schema_fields_are_columns(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.client.xadd(stream, {"count": 5, "word": "12", "other": "x", "tags": "[1, 2]"})
    redis_server.client.xadd(stream, {"word": "none"})
    schema = "word string NOT NULL, count bigint, tags array<int>"
    with task_of(redis_server, stream, schema=schema) as task:
        task.read(2)
        assert dict(task.spout.outputs)["default"] == ("word", "count", "tags")  # type: ignore[arg-type]
        assert [row for _, row, _ in task.emitted] == [("12", 5, [1, 2]), ("none", None, None)]


def test_one_field_may_hold_all(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.add(stream, json.dumps({"n": 1}), field="data")
    with task_of(redis_server, stream, field="data", decode="json") as task:
        assert task.read(1) == [{"n": 1}]
    with task_of(redis_server, stream, field="data", decode="json", schema="n int") as task:
        assert task.read(1) == [1]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2]),
        ("latest", []),
        ("1000-0", [1, 2]),
        ("1000", [1, 2]),
        (datetime.fromtimestamp(1.5, timezone.utc), [1, 2]),
        ("1970-01-01T00:00:02Z", [2]),
    ],
)
def test_start(redis_server: RedisServer, start: Any, expected: list[int]) -> None:
    stream = redis_server.name()
    for number, millis in enumerate((1000, 1500, 2000)):
        redis_server.client.xadd(stream, {"value": number}, id=f"{millis}-0")
    with task_of(redis_server, stream, start=start, field="value", decode="json") as task:
        task.step()
        redis_server.add(stream, 3)
        assert task.read(len(expected) + 1) == [*expected, 3]


@pytest.mark.parametrize("exists", [True, False])
def test_a_start_may_be_in_the_future(redis_server: RedisServer, exists: bool) -> None:
    stream = redis_server.name()
    if exists:
        redis_server.client.xadd(stream, {"value": 1}, id="1000-0")
    with task_of(redis_server, stream, start="2000", field="value", decode="json", state=True) as task:
        task.nothing_more()
        position = task.spout.position()
        redis_server.client.xadd(stream, {"value": 2}, id="1500-0")
        task.nothing_more()
        redis_server.client.xadd(stream, {"value": 3}, id="2500-0")
        assert task.read(1) == [3] and task.errors == []
    with task_of(redis_server, stream, field="value", decode="json", state=True, position=position) as task:
        assert task.read(1) == [3] and task.errors == []


def test_entries_that_may_have_been_trimmed_are_reported_if_their_number_is_not_known(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.redis.task.FIRST_ENTRIES", 1)
    stream = redis_server.name()
    for number in range(6):
        redis_server.client.xadd(stream, {"value": number}, id=f"{1000 + number}-0")
    with task_of(redis_server, stream, start="1002", field="value", decode="json", state=True) as task:
        assert task.read(1) == [3]
        redis_server.client.xtrim(stream, maxlen=1, approximate=False)
        assert task.read(2) == [3, 5]
        task.until(lambda: task.errors)
        assert "may have lost entries behind 1003-0" in task.errors[0] and len(task.errors) == 1


def test_streams_are_divided_among_tasks(redis_server: RedisServer) -> None:
    streams = [redis_server.name("shard") for _ in range(6)]
    for stream in streams:
        redis_server.add(stream, stream)
    tasks = [task_of(redis_server, streams, index, 2, field="value") for index in range(2)]
    for task in tasks:
        task.read(1)
        task.nothing_more()
        task.close()
    assert sorted(value for task in tasks for value in task.values()) == sorted(streams)


def test_a_task_without_a_stream_says_so(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    tasks = [task_of(redis_server, stream, index, 2) for index in range(2)]
    for task in tasks:
        task.step()
        task.close()
    assert sorted(task.shown for task in tasks) == ["", "has no stream: there are 1 for 2 tasks"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_stream_that_does_not_exist_is_waited_for(redis_server: RedisServer, start: str) -> None:
    stream = redis_server.name()
    with task_of(redis_server, stream, start=start, field="value", state=True) as task:
        task.nothing_more()
        assert task.spout.position() == {stream: ["0-0", 0]}
        redis_server.add(stream, "a")
        assert task.read(1) == ["a"] and task.errors == []


def test_a_key_that_is_no_stream_is_an_error_and_others_are_read(redis_server: RedisServer) -> None:
    wrong, stream = redis_server.name("wrong"), redis_server.name()
    redis_server.client.set(wrong, "text")
    redis_server.add(stream, "a")
    with task_of(redis_server, [wrong, stream], field="value") as task:
        assert task.read(1) == ["a"]
        task.until(lambda: task.errors)
        assert "holds no stream: name another key, or remove it" in task.errors[0] and wrong in task.errors[0]
        redis_server.client.delete(wrong)
        redis_server.add(wrong, "b")
        assert task.read(2) == ["a", "b"]
        assert len(task.errors) == 1


def test_entries_that_cannot_be_decoded_are_on_a_stream_of_their_own(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.add(stream, "1", "no JSON", "2")
    redis_server.client.xadd(stream, {"other": "x"})
    with task_of(redis_server, stream, field="value", decode="json") as task:
        task.until(lambda: len(task.emitted) == 4 and task.errors)
        assert task.values() == [1, 2]
        bad = [row for name, row, _ in task.emitted if name == "unreadable"]
        assert [row[2] for row in bad] == [[(b"value", b"no JSON")], [(b"other", b"x")]]
        assert "it is no JSON" in bad[0][3] and "it has no field 'value'; it has 'other'" in bad[1][3]
        assert len(task.errors) == 1 and "cannot be decoded: it is no JSON" in task.errors[0]
        assert task.metrics.counts == {"entries left out": 2}


# What is gone.


def read_three_of(redis: RedisServer, stream: str, more: int) -> Any:
    """A position behind the third entry of a stream, to which more are added."""
    redis.add(stream, 0, 1, 2)
    with task_of(redis, stream, field="value", state=True) as task:
        task.read(3)
        position = task.spout.position()
    redis.add(stream, *range(3, 3 + more))
    return position


def test_entries_that_were_trimmed_behind_a_commit_are_an_error(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    position = read_three_of(redis_server, stream, 7)
    redis_server.client.xtrim(stream, maxlen=5, approximate=False)
    first = redis_server.client.xrange(stream)[0][0]
    with pytest.raises(LostEntries) as caught:
        task_of(redis_server, stream, field="value", state=True, position=position)
    assert f"stream {stream!r} has lost 2 entries behind" in str(caught.value)
    assert f"its first entry is now {first}" in str(caught.value)
    assert "Set another topology.state.path" in str(caught.value)


@pytest.mark.parametrize("left", [7, 8, 10])
def test_entries_that_were_trimmed_up_to_the_commit_are_not_missed(
    redis_server: RedisServer, left: int
) -> None:
    stream = redis_server.name()
    position = read_three_of(redis_server, stream, 7)
    redis_server.client.xtrim(stream, maxlen=left, approximate=False)
    with task_of(redis_server, stream, field="value", decode="json", state=True, position=position) as task:
        assert task.read(7) == [*range(3, 10)] and task.errors == []


def test_a_stream_that_is_trimmed_while_it_is_read_goes_on_with_an_error(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    with task_of(redis_server, stream, field="value", decode="json", state=True) as task:
        redis_server.add(stream, 0, 1)
        task.read(2)
        redis_server.add(stream, *range(2, 10))
        redis_server.client.xtrim(stream, maxlen=3, approximate=False)
        assert task.read(5) == [0, 1, 7, 8, 9]
        task.step()
        assert len(task.errors) == 1 and "has lost 5 entries behind" in task.errors[0]
        assert task.metrics.counts == {"entries lost": 5}
        redis_server.client.xtrim(stream, maxlen=0, approximate=False)
        redis_server.add(stream, 10)
        assert task.read(6)[-1] == 10 and len(task.errors) == 1


def test_an_entry_that_was_deleted_before_it_was_read_is_reported(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    position = read_three_of(redis_server, stream, 4)
    ids = [id for id, _ in redis_server.client.xrange(stream)]
    redis_server.client.xdel(stream, ids[0], ids[4])
    with task_of(redis_server, stream, field="value", decode="json", state=True, position=position) as task:
        assert task.read(3) == [3, 5, 6]
        task.nothing_more()
        assert len(task.errors) == 1 and f"{ids[4]} was deleted (XDEL)" in task.errors[0]
        redis_server.client.xdel(stream, *ids)  # all of them were read
        redis_server.add(stream, 7)
        assert task.read(4)[-1] == 7 and len(task.errors) == 1


def test_a_stream_that_is_gone_is_an_error(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    position = read_three_of(redis_server, stream, 1)
    redis_server.client.delete(stream)
    with pytest.raises(LostEntries, match="does not exist any more"):
        task_of(redis_server, stream, state=True, position=position)
    redis_server.add(stream, "new")
    with pytest.raises(LostEntries, match="was deleted and made again, or Redis has lost its last entries"):
        task_of(redis_server, stream, state=True, position=position)


def test_a_stream_that_is_gone_after_a_start_in_its_middle_is_an_error(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.redis.task.FIRST_ENTRIES", 1)
    stream = redis_server.name()
    for number in range(4):
        redis_server.client.xadd(stream, {"value": number}, id=f"{1000 + number}-0")
    with task_of(redis_server, stream, start="1000", field="value", state=True) as task:
        task.until(lambda: task.emitted)
        position = task.spout.position()
        assert position == {stream: ["1001-0", None]}
    redis_server.client.delete(stream)
    with pytest.raises(LostEntries, match="does not exist any more"):
        task_of(redis_server, stream, start="1000", field="value", state=True, position=position)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_stream_that_is_made_again_while_it_is_read_is_read_from_its_beginning(
    redis_server: RedisServer, noticed: bool
) -> None:
    stream = redis_server.name()
    redis_server.add(stream, 0, 1, 2)
    with task_of(redis_server, stream, field="value", decode="json") as task:
        task.read(3)
        redis_server.client.delete(stream)
        if noticed:
            task.until(lambda: task.errors)
        redis_server.add(stream, 3)
        assert task.read(4)[3:] == [3]
        task.ack()  # also those of the stream that is gone
        task.step()
        assert len(task.errors) == 1 and "1 was read" not in task.errors[0]


def test_a_position_of_another_spout_is_refused(redis_server: RedisServer) -> None:
    with pytest.raises(Exception, match="is none of a RedisStreamSpout"):
        task_of(redis_server, "orders", state=True, position={"orders": {"0": 5}})


def test_a_stream_is_paused_at_max_gap(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.add(stream, *range(1200))
    with task_of(redis_server, stream, field="value", decode="json", max_gap=600) as task:
        task.until(lambda: "is paused: the entry behind 0-0 is neither acked nor failed" in task.shown)
        assert 600 <= len(task.emitted) < 1200
        task.ack(*range(1, len(task.emitted)))
        task.nothing_more()
        task.ack(0)
        assert task.read(1200) == [*range(1200)] and task.shown == ""


# What it waits for, and what is refused.


@pytest.mark.parametrize(
    "fault",
    [
        "killed",
        pytest.param("frozen", marks=pytest.mark.soak),
        pytest.param("stopped", marks=pytest.mark.soak),
    ],
)
def test_a_server_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("squall_io.redis.connection.ANSWER_SECONDS", 0.5)
    with (
        RedisServer(tmp_path) as redis,
        task_of(redis, "orders", field="value", decode="json", group="shop") as task,
    ):
        redis.add("orders", 0, 1)
        task.read(2)
        task.ack(0)
        {"killed": redis.kill, "frozen": redis.freeze, "stopped": redis.stop}[fault]()
        task.until(lambda: f"waiting for Redis at redis://{redis.address}/0 for" in task.shown)
        task.ack(1)
        assert task.errors == []
        redis.thaw() if fault == "frozen" else redis.start()
        redis.add("orders", 2)
        assert task.read(3) == [0, 1, 2]
        assert (task.shown, task.errors) == ("", [])
        task.ack(2)
        task.until(lambda: group_of(redis, "orders")["lag"] == 0)


def test_a_server_that_is_away_at_the_start_is_waited_for_with_its_commit(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        position = read_three_of(redis, "orders", 1)
        redis.kill()
        with task_of(redis, "orders", field="value", decode="json", state=True, position=position) as task:
            task.step()
            assert task.shown and task.spout.position() == position
            redis.start()
            assert task.read(1) == [3]


@pytest.mark.soak
def test_a_server_that_loads_its_data_is_waited_for(tmp_path: Path) -> None:
    with RedisServer(tmp_path, {"key-load-delay": "200"}) as redis:
        redis.add("orders", "a")
        redis.add("others", *range(12_000))  # it listens while it loads, after each 1024 commands
        redis.kill()
        with task_of(redis, "orders", field="value") as task:
            redis.launch(redis._command)
            task.until(lambda: "it loads its data" in task.shown)
            assert task.read(1) == ["a"] and task.errors == []


def test_logins_and_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", "secret")
    monkeypatch.setenv("WRONG", "no secret")
    with RedisServer(tmp_path, {"requirepass": "secret"}, {"password": "secret"}) as redis:
        redis.add("orders", "a")
        redis.client.acl_setuser(
            "app", enabled=True, passwords=["+secret"], keys=["orders"], commands=["+@read"]
        )
        refused = {
            "wants a password: name it with password": {},
            "refuses the login": {"password": "env:WRONG"},
        }
        for expected, given in refused.items():
            with task_of(redis, "orders", **given) as task:
                task.until(lambda: task.errors)
                assert expected in task.errors[0] and "secret" not in task.errors[0]
        user = f"redis://app@{redis.address}/0"
        with task_of(redis, "orders", url=user, password="env:RIGHT", field="value") as task:
            task.until(lambda: task.errors)
            assert "give the user these rights" in task.errors[0]
            redis.client.acl_setuser("app", commands=["+@read", "+multi", "+exec", "+hello"])
            assert task.read(1) == ["a"]


def test_all_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidConfig) as caught:
        RedisStreamSpout(
            [], url="redis://me:secret@host", password="secret", group="", start="soon", decode="yaml", fields=["key"],
            max_gap=0, replay=3,  # type: ignore[arg-type]
        )  # fmt: skip
    assert len(caught.value.problems) == 8
    assert "secret" not in str(caught.value).replace("holds no secrets", "").replace("the secret itself", "")
    for url in (
        "http://host",
        "redis://host:x",
        "redis://host/a",
        "redis://",
        "redis://host?password=x",
        "unix://",
    ):
        with pytest.raises(InvalidConfig, match="url"):
            RedisStreamSpout("orders", url=url)
