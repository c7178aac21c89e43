"""RedisStreamSpout, RedisSink and RedisStreamSink on a real server, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.redis import RedisSink, RedisStreamSink, RedisStreamSpout
from tests.connector_contract import SOON, SinkWorld, SourceWorld, World
from tests.redis_servers import LosingProxy, RedisServer
from topology_api import Bolt, Spout

_LARGE = "x" * 5_000_000
_LOGIN_WORDS = "refuses the login"


class RedisSource(SourceWorld):
    """Three streams, and a group."""

    name = "redis_source"
    connector = "squall_io.redis.RedisStreamSpout"
    rewindable = True
    partitions = 3
    not_applicable = {"missing": "a stream that does not exist yet is waited for"}

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.server = self.redis = server
        self.streams = [f"{self.id}:{part}" for part in range(self.partitions)]

    def spout(self, **options: Any) -> Spout:
        given = {"url": self.redis.url, "group": "app", "field": "value", "decode": "json", "replay": SOON}
        return RedisStreamSpout(self.streams, **{**given, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.redis.add(self.streams[partition], *numbers)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.redis.add(self.streams[0], "{")

    def put_large(self, number: int) -> str:
        self.redis.add(self.streams[0], f'"{number}{_LARGE}"')
        return ""

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=_as_guest(self.redis), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    def settled(self) -> bool:
        client = self.redis.client
        there = [stream for stream in self.streams if client.exists(stream)]
        return all(group["lag"] == 0 for stream in there for group in client.xinfo_groups(stream))


class _Target(World):
    """A sink that reaches the server through something that can lose an answer."""

    def __init__(self, server: RedisServer, proxy: LosingProxy) -> None:
        super().__init__()
        self.server = self.redis = server
        self.proxy = proxy

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        before, self.proxy.lose = self.proxy.lost, b"EXEC"
        yield lambda: self.proxy.lost > before


class RedisKeys(_Target, SinkWorld):
    """Keys with hashes; one of them holds a text, so that its rows are refused."""

    name = "redis_sink"
    connector = "squall_io.redis.RedisSink"
    once = True
    refused_words = "holds a string, no hash"
    not_applicable = {"missing": "keys are made when they are written"}

    def sink(self, **options: Any) -> Bolt:
        given = {"url": self.proxy.url, "fields": ["text"], **options}
        return RedisSink(self.id + ":{number}", **given)

    def written(self) -> list[int]:
        keys = self.redis.client.scan_iter(f"{self.id}:*", count=10_000, _type="hash")
        return [int(key.rpartition(":")[2]) for key in keys]

    def refused(self, number: int) -> tuple[Any, ...]:
        self.redis.client.set(f"{self.id}:{number}", "a text")
        return number, "row"

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, _LARGE), True

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(url=_as_guest(self.redis), password="env:WRONG_PASSWORD"), _LOGIN_WORDS


class RedisEntries(_Target, SinkWorld):
    """A stream; rows for another key, which holds a text, are refused."""

    name = "redis_stream_sink"
    connector = "squall_io.redis.RedisStreamSink"
    once = True
    fields = ("number", "text", "key")
    refused_words = "holds a string, no stream"
    not_applicable = {"missing": "a stream is made when it is written"}
    #: `redis_sink` has the same transactions.
    slow = frozenset({"killed", "refused", "wrong login"})

    def sink(self, **options: Any) -> Bolt:
        return RedisStreamSink("{key}", **{"url": self.proxy.url, "fields": ["number", "text"], **options})

    def values(self, number: int) -> tuple[Any, ...]:
        return number, f"row {number}", self.id

    def written(self) -> list[int]:
        return [int(entry["number"]) for _, entry in self.redis.client.xrange(self.id)]

    def refused(self, number: int) -> tuple[Any, ...]:
        self.redis.client.set(f"{self.id}:text", "a text")
        return number, "row", f"{self.id}:text"

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, _LARGE, self.id), True

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(url=_as_guest(self.redis), password="env:WRONG_PASSWORD"), _LOGIN_WORDS


def _as_guest(server: RedisServer) -> str:
    return f"redis://guest@{server.address}/0"


@pytest.fixture
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is frozen is noticed soon."""
    monkeypatch.setattr("squall_io.redis.connection.ANSWER_SECONDS", 1.0)


@pytest.fixture
def redis_proxy(redis_server: RedisServer) -> Iterator[LosingProxy]:
    with LosingProxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def redis_source(redis_server: RedisServer, short_answers: None) -> RedisSource:
    return RedisSource(redis_server)


@pytest.fixture
def redis_sink(redis_server: RedisServer, redis_proxy: LosingProxy, short_answers: None) -> RedisKeys:
    return RedisKeys(redis_server, redis_proxy)


@pytest.fixture
def redis_stream_sink(
    redis_server: RedisServer, redis_proxy: LosingProxy, short_answers: None
) -> RedisEntries:
    return RedisEntries(redis_server, redis_proxy)
