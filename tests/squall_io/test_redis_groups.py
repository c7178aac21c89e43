"""RedisStreamSpout on a real server: what its group stores, and the groups of others, which it leaves alone."""

from __future__ import annotations

import pytest

from tests.redis_servers import RedisServer
from tests.squall_io.test_redis_stream_spout import group_of, soon, task_of

__all__ = ["soon"]  # the fixture


def test_a_group_stores_up_to_where_all_is_settled(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    ids = redis_server.add(stream, 0, 1, 2, 3)
    with task_of(redis_server, stream, group="shop", field="value", decode="json") as task:
        task.read(4)
        task.until(lambda: group_of(redis_server, stream)["last-delivered-id"] == "0-0")
        task.ack(0, 2)
        task.until(lambda: group_of(redis_server, stream)["last-delivered-id"] == ids[0])
        assert group_of(redis_server, stream)["lag"] == 3 == task.metrics.gauges["lag"]()
        task.fail(1, "error")
        task.fail(3, "stopped")
    assert group_of(redis_server, stream)["last-delivered-id"] == ids[2]
    assert group_of(redis_server, stream)["lag"] == 1
    with task_of(redis_server, stream, group="shop", field="value", decode="json", start="latest") as task:
        assert task.read(1) == [3]
    with task_of(redis_server, stream, group="other", field="value", decode="json") as task:
        assert task.read(4) == [0, 1, 2, 3]


def test_a_group_that_waits_for_its_stream_goes_on_where_it_was(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    with task_of(redis_server, stream, group="shop", start="latest", field="value") as task:
        task.nothing_more()
        redis_server.add(stream, "a")
        assert task.read(1) == ["a"]
    assert group_of(redis_server, stream)["entries-read"] == 0
    with task_of(redis_server, stream, group="shop", start="latest", field="value") as task:
        assert task.read(1) == ["a"]


def test_entries_that_were_trimmed_behind_a_group_are_reported(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.add(stream, 0, 1, 2)
    with task_of(redis_server, stream, group="shop", field="value") as task:
        task.read(3)
        task.ack()
    redis_server.add(stream, 3, 4, 5)
    redis_server.client.xtrim(stream, maxlen=1, approximate=False)
    with task_of(redis_server, stream, group="shop", field="value", decode="json") as task:
        assert task.read(1) == [5]
        assert "has lost 2 entries behind" in task.errors[0]


def test_a_group_with_consumers_is_refused(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    redis_server.add(stream, "a")
    redis_server.client.xgroup_create(stream, "shop", "0")
    redis_server.client.xreadgroup("shop", "someone", {stream: ">"})
    with task_of(redis_server, stream, group="shop") as task:
        task.until(lambda: task.errors)
        assert (
            "has consumers, which move the place that it stores: give the spout a group of its own"
            in task.errors[0]
        )


def test_with_epochs_a_group_shows_what_is_committed(redis_server: RedisServer) -> None:
    stream = redis_server.name()
    ids = redis_server.add(stream, 0, 1)
    with task_of(redis_server, stream, group="shop", state=True) as task:
        task.until(lambda: len(task.emitted) == 2)
        task.spout.position()
        ids += redis_server.add(stream, 2)
        task.until(lambda: len(task.emitted) == 3)
        position = task.spout.position()
        task.spout.deactivate()  # it stores what is committed: nothing yet
        assert group_of(redis_server, stream) == {}
        task.ack(0, 1)  # which comes with the commit
        task.until(lambda: group_of(redis_server, stream).get("last-delivered-id") == ids[1])
    with task_of(redis_server, stream, group="shop", state=True, position=position) as task:
        task.until(lambda: group_of(redis_server, stream)["last-delivered-id"] == ids[2])


@pytest.mark.parametrize("when", ["at the start", "after a commit", "later"])
def test_with_epochs_the_place_of_a_group_of_others_is_not_moved(
    redis_server: RedisServer, when: str
) -> None:
    stream = redis_server.name()
    position = {stream: ["0-0", 0]} if when == "after a commit" else None
    if when != "later":
        redis_server.add(stream, 0, 1)
        redis_server.client.xgroup_create(stream, "shop", "0")
        redis_server.client.xgroup_createconsumer(stream, "shop", "someone")
    with task_of(redis_server, stream, group="shop", field="value", state=True, position=position) as task:
        if when == "later":
            task.step()
            redis_server.add(stream, 0, 1)
            redis_server.client.xgroup_create(stream, "shop", "0")
            redis_server.client.xgroup_createconsumer(stream, "shop", "someone")
            task.read(2)
            task.spout.position()
            task.ack()
        task.until(lambda: task.errors)
        assert "has consumers" in task.errors[0]
    assert group_of(redis_server, stream)["last-delivered-id"] == "0-0"
