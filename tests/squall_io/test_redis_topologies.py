"""Redis in topologies of this process: what a group stores, and counts that are exact while the server is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.redis import RedisSink, RedisStreamSink, RedisStreamSpout
from tests.redis_servers import RedisServer
from tests.zookeeper_servers import eventually
from topology_api import Fields, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState

WORDS = [f"w{number % 7}" for number in range(400)]


class CountWords(StatefulBolt):
    """Emits the count of each word that comes."""

    outputs = Fields("word", "count")
    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.emit((tup["word"], self.times.value))


def counting(redis: RedisServer, streams: list[str], tasks: int) -> Topology:
    """Words of streams, counted in state; the counts are keys and entries."""
    builder = TopologyBuilder("counting")
    words = builder.set_spout("words", RedisStreamSpout(streams, url=redis.url, schema="word string"), tasks)
    counts = builder.set_bolt("count", CountWords(), parallelism=2).fields_grouping(words, "word")
    keys = RedisSink("count:{word}", url=redis.url, value="count")
    builder.set_bolt("keys", keys, parallelism=2).fields_grouping(counts, "word")
    builder.set_bolt("log", RedisStreamSink("log", url=redis.url)).shuffle_grouping(counts)
    return builder.build()


@pytest.mark.slow
def test_counts_are_exact_while_the_server_is_killed_and_the_topology_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    settings = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.1}
    streams = ["words:0", "words:1", "words:2"]
    sent: Counter[str] = Counter()
    with RedisServer(folder) as redis:

        def send() -> None:
            for stream in streams:
                redis.add(stream, *WORDS, field="word")
                sent.update(WORDS)

        def counted() -> bool:
            keys = [f"count:{word}" for word in sorted(sent)]
            return bool(redis.client.mget(keys) == [str(sent[word]) for word in sorted(sent)])

        def logged() -> bool:
            return bool(redis.client.xlen("log") >= sent.total())

        for tasks in (1, 2):
            with LocalCluster() as cluster:
                send()
                cluster.submit(counting(redis, streams, tasks), settings)
                eventually(lambda: redis.client.xlen("log"), 60)
                redis.kill()
                redis.start()
                send()
                eventually(lambda: counted() and logged(), 60)
        entries = Counter((entry["word"], int(entry["count"])) for _, entry in redis.client.xrange("log"))
        assert entries == Counter((word, n) for word, total in sent.items() for n in range(1, total + 1))


@pytest.mark.slow
def test_what_a_topology_has_processed_is_in_the_group(redis_server: RedisServer) -> None:
    streams, out = [redis_server.name("words") for _ in range(2)], redis_server.name("out")
    for stream in streams:
        redis_server.add(stream, *WORDS, field="word")
    builder = TopologyBuilder("words")
    builder.set_spout("words", RedisStreamSpout(streams, url=redis_server.url, group="app", fields=["id"]), 2)
    builder.set_bolt("write", RedisStreamSink(out, url=redis_server.url)).shuffle_grouping("words")

    def behind() -> list[int]:
        groups = [redis_server.client.xinfo_groups(stream) for stream in streams]
        return [each["lag"] for found in groups for each in found]

    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        eventually(lambda: behind() == [0, 0], 60)
    assert redis_server.client.xlen(out) == 2 * len(WORDS)
