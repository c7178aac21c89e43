"""Redis behind Sentinel: connectors ask it for the master, and go on at the next one."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from squall_io.kit.waiting import Waiting
from squall_io.redis import RedisStreamSpout
from squall_io.redis.address import Sentinels, sentinels_of, url_of_master
from squall_io.redis.connection import RedisConnection, RedisRefused
from squall_io.redis.transactions import RedisTransactions
from tests.redis_servers import RedisServer, SentinelServer
from tests.squall_io.kafka_tasks import KafkaSpoutTask
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytestmark = pytest.mark.slow


def writer(url: str) -> RedisTransactions:
    waiting = Waiting("Redis", logging.getLogger("task"), lambda text: None, time.monotonic)
    return RedisTransactions(RedisConnection(url, None, "RedisSink"), "tokens", waiting, lambda: False)


def add(number: int) -> Any:
    return (("XADD", "orders", "*", "value", str(number)),)


def folders(path: Path) -> list[Path]:
    made = [path / name for name in ("one", "two", "sentinel")]
    for each in made:
        each.mkdir()
    return made


def test_the_master_is_the_one_that_a_sentinel_names(tmp_path: Path) -> None:
    one, _, third = folders(tmp_path)
    with RedisServer(one) as master, SentinelServer(third, master) as sentinel:
        sink = writer(sentinel.url)  # of which the first Sentinel does not answer
        assert sink.write_once([add(1)], "token", 0, 1)
        assert master.client.xlen("orders") == 1
        sink.close()
        with pytest.raises(RedisRefused, match="know no master 'other'"):
            writer(sentinel.url.replace("main", "other")).number("token")
        with pytest.raises(RedisRefused, match="is a Sentinel: give redis"):
            writer(f"redis://{sentinel.address}").number("token")


@pytest.mark.soak
def test_connectors_go_on_at_the_next_master(tmp_path: Path) -> None:
    one, two, third = folders(tmp_path)
    with RedisServer(one) as master, RedisServer(two, {"replicaof": f"127.0.0.1 {master.port}"}) as replica:
        eventually(lambda: replica.client.info("replication")["master_link_status"] == "up")
        with SentinelServer(third, master) as sentinel:
            eventually(lambda: sentinel.client.execute_command("SENTINEL", "REPLICAS", "main"), 60)
            sink = writer(sentinel.url)
            spout = RedisStreamSpout("orders", url=sentinel.url, field="value", decode="json")
            with KafkaSpoutTask(spout) as task:
                assert sink.write_once([add(1)], "token", 0, 1)
                assert task.read(1) == [1]
                assert master.client.wait(1, 10_000) == 1  # else the replica may lack it
                master.kill()
                assert sink.write_once([add(2)], "token", 1, 2)
                assert task.read(2) == [1, 2] and task.errors == []
            sink.close()
            assert replica.client.xlen("orders") == 2


def test_addresses() -> None:
    url = "rediss+sentinel://app@s1,s2:1,[::1]:2/main/3?ssl_ca_certs=/ca.pem"
    assert sentinels_of(url) == Sentinels((("s1", 26379), ("s2", 1), ("::1", 2)), "main")
    assert sentinels_of("redis://s1/0") is None
    assert url_of_master(url, "10.0.0.1", 6379) == "rediss://app@10.0.0.1:6379/3?ssl_ca_certs=/ca.pem"
    assert url_of_master("redis+sentinel://s1/main", "::1", 1) == "redis://[::1]:1/"
    for wrong in (
        "redis+sentinel://s1",
        "redis+sentinel:///main",
        "unix+sentinel://s1/main",
        "redis+x://s1/main",
    ):
        with pytest.raises(InvalidConfig, match="url"):
            RedisStreamSpout("orders", url=wrong)
